"""What people send, change and withdraw, and people from a file. A value becomes a sealed grid code at once.

Claim: whatever number a person sends, the answer of the server, its status, its length, its log line and every row but
the sealed one are the same.

Argument: the value goes into `_sealed` alone. There it becomes an integer code by the library's rule, for which every
double is fine (outside the bounds counts as the nearer bound), and then bytes of one length. Nothing branches on it.

Whose row a session may change is decided by the session's own MAC and by the register, not by what the database says.
Withdrawing needs nothing of the row that is there: it is written anew, so it works also when somebody has changed it.

A file is read by the library's own rule for delimited text: no value can raise or move another person's choice, and no
message quotes one. The library reads from files only, so the body is put into one for that moment: an unnamed one in
memory, which is gone when this process is, however it ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
from pydantic import Field

from hetdp.errors import InputError
from hetdp.sources import Source

from . import access, store, studies
from .guard import RefusedError
from .register import ChangedError, new_version
from .studies import Strict, Study

# How files begin that unfold into more than the limit on a body allows.
_NO_TEXT = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")


class NewAnswer(Strict):
    """A value and a privacy choice: a tier by name, or an ε where the study leaves it free."""

    value: float
    tier: Annotated[str, Field(max_length=40)] | None = None
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | None = None


def enter(transaction: store.Transaction, token: str) -> str:
    """Return a new session of the person whose invitation or link this is; every other token is refused alike."""
    table = store.people
    found = None
    for kind, column in (("invitation", table.c.invitation), ("again", table.c.again)):
        hashed = access.digest(kind, token)
        row = transaction.execute(sa.select(table).where(column == hashed)).first()
        if row is not None and access.same(row._mapping[kind], hashed):
            found = dict(row._mapping)  # no early end: every token costs two lookups
    if found is None:
        raise RefusedError(403, "invitation", "This link is not valid, or it was used already.")
    if not transaction.vouches("person", found):
        raise ChangedError
    return access.open_session(transaction, found["id"], access.PERSON_SECONDS)


def seen(transaction: store.Transaction, token: str) -> tuple[Study, dict[str, Any]]:
    """Return a person's study and what they chose, not what they answered."""
    session, study_id = _who(transaction, token)
    study, row = studies.get(transaction, study_id), _believed(transaction, session)
    joined = row["epsilon"] is not None
    chosen = study.choice(row["epsilon"]) if joined else None
    may = study.phase() == "open" and (study.changeable or not joined)
    return study, {"joined": joined, "choice": chosen, "may_send": may, "changed": False}


def seen_changed(transaction: store.Transaction, token: str) -> tuple[Study, dict[str, Any]]:
    """Return the same if the study or the row was changed from outside: nothing can be sent, it can be withdrawn."""
    _, study = _who(transaction, token)
    about = {"joined": True, "choice": None, "may_send": False, "changed": True}
    return studies.shown(transaction, study), about


def send(transaction: store.Transaction, vault: access.Vault, token: str, new: NewAnswer) -> dict[str, Any]:
    """Store or change a person's answer and return the receipt."""
    session, study_id = _who(transaction, token)
    study, row = studies.get(transaction, study_id), _believed(transaction, session)
    answered = row["epsilon"] is not None
    if study.phase() != "open" or transaction.register.opened(study.id, study.wave):
        raise RefusedError(409, "closed", "This study does not take answers now.")
    if answered and not study.changeable:
        raise RefusedError(409, "final", "In this study an answer cannot be changed; it can be withdrawn.")
    level = study.level(new.tier, new.epsilon)
    (sealed,) = _sealed(np.array([new.value]), [level], study, vault, [session.person])
    now = {**row, "epsilon": level, "answer": sealed, "version": new_version()}
    again = None
    if not answered:
        again = access.new_token()
        now |= {"invitation": None, "again": access.digest("again", again)}
        access.only_session(transaction, session)  # the first answer uses the invitation up
    transaction.change("person", now)
    transaction.scrub |= answered
    return {"received": True, "first": not answered, "again": again, **study.choice(level)}


