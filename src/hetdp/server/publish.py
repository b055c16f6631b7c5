"""Publish: close a wave, charge everybody's budget, release once, store, show.

The order survives a crash at any point. The wave is closed and committed first, so the people and their ε can no longer
change; the ledger then charges them before a code is opened, and gives the stored result again when asked twice; at
last the result is stored and, after the last wave, every sealed answer is deleted. What was cut off is taken up again.

Claim. Whoever can write to the database, but has neither the vault's key nor the files beside it, cannot have anybody's
answer used at a larger ε than that person chose last, nor after they withdrew; and all waves of a study together use at
most that ε. Nor is a wave published before the closing date that its people were told, or after the one
at which all is deleted.

Argument. The study and the rows of its people are what the server wrote last, as the register vouches, and the very
rows that were compared are used to the end. A wave has a request for each question, and all are charged in one
transaction. What each person allows, the question's share of the wave's share of their ε, is part of the request: the
ledger carries out no charge whose request is another one. Just before the answers are opened the register is asked once
more, what the charged plans of all questions together spend of each person is compared with what they allow, and from
then on nobody is told that they have withdrawn. All numbers that were drawn are in the register before the database
sees one of them, and a wave is drawn once. So each wave uses at most its share of ε, and the shares, which the register
covers, add up to one at most, whatever the ledger in the database says about budgets.

Dates bind the curator too, by the server's own clock; the register vouches for them. Up to the closing date everybody
can withdraw. It can be brought forward by `close_early` alone, which announces it and leaves the days of the notice.
Whoever publishes late must wait for the next wave: see `following`. One that fails before a number was drawn leaves the
wave stopped: people can withdraw, and the curator can try again. A charge that no longer fits is given up then.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import sqlalchemy as sa

from hetdp.core.domain import Ints, jsonable
from hetdp.core.plan import Plan
from hetdp.errors import HetdpError, InputError, PrivacyError
from hetdp.ledger import UNLIMITED, Ledger, OtherRequestError, Part, Request, Rule, charges
from hetdp.statistics.statistic import Answer
from hetdp.tally import Table, Tally, settled

from . import access, results, studies, tables
from .access import RefusedError, Vault, where_raised
from .store import ChangedError, Store, Transaction, new_version
from .studies import UNSAID, Question, Study

log = logging.getLogger("hetdp.server")
_REFUSES = (
    "This wave could not be released. Nothing was shown. Unless its numbers were drawn already, people can withdraw "
    "again. The operator finds the kind of error in the log, and can check the ledger with: hetdp ledger verify. When "
    "that is repaired, publish again."
)
_NO_LEDGER = "The ledger cannot be read now, so nothing was changed. Try again; if it stays so, ask the operator."
_TOO_MUCH = "these plans would use an answer at more than its person allows; nothing was opened"
_OLD_COPY = (
    "This wave was released before: the ledger has it and this database does not, so it is an old copy. "
    "Bring the newest one back."
)
_EARLY = "Answers are taken until {}. Nothing is published before."
_TOO_FEW = "Too few people who count: {}. This study publishes from {} on."


@dataclass
class Publisher:
    """Publishes the waves of studies, one at a time."""

    database: Store
    vault: Vault
    ledger: Ledger
    notice: int = 7 * 86_400  # seconds
    turn: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False
    _looked_up: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = field(default_factory=dict)

    def publish(self, study_id: str, wave: int, by: str = "server") -> dict[str, Any]:
        """Return the result of a wave; the same one however often it is asked for."""
        with self.turn:
            if self.closed:
                raise RefusedError(503)
            self.database.write(expire)
            self.passed(self.database.read(studies.shown, study_id))
            at_work = self.database.register.at_work
            at_work.add(study_id)  # while its row says "publishing" too, nobody withdraws from under the charge
            try:
                return self._published(study_id, wave, by)
            finally:
                at_work.discard(study_id)

    def _published(self, study_id: str, wave: int, by: str) -> dict[str, Any]:
        study = None
        try:
            study = self.database.read(studies.get, study_id)
            charged = self._charged(study, wave)
            found = self.database.write_as(by, _closed, study_id, wave, charged=charged)
        except Exception as error:  # whatever it is, it is raised again
            if isinstance(error, ChangedError) or (study is not None and study.status == "publishing"):
                self._stop(study_id, type(error).__name__)  # one that was cut off must not hang either
            raise
        return found if isinstance(found, dict) else self._finish(*found, by)

    def _charged(self, study: Study, wave: int) -> bool:
        try:
            return any(map(self.ledger.charged, _releases(study, _wave_id(study.id, wave))))
        except HetdpError as error:  # nothing has happened yet
            log.warning("ledger not readable", extra={"facts": {"study": study.id, "error": type(error).__name__}})
            raise RefusedError(503, "ledger", _NO_LEDGER) from None

    def balances(self, study_id: str) -> dict[str, tuple[float, float, float]] | None:
        """Return {person: (budget, spent, left)} of those of a study who were enrolled, by the ledger; or None."""
        try:
            key = (study_id, self.ledger.head)
            known = self._looked_up.get(key)
            if known is None:
                ids = [*self.database.register.people(study_id)]
                known = {str(one.person): (one.budget, one.spent, one.left) for one in self.ledger.balances(ids)}
                self._looked_up = {key: known}
        except HetdpError:
            return None
        return known

    def close(self) -> None:
        """Wait for the publication that is under way, begin no more, and close the ledger."""
        with self.turn:
            self.closed = True
            self.ledger.close()

    def resume(self) -> None:
        """Finish what a crash, or a result that could not be stored, left closed without a result."""
        asked = sa.select(*(tables.studies.c[name] for name in ("id", "wave", "status")))
        for study, wave, status in self.database.read(lambda it: [tuple(row) for row in it.execute(asked)]):
            try:
                if status == "publishing":
                    self.publish(study, wave)
                self.passed(self.database.read(studies.shown, study))
            except Exception as error:  # noqa: BLE001  the others are served; the curator is told when asking again
                why = {"error": type(error).__name__, "at": where_raised(error)}
                log.warning("publication not finished", extra={"facts": {"study": study, **why}})

    def passed(self, study: Study) -> bool:
        """Go on to the next publication if this one has closed with too few people; say whether that was so."""
        if study.phase() != "closed":
            return False
        with suppress(RefusedError, sa.exc.SQLAlchemyError):  # what fails is tried again at the next look
            old_copy = study.status == "open" and self._charged(study, study.wave)
            return not old_copy and self.database.write(pass_over, study.id, self.notice)
        return False

    def _finish(self, study: Study, answered: list[Any], macs: Mapping[str, bytes], by: str) -> dict[str, Any]:
        try:
            body = self._released(study, answered, macs)
        except Exception as error:  # whatever a damaged ledger brings about, the wave must not hang
            self._stop(study.id, type(error).__name__)
            if isinstance(error, HetdpError) and not isinstance(error, RefusedError):
                studies.not_ended(study)  # if it has ended meanwhile, that is why
                raise RefusedError(409, "ledger", _REFUSES) from None
            raise
        result = self.database.write_as(by, _store, study, body, answered, self.notice)
        with suppress(RefusedError):  # it is stored; should this fail, the next wave does it
            self.database.register.finish(study.id, study.wave + 1)
        return result

    def _stop(self, study_id: str, why: str) -> None:
        """Open a wave again that was closed for a publication which failed, unless its numbers were drawn already."""
        log.warning("publication stopped", extra={"facts": {"study": study_id, "error": why}})

        def job(transaction: Transaction) -> None:
            nobody_reads = transaction.register.leave(study_id)
            if nobody_reads and studies.get(transaction, study_id).status == "publishing":
                studies.move(transaction, study_id, status="stopped")

        with suppress(ChangedError):  # a study that was changed stays as it is; its people can withdraw
            self.database.write(job)

    def _released(self, study: Study, answered: list[Any], macs: Mapping[str, bytes]) -> dict[str, Any]:
        """Return the facts of releases that the ledger has charged and stored; the same ones if it has already."""
        share, wave, register = study.current.share, study.wave, self.database.register
        used, (drawn_for, drawn) = register.used(study.id, wave), register.numbers(study.id, wave)
        levels = {row.id: row.epsilon for row in answered}
        pairs = {person: (level, used.get(person, 0)) for person, level in levels.items()}
        allowed = [_allowed(pairs, partial(study.allowed, question)) for question in study.questions]
        whole = _allowed(pairs, lambda level, before: studies.most(level, share, before))
        self.ledger.enroll(levels)
        for name in (_wave_id(study.id, wave, i) for i in range(1000)) if drawn_for is None else [drawn_for]:
            asked = dict(zip(_releases(study, name), zip(study.questions, allowed, strict=True), strict=True))
            requests = [_request(study, release, *one) for release, one in asked.items()]
            reading = Reading(self, study, name, answered, macs, asked, whole, drawn)
            # An earlier attempt that was charged for other people or levels is given up.
            with suppress(OtherRequestError):
                answers = zip(study.questions, self.ledger.carry_out(requests, reading, reading), strict=True)
                return {"n": len(levels), "questions": [_facts(study, *one, pairs.values()) for one in answers]}
        raise InputError("no charge of this wave fits the people who are in it now")


def _allowed(people: Mapping[str, tuple[float, int]], rule: Callable[[float, int], int]) -> dict[str, int]:
    """Return {person: units}, what each allows by a rule from their ε and what was used before."""
    alike = {pair: rule(*pair) for pair in set(people.values())}
    return {person: alike[pair] for person, pair in people.items()}


def _request(study: Study, release: str, question: Question, allowed: Mapping[str, int]) -> Request:
    about = {"study": study.id, "wave": study.wave, **({} if study.old else {"question": question.name})}
    rule = Rule.given(share=studies.exact(study.current.share) * studies.exact(question.share or 0))
    return Request(release, rule, question.statistic, people=allowed, about=about)


def _facts(study: Study, question: Question, released: Answer, people: Iterable[tuple[float, int]]) -> dict[str, Any]:
    """Return what is published of a question: its figures, and all that the library says."""
    facts = released.to_dict()
    facts |= studies.rows_of(study, question, Counter(people), released.plan, facts["tiers"])
    here = facts["ledger"]["name"]  # a file or a database, which is nobody's business
    facts["ledger"]["name"] = "of this server"
    facts["assumptions"] = [said.replace(f" {here},", " of this server,") for said in facts["assumptions"]]
    facts["provenance"]["source"] = "the answers to this study"
    for place, name in (("ledger", "at"), ("provenance", "released")):  # to the minute: see `ledger.books.next_event`
        facts[place][name] = f"{facts[place][name][:17]}00Z"
    figures: list[dict[str, Any]] = [
        {"label": f.label, "estimate": f.estimate, "low": f.low, "high": f.high, "uncertain": f.uncertain}
        for f in released.figures()
    ]
    share = figures.pop() if question.optional else None  # who answered; of a choice, who did not
    if share is not None and question.kind == "choice":
        ends = {"estimate": 1 - share["estimate"], "low": 1 - share["high"], "high": 1 - share["low"]}
        share |= {"label": "answered", **ends}
    found = {"question": question.name, **question.model_dump(include={"kind", "text", "unit", "bounds"})}
    found |= {"figures": figures, "answered": share, "uncertain": any(figure["uncertain"] for figure in figures)}
    return {**facts, **jsonable(found)}


@dataclass(frozen=True)
class Reading:
    """How the ledger gets the numbers of a wave, once its charges are on disk: those that were drawn, or new ones.

    `macs` are those of the rows of `answered` as they were compared. `asked` has the question of each release and what
    everybody allows for it; `whole` what they allow in this wave.
    """

    publisher: Publisher
    study: Study
    release: str
    answered: list[Any]
    macs: Mapping[str, bytes]
    asked: Mapping[str, tuple[Question, Mapping[str, int]]]
    whole: Mapping[str, int]
    drawn: Mapping[str, Sequence[float]] | None

    def __call__(self, parts: Sequence[Part]) -> list[Tally]:
        """Open the codes of those who take part, unless the plans would spend more of somebody than they allow.

        What a plan spends at each level is computed from its weights and its noise, exactly, whatever it says itself.
        """
        uses = dict[str, int]()
        for release, places, plan in parts:
            question, allowed = self.asked[release]
            same = (plan.statistic.name, plan.statistic.plain) == (question.statistic.name, question.statistic.plain)
            if not same or not 0 < plan.shrink <= 1:  # else a number might be too large to keep
                raise PrivacyError("this plan is not for this study; nothing was opened")
            spends = charges(plan).tolist()
            for person, at in places.items():
                if not 0 <= at < len(spends) or spends[at] > allowed.get(person, -1):
                    raise PrivacyError(_TOO_MUCH)
                uses[person] = uses.get(person, 0) + spends[at]
        for person, units in uses.items():
            if units > self.whole[person] != UNLIMITED:
                raise PrivacyError(_TOO_MUCH)
        self.publisher.database.write(self._opening, {person: min(units, UNLIMITED) for person, units in uses.items()})
        codes = self._codes(uses)
        said = dict(zip((question.name for question in self.study.questions), codes.T, strict=True))
        rows = {person: i for i, person in enumerate(uses)}
        return [
            _tally(plan, [*map(rows.__getitem__, places)], [*places.values()], said[self.asked[name][0].name])
            for name, places, plan in parts
        ]

    def _codes(self, people: Iterable[str]) -> Ints:
        """Return what people said, a row each and a column for each question."""
        known, vault, study = {row.id: row for row in self.answered}, self.publisher.vault, self.study.id
        rows = (known[person] for person in people)
        opened = b"".join(vault.open(row.answer, row.id, study, row.epsilon) for row in rows)
        return np.frombuffer(opened, ">u4").astype(np.int64).reshape(-1, len(self.study.questions))

    def keep(self, numbers: Mapping[str, Sequence[float]]) -> None:
        """Write the numbers down where the database's owner cannot undo it, before the database sees one of them."""
        self.publisher.database.register.keep(self.study.id, self.study.wave, self.release, numbers)

    def _opening(self, transaction: Transaction, uses: Mapping[str, int]) -> None:
        """Say that these answers are going to be read, unless anything has changed since the wave was closed.

        The rows were compared then. Nobody has changed or withdrawn since if the register has the same MACs.
        """
        now = studies.get(transaction, self.study.id)
        studies.not_ended(now)
        same = self.macs.items() <= transaction.register.people(self.study.id).items()
        if (now.status, now.wave, same) != ("publishing", self.study.wave, True):
            raise ChangedError
        transaction.register.open(self.study.id, self.study.wave, self.release, uses)


