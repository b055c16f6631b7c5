"""Publish: close a wave, charge everybody's budget, release once, store, show.

The order survives a crash at any point. The wave is closed and committed first, so the people and their ε can no longer
change; the ledger then charges them under the release's own id before a code is opened, and gives the stored
result again when asked twice; at last the result is stored and, after the last wave, every sealed answer is deleted.
A wave that was left closed without a result is taken up again at the next start.

Claim. Whoever can write to the database, but has neither the vault's key nor the files beside it, cannot have anybody's
answer used at a larger ε than that person chose last, nor after they withdrew.

Argument. The rows are read once and compared with the register before anything is charged, so these are the ε that
people chose last; the same rows are used to the end. What each person allows, the share of their ε, is part of the
request: the ledger charges nobody more, whatever its own tables say, and carries out no charge whose request is another
one. Before the first code is opened, the level of each person in the charged plan is compared with what they allow.
The shares of a study and the wave it has come to are in the register as well, so the waves add up to ε at most.

A publication that fails leaves the wave stopped: people can change or withdraw, and the curator can try again. If
nothing has changed by then, the charge that was made is carried out; else it is given up, and the new request is
charged under a further id.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa

from .._errors import HetdpError, InputError, PrivacyError
from .._groupby import Table
from .._plan import Plan
from .._tally import Tally
from ..ledger import Ledger, LedgerRelease
from ..ledger._amounts import Rule
from ..ledger._errors import OtherRequestError
from ..ledger._release import Request, carry_out
from . import insight, keys, store, studies
from .access import Execute
from .errors import RefusedError
from .guard import place
from .register import ChangedError
from .studies import Study

log = logging.getLogger("hetdp.server")
_REFUSES = (
    "This wave could not be released. Nothing was shown, and people can change or withdraw their answers again. The "
    "operator finds the kind of error in the log, and can check the ledger with: hetdp ledger verify. When that is "
    "repaired, publish again."
)
_CHANGED = (
    "The answers of this study are not as this server left them: its database was changed from outside, or an older "
    "copy was put back. Nothing was charged or released, and people can still withdraw. The operator can bring the "
    "newest copy back and restart the server; otherwise this study cannot be published, and a new one can be made."
)
_MOST_ATTEMPTS = 24
_NO_LEDGER = "The ledger cannot be read now, so nothing was changed. Try again; if it stays so, ask the operator."
_OLD_COPY = (
    "This wave was released before: the ledger has it and this database does not, so it is an old copy. "
    "Bring the newest one back."
)


@dataclass
class Publisher:
    """Publishes the waves of studies, one thread a study at a time."""

    database: store.Store
    vault: keys.Vault
    ledger: Ledger
    locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    closed: bool = False

    def publish(self, study_id: str, wave: int) -> dict[str, Any]:
        """Return the result of a wave; the same one however often it is asked for."""
        with self.locks[study_id]:
            if self.closed:
                raise RefusedError(503)
            try:
                charged = self.ledger.charged(_release_id(study_id, wave))
            except HetdpError as error:  # nothing has happened yet
                log.warning("ledger not readable", extra={"facts": {"study": study_id, "error": type(error).__name__}})
                raise RefusedError(503, "ledger", _NO_LEDGER) from None
            try:
                found = self._run(lambda transaction: _closed(transaction, study_id, wave, charged=charged))
            except ChangedError:
                self._stop(study_id, "ChangedError")
                raise RefusedError(409, "changed", _CHANGED) from None
            if isinstance(found, tuple):
                study, answered = found
                return self._finish(study, answered, wave)
            return dict(found)

    def close(self) -> None:
        """Begin no more publications, wait for those under way, and let go of the ledger."""
        self.closed = True
        for lock in list(self.locks.values()):
            with lock:
                pass
        self.ledger.close()

    def resume(self) -> None:
        """Finish what a crash left closed without a result."""
        with self.database.engine.connect() as connection:
            left = [study for study in studies.every(connection.execute) if study.status == "publishing"]
        for study in left:
            try:
                self.publish(study.id, study.wave)
            except Exception as error:  # noqa: BLE001  the others are served; the curator is told when asking again
                why = {"error": type(error).__name__, "at": place(error)}
                log.warning("publication not finished", extra={"facts": {"study": study.id, **why}})

    def _finish(self, study: Study, answered: Sequence[Any], wave: int) -> dict[str, Any]:
        try:
            body = self._released(study, wave, answered)
        except HetdpError as error:
            self._stop(study.id, type(error).__name__)
            raise RefusedError(409, "ledger", _REFUSES) from None
        result: dict[str, Any] = self._run(lambda transaction: self._store(transaction, study, wave, body))
        return result

    def _stop(self, study_id: str, why: str) -> None:
        """Open a wave again that was closed for a publication which failed, so that people can withdraw."""
        log.warning("publication stopped", extra={"facts": {"study": study_id, "error": why}})

        def job(transaction: store.Transaction) -> None:
            if studies.get(transaction.execute, study_id).status == "publishing":
                studies.move(transaction, study_id, status="stopped")

        self._run(job)

    def _released(self, study: Study, wave: int, answered: Sequence[Any]) -> dict[str, Any]:
        """Return the facts of a release that the ledger has charged and stored; the same ones if it has already."""
        ask = {"bounds": study.interval, "method": "adpm", "variance": None}
        share = study.waves[wave].share
        allowed = _allowed(answered, share)
        self.ledger.enroll({row.id: row.epsilon for row in answered})

        def read(places: Mapping[str, int], plan: Plan) -> Tally:
            return self._tally(study, share, answered, places, plan)

        for attempt in range(_MOST_ATTEMPTS):
            name, about = _release_id(study.id, wave, attempt), {"study": study.id, "wave": wave}
            try:
                released = carry_out(self.ledger, Request(name, Rule.given(share=share), ask, allowed, about), read)
            except OtherRequestError:  # an earlier attempt was charged for other people or levels: it is given up
                continue
            return self._facts(study, released, answered)
        raise InputError("too many attempts at this wave were charged and given up")

    def _facts(self, study: Study, released: LedgerRelease, answered: Sequence[Any]) -> dict[str, Any]:
        names = insight.names_of(study, dict.fromkeys((row.epsilon for row in answered), 1))
        facts = {**released.to_dict(), "table": insight.table(released.plan, names)}
        here = self.ledger.name  # a file or an address, which is nobody's business
        facts["ledger"]["name"] = "of this server"
        facts["assumptions"] = [said.replace(f" {here},", " of this server,") for said in facts["assumptions"]]
        facts["tiers"] = [{**tier, "name": names.get(_level(tier["epsilon"]))} for tier in facts["tiers"]]
        return facts

    def _tally(
        self, study: Study, share: float, answered: Sequence[Any], places: Mapping[str, int], plan: Plan
    ) -> Tally:
        """Open the codes of those who take part; the ledger calls this after the charge is on disk.

        Nothing is opened unless everybody's level in the plan is within what they allow.
        """
        levels, known = plan.levels.epsilon.tolist(), {row.id: row for row in answered}
        for person, at in places.items():
            if person not in known or levels[at] > insight.allowance(known[person].epsilon, share):
                raise PrivacyError("this plan would use an answer at more than its person allows; nothing was opened")
        sums = [0] * len(levels)
        for person, at in places.items():
            row = known[person]
            sums[at] += self.vault.open(row.answer, person, study.id, row.epsilon)
        found = plan.levels
        table = Table(found.epsilon, found.count, np.array(sums, np.int64), found.rounded)
        return Tally(table, plan.interval, found.names)

    def _store(self, transaction: store.Transaction, study: Study, wave: int, body: dict[str, Any]) -> dict[str, Any]:
        now = int(time.time())
        row = {"study": study.id, "wave": wave, "published": now, "body": json.dumps(body, allow_nan=False)}
        transaction.execute(sa.insert(store.results).values(row))
        last = wave + 1 == len(study.waves)
        studies.move(transaction, study.id, wave=wave + 1, status="published" if last else "open")
        if last:  # the register keeps the answers: nothing of this study is ever checked again, or put back
            transaction.execute(sa.update(store.people).where(_answered(study.id)).values(answer=None))
            transaction.scrub = True
        studies.note(transaction, "published", study.id, {"wave": wave, "n": body["n"]})
        return stored(transaction.execute, study.id, wave)

    def _run(self, job: store.Job[Any]) -> Any:
        return self.database.submit(job).result()


def _release_id(study: str, wave: int, attempt: int = 0) -> str:
    return f"{study}-{wave}-{attempt}" if attempt else f"{study}-{wave}"


def _allowed(answered: Sequence[Any], share: float) -> dict[str, int]:
    """Return what a wave may use of everybody at most, in the ledger's units."""
    return {row.id: insight.allowed_units(row.epsilon, share) for row in answered}


