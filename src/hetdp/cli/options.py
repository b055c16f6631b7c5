"""The options that commands share, and how their texts are read. An option has the name of its parameter.

Options that go together are a TypedDict. A command takes them with `**given: Unpack[Table]`.
"""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

from typer import Argument, Context, Option
from typer.core import TyperCommand

from hetdp.errors import InputError
from hetdp.statistics import Statistic
from hetdp.statistics.bounds import Range
from hetdp.statistics.histogram import Shares

Text = str | None
Texts = list[str] | None
File = Path | None
Number = float | None
Pair = tuple[float, float]

# The ledger

ExpectHead = Annotated[Text, Option(help="A head of the ledger that you wrote down.", metavar="NUMBER:HASH")]
HeadFile = Annotated[
    File, Option(help="Where the head is kept outside (LEDGER.head; for PostgreSQL nowhere).", metavar="FILE")
]
LedgerPeople = Annotated[
    str, Option(help="Who takes part: all the 'enrolled', or the 'source' alone.", metavar="enrolled|source")
]

# What is released, and what is done with it

Disjoint = Annotated[bool, Option("--disjoint-people", help="Promise that nobody is in two of the tallies.")]
MethodName = Annotated[str, Option(help="The estimator; `hetdp methods` lists them.", metavar="NAME")]
Variance = Annotated[
    Text, Option(help="Of a mean or sum: a public bound on the variance of a value; 'learn': from free ε.", metavar="V")
]
Drift = Annotated[
    float, Option(help="How far the means of two levels of ε may differ, a share of the range.", metavar="0…1")
]
Target = Annotated[
    Text,
    Option(help="Whose number: that of the 'population', or of exactly these 'people'.", metavar="population|people"),
]
Confidence = Annotated[float, Option(help="The confidence level of the interval (0.95).", metavar="LEVEL")]
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
Output = Annotated[
    File, Option("--output", "-o", help="Write to this file: .json, .html, anything else is text.", metavar="FILE")
]
Plot = Annotated[File, Option(help="Write a picture: .png, .svg or .pdf.", metavar="FILE")]
Force = Annotated[bool, Option("--force", help="Overwrite the output file.")]

# How `--help` lists them

_SECTIONS = {
    "Options": (),  # what has no other place: the columns, the bounds, what belongs to this command alone
    "Options for how the file is written": ("delimiter", "decimal", "thousands"),
    "Options for people and groups": (
        *(
            "query",
            "person",
            "rows",
            "public_rows",
            "by",
            "public_column",
            "groups",
            "private_group",
            "disjoint_people",
        ),
    ),
    "Options for the method and its interval": (
        *("method", "variance", "drift", "target", "confidence", "within", "target_error", "target_width"),
    ),
    "Options with a ledger": (
        *("ledger", "spend", "share", "share_left", "release_id", "expect_head", "dry_run", "people"),
    ),
    "Options for the output": ("simplex", "plot", "as_json", "output", "force", "help"),
}


