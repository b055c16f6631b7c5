"""What one person sends, changes, withdraws. The value becomes a sealed grid code at once and is never read again here.

Claim: whatever number a person sends, the answer of the server, its status, its length, its log line and every row but
the sealed one are the same.

Argument: the value goes into `_sealed` alone. There it becomes an integer code by the library's rule, for which every
double is fine (outside the bounds counts as the nearer bound), and then bytes of one length. Nothing branches on it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
from pydantic import Field

from . import keys, store
from .access import Execute
from .errors import RefusedError
from .register import new_version
from .studies import Study, _Strict


class NewAnswer(_Strict):
    """A value and a privacy choice: a tier by name, or an ε where the study leaves it free."""

    value: float
    tier: Annotated[str, Field(max_length=40)] | None = None
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | None = None


@dataclass
class Joined:
    """How many people chose which ε, per study: kept in memory, so that nobody counts rows to show it."""

    counts: dict[str, Counter[float]] = field(default_factory=lambda: defaultdict(Counter))

    def load(self, execute: Execute) -> None:
        """Count the rows, at the start; a choice stays when the answer is deleted after the last publication."""
        table = store.people
        columns = (table.c.study, table.c.epsilon, sa.func.count().label("people"))
        query = sa.select(*columns).where(table.c.epsilon.is_not(None)).group_by(table.c.study, table.c.epsilon)
        found = execute(query).all()
        self.counts.clear()
        for row in found:
            self.counts[row.study][row.epsilon] = row.people

    def change(self, study: str, gone: float | None, come: float | None) -> None:
        """Count a person who came, went, or changed their choice."""
        for epsilon, step in ((gone, -1), (come, 1)):
            if epsilon is not None:
                self.counts[study][epsilon] += step

    def of(self, study: str) -> dict[float, int]:
        """Return {ε: people} of a study."""
        return {epsilon: count for epsilon, count in sorted(self.counts[study].items()) if count > 0}


def _record_query() -> sa.Select[Any]:
    sessions, people = store.sessions, store.people
    who = (people.c.id.label("person"), people.c.epsilon, people.c.answer, people.c.version.label("row_version"))
    has = people.c.epsilon.is_not(None).label("answered")
    joint = sessions.join(people, people.c.id == sessions.c.person).join(store.studies)
    return (
        sa.select(store.studies, sessions.c.hash, sessions.c.expires, *who, has)
        .select_from(joint)
        .where(sessions.c.hash == sa.bindparam("hash"))
    )


def _change(*columns: str) -> sa.Update:
    named: dict[str, Any] = {name: sa.bindparam(name) for name in columns}
    return sa.update(store.people).where(store.people.c.id == sa.bindparam("who")).values(named)


# Statements of the busiest path are made once.
_RECORD = _record_query()
_CHANGE = _change("epsilon", "answer", "version")
_CHANGE_FIRST = _change("epsilon", "answer", "version", "invitation", "again")
_OTHERS = sa.delete(store.sessions).where(
    (store.sessions.c.person == sa.bindparam("who")) & (store.sessions.c.hash != sa.bindparam("hash"))
)


def send(transaction: store.Transaction, joined: Joined, vault: keys.Vault, token: str, new: NewAnswer) -> Any:
    """Store or change a person's answer and return the receipt."""
    study, row = _record(transaction.execute, token)
    _changeable(study, row)
    level = study.level(new.tier, new.epsilon)
    changes: dict[str, Any] = {"epsilon": level, "answer": _sealed(new.value, level, study, vault, row.person)}
    _registered(transaction, row, changes)
    again = None
    if not row.answered:
        again = keys.fresh()
        changes |= {"invitation": None, "again": keys.digest("again", again)}
        _only_session(transaction, row.person, token)
    transaction.execute(_CHANGE_FIRST if again else _CHANGE, {"who": row.person, **changes})
    gone = row.epsilon if row.answered else None
    transaction.scrub |= row.answered
    transaction.after(lambda: joined.change(study.id, gone, level))
    return {"received": True, "first": not row.answered, "again": again, **_choice(study, level)}


def withdraw(transaction: store.Transaction, joined: Joined, token: str) -> dict[str, Any]:
    """Delete a person's answer, until it is published; they may send another one until closing."""
    study, row = _record(transaction.execute, token)
    if not row.answered:
        return {"withdrawn": True}
    if study.phase() not in {"open", "closed"}:
        raise RefusedError(409, "closed", "Answers are closed.")
    gone: dict[str, Any] = {"answer": None, "epsilon": None}
    _registered(transaction, row, gone)
    transaction.scrub = True
    transaction.execute(_CHANGE, {"who": row.person, **gone})
    transaction.after(lambda: joined.change(study.id, row.epsilon, None))
    return {"withdrawn": True}


def view(execute: Execute, token: str) -> tuple[Study, dict[str, Any]]:
    """Return a person's study and what they chose; not what they answered."""
    study, row = _record(execute, token)
    chosen = _choice(study, row.epsilon) if row.answered else None
    may = study.phase() == "open" and (study.changeable or not row.answered)
    return study, {"study": study.to_dict(), "joined": row.answered, "choice": chosen, "may_send": may}


def enter(transaction: store.Transaction, token: str) -> str:
    """Return whose invitation or link to come back this is; every other token is refused alike."""
    table = store.people
    found = None
    for kind, column in (("invitation", table.c.invitation), ("again", table.c.again)):
        hashed = keys.digest(kind, token)
        row = transaction.execute(sa.select(table.c.id, column.label("hash")).where(column == hashed)).first()
        if keys.same(row.hash if row else None, hashed) and row is not None:
            found = row.id  # no early end: every token costs two lookups
    if found is None:
        raise RefusedError(403, "invitation", "This link is not valid, or it was used already.")
    return str(found)


def _record(execute: Execute, token: str) -> tuple[Study, Any]:
    """Return a session's study and person in one query."""
    hashed = keys.digest("session", token)
    row = execute(_RECORD, {"hash": hashed}).first()
    if not keys.same(row.hash if row else None, hashed) or row is None or row.expires < time.time():
        raise RefusedError(401)
    return Study.of(row), row


def _registered(transaction: store.Transaction, row: Any, changes: dict[str, Any]) -> None:
    """Give a changed row its version, and tell the register which row it replaces."""
    changes["version"] = new_version()
    before = {"id": row.person, "study": row.id, "epsilon": row.epsilon, "answer": row.answer}
    transaction.person(row.id, {**before, "version": row.row_version}, {**before, **changes})


def _changeable(study: Study, row: Any) -> None:
    if study.phase() != "open":
        raise RefusedError(409, "closed", "This study does not take answers now.")
    if row.answered and not study.changeable:
        raise RefusedError(409, "final", "In this study an answer cannot be changed; it can be withdrawn.")


def _only_session(transaction: store.Transaction, person: str, token: str) -> None:
    """End the other sessions of a person: the first answer uses the invitation up."""
    transaction.execute(_OTHERS, {"who": person, "hash": keys.digest("session", token)})


def _sealed(value: float, level: float, study: Study, vault: keys.Vault, person: str) -> bytes:
    """Return a value as a sealed code; that of a person who is never used is not kept at all."""
    code = int(study.interval.codes(np.array([value]), np.empty(1))[0]) if level > 0 else 0
    return vault.seal(code, person, study.id, level)


def _choice(study: Study, level: float) -> dict[str, Any]:
    return {"tier": study.names.get(level), "epsilon": "inf" if level == np.inf else level}
