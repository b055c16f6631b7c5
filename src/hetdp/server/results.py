"""What was published, for everybody: a list of studies, and the numbers of one as CSV."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from . import publish, studies, tables
from .access import RefusedError
from .store import Transaction

_COLUMNS = [
    *("wave", "published", "question", "kind", "choice", "estimate", "low", "high", "uncertain"),
    *("answered", "answered_low", "answered_high", "n", "abstains"),
]


def as_csv(transaction: Transaction, study: str) -> str:
    """Return all published results of a study as CSV: a row for a question, or for a choice of it, of each wave."""
    rows = publish.rows_of(transaction, study)
    if not rows:
        raise RefusedError(404)
    file = io.StringIO()
    table = csv.writer(file)
    table.writerow(_COLUMNS)
    for row in rows:
        at = datetime.fromtimestamp(row.published, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for one in publish.results_of(row.body):
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
