"""Publish: close a wave, charge everybody's budget, release once, store, show.

The order survives a crash at any point. The wave is closed and committed first, so the people and their ε can no longer
change; the ledger then charges them under the release's own id before a code is opened, and gives the stored
result again when asked twice; at last the result is stored and, after the last wave, every sealed answer is deleted.
A wave that was left closed without a result is taken up again at the next start.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa

from .._errors import HetdpError
from .._groupby import Table
from .._plan import Plan
from .._tally import Tally
from ..ledger import Ledger
from ..ledger._amounts import UNLIMITED, Rule
from ..ledger._release import Request, carry_out
from . import insight, keys, store, studies
from .access import Execute
from .errors import RefusedError
from .guard import place
from .studies import Study

log = logging.getLogger("hetdp.server")
_REFUSES = (
    "This wave cannot be released. The operator finds the kind of error in the log, and can check the ledger with: "
    "hetdp ledger verify"
)
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
            charged = self.ledger.charged(_release_id(study_id, wave))
            done = self._run(lambda transaction: _close(transaction, study_id, wave, charged=charged))
            result: dict[str, Any] = done if done is not None else self._finish(study_id, wave)
            return result

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

    def _finish(self, study_id: str, wave: int) -> dict[str, Any]:
        with self.database.engine.connect() as connection:
            study = studies.get(connection.execute, study_id)
            columns = (store.people.c.id, store.people.c.epsilon)
            rows = connection.execute(sa.select(*columns).where(_answered(study_id)).order_by(store.people.c.id)).all()
        body = self._released(study, wave, {row.id: row.epsilon for row in rows})
        result: dict[str, Any] = self._run(lambda transaction: self._store(transaction, study, wave, body))
        return result

    def _released(self, study: Study, wave: int, chosen: dict[str, float]) -> dict[str, Any]:
        """Return the facts of a release that the ledger has charged and stored; the same ones if it has already."""
        ask = {"bounds": study.interval, "method": "adpm", "variance": None}
        people, rule = dict.fromkeys(chosen, UNLIMITED), Rule.given(share=study.waves[wave].share)
        request = Request(_release_id(study.id, wave), rule, ask, people, {"study": study.id, "wave": wave})
        names = insight.names_of(study, dict.fromkeys(chosen.values(), 1))
        try:
            self.ledger.enroll(chosen)
            released = carry_out(self.ledger, request, lambda places, plan: self._tally(study, chosen, places, plan))
        except HetdpError as error:
            log.warning("ledger refuses", extra={"facts": {"study": study.id, "error": type(error).__name__}})
            raise RefusedError(409, "ledger", _REFUSES) from None
        facts = {**released.to_dict(), "table": insight.table(released.plan, names)}
        here = self.ledger.name  # a file or an address, which is nobody's business
        facts["ledger"]["name"] = "of this server"
        facts["assumptions"] = [said.replace(f" {here},", " of this server,") for said in facts["assumptions"]]
        facts["tiers"] = [{**tier, "name": names.get(_level(tier["epsilon"]))} for tier in facts["tiers"]]
        return facts

    def _tally(self, study: Study, chosen: Mapping[str, float], places: Mapping[str, int], plan: Plan) -> Tally:
        """Open the codes of those who take part; the ledger calls this after the charge is on disk.

        A code opens for the ε that the ledger was told, or not at all.
        """
        columns = (store.people.c.id, store.people.c.answer)
        sums = [0] * len(plan.levels)
        with self.database.engine.connect() as connection:
            rows = connection.execute(sa.select(*columns).where(_answered(study.id))).all()
        for person, sealed in rows:
            if person in places:
                sums[places[person]] += self.vault.open(sealed, person, study.id, chosen[person])
        levels = plan.levels
        table = Table(levels.epsilon, levels.count, np.array(sums, np.int64), levels.rounded)
        return Tally(table, plan.interval, levels.names)

    def _store(self, transaction: store.Transaction, study: Study, wave: int, body: dict[str, Any]) -> dict[str, Any]:
        now = int(time.time())
        row = {"study": study.id, "wave": wave, "published": now, "body": json.dumps(body, allow_nan=False)}
        transaction.execute(sa.insert(store.results).values(row))
        last = wave + 1 == len(study.waves)
        state = {"wave": wave + 1, "status": "published" if last else "open"}
        transaction.execute(sa.update(store.studies).where(store.studies.c.id == study.id).values(state))
        if last:
            transaction.execute(sa.update(store.people).where(_answered(study.id)).values(answer=None))
            transaction.scrub = True
        studies.note(transaction, "published", study.id, {"wave": wave, "n": body["n"]})
        return stored(transaction.execute, study.id, wave)

    def _run(self, job: store.Job[Any]) -> Any:
        return self.database.submit(job).result()


def _release_id(study: str, wave: int) -> str:
    return f"{study}-{wave}"


def _close(transaction: store.Transaction, study_id: str, wave: int, *, charged: bool) -> dict[str, Any] | None:
    """Close a wave to answers, or return its result if it has one, or raise.

    A wave is closed before it is charged, so one that is open and charged stands in an old copy of the database.
    """
    study = studies.get(transaction.execute, study_id)
    if wave < study.wave:
        return stored(transaction.execute, study_id, wave)
    if wave > study.wave or wave >= len(study.waves) or study.phase() == "planned":
        raise RefusedError(409, "wave", "This wave cannot be published now.")
    if study.status == "publishing":
        return None
    if charged:
        raise RefusedError(409, "old-copy", _OLD_COPY)
    n = transaction.execute(
        sa.select(sa.func.count()).select_from(store.people).where(_answered(study_id))
    ).scalar_one()
    if n < study.fewest:
        raise RefusedError(409, "too-few", f"There are {n} people; this study publishes from {study.fewest} on.")
    transaction.execute(sa.update(store.studies).where(store.studies.c.id == study_id).values(status="publishing"))
    studies.note(transaction, "closed for publication", study_id, {"wave": wave, "n": n})
    return None


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
