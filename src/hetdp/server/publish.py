"""Publish: close a wave, charge everybody's budget, release once, store, show.

The order survives a crash at any point. The wave is closed and committed first, so the people and their ε can no longer
change; the ledger then charges them under the release's own id before a code is opened, and gives the stored
result again when asked twice; at last the result is stored and, after the last wave, every sealed answer is deleted.
A wave that was left closed without a result is taken up again at the next start.

Claim. Whoever can write to the database, but has neither the vault's key nor the files beside it, cannot have anybody's
answer used at a larger ε than that person chose last, nor after they withdrew; and all waves of a study together use at
most that ε. Nor is a wave published before the closing date that its people were told.

Argument. The study and the rows of its people are what the server wrote last, as the register vouches, and the very
rows that were compared are used to the end. What each person allows, the share of their ε, is part of the request: the
ledger carries out no charge whose request is another one. Just before the answers are opened the register is asked once
more, the level of each person in the charged plan is compared with what they allow, and from then on nobody is told
that they have withdrawn. A number that was drawn is in the register before the database sees it, and a wave has one
number. So each wave uses at most its share of ε, and the shares, which the register covers, add up to one at most,
whatever the ledger in the database says about budgets.

Dates bind the curator too, by the server's own clock; they are cells of the study's row, for which the register
vouches. Up to the closing date everybody can withdraw. It can be brought forward by `close_early` alone, which
announces it and leaves the days of the notice. Whoever publishes late must wait for the next wave: see `_following`.

A publication that fails before a number was drawn leaves the wave stopped: people can change or withdraw, and the
curator can try again. If nothing has changed by then, the charge that was made is carried out; else it is given up, and
the new request is charged under a further id.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from hetdp.core.domain import epsilon_of
from hetdp.core.plan import Plan
from hetdp.errors import HetdpError, InputError, PrivacyError
from hetdp.ledger import Ledger, OtherRequestError, Request, Rule, charges
from hetdp.statistics.mean import Mean
from hetdp.statistics.statistic import Answer
from hetdp.tally.tally import Table, Tally

from . import access, studies, tables
from .access import RefusedError, Vault, where_raised
from .settings import Settings
from .store import ChangedError, Store, Transaction, new_version
from .studies import Study
from .tables import private

log = logging.getLogger("hetdp.server")
_REFUSES = (
    "This wave could not be released. Nothing was shown, and people can change or withdraw their answers again. The "
    "operator finds the kind of error in the log, and can check the ledger with: hetdp ledger verify. When that is "
    "repaired, publish again."
)
_NO_LEDGER = "The ledger cannot be read now, so nothing was changed. Try again; if it stays so, ask the operator."
_OLD_COPY = (
    "This wave was released before: the ledger has it and this database does not, so it is an old copy. "
    "Bring the newest one back."
)
_EARLY = (
    "This wave takes answers until {}, and can be published from then on. To publish sooner, close it early: everybody "
    "is told, and has some days to withdraw."
)
_NOT_SOONER = (
    "This wave closes on {} anyway. Closing early leaves people time to withdraw, until {}, so it is no sooner."
)


@dataclass
class Publisher:
    """Publishes the waves of studies, one at a time."""

    database: Store
    vault: Vault
    ledger: Ledger
    notice: int = 7 * 86_400  # seconds
    turn: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    def publish(self, study_id: str, wave: int) -> dict[str, Any]:
        """Return the result of a wave; the same one however often it is asked for."""
        with self.turn:
            if self.closed:
                raise RefusedError(503)
            self.database.write(expire)
            try:
                charged = self.ledger.charged(_release_id(study_id, wave))
            except HetdpError as error:  # nothing has happened yet
                log.warning("ledger not readable", extra={"facts": {"study": study_id, "error": type(error).__name__}})
                raise RefusedError(503, "ledger", _NO_LEDGER) from None
            try:
                found = self.database.write(_closed, study_id, wave, charged=charged)
            except ChangedError:
                self._stop(study_id, "ChangedError")
                raise
            return found if isinstance(found, dict) else self._finish(*found)

    def spent(self, person: str) -> float | None:
        """Return what the ledger has charged to a person so far, in ε; None if it cannot be read now."""
        try:
            return self.ledger.balance(person).spent
        except InputError:  # not enrolled: no wave with an answer of theirs was charged
            return 0.0
        except HetdpError:
            return None

    def close(self) -> None:
        """Wait for the publication that is under way, begin no more, and close the ledger."""
        with self.turn:
            self.closed = True
            self.ledger.close()

    def resume(self) -> None:
        """Finish what a crash left closed without a result."""
        for study in (study for study in self.database.read(studies.every) if study.status == "publishing"):
            try:
                self.publish(study.id, study.wave)
            except Exception as error:  # noqa: BLE001  the others are served; the curator is told when asking again
                why = {"error": type(error).__name__, "at": where_raised(error)}
                log.warning("publication not finished", extra={"facts": {"study": study.id, **why}})

    def _finish(self, study: Study, answered: list[Any]) -> dict[str, Any]:
        try:
            body = self._released(study, answered)
        except Exception as error:  # whatever a damaged ledger brings about, the wave must not hang
            self._stop(study.id, type(error).__name__)
            if isinstance(error, HetdpError) and not isinstance(error, RefusedError):
                raise RefusedError(409, "ledger", _REFUSES) from None
            raise
        result = self.database.write(_store, study, body, answered, self.notice)
        with suppress(RefusedError):  # it is stored; should this fail, the next wave does it
            self.database.register.finish(study.id, study.wave + 1)
        return result

    def _stop(self, study_id: str, why: str) -> None:
        """Open a wave again that was closed for a publication which failed, unless its number was drawn already."""
        log.warning("publication stopped", extra={"facts": {"study": study_id, "error": why}})

        def job(transaction: Transaction) -> None:
            nobody_reads = transaction.register.leave(study_id)
            if nobody_reads and studies.get(transaction, study_id).status == "publishing":
                studies.move(transaction, study_id, status="stopped")

        with suppress(ChangedError):  # a study that was changed stays as it is; its people can withdraw
            self.database.write(job)

    def _released(self, study: Study, answered: list[Any]) -> dict[str, Any]:
        """Return the facts of a release that the ledger has charged and stored; the same ones if it has already."""
        share, wave, register = study.current.share, study.wave, self.database.register
        used, (release, number) = register.used(study.id, wave), register.number(study.id, wave)
        allowed = {row.id: studies.most(row.epsilon, share, used[row.id]) for row in answered}
        about = {"study": study.id, "wave": wave}
        self.ledger.enroll({row.id: row.epsilon for row in answered})
        names = (_release_id(study.id, wave, attempt) for attempt in range(1000))
        for name in names if release is None else [release]:
            reading = Reading(self, study, name, answered, allowed, number)
            # An earlier attempt that was charged for other people or levels is given up.
            with suppress(OtherRequestError):
                request = Request(name, Rule.given(share=share), Mean(study.interval), people=allowed, about=about)
                return self._facts(study, self.ledger.carry_out(request, reading, reading), answered)
        raise InputError("no charge of this wave fits the people who are in it now")

    def _facts(self, study: Study, released: Answer, answered: list[Any]) -> dict[str, Any]:
        names = study.names({row.epsilon for row in answered})
        facts = {**released.to_dict(), "table": studies.table(released.plan, names)}
        here = facts["ledger"]["name"]  # a file or a database, which is nobody's business
        facts["ledger"]["name"] = "of this server"
        facts["assumptions"] = [said.replace(f" {here},", " of this server,") for said in facts["assumptions"]]
        facts["provenance"]["source"] = "the answers to this study"
        facts["tiers"] = [{**tier, "name": names.get(epsilon_of(tier["epsilon"]))} for tier in facts["tiers"]]
        return facts


@dataclass(frozen=True)
class Reading:
    """How the ledger gets the number of a wave, once its charge is on disk: the one that was drawn, or a new one."""

    publisher: Publisher
    study: Study
    release: str
    answered: list[Any]
    allowed: Mapping[str, int]
    drawn: float | None

    def __call__(self, places: Mapping[str, int], plan: Plan) -> Tally:
        """Open the codes of those who take part, unless the plan would spend more of somebody than they allow.

        What it spends at each level is computed from its weights and its noise, exactly, whatever it says itself.
        """
        mean = plan.statistic == Mean(self.study.interval)
        if not mean or not 0 < plan.shrink <= 1:  # else a number might be too large to keep
            raise PrivacyError("this plan is not for this study; nothing was opened")
        spends = charges(plan).tolist()
        for person, at in places.items():
            if not 0 <= at < len(spends) or spends[at] > self.allowed.get(person, -1):
                raise PrivacyError("this plan would use an answer at more than its person allows; nothing was opened")
        uses = {person: spends[at] for person, at in places.items()}
        self.publisher.database.write(self._opening, uses)
        known, sums = {row.id: row for row in self.answered}, [0] * len(spends)
        for person, at in places.items():
            row = known[person]
            sums[at] += self.publisher.vault.open(row.answer, person, self.study.id, row.epsilon)
        found = plan.levels
        table = Table.single(found.epsilon, found.count, np.array(sums, np.int64), rounded=found.rounded)
        return Tally(table, plan.statistic, found.names)

    def keep(self, number: float) -> None:
        """Write the number down where the database's owner cannot undo it, before the database sees it."""
        self.publisher.database.register.keep(self.study.id, self.study.wave, self.release, number)

    def _opening(self, transaction: Transaction, uses: Mapping[str, int]) -> None:
        """Say that these answers are going to be read, unless anything has changed since the wave was closed."""
        now = studies.get(transaction, self.study.id)
        if (now.status, now.wave, _answered(transaction, now)) != ("publishing", self.study.wave, self.answered):
            raise ChangedError
        transaction.register.open(self.study.id, self.study.wave, self.release, uses)


