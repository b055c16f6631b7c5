"""What was published, for everybody: a list of studies, and the numbers of one, also as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from . import studies, tables
from .access import RefusedError
from .store import Transaction

_LOST = (
    "There is no result here. The server went back to an older backup, or its database was changed from outside; if "
    "something was published, that was lost."
)
_SHARE = (0.0, 1.0)  # all that is possible of a share
_COLUMNS = [
    *("wave", "published", "question", "kind", "choice", "estimate", "low", "high", "uncertain"),
    *("answered", "answered_low", "answered_high", "n", "abstains"),
]


def as_csv(transaction: Transaction, study: str) -> str:
    """Return all published results of a study as CSV: a row for a question, or for a choice of it, of each wave."""
    rows = rows_of(transaction, study)
    if not rows:
        raise RefusedError(404)
    file = io.StringIO()
    table = csv.writer(file)
    table.writerow(_COLUMNS)
    for row in rows:
        at = datetime.fromtimestamp(row.published, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for one in results_of(row.body):
            ends = ("estimate", "low", "high")
            answered = [(one["answered"] or {}).get(name) for name in ends]
            for figure in one["figures"]:
                choice = figure["label"] if one["kind"] == "choice" else ""
                # A text that a spreadsheet would take for a formula is written with an apostrophe before it.
                choice = f"'{choice}" if choice.startswith(("=", "+", "-", "@")) else choice
                about = [row.wave, at, one["question"], one["kind"], choice]
                cells = [*map(figure.get, ends), figure["uncertain"], *answered, one["n"], one.get("abstains", False)]
                table.writerow([*about, *cells])
    return file.getvalue()


def stored(transaction: Transaction, study: str, wave: int | None = None) -> dict[str, Any]:
    """Return a published result with its study, the latest if no wave is named; all of it public."""
    rows, about = rows_of(transaction, study), studies.shown(transaction, study)
    row, waves = next((row for row in reversed(rows) if wave in {None, row.wave}), None), [row.wave for row in rows]
    gone = [number for number in range(about.wave) if number not in waves]
    lost = [number for number in gone if about.waves[number].too_few is None]  # with a restore of an older backup
    if row is None:
        raise RefusedError(404, *(("lost", _LOST) if lost and wave in {None, *lost} else ()))
    which = {"wave": row.wave, "waves": waves, "lost": lost, "published": row.published}
    return {"study": about.to_dict(), **which, "results": results_of(row.body)}


def waves(transaction: Transaction, study: str) -> list[int]:
    """Return the waves of a study that were published."""
    table = tables.results
    return list(transaction.execute(sa.select(table.c.wave).where(table.c.study == study)).scalars())


def published(transaction: Transaction) -> list[dict[str, Any]]:
    """Return the studies that have a result, the newest result first."""
    about, latest = tables.studies.c, sa.func.max(tables.results.c.published).label("published")
    joint = sa.select(about.id, latest).join_from(tables.studies, tables.results).group_by(about.id)
    found = [(studies.shown(transaction, row.id), row.published) for row in transaction.execute(joint)]
    rows = [{"id": one.id, "title": one.title, "language": one.language, "published": at} for one, at in found]
    return sorted(rows, key=lambda row: -row["published"])


def rows_of(transaction: Transaction, study: str) -> list[Any]:
    """Return the published results of a study as the database has them, in the order of waves."""
    found = sa.select(tables.results).where(tables.results.c.study == study).order_by(tables.results.c.wave)
    return list(transaction.execute(found))


def results_of(body: str) -> list[dict[str, Any]]:
    """Return what was published of each question; before version 5 it was one mean, of everybody."""
    facts = json.loads(body)
    if "questions" in facts:
        return [_possible(one) for one in facts["questions"]]
    low, high = facts["interval"]["guaranteed"]
    doubt = facts["interval"].get("uncertain", False)
    figure = {"label": "mean", "estimate": facts["estimate"], "low": low, "high": high, "uncertain": doubt}
    about = {"question": studies.ONLY, "kind": "number", "text": "", "unit": "", "bounds": facts.get("bounds")}
    return [_possible({**facts, **about, "figures": [figure], "answered": None, "uncertain": doubt})]


def _possible(one: dict[str, Any]) -> dict[str, Any]:
    """Return a question with its estimates moved into their intervals, `raw` as drawn; none of it if it abstains.

    Where the interval is all that is possible nothing was learnt, so there is no estimate: what was drawn is the middle
    of the range if nobody answered, and little but noise if hardly anybody did.
    """
    own = [(figure, one["bounds"] if one["kind"] == "number" else _SHARE) for figure in one["figures"]]
    for figure, bounds in [*own, *((share, _SHARE) for share in [one["answered"]] if share)]:
        raw, low, high = (figure[name] for name in ("estimate", "low", "high"))
        nothing = says_nothing(low, high, bounds)
        shown = {"raw": raw, "estimate": None if nothing else min(max(raw, low), high)}
        figure.update(dict.fromkeys(("raw", "estimate", "low", "high")) if one.get("abstains") else shown)
    if "estimate" in one and one["figures"][0]["estimate"] is None:
        one["estimate"] = None  # the library's own word for the same number
    return one


def says_nothing(low: float, high: float, bounds: Sequence[float] | None) -> bool:
    """Say whether an interval is all that is possible, up to rounding.

    >>> says_nothing(0.0, 10.0, (0, 10)), says_nothing(0.0, 9.0, (0, 10))
    (True, False)
    """
    slack = 1e-9 * (bounds[1] - bounds[0]) if bounds else 0.0
    return bounds is not None and low <= bounds[0] + slack and high >= bounds[1] - slack