def _closed(
    transaction: store.Transaction, study_id: str, wave: int, *, charged: bool
) -> tuple[Study, list[Any]] | dict[str, Any]:
    """Close a wave; return its study and the rows of those who answered, or its result if it has one. Or raise.

    Nothing is written unless the register vouches for the rows, and closing is one transaction with reading them: what
    is returned cannot change any more. A wave is closed before it is charged, so one that is open and charged stands
    in an old copy of the database.
    """
    study = studies.get(transaction.execute, study_id)
    if wave < study.wave:
        return stored(transaction.execute, study_id, wave)
    if wave > study.wave or wave >= len(study.waves) or study.phase() == "planned":
        raise RefusedError(409, "wave", "This wave cannot be published now.")
    if charged and study.status == "open":
        raise RefusedError(409, "old-copy", _OLD_COPY)
    answered = [row for row in transaction.checked(study_id) if row.answer is not None]
    if study.status == "publishing":
        return study, answered
    n = len(answered)
    if n < study.fewest:
        raise RefusedError(409, "too-few", f"There are {n} people; this study publishes from {study.fewest} on.")
    studies.move(transaction, study_id, status="publishing")
    studies.note(transaction, "closed for publication", study_id, {"wave": wave, "n": n})
    return study, answered


def _answered(study: str) -> sa.ColumnElement[bool]:
    return (store.people.c.study == study) & store.people.c.answer.is_not(None)


def _level(epsilon: float | str) -> float:
    return math.inf if isinstance(epsilon, str) else epsilon


def stored(execute: Execute, study: str, wave: int | None = None) -> dict[str, Any]:
    """Return a published result with its study, the latest if no wave is named; all of it public."""
    table = store.results
    query = sa.select(table).where(table.c.study == study).order_by(table.c.wave.desc())
    rows = execute(query).all()
    row = next((row for row in rows if wave is None or row.wave == wave), None)
    if row is None:
        raise RefusedError(404)
    others = sorted(row.wave for row in rows)
    about = studies.get(execute, study).to_dict()
    return {
        "study": about,
        "wave": row.wave,
        "waves": others,
        "published": row.published,
        "result": json.loads(row.body),
    }


def published(execute: Execute) -> list[dict[str, Any]]:
    """Return the studies that have a result, the newest result first."""
    table = sa.select(store.studies, sa.func.max(store.results.c.published).label("published"))
    joint = table.join_from(store.studies, store.results).group_by(store.studies.c.id)
    rows = execute(joint.order_by(sa.desc("published"))).all()
    return [{"id": row.id, "question": row.question, "published": row.published} for row in rows]
