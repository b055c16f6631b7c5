"""Configuration of the documentation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import hetdp

EXAMPLES = ("health_insurance", "several_statistics", "tiers_for_a_product", "paper_in_ten_minutes")

project = "hetdp"
author = "The hetdp authors"
release = hetdp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"hetdp {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_show_copyright = False
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
autodoc_typehints = "none"
default_role = "py:obj"  # `mean` in a docstring is a link
autosummary_generate = True
autosummary_ignore_module_all = False
exclude_patterns = ["build"]
templates_path = ["templates"]


def _words(command: Any, name: str = "") -> Iterator[str]:
    """Yield the words after `hetdp` of every command, commands of commands too."""
    yield name
    for child_name, child in getattr(command, "commands", {}).items():
        yield from _words(child, f"{name} {child_name}".strip())


def _command_help(words: str) -> str:
    run = [sys.executable, "-m", "hetdp", *words.split(), "--help"]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout.replace("python -m hetdp", "hetdp")


def _write_commands(_app: object) -> None:
    """Write the help of every command, so that the reference cannot differ from the program."""
    from hetdp.cli import app

    folder = Path(__file__).parent / "generated"
    folder.mkdir(exist_ok=True)
    names = _words(typer.main.get_command(app))
    parts = [f"$ hetdp {name} --help\n\n{_command_help(name)}".replace("  --help", " --help") for name in names]
    (folder / "commands.txt").write_text("\n\n".join(parts), encoding="utf-8")


def _write_examples(_app: object) -> None:
    """Run the examples and write what they print, and the notebook with its stored output, for their pages."""
    folder, examples = Path(__file__).parent / "generated", Path(__file__).parent.parent / "examples"
    folder.mkdir(exist_ok=True)
    here = {**os.environ, "MPLBACKEND": "agg"}
    for name in EXAMPLES:
        with tempfile.TemporaryDirectory() as empty:
            run = [sys.executable, str(examples / f"{name}.py")]
            done = subprocess.run(run, cwd=empty, env=here, capture_output=True, text=True, check=True)
        (folder / f"{name}.txt").write_text(done.stdout, encoding="utf-8")
    book = json.loads((examples / "privacy_goes_with_the_value.ipynb").read_text(encoding="utf-8"))
    text = "\n\n".join(_cell(cell) for cell in book["cells"])
    (folder / "notebook.txt").write_text(text, encoding="utf-8")


def _cell(cell: dict[str, Any]) -> str:
    """Return a cell of a notebook as Markdown, with the text that it printed or showed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    texts = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell["outputs"]]
    shown = "".join("".join(text) for text in texts).rstrip()
    return f"```python\n{source}\n```" + (f"\n\n```text\n{shown}\n```" if shown else "")


def _mathml(node: nodes.Node, *, block: bool = False) -> str:
    r"""Return a formula as MathML. Docutils reads \frac12 as one argument and does not know \dots."""
    tex = re.sub(r"(\\[td]?frac)\s*(\d)(?=[\d{])", r"\1{\2}", node.astext())
    tex = re.sub(r"(\\[td]?frac\{\d\})(\d)", r"\1{\2}", tex)
    return tex2mathml(re.sub(r"\\dots\b", r"\\ldots", tex), as_block=block)


def _inline(page: Any, node: nodes.math) -> None:
    page.body.append(_mathml(node))
    raise nodes.SkipNode


def _display(page: Any, node: nodes.math_block) -> None:
    page.body.append(f'<div class="math">{_mathml(node, block=True)}</div>')
    raise nodes.SkipNode


_OUTER = re.compile(r"([_^])(?:\{((?:[^{}]|\{[^{}]*\})*)\}|([a-z]{2,3}\b|\w|∞))")
"""An index or an exponent in a sentence of a proof, such as e^{−ε_i} or g^2."""


def _raise_exponents(app: Any, tree: nodes.document) -> None:
    """Set exponents and indices in the sentences of proofs as such; in the source they are written ^{…} and _{…}."""
    if not app.env.docname.startswith("proofs/"):
        return
    for text in list(tree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.literal | nodes.literal_block | nodes.math | nodes.math_block):
            pieces = _pieces(text.astext())
            text.parent.replace(text, pieces) if len(pieces) > 1 else None


def _pieces(text: str) -> list[nodes.Node]:
    """Return a text with its exponents and indices apart; an exponent can have an index in it."""
    found: list[nodes.Node] = []
    while (match := _OUTER.search(text)) is not None:
        found.append(nodes.Text(text[: match.start()]))
        inner = match[2] if match[2] is not None else match[3]
        found.append((nodes.superscript if match[1] == "^" else nodes.subscript)("", "", *_pieces(inner)))
        text = text[match.end() :]
    return [*found, nodes.Text(text)]


def setup(app: Any) -> None:
    """Have the command reference written before the pages are read, and formulas as MathML.

    Browsers draw MathML by themselves: a page asks no other host for a script.
    """
    app.connect("builder-inited", _write_commands)
    app.connect("builder-inited", _write_examples)
    app.connect("doctree-read", _raise_exponents)
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
