"""The options that commands share, and what their texts mean."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetdp.errors import InputError

if TYPE_CHECKING:
    from hetdp.core.levels import Levels

Sources = Annotated[
    list[str],
    typer.Argument(
        help="Files with one row per person (CSV, TSV, Parquet, Arrow IPC, NDJSON; gz, zst; globs), "
        "or the URL of a PostgreSQL or SQLite database.",
        metavar="SOURCE...",
    ),
]
SourcesOrTallies = Annotated[
    list[str],
    typer.Argument(
        help="Files with one row per person (CSV, TSV, Parquet, Arrow IPC, NDJSON; gz, zst; globs), tallies that "
        "`hetdp tally` wrote, or the URL of a PostgreSQL or SQLite database.",
        metavar="SOURCE...",
    ),
]
Value = Annotated[
    str | None, typer.Option("--value", help="The column with the private values.", metavar="COL", show_default=False)
]
Epsilon = Annotated[
    str | None,
    typer.Option("--epsilon", help="The column with everybody's ε: a number, inf or public.", metavar="COL"),
]
Bounds = Annotated[
    tuple[float, float] | None,
    typer.Option("--bounds", help="The public interval of the values; others are clamped to it.", metavar="LO HI"),
]
Tier = Annotated[
    list[str] | None,
    typer.Option("--tier", help="A tier by name, when the ε column holds names; repeat.", metavar="NAME=ε"),
]
TierFile = Annotated[
    Path | None,
    typer.Option("--tiers", help="A TOML file with a table [tiers] of names and their ε.", metavar="FILE"),
]
Query = Annotated[
    str | None,
    typer.Option("--query", help="What to read from a database: a select, or a table's name.", metavar="SQL"),
]
Person = Annotated[str | None, typer.Option("--person", help="The column that says whose row it is.", metavar="COL")]
RowsOf = Annotated[
    str | None,
    typer.Option("--rows", help="What a person may have: 'one' row, or several that are averaged ('average')."),
]
PublicRows = Annotated[
    str | None,
    typer.Option("--public-rows", help="A file of rows known publicly; they join with ε = ∞.", metavar="FILE"),
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="The sign between cells, as ';' (a comma; a tab in .tsv).")
]
Decimal = Annotated[str, typer.Option("--decimal", help="The decimal sign: '.' or ','.")]
Thousands = Annotated[str | None, typer.Option("--thousands", help="The sign between thousands, if there is one.")]
LedgerAt = Annotated[
    str | None,
    typer.Option("--ledger", help="Charge this ledger: a file, or postgresql://…; needs --person.", metavar="LEDGER"),
]
Spend = Annotated[
    str | None, typer.Option("--spend", help="With a ledger: the ε that a person may spend at most.", metavar="ε")
]
Share = Annotated[
    str | None, typer.Option("--share", help="With a ledger: the share of everybody's budget to use.", metavar="X")
]
ShareLeft = Annotated[
    str | None, typer.Option("--share-left", help="With a ledger: the share of what is left.", metavar="X")
]
ReleaseId = Annotated[
    str | None,
    typer.Option("--release-id", help="With a ledger: a name for this release. The same again costs nothing."),
]
ExpectHead = Annotated[
    str | None, typer.Option("--expect-head", help="A head of the ledger that you wrote down.", metavar="NUMBER:HASH")
]
LedgerPeople = Annotated[
    str, typer.Option("--people", help="With a ledger, who takes part: everybody 'enrolled', or those in the 'source'.")
]
PublicSources = Annotated[
    list[str] | None,
    typer.Argument(help="A table with everybody's ε; no value is used.", metavar="[SOURCE...]", show_default=False),
]
TierPeople = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        help="NAME=ε:PEOPLE without a file; NAME=ε if the file's ε column holds names; repeat.",
        metavar="NAME=ε[:PEOPLE]",
    ),
]
PlanBounds = Annotated[
    tuple[float, float],
    typer.Option("--bounds", help="The public interval of the values.", metavar="LO HI"),
]
EpsilonColumn = Annotated[
    str | None, typer.Option("--epsilon", help="The file's column with everybody's ε.", metavar="COL")
]
PrivateColumn = Annotated[
    str | None,
    typer.Option("--value", help="The private column, so that lines may be too short for it.", metavar="COL"),
]
MethodName = Annotated[str, typer.Option("--method", help="The estimator; `hetdp methods` lists them.")]
Variance = Annotated[
    float | None,
    typer.Option("--variance", help="A publicly known bound on the variance of one value. Never from the data."),
]
Confidence = Annotated[float, typer.Option("--confidence", help="The level of the interval.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to this file instead: .json, .html, anything else is text."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]


def tiers_of(options: list[str] | None, file: Path | None = None) -> dict[str, Any] | None:
    """Return the tiers of `--tier` and `--tiers`."""
    tiers = _tier_file(file) if file is not None else {}
    for option in options or []:
        name, sign, level = option.partition("=")
        if not (name.strip() and sign and level.strip()):
            raise InputError(f"a tier is written NAME=ε, as in strict=0.1 (got {option!r})")
        if name.strip() in tiers:
            raise InputError(f"the tier {name.strip()!r} is given twice")
        tiers[name.strip()] = level
    return tiers or None


def _tier_file(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=str)
    except OSError:
        raise InputError(f"{path} cannot be read; --tiers names a TOML file") from None
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    tiers = tables.get("tiers")
    if not isinstance(tiers, dict) or not tiers:
        raise InputError(f"{path} has no tiers; write [tiers] and below it one line a tier, as strict = 0.1")
    return tiers


def groups_of(path: Path | None) -> list[str] | None:
    """Return the names in a file of groups, one a line."""
    if path is None:
        return None
    try:
        names = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError):
        raise InputError(f"{path} cannot be read; --groups names a text file with one group a line") from None
    return [name for name in names if name]


def levels_of(tier: list[str] | None) -> Levels:
    """Return the levels that `--tier NAME=ε:PEOPLE` describes."""
    from hetdp.core.cells import epsilon_of
    from hetdp.core.levels import Levels

    counts: dict[float, int] = {}
    names: dict[float, str] = {}
    for name, text in (tiers_of(tier) or {}).items():
        level_text, colon, people = text.rpartition(":")
        if not colon or not people.strip().isascii() or not people.strip().isdigit():
            raise InputError(
                f"without a file a tier is written NAME=ε:PEOPLE, as in strict=0.1:700 (got {name}={text})"
            )
        level = epsilon_of(level_text, f" for tier {name!r}")
        counts[level] = counts.get(level, 0) + int(people)
        names[level] = f"{names[level]}, {name}" if level in names else name
    return Levels(counts, names)


def level_checked(confidence: float) -> float:
    """Return the level of an interval, or raise."""
    if not 0 < confidence < 1:
        raise InputError(f"the confidence level must be between 0 and 1 (got {confidence:g}); 0.95 is usual")
    return confidence