def _release_id(study: str, wave: int, attempt: int = 0) -> str:
    return f"{study}-{wave}-{attempt}" if attempt else f"{study}-{wave}"


def _closed(
    transaction: Transaction, study_id: str, wave: int, *, charged: bool
) -> tuple[Study, list[Any]] | dict[str, Any]:
    """Close a wave; return its study and the rows of those who answered, or its result if it has one. Or raise.

    Nothing is written unless the register vouches for the rows. They are read in the transaction that closes the wave,
    and these are the rows that are used. A wave is closed before it is charged, so one that is open and charged stands
    in an old copy of the database.
    """
    study = studies.get(transaction, study_id)
    if wave < study.wave:
        return stored(transaction, study_id, wave)
    if wave > study.wave or wave >= len(study.waves) or study.phase() in {"planned", "deleted"}:
        raise RefusedError(409, "wave", "This wave cannot be published now.")
    if study.phase() == "open":
        raise RefusedError(409, "early", _EARLY.format(access.date(study.current.closes)))
    if charged and study.status == "open":
        raise RefusedError(409, "old-copy", _OLD_COPY)
    transaction.register.finish(study_id, study.wave)  # if the server was cut off just before it said so
    answered = _answered(transaction, study)
    if study.status == "publishing":
        return study, answered
    n = len(answered)
    if n < study.fewest:
        raise RefusedError(409, "too-few", f"There are {n} people; this study publishes from {study.fewest} on.")
    studies.move(transaction, study_id, status="publishing")
    transaction.note("closed for publication", study_id, wave=wave, n=n)
    return study, answered