def _tally(plan: Plan, rows: list[int], places: list[int], codes: Ints) -> Tally:
    """Return the tally of a question: what each of some people said is added at their level, by the library's rule."""
    statistic, levels, said, level = plan.statistic, plan.levels, codes[rows], np.array(places, np.int64)
    unsaid, found = said == UNSAID, np.zeros((len(plan.levels), plan.statistic.width), np.int64)
    if statistic.coded:
        cell, given = np.zeros(said.size, np.int64), [np.where(unsaid, np.nan, said)]
    else:
        cell, given = np.where(unsaid, statistic.cells - 1, said), []
    _, cell, added = settled(statistic, cell, given)
    sums = np.stack(added, axis=1).astype(np.int64) if added else np.zeros((said.size, 0), np.int64)
    statistic.add_to(found, level, cell, np.ones(said.size, np.int64), sums)
    table = Table(levels.epsilon, levels.count, found, levels.rounded, levels.wide)
    return Tally(table, statistic, levels.names)


def _wave_id(study: str, wave: int, attempt: int = 0) -> str:
    return f"{study}-{wave}-{attempt}" if attempt else f"{study}-{wave}"


def _releases(study: Study, wave: str) -> list[str]:
    """Return the ids of the releases of a wave: one a question, whose name begins with a letter."""
    return [wave] if study.old else [f"{wave}-{question.name}" for question in study.questions]


