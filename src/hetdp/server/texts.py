"""The words on the pages: one catalogue a language in `texts/`, all with the same keys. Another language is one file.

A text may have places for facts, `{people}`. A fact is escaped unless it is HTML that this module made itself, such as
a time. A key that ends in `.one` is for exactly one of something, its partner `.other` for every other number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request

from hetdp import report
from hetdp.core.domain import epsilon_of

from .studies import rounded_down

FOLDER = Path(__file__).parent / "texts"
# Set by a script when somebody chooses a language; it holds nothing else.
COOKIE = "hetdp_language"
USUAL = "en"
# An ε below this is not worth its digits.
CRUMB = 1e-6
# A level that nobody named, or a band of them, as the server writes it.
_LEVEL = re.compile(r"ε = ([0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?)(?: to ([0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?))?")


@dataclass(frozen=True)
class Texts:
    """The words of one language, and how it writes numbers and dates."""

    language: str
    catalogue: Mapping[str, str]

    def __call__(self, key: str, **facts: Any) -> Markup:
        """Return a text with its facts, as HTML."""
        return Markup(escape(self.catalogue[key])).format(**facts)  # noqa: S704  it is escaped just before

    def count(self, key: str, n: int, **facts: Any) -> Markup:
        """Return a text about n of something."""
        return self(f"{key}.one" if n == 1 else f"{key}.other", n=self.whole(n), **facts)

    def said(self, code: str, otherwise: str, **facts: Any) -> str:
        """Return the text for a code of the API as plain text, or what the API said itself if there is none."""
        template = self.catalogue.get(code)
        try:
            return otherwise if template is None else template.format(**facts)
        except (KeyError, IndexError):  # a fact is missing
            return otherwise

    def words(self, *prefixes: str) -> dict[str, str]:
        """Return the texts whose keys begin so: for a script, which has no words of its own."""
        return {key: text for key, text in self.catalogue.items() if key.startswith(prefixes)}

    # -----------------------------------------------------------------------------------------------------
    # Numbers and dates

    def written(self, text: str) -> str:
        """Return a number that the library printed, with this language's decimal and thousands separators.

        One that is small or large is written out.

        >>> german = Texts("de", {"format.decimal": ",", "format.thousands": "."})
        >>> german.written("1,234.5"), german.written("2e-05"), german.written("2.685e+05")
        ('1.234,5', '0,00002', '268.500')
        """
        if re.fullmatch(r"-?[\d.]+e(-\d|\+[01])\d", text):
            text = f"{Decimal(text):,f}"
        marks = {".": self.catalogue["format.decimal"], ",": self.catalogue["format.thousands"]}
        return "".join(marks.get(character, character) for character in text)

    def whole(self, n: int) -> str:
        """Return a whole number."""
        return self.written(f"{n:,}")

    def plain(self, x: float) -> str:
        """Return a number that somebody wrote, such as a bound."""
        return self.written(f"{x:,.10g}")

    def number(self, x: float, error: float, way: str = "nearest") -> str:
        """Return a number with the digits that its error deserves."""
        return self.written(report.number(x, error, way))

    def percent(self, share: float) -> str:
        """Return a share as a percentage, as exactly as it was written: rounded shares could exceed 100 % together.

        >>> Texts("de", {"format.decimal": ",", "format.thousands": "."}).percent(0.33333)
        '33,333'
        """
        return self.written(f"{(100 * Decimal(repr(share))).normalize():f}")

    def level(self, name: str) -> str:
        """Return the name of a level, or of a band of them, which has numbers and a word of its own if nobody gave it.

        >>> words = {"format.decimal": ",", "format.thousands": ".", "result.from-to": "{low} bis {high}"}
        >>> Texts("de", words).level("ε = 0.12341 to 3")
        'ε = 0,1235 bis 3'
        """
        found = _LEVEL.fullmatch(name)  # what a curator wrote stays as it is
        if found is None:
            return name
        low, high = (text and self.spent(text) for text in found.groups())
        return str(self("result.from-to", low=f"ε = {low}", high=high)) if high else f"ε = {low}"

    def epsilon(self, x: Any) -> str:
        """Return an ε for reading."""
        return self.written(report.epsilon(epsilon_of(x)))

    def spent(self, x: Any) -> str:
        """Return an ε that is a limit, rounded up so that what is printed holds; the ledger's smallest units too."""
        limit = epsilon_of(x)
        return self.written(f"{CRUMB:f}" if 0 < limit < CRUMB else report.spent_epsilon(limit))

    def left(self, x: Any) -> str:
        """Return an ε that is left at least, rounded down."""
        left = epsilon_of(x)
        return "0" if left < CRUMB else self.epsilon(left if math.isinf(left) else rounded_down(left, 4))

    def date(self, seconds: int) -> str:
        """Return a time in words, in UTC."""
        at = datetime.fromtimestamp(seconds, UTC)
        month = self.catalogue["format.months"].split()[at.month - 1]
        return self.catalogue["format.date"].format(day=at.day, month=month, year=at.year, time=at.strftime("%H:%M"))

    def when(self, seconds: int) -> Markup:
        """Return a time that a script turns into the reader's own; without it, it is UTC."""
        at = datetime.fromtimestamp(seconds, UTC).isoformat()
        return Markup('<time datetime="{}">{}</time>').format(at, self.date(seconds))


@cache
def languages() -> dict[str, Texts]:
    """Return all languages there are, by their code."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
    return {code: Texts(code, catalogue) for code, catalogue in found.items()}


def chosen(request: Request, study: str | None = None) -> Texts:
    """Return the language for a request: what the reader chose, or the study's, or what the browser asks for."""
    known = languages()
    asked = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept-language", "").split(",")]
    wanted = [request.cookies.get(COOKIE), study, *(code.partition("-")[0] for code in asked), USUAL]
    return next(known[code] for code in wanted if code in known)