def _answered(transaction: Transaction, study: Study) -> list[Any]:
    """Return the rows of those who answered, if the register vouches for everybody."""
    return [row for row in transaction.everybody(study.id) if row.answer is not None]


def _store(
    transaction: Transaction, study: Study, body: dict[str, Any], answered: list[Any], notice: int
) -> dict[str, Any]:
    """Store the result of the study's wave and open the next one, or delete the answers; return what is shown."""
    table, wave, last = tables.results, study.wave, study.wave + 1 == len(study.waves)
    row = {"study": study.id, "wave": wave, "published": int(access.now()), "body": json.dumps(body, allow_nan=False)}
    status, waves = "published" if last else "open", _following(study, notice)
    studies.move(transaction, study.id, wave=wave + 1, status=status, waves=waves)  # it may refuse
    transaction.execute(sa.delete(table).where((table.c.study == study.id) & (table.c.wave == wave)))
    transaction.execute(sa.insert(table).values(row))
    if last:  # the sealed answers go; who took part and with which ε stays
        people, transaction.scrub = tables.people, True
        gone = {"answer": None, "version": new_version()}
        mine = (people.c.study == study.id) & people.c.answer.is_not(None)
        transaction.execute(sa.update(people).where(mine).values(gone))
        for answer in answered:
            transaction.wrote("person", {**answer._mapping, **gone})
    transaction.note("published", study.id, wave=wave, n=body["n"])
    return stored(transaction, study.id, wave)