def _closed(
    transaction: Transaction, study_id: str, wave: int, *, charged: bool
) -> tuple[Study, list[Any], dict[str, bytes]] | dict[str, Any]:
    """Close a wave; return its study, the rows of those who answered and their MACs, or its result if it has one.

    Nothing is written unless the register vouches for the rows, and these are the rows that are used. A wave is closed
    before it is charged, so one that is open and charged stands in an old copy of the database.
    """
    study = studies.get(transaction, study_id)
    if wave < study.wave:
        if (few := study.waves[wave].too_few) is not None:
            raise RefusedError(409, "too-few", _TOO_FEW.format(few, study.fewest), n=few, fewest=study.fewest)
        return results.stored(transaction, study_id, wave)
    studies.not_ended(study)
    never = study.current.closes >= study.until  # as an older hetdp could leave it
    if wave > study.wave or wave >= len(study.waves) or never or study.phase() in {"planned", "published", "deleted"}:
        raise RefusedError(409, "wave", "This wave cannot be published now.")
    if study.phase() == "open":
        closes = study.current.closes
        raise RefusedError(409, "early", _EARLY.format(access.date(closes)), closes=closes)
    if charged and study.status == "open":
        raise RefusedError(409, "old-copy", _OLD_COPY)
    if transaction.fact(f"importing {study_id}") is not None:  # half of it would be published
        raise RefusedError(409, "importing", "A file is being imported into this study. Wait until that is done.")
    transaction.register.finish(study_id, study.wave)  # if the server was cut off just before it said so
    answered, macs, counted = taking_part(transaction, study)
    if counted < study.fewest and not transaction.register.opened(study_id, wave):
        raise RefusedError(409, "too-few", _TOO_FEW.format(counted, study.fewest), n=counted, fewest=study.fewest)
    if study.status != "publishing":
        studies.move(transaction, study_id, status="publishing")
        transaction.note("closed for publication", study_id, wave=wave, n=len(answered))
    return study, answered, macs


