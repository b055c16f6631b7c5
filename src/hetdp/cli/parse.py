"""What the texts of options mean."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from hetdp.core.domain import epsilon_of, value_of
from hetdp.core.levels import Levels, joined_names
from hetdp.errors import InputError
from hetdp.statistics import Statistic, kind_of

from .options import PARAMETERS


def one_amount(given: Mapping[str, Any]) -> None:
    """Raise unless exactly one option says how much a release may use."""
    said = [name for name in ("spend", "share", "share_left") if given[name] is not None]
    if len(said) != 1:
        raise InputError(
            "say how much a release may use by one of --spend ε, --share of the budget or --share-left of what is left "
            f"(got {len(said)} of them)"
        )


def parameters_of(kind: type[Statistic], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a statistic from the texts of a command line."""
    found = {}
    for field in fields(kind):
        text = given.get(field.name)
        if field.name == "value" or text is None:
            continue
        found[field.name] = text if not isinstance(text, str) else _READ.get(field.name, str)(text)
    found |= values_of(given)
    if unknown := [name for name in ("bounds", *PARAMETERS) if given.get(name) is not None and name not in found]:
        raise InputError(f"a {kind.name} does not take --{unknown[0]}; see --help")
    return found


def values_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the cells stand for, as `--map` says; nothing if it says nothing.

    >>> values_of({"map": ["yes = 1", "no=0"]})
    {'values': {'yes': 1.0, 'no': 0.0}}
    """
    found: dict[str, float] = {}
    for text in given.get("map") or ():
        if re.fullmatch(r"([^=,]+=[^=,]+,)+[^=,]+=[^=,]+", text):
            raise InputError(f"repeat --map for each cell: --map {' --map '.join(text.split(','))} (got {text!r})")
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
    number = value_of(text)
    if number != number:  # noqa: PLR0124  NaN
        raise InputError(f"write one number, as 0.95 for 95% (got {text!r})")
    return number


_READ: dict[str, Callable[[str], Any]] = {
    "categories": categories_of,
    "edges": _numbers_of,
    "q": _numbers_of,
    "bins": _whole,
    "within": number_of,
}


def _toml(path: Path, what: str, **how: Any) -> dict[str, Any]:
    """Return what a TOML file says."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), **how)
    except OSError:
        raise InputError(f"{path} cannot be read; {what}") from None
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from None


def questions_of(path: Path) -> tuple[dict[str, Statistic], dict[str, Any]]:
    """Return the questions of a TOML file, and the share of each."""
    asked, split = {}, {}
    for name, table in _toml(path, "name a TOML file of questions").items():
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
    tiers = _toml(path, "--tiers names a TOML file", parse_float=str).get("tiers")
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
