"""Which proof pages must be read again, because a function they prove has changed.

    python docs/proofs/look.py              lists them
    python docs/proofs/look.py grid affine  after reading these pages: records their functions as they are now
    python docs/proofs/look.py --all        the same for every page

A page names its functions in the second column of its last table, as `core.domain.Interval.codes`, or as
`bench.limit.rho` where the package needs no such function. `proven.json` holds a digest of
each: of its syntax, so comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from pathlib import Path

PAGES = Path(__file__).parent
ROOT = PAGES.parent.parent
SOURCE = ROOT / "src" / "hetdp"
RECORD = PAGES / "proven.json"
HEADING = "\n| claim | function | test |\n"


def pages() -> list[str]:
    """Return the names of all proof pages that end in a table of claims."""
    return sorted(path.stem for path in PAGES.glob("*.md") if HEADING in path.read_text(encoding="utf-8"))


def functions(page: str) -> list[str]:
    """Return what a page proves: the names in the second column of its last table."""
    table = (PAGES / f"{page}.md").read_text(encoding="utf-8").rpartition(HEADING)[2]
    rows = (line.split(" | ") for line in table.splitlines() if line.startswith("| ") and line.count(" | ") == 2)
    return sorted({name for row in rows for name in re.findall(r"`([\w.]+)`", row[1])})


def digest(name: str, source: Path = SOURCE) -> str:
    """Return the digest of a function, class, method or constant, such as `tally.groupby.round_down`."""
    return hashlib.sha256(plain(find(name, source)).encode()).hexdigest()


def find(name: str, source: Path = SOURCE) -> ast.AST:
    """Return the syntax of what a name stands for; LookupError if it is no longer there."""
    parts = name.split(".")
    folder = ROOT if parts[0] == "bench" else source
    for size in range(len(parts) - 1, 0, -1):
        file = folder.joinpath(*parts[:size]).with_suffix(".py")
        if file.exists():
            node: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
            for part in parts[size:]:
                node = _child(node, part, name)
            return node
    raise LookupError(f"no module holds {name}")


def _child(node: ast.AST, part: str, name: str) -> ast.AST:
    for child in ast.iter_child_nodes(node):
        targets = child.targets if isinstance(child, ast.Assign) else [getattr(child, "target", None)]
        if getattr(child, "name", None) == part or any(isinstance(t, ast.Name) and t.id == part for t in targets):
            return child
    raise LookupError(f"{name} is no longer there")


def plain(node: object) -> str:
    """Return syntax as text, alike in all versions of Python: no places, comments, docstrings, nothing empty."""
    if isinstance(node, list):
        return f"[{', '.join(plain(item) for item in node if not _is_text(item))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({', '.join(f'{name}={plain(value)}' for name, value in fields)})"


def _is_text(item: object) -> bool:
    """Say whether this is a text that stands alone: it does nothing, it is a docstring."""
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)


def recorded() -> dict[str, dict[str, str]]:
    """Return what was recorded when each page was last looked at."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def changed(page: str) -> list[str]:
    """Return the functions of a page that are not as they were when it was looked at; also new and forgotten ones."""
    now, before = {name: _digest_or_gone(name) for name in functions(page)}, recorded().get(page, {})
    return sorted(name for name in {*now, *before} if now.get(name) != before.get(name))


def _digest_or_gone(name: str) -> str:
    try:
        return digest(name)
    except LookupError:
        return "gone"


def main(arguments: list[str]) -> int:
    """List what must be read again, or record that it was."""
    chosen = pages() if arguments == ["--all"] else arguments
    if unknown := set(chosen) - set(pages()):
        print(f"no such page: {', '.join(sorted(unknown))}; the pages are {', '.join(pages())}")
        return 2
    if chosen:
        record = recorded() | {page: {name: digest(name) for name in functions(page)} for page in chosen}
        RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for page in pages():
        for name in changed(page):
            print(f"docs/proofs/{page}.md: {name} has changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
