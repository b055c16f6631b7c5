"""The options that commands share, and how their texts are read. An option has the name of its parameter.

Options that go together are a TypedDict. A command takes them with `**given: Unpack[Table]`.
"""

from __future__ import annotations

import csv
import inspect
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

from typer import Argument, Context, Option

from hetdp.core.domain import epsilon_of, value_of
from hetdp.core.levels import Levels, joined_names
from hetdp.errors import InputError
from hetdp.statistics import Statistic, kind_of

Text = str | None
Texts = list[str] | None
File = Path | None
Number = float | None
Pair = tuple[float, float]

# The ledger

ExpectHead = Annotated[Text, Option(help="A head of the ledger that you wrote down.", metavar="NUMBER:HASH")]
HeadFile = Annotated[File, Option(help="Where the head is kept outside (LEDGER.head; for PostgreSQL nowhere).")]
LedgerPeople = Annotated[str, Option(help="With a ledger, who takes part: all the 'enrolled', or the 'source' alone.")]

# What is released, and what is done with it

Disjoint = Annotated[bool, Option("--disjoint-people", help="Promise that nobody is in two of the tallies.")]
MethodName = Annotated[str, Option(help="The estimator; `hetdp methods` lists them.")]
Variance = Annotated[
    Text, Option(help="Of a mean or sum: a public bound on the variance of a value; 'learn': from free ε.", metavar="V")
]
Drift = Annotated[
    float, Option(help="How far the means of two levels of ε may differ, a share of the range.", metavar="0…1")
]
Target = Annotated[Text, Option(help="Whose number: that of the 'population', or of exactly these 'people'.")]
Confidence = Annotated[float, Option(help="The confidence level of the interval.")]
Listed = Annotated[Text, Option(help="The public categories, separated by commas.", metavar="A,B,C")]
PrivateGroup = Annotated[Text, Option(help="A private column of groups; --categories lists them.", metavar="COL")]
Missing = Annotated[
    Text,
    Option(
        help="Missing values: 'estimate' (of those who answered, who did stays private), 'drop' (the same, who did "
        "is public), 'midpoint' or a number (count as that), 'none' (promise that none is missing).",
        metavar="CHOICE",
    ),
]
Map = Annotated[Texts, Option("--map", help="What a cell stands for; all others are missing.", metavar="CELL=NUMBER")]
Outer = Annotated[
    Pair | None, Option(help="Wide public bounds, within which bounds are found privately.", metavar="LO HI")
]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Output = Annotated[File, Option("--output", "-o", help="Write to this file: .json, .html, anything else is text.")]
Plot = Annotated[File, Option(help="Write a picture: .png, .svg or .pdf.")]
Force = Annotated[bool, Option("--force", help="Overwrite the output file.")]

# Where the people are


def _with_stdin(context: Context, names: list[str] | None) -> list[str]:
    """Return the sources, standard input as a copy that only this user can read and that goes when the command ends.

    A file is opened more than once (its header, then its rows), which a pipe does not allow.
    """
    names = names or []  # older versions of typer need a list back
    if "-" not in names:
        return names
    folder = TemporaryDirectory(prefix=STDIN)
    context.call_on_close(folder.cleanup)
    file = Path(folder.name, "standard input")  # as a report calls it
    with file.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
    return [str(file) if name == "-" else name for name in names]


STDIN = "hetdp-stdin-"
"""How the folder with the copy of standard input begins."""


def one_with_stdin(context: Context, name: str | None) -> str | None:
    """Return one source, as `_with_stdin` returns several."""
    return None if name is None else _with_stdin(context, [name])[0]


def is_stdin(name: str) -> bool:
    """Say whether a source is a copy of standard input."""
    return Path(name).parent.name.startswith(STDIN)