def _following(study: Study, notice: int) -> str:
    """Return the waves as JSON; each after this one is open for as long as it was to be, or at least for the notice.

    Else a year of waves could be published late, all within two minutes, and nobody could withdraw in between.
    """
    waves, before = list(study.waves), math.ceil(access.now())
    for i in range(study.wave + 1, len(waves)):
        span = min(waves[i].closes - study.waves[i - 1].closes, notice)
        before = max(waves[i].closes, before + span)
        waves[i] = waves[i].model_copy(update={"closes": before})
    return studies.waves_text(waves)


def close_early(transaction: Transaction, study_id: str, wave: int, notice: int) -> Study:
    """Bring the closing date of the open wave forward to the end of the notice; people are told on their page."""
    study, closes = studies.get(transaction, study_id), math.ceil(access.now()) + notice
    if study.phase() != "open" or wave != study.wave:
        raise RefusedError(409, "wave", "Only the wave that is open now can be closed early.")
    said = study.current.closes
    if closes >= said:
        raise RefusedError(409, "notice", _NOT_SOONER.format(access.date(said), access.date(closes)))
    changed = study.current.model_copy(update={"closes": closes, "first": study.current.first or said})
    waves = [*study.waves[:wave], changed, *study.waves[wave + 1 :]]
    studies.move(transaction, study_id, waves=studies.waves_text(waves))
    transaction.note("closing brought forward", study_id, wave=wave, was=access.date(said), now=access.date(closes))
    return studies.get(transaction, study_id)


# ---------------------------------------------------------------------------------------------------------
# What is erased. Rows stay, empty: random ids, for which the register vouches. What was published stays, as do the
# charges in the ledger: deleting an answer does not take back what a published number told about it.


def _emptied(transaction: Transaction, study: str, mark: str = "") -> None:
    """Delete what the people of a study sent and the links by which they come; of one file, if its mark is given.

    It does not matter what their rows say: they are written anew, and of those alone that the register knows.
    """
    people, transaction.scrub = tables.people, True
    gone = {**dict.fromkeys(("invitation", "again", "epsilon", "answer")), "version": new_version()}
    mine = (people.c.study == study) & people.c.id.startswith(mark)
    transaction.execute(sa.update(people).where(mine).values(gone))
    for person in transaction.register.people(study):
        if person.startswith(mark):
            transaction.wrote("person", {"id": person, "study": study, **gone})
    files = tables.imports.c
    query = sa.select(files.id).where((files.study == study) & files.id.startswith(mark))
    for file in transaction.execute(query).scalars().all():
        transaction.change("import", {"id": file, "study": study, "people": 0})


def imports(transaction: Transaction, study: str) -> list[dict[str, Any]]:
    """Return the files that were imported into a study and not deleted: how each is named here, and its people."""
    table = tables.imports
    rows = transaction.execute(sa.select(table).where((table.c.study == study) & (table.c.people > 0)))
    return [{"file": row.id[: studies.MARK], "people": row.people} for row in rows]


