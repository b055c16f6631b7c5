"""What one person sends, changes, withdraws. The value becomes a sealed grid code at once and is never read again here.

Claim: whatever number a person sends, the answer of the server, its status, its length, its log line and every row but
the sealed one are the same.

Argument: the value goes into `_sealed` alone. There it becomes an integer code by the library's rule, for which every
double is fine (outside the bounds counts as the nearer bound), and then bytes of one length. Nothing branches on it.

Whose row a session may change is decided by the session's own MAC and by the register, not by what the database says.
Withdrawing needs nothing of the row that is there: it is written anew, so it works also when somebody has changed it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
from pydantic import Field

from . import access, keys, store, studies
from .access import Execute
from .errors import RefusedError
from .register import ChangedError, new_version
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


def _change(*columns: str) -> sa.Update:
    named: dict[str, Any] = {name: sa.bindparam(name) for name in columns}
    return sa.update(store.people).where(store.people.c.id == sa.bindparam("who")).values(named)


# Statements of the busiest path are made once.
_PERSON = sa.select(store.people).where(store.people.c.id == sa.bindparam("who"))
_CHANGE = _change(*(column.name for column in store.people.c if column.name != "id"))


def send(transaction: store.Transaction, joined: Joined, vault: keys.Vault, token: str, new: NewAnswer) -> Any:
    """Store or change a person's answer and return the receipt."""
    session, study_id = _who(transaction, token)
    person = session.person
    study, row = studies.get(transaction, study_id), _believed(transaction, session)
    answered = row["epsilon"] is not None
    if transaction.register.opened(study.id, study.wave):
        raise RefusedError(409, "closed", "This study does not take answers now.")
    _changeable(study, answered=answered)
    level = study.level(new.tier, new.epsilon)
    sealed = _sealed(new.value, level, study, vault, person)
    now = {**row, "epsilon": level, "answer": sealed, "version": new_version()}
    again = None
    if not answered:
        again = keys.fresh()
        now |= {"invitation": None, "again": keys.digest("again", again)}
        access.only_session(transaction, session)  # the first answer uses the invitation up
    _write(transaction, now)
    transaction.scrub |= answered
    transaction.after(lambda: joined.change(study.id, row["epsilon"], level))
    return {"received": True, "first": not answered, "again": again, **_choice(study, level)}


def withdraw(transaction: store.Transaction, joined: Joined, token: str) -> dict[str, Any]:
    """Delete a person's answer, until answers are read; they may send another one until closing."""
    session, study = _who(transaction, token)
    person, row = session.person, _row(transaction, session.person)
    vouched = row is not None and transaction.vouches("person", row)
    if row is not None and vouched and row["epsilon"] is None:
        return {"withdrawn": True}
    published = row is not None and vouched and row["answer"] is None
    if published or _being_read(transaction, study):
        raise RefusedError(409, "closed", "Answers are closed: they are being published, or were.")
    gone = {"id": person, "study": study, "version": new_version()}
    links = {name: row[name] for name in ("invitation", "again")} if row is not None and vouched else {}
    if row is None:  # somebody has removed it; it comes back empty
        transaction.execute(sa.insert(store.people).values(gone))
        transaction.wrote("person", gone)
    else:
        _write(transaction, {**dict.fromkeys(row), **gone, **links})
    transaction.scrub = True
    epsilon = row["epsilon"] if row is not None and vouched else None
    transaction.after(lambda: joined.change(study, epsilon, None))
    return {"withdrawn": True}


async def seen(database: store.Store, token: str) -> tuple[Study, dict[str, Any]]:
    """Return a person's study and what they chose, not what they answered.

    If somebody has changed the study or the person's row from outside, nothing can be sent, but it can be withdrawn.
    """
    try:
        return await database.read(lambda transaction: _view(transaction, token))
    except ChangedError:
        return await database.read(lambda transaction: _changed(transaction, token))


def _view(transaction: store.Transaction, token: str) -> tuple[Study, dict[str, Any]]:
    session, study_id = _who(transaction, token)
    study, row = studies.get(transaction, study_id), _believed(transaction, session)
    joined = row["epsilon"] is not None
    chosen = _choice(study, row["epsilon"]) if joined else None
    may = study.phase() == "open" and (study.changeable or not joined)
    about = {"study": study.to_dict(), "joined": joined, "choice": chosen, "may_send": may, "changed": False}
    return study, about


def _changed(transaction: store.Transaction, token: str) -> tuple[Study, dict[str, Any]]:
    _, study_id = _who(transaction, token)
    study = studies.shown(transaction.execute, study_id)
    about = {"study": study.to_dict(), "joined": True, "choice": None, "may_send": False, "changed": True}
    return study, about


def enter(transaction: store.Transaction, token: str) -> str:
    """Return whose invitation or link to come back this is; every other token is refused alike."""
    table = store.people
    found = None
    for kind, column in (("invitation", table.c.invitation), ("again", table.c.again)):
        hashed = keys.digest(kind, token)
        row = transaction.execute(sa.select(table).where(column == hashed)).first()
        if row is not None and keys.same(row._mapping[kind], hashed):
            found = dict(row._mapping)  # no early end: every token costs two lookups
    if found is None:
        raise RefusedError(403, "invitation", "This link is not valid, or it was used already.")
    if not transaction.vouches("person", found):
        raise ChangedError
    return str(found["id"])


def _who(transaction: store.Transaction, token: str) -> tuple[Any, str]:
    """Return the session and the study of its person, as the session's own MAC and the register have it."""
    session = access.session(transaction, token)
    person = None if session is None else session.person
    study = None if person is None else transaction.register.study_of(person)
    if study is None:
        raise RefusedError(401)
    return session, study


def _believed(transaction: store.Transaction, session: Any) -> dict[str, Any]:
    """Return the row of a session's person, or raise if it was changed from outside."""
    row = _row(transaction, session.person)
    if row is None or not transaction.vouches("person", row):
        raise ChangedError
    return row


def _being_read(transaction: store.Transaction, study: str) -> bool:
    """Say whether answers are being published, or were; of a study that was changed from outside the register knows."""
    try:
        found = studies.get(transaction, study)
    except RefusedError:
        return transaction.register.opened(study)
    return found.status in {"publishing", "published"} or transaction.register.opened(study, found.wave)


def _row(transaction: store.Transaction, person: str) -> dict[str, Any] | None:
    row = transaction.execute(_PERSON, {"who": person}).mappings().first()
    return None if row is None else dict(row)


def _write(transaction: store.Transaction, row: dict[str, Any]) -> None:
    """Write all cells of a person's row, and tell the register."""
    transaction.execute(_CHANGE, {"who": row["id"], **{name: cell for name, cell in row.items() if name != "id"}})
    transaction.wrote("person", row)


def _changeable(study: Study, *, answered: bool) -> None:
    if study.phase() != "open":
        raise RefusedError(409, "closed", "This study does not take answers now.")
    if answered and not study.changeable:
        raise RefusedError(409, "final", "In this study an answer cannot be changed; it can be withdrawn.")


def _sealed(value: float, level: float, study: Study, vault: keys.Vault, person: str) -> bytes:
    """Return a value as a sealed code; that of a person who is never used is not kept at all."""
    code = int(study.interval.codes(np.array([value]), np.empty(1))[0]) if level > 0 else 0
    return vault.seal(code, person, study.id, level)


def _choice(study: Study, level: float) -> dict[str, Any]:
    return {"tier": study.names.get(level), "epsilon": "inf" if level == np.inf else level}