Sources = Annotated[
    list[str],
    Argument(
        help="Files with one row per person (CSV, TSV, Parquet, Arrow IPC, NDJSON; gz, zst; globs; - reads stdin), a "
        "database (a file of SQLite or DuckDB, a postgresql:// or sqlite:// URL); also tallies that `hetdp tally` "
        "wrote.",
        metavar="SOURCE",
        callback=_with_stdin,
    ),
]
PublicSources = Annotated[
    Texts, Argument(help="A table with everybody's ε; no value is used.", metavar="SOURCE", callback=_with_stdin)
]
By = Annotated[Texts, Option(help="Release one for each group of this public column; repeat.", metavar="COL")]
PublicColumn = Annotated[Texts, Option(help="Declare that this column is public; repeat.", metavar="COL")]
GroupFile = Annotated[
    File, Option(help="A file with one group per line, the texts of several columns between commas.", metavar="FILE")
]
PublicRows = Annotated[Text, Option(help="A file of publicly known rows; they join with ε = ∞.", metavar="FILE")]
_EPSILON = Option(help="The column with everybody's ε (a number, inf or public), or one ε for all.", metavar="COL|ε")
Tier = Annotated[Texts, Option(help="A tier, if the ε column holds names of tiers; repeat.", metavar="NAME=ε")]
TierFile = Annotated[File, Option(help="A TOML file with a table [tiers] of names and their ε.", metavar="FILE")]


class Table(TypedDict):
    """A table with a row for each person."""

    value: Annotated[Text, Option(help="The column with the private values.", metavar="COL")]
    epsilon: Annotated[Text, _EPSILON]
    bounds: Annotated[
        Pair | None, Option(help="The public interval of the values; others are clamped.", metavar="LO HI")
    ]
    tier: Tier
    tiers: TierFile


class Rows(TypedDict):
    """Which rows to read, and whose they are."""

    query: Annotated[Text, Option(help="What to read from a database: a select, or a table's name.", metavar="SQL")]
    person: Annotated[Text, Option(help="The column that says whose row it is.", metavar="COL")]
    rows: Annotated[Text, Option(help="What a person may have: 'one' row, or several that are averaged: 'average'.")]


class Written(TypedDict):
    """How the numbers of a file are written."""

    delimiter: Annotated[Text, Option(help="The character between cells, as ';' (a comma; a tab in .tsv).")]
    decimal: Annotated[Text, Option(help="The decimal character: '.' (the default) or ','.")]
    thousands: Annotated[Text, Option(help="The character between thousands, if there is one.")]


class Checked(Table, Written):
    """A table in files, for its owner."""

    map: Map


class Tallied(Table, Rows, Written):
    """All that a tally is made from."""

    missing: Missing
    map: Map
    public_rows: PublicRows


class Parameters(TypedDict):
    """What is to be computed."""

    statistic: Annotated[Text, Option(help="What is computed: mean, histogram, quantile, ….", metavar="NAME")]
    categories: Listed
    edges: Annotated[Text, Option(help="The public edges of bins, separated by commas.", metavar="X,Y,Z")]
    bins: Annotated[Text, Option(help="So many bins of one width within the bounds.", metavar="N")]
    q: Annotated[Text, Option(help="Which quantiles, as 0.1,0.5,0.9.", metavar="Q")]
    equals: Annotated[Text, Option(help="The value that is counted.", metavar="VALUE")]
    within: Annotated[Text, Option(help="Also intervals of quantiles in units, at this level.", metavar="LEVEL")]
    outer: Outer


PARAMETERS = tuple(name for name in Parameters.__annotations__ if name != "statistic")


class TalliedAs(Tallied, Parameters):
    """All that a tally of any statistic is made from."""


class Grouped(Tallied):
    """The same of groups of people, and the ledger that is charged."""

    by: By
    public_column: PublicColumn
    groups: GroupFile
    ledger: Annotated[Text, Option(help="Charge this ledger: a file, or postgresql://…; needs --person.")]


class Amount(TypedDict):
    """How much of everybody's budget a release may use."""

    spend: Annotated[Text, Option(help="With a ledger: the most that a person may spend.", metavar="ε")]
    share: Annotated[
        Text,
        Option(
            help="With a ledger: the share of everybody's budget to use. With --outer: of everybody's ε, for bounds.",
            metavar="X",
        ),
    ]
    share_left: Annotated[Text, Option(help="With a ledger: the share of what is left to use.", metavar="X")]


class Released(Grouped, Amount):
    """All that a mean is made from."""

    release_id: Annotated[
        Text, Option(help="With a ledger: a name for this release. The same name again costs nothing.")
    ]
    expect_head: ExpectHead
    dry_run: Annotated[bool, Option("--dry-run", help="With a ledger: only say what would be charged.")]


