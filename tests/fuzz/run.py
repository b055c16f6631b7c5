"""Run one target for a fixed budget: ``cd tests && python -m fuzz.run TARGET [--plant NAME] [-runs=N …]``.

Options with one dash are libFuzzer's. What breaks a promise is left in the working folder; the run ends with code 77.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

INSTRUMENTED = {
    "text": ("hetdp.sources", "hetdp.core.domain"),
    "columnar": ("hetdp.sources", "hetdp.core.domain"),
    "cell": ("hetdp.sources", "hetdp.core.domain"),
    "tally": ("hetdp.tally", "hetdp.core.levels"),
    "ledger": ("hetdp.ledger",),
    "cli": ("hetdp.cli",),
}
"""The modules by whose branches the fuzzer knows that an input is new."""


def main() -> None:
    """Fuzz the target that the first argument names."""
    import atheris

    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["hetdp"], exclude=others(INSTRUMENTED[name])):
        from . import oracle, plants
        from .targets import CORPUS, TARGETS
    target = TARGETS[name]
    if options[:1] == ["--plant"]:
        plants.PLANTS[options[1]].plant()
        options = options[2:]
    new = Path(tempfile.mkdtemp(dir=oracle.FOLDER))
    folders = [str(new), *(str(CORPUS / folder) for folder in target.folders)]
    fixed = [
        f"-runs={target.runs}",
        f"-max_len={target.longest}",
        "-seed=1",
        "-timeout=300",
        "-len_control=0",
        "-mutate_depth=2",
    ]
    mutator = {"custom_mutator": target.mutator()} if target.mutator else {}
    atheris.Setup([sys.argv[0], *fixed, *options, *folders], target.check, **mutator)
    atheris.Fuzz()


def others(wanted: tuple[str, ...]) -> list[str]:
    """Return the names of the other modules of the package: to be guided by all of them costs more than it finds."""
    (package,) = importlib.util.find_spec("hetdp").submodule_search_locations
    files = [path.relative_to(Path(package).parent).with_suffix("") for path in Path(package).rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in files]
    return [name for name in names if name != "hetdp" and not name.startswith(wanted)]


if __name__ == "__main__":
    main()
