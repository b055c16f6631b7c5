"""Plain fields of requests; which one is wrong, and the public rule that it breaks. What was sent is never repeated."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

# The languages of the pages, as a pattern: one catalogue each.
LANGUAGES = "|".join(sorted(path.stem for path in (Path(__file__).parent / "texts").glob("*.json")))
PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
_TEXT = r"^[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]*$"  # of several lines
# A free choice ends here; more protects nobody and `public` says so more honestly.
LARGEST_CHOICE = 20.0
LATEST = 4_102_444_800  # the year 2100
# What is wrong, by pydantic's name for it. The limits are public.
_RULES = {
    "missing": "is missing",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "has a character that is not allowed here",
    "too_short": "needs at least {min_length}",
    "too_long": "must have at most {max_length}",
    "literal_error": "must be {expected}",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "extra_forbidden": "has a field that is unknown",
}
_LIMITS = ("gt", "ge", "lt", "le", "min_length", "max_length", "expected")


class Strict(BaseModel):
    """Data from outside: no unknown field, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class About(Strict):
    """Who asks: shown to everybody who answers, and stored with the study. The consent is the words beside its box."""

    institute: Annotated[str, Field(max_length=200, pattern=PLAIN)] = ""
    contact: Annotated[str, Field(max_length=200, pattern=PLAIN)] = ""
    notice: Annotated[str, Field(max_length=4000, pattern=_TEXT)] = ""
    consent: Annotated[str, Field(max_length=1000, pattern=_TEXT)] = ""


class FreeChoice(Strict):
    """People choose ε themselves, between two ends."""

    least: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]
    most: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]


class Wave(Strict):
    """One publication: when its answers close, and the share of everybody's ε that it may spend."""

    closes: Annotated[int, Field(ge=0, le=LATEST)]
    share: Annotated[float, Field(ge=0.001, le=1)] = 1.0


class Dated(Wave):
    """A wave as it is stored: with the date that was said first, if its closing was brought forward.

    One that closed with too few people is passed over, and has how many there were who count.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # there was no other limit once
    first: int | None = None
    too_few: int | None = None


class NewAnswer(Strict):
    """What a person says to each question, by its name, and a privacy choice: a tier, or an ε where it is free.

    A question that is left out, null, or answered by what does not fit it, counts as not said, without a word. A change
    with a larger ε than before is refused unless `allow_more` says that this is meant. A page says for which wave it
    was made, and when that was to close: if either has moved, what it promised no longer holds, and nothing is stored.
    """

    answers: dict[str, Any]
    tier: Annotated[str, Field(max_length=40)] | None = None
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | None = None
    consent: bool = False
    allow_more: bool = False
    wave: int | None = None
    closes: int | None = None


def broken(field: str, rule: str, sentence: str, **limits: Any) -> PydanticCustomError:
    """Return the error of a rule that concerns several fields, at the one where it is to be mended."""
    return PydanticCustomError("rule", "{sentence}", {"field": field, "rule": rule, "sentence": sentence, **limits})


def once(field: str, what: str, said: Sequence[Any]) -> None:
    """Raise if one of several comes twice."""
    if twice := next((i for i, one in enumerate(said) if one in said[:i]), 0):
        raise broken(f"{field}.{twice}.{what}", "twice", "is the same as one before")


def within(field: str, shares: Sequence[Fraction]) -> None:
    """Raise if shares are more than one together."""
    if sum(shares) > 1:
        raise broken(f"{field}.{len(shares) - 1}.share", "shares", "all shares together must be at most 1")


def unfit(errors: Sequence[Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the path of the first field that is wrong, as `waves.1.closes`, what is wrong, and rule and limits.

    A name that no model has may be anything, also an answer, so it is not repeated.

    >>> unfit([{"loc": ("body", "waves", 1, "share"), "type": "less_than_equal", "ctx": {"le": 1.0}}])
    ('waves.1.share', 'must be at most 1', {'rule': 'less_than_equal', 'le': 1.0})
    >>> unfit([{"loc": ("body", "waves", 1, "secret"), "type": "extra_forbidden"}])
    ('waves.1', 'has a field that is unknown', {'rule': 'extra_forbidden'})
    """
    first: Any = next(iter(errors), {"loc": (), "type": ""})
    kind, about = first["type"], dict(first.get("ctx") or {})
    path = [str(part) for part in first["loc"][1:]]
    if kind == "extra_forbidden":
        path.pop()
    if kind == "rule":
        path, kind = [*path, about.pop("field")], about.pop("rule")
        return ".".join(path), about.pop("sentence"), {"rule": kind, **about}
    limits = {name: about[name] for name in _LIMITS if name in about}
    known = kind in _RULES
    return (
        ".".join(path),
        _RULES.get(kind, "does not fit").format(**about),
        {"rule": kind if known else "unfit", **limits},
    )