class Answered(Released):
    """All that a statistic is made from, and what is done with it."""

    outer: Outer
    disjoint_people: Disjoint
    people: LedgerPeople
    method: MethodName
    variance: Variance
    drift: Drift
    target: Target
    confidence: Confidence
    simplex: Annotated[bool, Option("--simplex", help="Of a histogram: shares that are not below 0.")]
    plot: Plot
    as_json: Json
    output: Output
    force: Force


class Several(Rows, Written):
    """All that several statistics of one table are made from."""

    by: By
    public_column: PublicColumn
    groups: GroupFile
    public_rows: PublicRows

    epsilon: Annotated[Text, _EPSILON]
    tier: Tier
    tiers: TierFile
    missing: Missing


class PublicTable(TypedDict):
    """Where everybody's ε comes from; the values are not used."""

    epsilon: Annotated[Text, _EPSILON]
    tier: Annotated[
        Texts,
        Option(help="NAME=ε:PEOPLE without a file; NAME=ε if the file's ε column holds names; repeat.", metavar="TIER"),
    ]
    tiers: TierFile
    value: Annotated[Text, Option(help="The private column: lines may be too short for it.", metavar="COL")]


class Public(PublicTable, Rows, Written, Parameters):
    """All that a plan is made from."""

    missing: Missing


def shared(command: Callable[..., None], parameters: Mapping[str, Any] | None = None) -> Callable[..., None]:
    """Write the options of `**given: Unpack[...]` into the signature of a command, where typer looks for them.

    `parameters` are more of them, with their types.
    """
    signature = inspect.signature(command, eval_str=True)
    *own, given = signature.parameters.values()
    if given.kind is not given.VAR_KEYWORD:
        return command
    hints = {**(parameters or {}), **get_type_hints(get_args(given.annotation)[0], include_extras=True)}
    more = [
        inspect.Parameter(
            name, given.KEYWORD_ONLY, default=False if get_args(hint)[0] is bool else None, annotation=hint
        )
        for name, hint in hints.items()
    ]
    first = sum(parameter.kind is not given.KEYWORD_ONLY for parameter in own)
    command.__signature__ = signature.replace(parameters=[*own[:first], *more, *own[first:]])  # type: ignore[attr-defined]
    return command


# What is computed


