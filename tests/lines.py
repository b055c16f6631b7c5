"""Counts the code of the package: lines without blanks, comments and docstrings.

python tests/lines.py            every file, every folder, the total
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "hetdp"
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """Return how many lines of a source hold code.

    >>> code_lines('''"A module."\\n\\nx = [  # a list\\n    1,\\n]\\n''')
    3
    """
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):  # a text that stands alone is the docstring of what it follows
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and type(node.value.value) is str:
            used.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(used)


def counted(source: Path = SOURCE) -> dict[str, int]:
    """Return the lines of code of every file, by its path inside the package."""
    return {
        path.relative_to(source).as_posix(): code_lines(path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
    }


def main() -> None:
    """Print the counts."""
    files = counted()
    folders: Counter[str] = Counter()
    for name, lines in files.items():
        print(f"{lines:6} {name}")
        folders[name.rpartition("/")[0] or "."] += lines
    print()
    for name, lines in sorted(folders.items()):
        print(f"{lines:6} {name}/")
    print(f"{sum(files.values()):6} lines in {len(files)} files")


if __name__ == "__main__":
    sys.exit(main())