def delete_import(transaction: Transaction, study_id: str, file: str) -> dict[str, bool]:
    """Delete the people of a file, until the wave closes."""
    table, study = tables.imports, studies.get(transaction, study_id)
    mine = (table.c.study == study_id) & table.c.id.startswith(file, autoescape=True)
    row = transaction.row("import", transaction.execute(sa.select(table.c.id).where(mine)).scalar() or "")
    if row is None or len(file) != studies.MARK:
        raise RefusedError(404)
    if study.phase() != "open":
        raise RefusedError(409, "closed", "A file can be deleted until the wave closes, not after. The study can be.")
    _emptied(transaction, study_id, transaction.believed("import", row)["id"][: studies.MARK])
    transaction.note("import deleted", study_id, count=row["people"])
    return {"deleted": True}


def delete_study(transaction: Transaction, study_id: str) -> dict[str, bool]:
    """Delete all that people sent to a study, with its links; also of one that was changed from outside."""
    row = transaction.row("study", study_id)
    if row is None:
        raise RefusedError(404)
    known = transaction.vouches("study", row)
    reading = known and row["status"] == "publishing"
    if reading or transaction.register.opened(study_id, row["wave"] if known else 0):
        raise RefusedError(409, "publishing", "This study is being published now; delete it when that is done.")
    transaction.change("study", {**row, "status": "deleted", "version": new_version()})
    _emptied(transaction, study_id)
    transaction.note("study deleted", study_id)
    return {"deleted": True}


def expire(transaction: Transaction) -> None:
    """Delete what people sent to studies whose date for that has passed, whether they were published or not."""
    about = tables.people.c
    something = sa.or_(*(column.is_not(None) for column in (about.epsilon, about.invitation, about.again)))
    for study_id in transaction.execute(sa.select(tables.studies.c.id)).scalars().all():
        with suppress(ChangedError):  # what the database says of a study is not enough to delete anything
            study = studies.get(transaction, study_id)
            there = sa.select(about.id).where((about.study == study_id) & something).limit(1)
            due = study.until <= access.now() and study.status != "publishing"
            if due and transaction.execute(there).first():
                _emptied(transaction, study_id)
                transaction.note("answers deleted at their date", study_id)


# ---------------------------------------------------------------------------------------------------------
# Results


def stored(transaction: Transaction, study: str, wave: int | None = None) -> dict[str, Any]:
    """Return a published result with its study, the latest if no wave is named; all of it public."""
    table = tables.results
    rows = transaction.execute(sa.select(table).where(table.c.study == study).order_by(table.c.wave)).all()
    row = next((row for row in reversed(rows) if wave is None or row.wave == wave), None)
    if row is None:
        raise RefusedError(404)
    return {
        "study": studies.shown(transaction, study).to_dict(),
        "wave": row.wave,
        "waves": [row.wave for row in rows],
        "published": row.published,
        "result": json.loads(row.body),
    }


def published(transaction: Transaction) -> list[dict[str, Any]]:
    """Return the studies that have a result, the newest result first."""
    about, latest = tables.studies.c, sa.func.max(tables.results.c.published).label("published")
    joint = sa.select(about.id, about.question, latest).join_from(tables.studies, tables.results)
    rows = transaction.execute(joint.group_by(about.id).order_by(sa.desc("published")))
    return [dict(row) for row in rows.mappings()]


def open_ledger(settings: Settings, database: Store) -> Ledger:
    """Return the ledger of this server; it is made once, and never again if it is missing later."""
    made = database.read(Transaction.fact, "ledger") is not None
    where, head, expected = settings.ledger, settings.ledger_head, settings.expect_head
    if settings.sqlite_file is None:
        there = sa.inspect(database.engine).has_table("hetdp_ledger")
    else:
        there = Path(where).exists()
        private(where)
        private(head)
    if made and not there:
        raise InputError("the ledger of this server is missing: without it budgets could be overspent; bring it back")
    if made and not head.exists() and expected is None:
        # The ledger itself asks for its head only once something is charged; an old copy may be older than that.
        raise InputError(
            f"{head} is missing, so an old copy of the ledger could not be noticed; bring it back, or give the head "
            "that you wrote down: --expect-head NUMBER:HASH"
        )
    opened = Ledger(where, expect_head=expected, head_file=head) if there else Ledger.create(where, head_file=head)
    if not made:
        database.write(Transaction.set_fact, "ledger", "made")
    return opened