def of_kind(kind: type[Statistic], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a statistic's own parameters, from what its fields say about themselves."""
    found = {}
    for field in fields(kind):
        if field.name not in ("value", "bounds", "outer", "missing", "values") and field.name not in fixed:
            words = {"help": field.metadata.get("help"), "metavar": field.metadata.get("metavar", "TEXT")}
            found[field.name] = Annotated[Text, Option(**words)]
    return found


def required(kind: type[Statistic]) -> tuple[str, ...]:
    """Return the parameters that a statistic cannot do without."""
    return tuple(f.name for f in fields(kind) if f.name != "value" and (f.default is MISSING or "needed" in f.metadata))


def parameters_of(kind: type[Statistic], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a statistic from the texts of a command line."""
    found = {}
    for field in fields(kind):
        text = given.get(field.name)
        if field.name == "value" or text is None:
            continue
        found[field.name] = text if not isinstance(text, str) else _READ.get(field.name, str)(text)
    found |= values_of(given)
    if unknown := [name for name in PARAMETERS if given.get(name) is not None and name not in found]:
        raise InputError(f"a {kind.name} does not take --{unknown[0]}; see --help")
    return found


def values_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the cells stand for, as `--map` says; nothing if it says nothing.

    >>> values_of({"map": ["yes = 1", "no=0"]})
    {'values': {'yes': 1.0, 'no': 0.0}}
    """
    found: dict[str, float] = {}
    for text in given.get("map") or ():
        cell, equals, number = (part.strip() for part in text.rpartition("="))
        if not equals or value_of(number) != value_of(number) or cell in found:
            raise InputError(f"--map is written CELL=NUMBER, once for each cell, as --map yes=1 (got {text!r})")
        found[cell] = value_of(number)
    return {"values": found} if found else {}


def texts_of(text: str | None) -> list[str]:
    """Return a list of texts between commas; one with a comma in it stands between quotes.

    >>> texts_of('nurse,"teacher, retired"')
    ['nurse', 'teacher, retired']
    """
    return next(csv.reader([text or ""], skipinitialspace=True), [])


def categories_of(text: str) -> list[str]:
    """Return the categories of a list between commas; a range is refused, it would be one category."""
    if re.fullmatch(r"\s*\d+\s*(-|–|\.\.\.?|:)\s*\d+\s*", text):
        raise InputError(
            f"categories are listed one by one, as 1,2,3 (got {text!r}, which would be one category of that name; put "
            f"it in quotes if it is: '\"{text.strip()}\"'); for ranges of numbers use --edges"
        )
    return texts_of(text)


def _numbers_of(text: str) -> list[float]:
    numbers = [value_of(part) for part in text.split(",")]
    if any(number != number for number in numbers):  # noqa: PLR0124  NaN
        raise InputError(f"a list of numbers is separated by commas, as 0,18,65 (got {text!r})")
    return numbers


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"a number of bins is a whole number (got {text!r})")
    return int(text)


def number_of(text: str) -> float:
    """Return the one number of an option."""
    return _numbers_of(text)[0]


_READ: dict[str, Callable[[str], Any]] = {
    "categories": categories_of,
    "edges": _numbers_of,
    "q": _numbers_of,
    "bins": _whole,
    "within": number_of,
}


def questions_of(path: Path) -> tuple[dict[str, Statistic], dict[str, Any]]:
    """Return the questions of a TOML file, and the share of each."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{path} cannot be read; name a TOML file of questions") from None
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    asked, split = {}, {}
    for name, table in tables.items():
        if not isinstance(table, dict) or not isinstance(table.get("statistic"), str):
            raise InputError(f'a question of {path} is a table: [{name}], and below it statistic = "mean" and so on')
        rest = {key: value for key, value in table.items() if key not in ("statistic", "share")}
        try:
            asked[name] = kind_of(table["statistic"]).again(rest)
        except InputError as error:
            raise InputError(f"the question [{name}] of {path}: {error}") from None
        split[name] = table.get("share", 1)
    if not asked:
        raise InputError(f'{path} has no questions; write [income] and below it statistic = "mean" and so on')
    return asked, split


# What is released

PlanBounds = Annotated[Pair | None, Option(help="The public interval of the values.", metavar="LO HI")]
AuditBounds = Annotated[Pair, Option(help="The interval of the invented values.", metavar="LO HI")]
DataVariance = Annotated[Number, Option(help="Also show the error for this variance (default: evenly spread values).")]
TargetError = Annotated[Number, Option(help="Also say what would bring the worst-case error down to this.")]
TargetWidth = Annotated[Number, Option(help="Also say what would bring half of the 95% interval down to this.")]

# What is printed or written


def variance_of(text: str | None) -> Any:
    """Return what `--variance` says: a number, or the word `learn`."""
    if text is None or text == "learn":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--variance is a number, in squared units of the values, or learn (got {text[:32]!r})"
        ) from None


def tiers_of(options: list[str] | None, file: Path | None = None) -> dict[str, Any] | None:
    """Return the tiers of `--tier` and `--tiers`."""
    tiers = _tier_file(file) if file is not None else {}
    for option in options or []:
        name, equals, level = (part.strip() for part in option.partition("="))
        if not (name and equals and level):
            raise InputError(f"a tier is written NAME=ε, as in strict=0.1 (got {option!r})")
        if name in tiers:
            raise InputError(f"the tier {name!r} is given twice")
        tiers[name] = level
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
        raise InputError(f"{path} has no tiers; write [tiers] and below it one line per tier, as strict = 0.1")
    return tiers


def groups_of(path: Path | None, columns: int = 1) -> list[Any] | None:
    """Return the names in a file of groups, one per line; if several columns make a group, as in a CSV file."""
    if path is None:
        return None
    try:
        names = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError):
        raise InputError(f"{path} cannot be read; --groups names a text file with one group per line") from None
    return [name if columns == 1 else texts_of(name) for name in names if name]


def levels_of(tier: list[str] | None) -> Levels:
    """Return the levels that `--tier NAME=ε:PEOPLE` describes."""
    counts: dict[float, int] = {}
    names = []
    for name, text in (tiers_of(tier) or {}).items():
        level_text, colon, people = (part.strip() for part in text.rpartition(":"))
        if not (colon and people.isascii() and people.isdigit()):
            raise InputError(
                f"without a file a tier is written NAME=ε:PEOPLE, as in strict=0.1:700 (got {name}={text})"
            )
        level = epsilon_of(level_text, f" for tier {name!r}")
        counts[level] = counts.get(level, 0) + int(people)
        names.append((level, name))
    return Levels(counts, joined_names(names))