class Command(TyperCommand):
    """A command whose help lists the options that go together under one heading."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option that takes one value and is given twice: only the last would count."""
        given = [parameter.name for parameter in self.make_parser(ctx).parse_args(list(args))[2]]
        for one in self.get_params(ctx):
            if given.count(one.name) > 1 and not getattr(one, "multiple", True) and not getattr(one, "is_flag", False):
                more = ", or release several statistics at once by hetdp ask" if one.name == "value" else ""
                raise InputError(f"{one.opts[0]} is given twice, and only one can count: leave one out{more}")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then every section that has an option here."""
        listed: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{title: [] for title in _SECTIONS}}
        for parameter in self.get_params(ctx):
            title = next((title for title, names in _SECTIONS.items() if parameter.name in names), "Options")
            if (line := parameter.get_help_record(ctx)) is None:
                continue
            if parameter.param_type_name == "argument":  # without the type that newer versions of typer add to its name
                listed["Arguments"].append((line[0].partition(" <")[0], line[1]))
            else:
                listed[title].append(line)
        if sum(map(len, listed.values())) - len(listed["Arguments"]) <= 24:  # a short list needs no headings
            listed = {
                "Arguments": listed.pop("Arguments"),
                "Options": [line for one in listed.values() for line in one],
            }
        for title, lines in listed.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


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
    rows: Annotated[
        Text,
        Option(
            help="What a person may have: 'one' row, or several that are averaged: 'average'.", metavar="one|average"
        ),
    ]


class Written(TypedDict):
    """How the numbers of a file are written."""

    delimiter: Annotated[
        Text, Option(help="The character between cells, as ';' (a comma; a tab in .tsv).", metavar="CHARACTER")
    ]
    decimal: Annotated[Text, Option(help="The decimal character: '.' (the default) or ','.", metavar="CHARACTER")]
    thousands: Annotated[Text, Option(help="The character between thousands, if there is one.", metavar="CHARACTER")]


class Checked(Table, Written):
    """A table in files, for its owner."""

    categories: Listed
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
    ledger: Annotated[
        Text, Option(help="Charge this ledger: a file, or postgresql://…; needs --person.", metavar="LEDGER")
    ]


class Amount(TypedDict):
    """How much of everybody's budget a release may use."""

    spend: Annotated[Text, Option(help="The most that a person may spend.", metavar="ε")]
    share: Annotated[
        Text,
        Option(
            help="The share of everybody's budget to use. With --outer: of everybody's ε, for bounds.",
            metavar="X",
        ),
    ]
    share_left: Annotated[Text, Option(help="The share of what is left to use.", metavar="X")]


class Released(Grouped, Amount):
    """All that a mean is made from."""

    release_id: Annotated[
        Text, Option(help="A name for this release. The same name again costs nothing.", metavar="NAME")
    ]
    expect_head: ExpectHead
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be charged.")]


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
    value: Annotated[Text, Option(help="The private column: it is not read, rows may end before it.", metavar="COL")]


class Public(PublicTable, Rows, Written, Parameters):
    """All that a plan is made from."""

    missing: Missing


def shared(
    command: Callable[..., None], parameters: Mapping[str, Any] | None = None, hidden: Collection[str] = ()
) -> Callable[..., None]:
    """Write the options of `**given: Unpack[...]` into the signature of a command, where typer looks for them.

    `parameters` are more of them, with their types; those that are `hidden` are not in the help.
    """
    signature = inspect.signature(command, eval_str=True)
    *own, given = signature.parameters.values()
    if given.kind is not given.VAR_KEYWORD:
        return command
    hints = {**(parameters or {}), **get_type_hints(get_args(given.annotation)[0], include_extras=True)}
    for name in hidden:
        option = copy(hints[name].__metadata__[0])
        option.hidden, hints[name] = True, Annotated[get_args(hints[name])[0], option]
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


def unused(kind: type[Statistic]) -> dict[str, str]:
    """Return the options of all commands that a statistic has no use for, and why: refused, and not in its help."""
    if kind is Range:
        names = ("bounds", "by", "groups", "public_column", "variance", "drift", "target", "simplex")
        return dict.fromkeys(names, "private bounds are found for all people, within --outer")
    found, taken = {}, {field.name for field in fields(kind)}
    if kind is not Shares:
        found["simplex"] = "--simplex is for one histogram"
    if "bounds" not in taken:
        found |= dict.fromkeys(("bounds", "outer"), f"a {kind.name} has no bounds")
    elif "edges" in taken:
        found["outer"] = f"the bins of a {kind.name} are public: --bins N --bounds LO HI, or --edges X,Y,Z"
    return found


def required(kind: type[Statistic]) -> tuple[str, ...]:
    """Return the parameters that a statistic cannot do without."""
    return tuple(f.name for f in fields(kind) if f.name != "value" and (f.default is MISSING or "needed" in f.metadata))


# What is released

PlanBounds = Annotated[Pair | None, Option(help="The public interval of the values.", metavar="LO HI")]
AuditBounds = Annotated[Pair, Option(help="The interval of the invented values.", metavar="LO HI")]
DataVariance = Annotated[
    Number, Option(help="Also show the error for this variance (default: evenly spread values).", metavar="V")
]
TargetError = Annotated[
    Number, Option(help="Say what brings the worst-case error down to this, in units of the values.", metavar="ERROR")
]
TargetWidth = Annotated[
    Number,
    Option(help="Say what brings half of the 95% interval down to this, in units of the values.", metavar="WIDTH"),
]