def taking_part(transaction: Transaction, study: Study) -> tuple[list[Any], dict[str, bytes], int]:
    """Return the rows of those who answered, their MACs, and how many count towards the fewest; all as compared."""
    everybody, known = transaction.everybody(study.id)
    answered = [row for row in everybody if row.answer is not None]
    counted = [row for row in answered if study.imports_count or not studies.is_imported(row.id)]
    return answered, {row.id: known[row.id] for row in answered}, len(counted)


def _store(
    transaction: Transaction, study: Study, body: dict[str, Any], answered: list[Any], notice: int
) -> dict[str, Any]:
    """Store the result of the study's wave and go on; return what is shown."""
    table, wave = tables.results, study.wave
    studies.not_ended(studies.get(transaction, study.id))  # what was drawn before the date is given up by `expire`
    _go_on(transaction, study, answered, notice)  # it may refuse
    minute, text = int(access.now() // 60 * 60), json.dumps(body, allow_nan=False)
    row = {"study": study.id, "wave": wave, "published": max(minute, study.current.closes), "body": text}
    transaction.execute(sa.delete(table).where((table.c.study == study.id) & (table.c.wave == wave)))
    transaction.execute(sa.insert(table).values(row))
    transaction.note("published", study.id, wave=wave, n=body["n"])
    return results.stored(transaction, study.id, wave)


def pass_over(transaction: Transaction, study_id: str, notice: int) -> bool:
    """Go on to the next wave if this one has closed with too few people: nobody can join it; return whether it has."""
    with suppress(ChangedError):
        study = studies.get(transaction, study_id)
        about, wave = tables.people.c, study.wave
        mine = sa.func.length(about.id) <= (10**6 if study.imports_count else tables.MARK)
        there = sa.select(sa.func.count()).where(about.study == study_id, about.answer.is_not(None), mine)
        busy = transaction.register.opened(study_id, wave) or transaction.fact(f"importing {study_id}") is not None
        if study.phase() != "closed" or busy or transaction.execute(there).scalar_one() >= study.fewest:
            return False
        answered, _, counted = taking_part(transaction, study)
        if counted >= study.fewest:  # the count above was the database's word alone
            return False
        waves = [*study.waves]
        waves[wave] = study.current.model_copy(update={"too_few": counted})
        _go_on(transaction, study.model_copy(update={"waves": tuple(waves)}), answered, notice)
        transaction.note("too few people", study_id, publication=wave + 1, n=counted)
        return True
    return False


def _go_on(transaction: Transaction, study: Study, answered: list[Any], notice: int) -> None:
    """Open the next wave, or end the study after the last one; answers that no further wave uses are deleted."""
    after, (waves, last) = study.wave + 1, following(study, notice)
    studies.move(transaction, study.id, wave=after, status="published" if last else "open", waves=waves)
    if last or study.each_wave == "ask":
        used_up(transaction, study.id, [row._asdict() for row in answered])
    if waves != studies.waves_text(study.waves):
        transaction.note("later dates moved", study.id, publication=after)


def used_up(transaction: Transaction, study: str, answered: Iterable[Mapping[str, Any]]) -> None:
    """Delete the sealed answers of a study, which these rows have; who took part and with which ε stays."""
    people, transaction.scrub = tables.people, True
    gone = {"answer": None, "version": new_version()}
    transaction.execute(sa.update(people).where(people.c.study == study, people.c.answer.is_not(None)).values(gone))
    for row in answered:
        transaction.wrote("person", {**row, **gone})
    _forget_files(transaction, study, used=True)


def following(study: Study, notice: int) -> tuple[str, bool]:
    """Return the waves as JSON; each after this one is open for as long as it was to be, or at least for the notice.

    Else a year of waves could be published late, within two minutes. When everything is deleted does not move: people
    were told. A wave that would close later than that does not take place; say whether this wave is the last that does.
    """
    waves, before = list(study.waves), math.ceil(access.now())
    for i in range(study.wave + 1, len(waves)):
        span = min(waves[i].closes - study.waves[i - 1].closes, notice)
        before = max(waves[i].closes, before + span)
        waves[i] = waves[i].model_copy(update={"closes": before})
    coming = waves[study.wave + 1 :]
    return studies.waves_text(waves), not coming or coming[0].closes >= study.until


# ---------------------------------------------------------------------------------------------------------
# What is erased (`people` says what stays), and what is shown


def emptied(transaction: Transaction, study: str, begins: str = "") -> None:
    """Delete what the people of a study sent and the links by which they come; of one file, if its ids begin like this.

    It does not matter what their rows say: they are written anew, and of those alone that the register knows.
    """
    people, transaction.scrub = tables.people, True
    gone = dict.fromkeys(("invitation", "again", "epsilon", "answer", "number"), None)
    gone |= {"gone": "erased", "version": new_version()}
    mine = (people.c.study == study) & people.c.id.startswith(begins)
    transaction.execute(sa.update(people).where(mine).values(gone))
    for person in transaction.register.people(study):
        if person.startswith(begins):
            transaction.wrote("person", {"id": person, "study": study, **gone})
    _forget_files(transaction, study, begins)


def salt_of(study: str, file: str) -> str:
    """Return the name of the fact that holds the salt of a file (`importing.File`)."""
    return f"file {study} {file[:16]}"


def _forget_files(transaction: Transaction, study: str, begins: str = "", *, used: bool = False) -> None:
    """Write down that the answers of files were used up, or that they are deleted; of those the register knows."""
    for file in transaction.register.people(study, "import"):
        if file.startswith(begins):
            row = transaction.row("import", file)
            there = row["people"] if used and row is not None and transaction.vouches("import", row) else 0
            transaction.change("import", {"id": file, "study": study, "people": -abs(there)})
    forget_salts(transaction, study, begins)


def forget_salts(transaction: Transaction, study: str, begins: str = "") -> None:
    """Delete the salts of files whose answers are gone, so that nobody can try out what they said."""
    transaction.execute(sa.delete(tables.facts).where(tables.facts.c.name.startswith(salt_of(study, begins))))


def expire(transaction: Transaction) -> None:
    """Delete what people sent to studies whose date for that has passed, whether they were published or not.

    Numbers that were drawn by then, and could not be stored, are given up with it: nothing is published after the date.
    """
    about = tables.people.c
    something = sa.or_(*(column.is_not(None) for column in (about.epsilon, about.invitation, about.again)))
    for study_id in transaction.execute(sa.select(tables.studies.c.id)).scalars().all():
        with suppress(ChangedError):  # what the database says of a study is not enough to delete anything
            study = studies.get(transaction, study_id)
            there = sa.select(about.id).where((about.study == study_id) & something).limit(1)
            reading = study.status == "publishing" and study_id in transaction.register.at_work
            if study.until <= access.now() and not reading and transaction.execute(there).first():
                emptied(transaction, study_id)
                if study.status == "publishing":
                    transaction.register.finish(study_id, study.wave + 1)
                    studies.move(transaction, study_id, status="stopped")
                transaction.note("answers deleted at their date", study_id)
