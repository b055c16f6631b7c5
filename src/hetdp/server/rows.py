"""Rows from a file: each line becomes a person whose answer is sealed as if they had sent it.

The library reads the file by its own rule for delimited text: no value can raise or move another person's choice,
and no message quotes one. It reads from files only, so the body stands in one for that moment: an unnamed one in
memory, which is gone when this process is, however it ends.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
from fastapi import APIRouter, Header, Request
from starlette.concurrency import run_in_threadpool

from hetdp.errors import InputError
from hetdp.sources import Source

from . import keys, store, studies
from .api import CURATOR
from .errors import RefusedError
from .register import ChangedError, new_version
from .strict import StrictRoute
from .studies import Study

router = APIRouter(route_class=StrictRoute)
_BODY = {"content": {"text/csv": {"schema": {"type": "string"}}}, "required": True}

Rows = list[dict[str, Any]]
_NO_TEXT = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
"""How files begin that unfold into more than the limit on a body allows."""


@router.post(
    "/api/studies/{study}/rows",
    tags=["curator"],
    dependencies=[CURATOR],
    status_code=201,
    openapi_extra={"requestBody": _BODY},
)
async def bring(
    request: Request, study: str, idempotency_key: Annotated[str, Header(min_length=8, max_length=100)]
) -> dict[str, Any]:
    """Import people from CSV with the columns `value` and `tier` (or `epsilon`). The same key twice imports once."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "text/csv":
        raise RefusedError(415)
    database, state, body = request.app.state.store, request.app.state, await request.body()
    if body.startswith(_NO_TEXT):
        raise RefusedError(415)
    found = await database.read(lambda transaction: studies.get(transaction, study))
    people = await run_in_threadpool(_people, body, found, state.vault)

    def job(transaction: store.Transaction) -> dict[str, Any]:
        return _add(transaction, state.joined, found.id, keys.digest("import", idempotency_key), people)

    added: dict[str, Any] = await database.write(job)
    return added


def _people(body: bytes, study: Study, vault: keys.Vault) -> Rows:
    """Return the people of a file, their answers sealed."""
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
    return [row for batch in batches for row in _sealed(batch, study, vault)]


def _sealed(batch: Any, study: Study, vault: keys.Vault) -> Rows:
    values = np.asarray(batch.values)
    codes = study.interval.codes(values, np.empty(values.size)).astype(np.int64).tolist()
    rows = []
    for code, epsilon in zip(codes, batch.epsilon.tolist(), strict=True):
        person, level = keys.opaque_id(), study.level(None, epsilon) if study.free else epsilon
        sealed = vault.seal(code if level > 0 else 0, person, study.id, level)
        rows.append({"id": person, "study": study.id, "epsilon": level, "answer": sealed, "version": new_version()})
    return rows


def _add(transaction: store.Transaction, joined: Any, study_id: str, key: str, people: Rows) -> dict[str, Any]:
    table = store.imports
    before = transaction.execute(sa.select(table).where(table.c.id == key)).first()
    if before is None and transaction.register.knows("import", key):
        raise ChangedError  # taken out of the database, and its people would come a second time
    if before is not None:
        if not transaction.vouches("import", {"id": key, "study": before.study, "people": before.people}):
            raise ChangedError
        if before.study != study_id:
            raise RefusedError(409, "key", "This idempotency key was used for another study.")
        return {"people": before.people}
    if studies.get(transaction, study_id).phase() not in {"open", "closed"}:
        raise RefusedError(409, "closed", "This study does not take answers now.")
    if people:
        transaction.execute(sa.insert(store.people), people)
        for person in people:
            transaction.wrote("person", person)
    row = {"id": key, "study": study_id, "people": len(people)}
    transaction.execute(sa.insert(table).values(row))
    transaction.wrote("import", row)
    studies.note(transaction, "rows imported", study_id, {"count": len(people)})
    come = Counter(row["epsilon"] for row in people)
    transaction.after(lambda: joined.counts[study_id].update(come))
    return {"people": len(people)}