def withdraw(transaction: store.Transaction, token: str) -> dict[str, Any]:
    """Delete a person's answer, until answers are read; they may send another one until closing."""
    session, study = _who(transaction, token)
    row = _row(transaction, session.person)
    believed = row if row is not None and transaction.vouches("person", row) else None
    if believed is not None and believed["epsilon"] is None:
        return {"withdrawn": True}
    published = believed is not None and believed["answer"] is None
    if published or _being_read(transaction, study):
        raise RefusedError(409, "closed", "Answers are closed: they are being published, or were.")
    links = {name: believed[name] for name in ("invitation", "again")} if believed is not None else {}
    gone = dict.fromkeys(store.people.c.keys()) | {"id": session.person, "study": study, "version": new_version()}
    if row is None:  # somebody has removed it; it comes back empty
        transaction.insert("person", [gone])
    else:
        transaction.change("person", gone | links)
    transaction.scrub = True
    return {"withdrawn": True}


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


def _row(transaction: store.Transaction, person: str) -> dict[str, Any] | None:
    row = transaction.execute(sa.select(store.people).where(store.people.c.id == person)).mappings().first()
    return None if row is None else dict(row)


def _being_read(transaction: store.Transaction, study: str) -> bool:
    """Say whether answers are being published, or were; of a study that was changed from outside the register knows."""
    try:
        found = studies.get(transaction, study)
    except RefusedError:
        return transaction.register.opened(study)
    return found.status in {"publishing", "published"} or transaction.register.opened(study, found.wave)


def _sealed(
    values: np.ndarray[Any, Any], levels: list[float], study: Study, vault: access.Vault, people: list[str]
) -> list[bytes]:
    """Return values as sealed codes; that of a person who is never used is not kept at all."""
    codes = study.interval.codes(values, np.empty(values.size)).astype(np.int64).tolist()
    return [
        vault.seal(code if level > 0 else 0, person, study.id, level)
        for code, level, person in zip(codes, levels, people, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------
# People from a file


def read_rows(body: bytes, study: Study, vault: access.Vault) -> list[dict[str, Any]]:
    """Return the people of a CSV file, their answers sealed as if they had sent them."""
    if body.startswith(_NO_TEXT):
        raise RefusedError(415)
    with os.fdopen(os.memfd_create("rows"), "wb") as file:
        file.write(body)
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}")
        column = "epsilon" if study.free else "tier"
        tiers = {tier.name: tier.epsilon for tier in study.tiers} or None
        try:
            batches = list(Source.of(path, value="value", epsilon=column, tiers=tiers).batches())
        except InputError as error:
            raise RefusedError(422, "rows", str(error).replace(str(path), "the file")) from None
    found: list[dict[str, Any]] = []
    for batch in batches:
        levels = [study.level(None, level) if study.free else level for level in batch.epsilon.tolist()]
        people = [access.new_id() for _ in levels]
        sealed = _sealed(np.asarray(batch.values), levels, study, vault, people)
        for person, level, answer in zip(people, levels, sealed, strict=True):
            row = {"id": person, "study": study.id, "epsilon": level, "answer": answer, "version": new_version()}
            found.append(row)
    return found


def add_rows(transaction: store.Transaction, study: str, key: str, people: list[dict[str, Any]]) -> dict[str, int]:
    """Add people from a file; those of a key that came before are there already."""
    key = access.digest("import", key)
    before = transaction.execute(sa.select(store.imports).where(store.imports.c.id == key)).first()
    if before is None and transaction.register.knows("import", key):
        raise ChangedError  # taken out of the database, and its people would come a second time
    if before is not None:
        if not transaction.vouches("import", {"id": key, "study": before.study, "people": before.people}):
            raise ChangedError
        if before.study != study:
            raise RefusedError(409, "key", "This idempotency key was used for another study.")
        return {"people": before.people}
    if studies.get(transaction, study).phase() not in {"open", "closed"}:
        raise RefusedError(409, "closed", "This study does not take answers now.")
    transaction.insert("person", people)
    transaction.insert("import", [{"id": key, "study": study, "people": len(people)}])
    transaction.note("rows imported", study, count=len(people))
    return {"people": len(people)}
