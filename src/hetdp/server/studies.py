"""Studies, which are public, and what people send to them. What they say becomes a sealed row of codes at once.

Claim: whatever a person says to the questions, the answer of the server but for the time in it, its status, its length,
its log line and every row but the sealed one are the same, and so is the length of that one.

Argument: what is said goes into `Question.code` alone. There it becomes one integer: a number by the library's rule
(outside the bounds counts as the nearer bound), yes and no and a choice by its place, whatever does not fit as not
said. All integers, also of questions that were left out, become bytes of one length. Nothing branches on them.

Whose row a session may change is decided by its own MAC and by the register, not by what the database says.
"""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from hetdp import report
from hetdp.core.domain import Interval, epsilon_of, jsonable
from hetdp.core.levels import joined_names
from hetdp.core.plan import Plan
from hetdp.errors import InputError
from hetdp.ledger import UNLIMITED, Rule, budget_units
from hetdp.ledger import level as ledger_level
from hetdp.statistics.histogram import Shares
from hetdp.statistics.mean import Mean, Proportion
from hetdp.statistics.statistic import Statistic

from . import access, tables
from .access import RefusedError
from .fields import LANGUAGES, LATEST, PLAIN, About, Dated, FreeChoice, NewAnswer, Strict, Wave, broken, once, within
from .store import ChangedError, Transaction, new_version

MOST_WAVES = 24
UNSAID = 2**32 - 1  # the code of what was not said
ONLY = "answer"  # the name of the one question of a study from before version 5
_OUTDATED = "This page is out of date: dates or publications have changed. Nothing was sent; load the page again."
_MORE = "This choice allows more to be learnt than your choice before. Nothing was changed; confirm it if you mean it."
# How many people there are with an ε of which so much was used before, in the ledger's units.
Alike = Mapping[tuple[float, int], int]
KEPT = 365 * 86_400  # seconds that answers are kept after the last closing date if nothing else is said


class Tier(Strict):
    """One privacy choice: its name, its ε (a number, `inf` or `public`) and one plain sentence."""

    name: Annotated[str, Field(min_length=1, max_length=40, pattern=PLAIN)]
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | Literal["inf", "public"]
    sentence: Annotated[str, Field(max_length=200, pattern=PLAIN)] = ""

    @property
    def level(self) -> float:
        """The ε as a double."""
        return epsilon_of(self.epsilon)


class Question(Strict):
    """One question: a number within bounds, yes or no, or one of several choices. Nobody has to answer it.

    `share` is what it may use of what a person allows in a wave; if it is said of no question, all have the same.
    """

    model_config = ConfigDict(frozen=True)
    name: Annotated[str, Field(max_length=40, pattern=r"^[a-z][a-z0-9_-]*$")]
    kind: Literal["number", "yes-no", "choice"] = "number"
    text: Annotated[str, Field(min_length=1, max_length=300, pattern=PLAIN)]
    unit: Annotated[str, Field(max_length=30, pattern=PLAIN)] = ""
    bounds: Annotated[list[Annotated[float, Field(ge=-1e15, le=1e15)]], Field(min_length=2, max_length=2)] | None = None
    choices: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=80, pattern=PLAIN)]], Field(max_length=20)
    ] = []  # noqa: RUF012  pydantic copies it
    share: Annotated[float, Field(ge=0.001, le=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.bounds is not None) != (self.kind == "number"):
            raise broken("bounds", "bounds", "a number needs bounds [least, most], and no other kind has them")
        if (len(self.choices) < 2) == (self.kind == "choice") or (self.choices and self.kind != "choice"):
            raise broken("choices", "choices", "a choice needs at least two, and no other kind has them")
        try:
            self.statistic.interval.ordinary()
        except InputError as error:
            where, why = ("bounds", str(error)) if self.bounds else ("choices", "two of them are the same")
            raise broken(where, "range" if self.bounds else "twice", why) from None
        return self

    @property
    def optional(self) -> bool:
        """Whether it is kept apart, in private, who does not answer."""
        return True

    @cached_property
    def statistic(self) -> Statistic:
        """What is published of it, as the library has it."""
        if self.bounds is not None:
            return Mean(Interval(*self.bounds), missing="estimate")
        return Shares(categories=list(self.choices)) if self.choices else Proportion(equals="yes", missing="estimate")

    def code(self, said: Any) -> int:
        """Return what a person says as an integer; whatever does not fit is not said, and nothing raises."""
        if self.kind == "choice":
            return self.choices.index(said) if isinstance(said, str) and said in self.choices else UNSAID
        if self.kind == "yes-no":
            return int(not said) if isinstance(said, bool) else UNSAID
        if isinstance(said, bool) or not isinstance(said, (int, float)):
            return UNSAID
        return self.codes(np.array([float(said)]))[0]

    def codes(self, values: Any) -> list[int]:
        """Return the codes of numbers; one that is none is not said."""
        found = self.statistic.interval.codes(values, np.empty(len(values)), math.nan)
        return np.where(np.isnan(found), UNSAID, found).astype(np.int64).tolist()  # type: ignore[no-any-return]


class OnlyNumber(Question):
    """The question of a study from before version 5: who says no number counts as the middle of the bounds."""

    @property
    def optional(self) -> bool:
        """It was said to nobody that it is."""
        return False

    @cached_property
    def statistic(self) -> Statistic:
        """The mean of everybody."""
        return Mean(Interval(*(self.bounds or (0.0, 1.0))), missing="midpoint")


class Kept(Strict):
    """What a study has beyond its columns, as its last one holds it."""

    questions: Annotated[list[Question], Field(min_length=1, max_length=12)]
    each_wave: Literal["carry", "ask"] = "carry"
    imports_count: bool = False
    language: Annotated[str, Field(pattern=f"^({LANGUAGES})$")] = "en"
    about: About = About()


class NewStudy(Kept):
    """What a curator decides before anybody answers."""

    title: Annotated[str, Field(min_length=1, max_length=300, pattern=PLAIN)]
    tiers: Annotated[list[Tier], Field(max_length=12)] = []  # noqa: RUF012
    free: FreeChoice | None = None
    opens: Annotated[int, Field(ge=0, le=LATEST)]
    waves: Annotated[list[Wave], Field(min_length=1, max_length=MOST_WAVES)]
    fewest: Annotated[int, Field(ge=1, le=10**9)] = 1
    changeable: bool = True
    until: Annotated[int, Field(ge=0, le=2 * LATEST)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        closes = [self.opens, *(wave.closes for wave in self.waves)]
        for i, wave in enumerate(self.waves):
            if wave.closes <= closes[i]:
                before = f"the one before, {access.date(closes[i])}" if i else f"the opening, {access.date(self.opens)}"
                raise broken(f"waves.{i}.closes", "after", f"must be after {before}", after=closes[i])
        names = [question.name for question in self.questions]
        once("questions", "name", names)
        if column := next((name for name in names if name in {"tier", "epsilon"}), None):
            why = "is the name of the column of a file with the privacy choices"
            raise broken(f"questions.{names.index(column)}.name", "column", why)
        once("tiers", "name", [tier.name for tier in self.tiers])
        once("tiers", "epsilon", [tier.level for tier in self.tiers])
        within("waves", [exact(wave.share) for wave in self.waves])
        shares = [question.share for question in self.questions]
        if None in shares and any(shares):
            why = "is missing; give one to every question or to none"
            raise broken(f"questions.{shares.index(None)}.share", "shares-all", why)
        within("questions", [exact(share or 0.0) for share in shares])
        if bool(self.tiers) == bool(self.free):
            raise broken("tiers", "tiers-or-free", "give either tiers or a free choice")
        if self.free is not None and self.free.least >= self.free.most:
            raise broken("free.most", "free", "must be above the least")
        if self.until is not None and self.until <= closes[-1]:
            why = f"must be after the last wave closes, {access.date(closes[-1])}"
            raise broken("until", "after", why, after=closes[-1])
        return self


class Study(BaseModel):
    """A study as it is stored. Its limits were checked when it was made; one that was changed can still be shown."""

    model_config = ConfigDict(frozen=True)  # what else its row holds is left out
    id: str
    title: str
    questions: tuple[Question, ...]
    old: bool = False  # from before version 5
    tiers: tuple[Tier, ...]
    free: FreeChoice | None
    opens: int
    waves: tuple[Dated, ...]
    fewest: int
    changeable: bool
    until: int  # then everything that people sent is deleted, published or not
    each_wave: str
    imports_count: bool
    language: str
    about: About
    wave: int
    status: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Study:
        """Return the study of a row; raise if it is none, which only somebody else can have written."""
        try:
            return _read(**row)
        except (ValueError, TypeError, LookupError, RecursionError):
            raise ChangedError from None

    @property
    def current(self) -> Dated:
        """The wave that is open now, or the last one."""
        return self.waves[min(self.wave, len(self.waves) - 1)]

    def phase(self) -> str:
        """Return where the study stands: planned, open, closed, publishing, published, deleted; else ended."""
        if self.status in {"published", "deleted"}:
            return self.status
        now = access.now()
        if now >= self.until:  # also of numbers that were drawn and could not be stored: they are given up
            return "ended"
        if self.status == "publishing":
            return self.status
        return "planned" if now < self.opens else "open" if now < self.current.closes else "closed"

    def level(self, tier: str | None, epsilon: float | None) -> float:
        """Return the ε of a choice, or raise: a tier's, or a free one rounded down to three digits."""
        free, named = self.free, {known.name: known.level for known in self.tiers}
        if free is None and epsilon is None and tier in named:
            return named[tier]
        if free is not None and tier is None and epsilon is not None and free.least <= epsilon <= free.most:
            return max(rounded_down(epsilon), free.least)
        if tier is None and epsilon is None:
            raise RefusedError(422, "choice", "Choose how private the answer should stay; there is no default.")
        raise RefusedError(422, "choice", "This study has no such privacy choice.")

    def choice(self, level: float) -> dict[str, Any]:
        """Return what somebody chose: the name of the tier, if there are tiers, and its ε."""
        names = {tier.level: tier.name for tier in self.tiers}
        return {"tier": names.get(level), "epsilon": jsonable(level)}

    def allowed(self, question: Question, level: float, used: int = 0) -> int:
        """Return what the current wave may use of somebody for a question, in the ledger's units, always rounded down.

        It is the question's share of what the wave may use. So all questions together stay within that.
        """
        units = most(level, self.current.share, used)
        return units if units == UNLIMITED else math.floor(units * exact(question.share or 0))

    def is_short(self, level: float, used: int) -> bool:
        """Say whether less is left of an ε than the current wave may use."""
        return most(level, self.current.share, used) < most(level, self.current.share)

    def entered(self, question: Question, people: Alike) -> tuple[Counter[float], dict[float, str]]:
        """Return {ε: people} as they enter the current wave of a question, and how these ε are called.

        People enter with the wave's share of their ε, or with what is left if that is less. What enters has the name
        of a choice only if all who bring so much made it and have the whole share; a small share may make two one.
        """
        counts, mixed, whole = Counter[float](), set[float](), dict[float, float]()
        for (level, used), count in people.items():
            enters = ledger_level(self.allowed(question, level, used))
            counts[enters] += count
            if self.is_short(level, used):
                mixed.add(enters)
            else:
                whole[level] = enters
        named = [(tier.level, tier.name) for tier in self.tiers] or [(level, f"ε = {level:g}") for level in whole]
        found = [(whole[level], name) for level, name in named if level in whole]
        return counts, joined_names((enters, name) for enters, name in found if enters not in mixed)

    def to_dict(self) -> dict[str, Any]:
        """Return everything public about the study, as JSON has it."""
        return {
            **self.model_dump(mode="json", exclude={"status", "old"}),
            "questions": [{**one.model_dump(mode="json"), "optional": one.optional} for one in self.questions],
            "closes": self.current.closes,
            "wave": min(self.wave, len(self.waves) - 1),
            "phase": self.phase(),
        }


def exact(share: float) -> Fraction:
    """Return a share as the decimal number that was written."""
    return Fraction(repr(share))


@lru_cache(maxsize=64)  # every answer asks for its study, and reading all its questions takes longer than storing it
def _read(**row: Any) -> Study:
    choices, waves = json.loads(row["choices"]), json.loads(row["waves"])
    until = {"until": waves[-1]["closes"] + KEPT}  # of a study that was made before there were such dates
    said = {**row, **until, **choices, "title": row["question"], "waves": waves, "old": row.get("more") is None}
    if row.get("more") is None:
        asked = {"name": ONLY, "text": row["question"], "unit": row["unit"], "bounds": [row["lo"], row["hi"]]}
        # Everybody was told that all who are there count.
        kept = dict(Kept(questions=[OnlyNumber(**asked, share=1.0)], imports_count=True))
    else:
        kept = dict(Kept.model_validate_json(row["more"]))
    return Study.model_validate({**said, **kept})


def rounded_down(epsilon: float, digits: int = 3) -> float:
    """Return ε cut to some significant digits, never up: to three, so that a free choice has few levels.

    >>> rounded_down(0.12399), rounded_down(2.0)
    (0.123, 2.0)
    """
    places: int = digits - 1 - math.floor(math.log10(epsilon))
    cut = math.floor(round(epsilon * 10.0**places, 9)) / 10.0**places
    return min(cut, epsilon)


@lru_cache(maxsize=4096)
def most(epsilon: float, share: float, used: int = 0) -> int:
    """Return what a wave may use of somebody, in the ledger's units: the share of their ε, if that much is left."""
    units = budget_units(epsilon)
    left = units if units == UNLIMITED else max(units - used, 0)
    return Rule.given(share=share).allowed(units, left)


def rows_of(study: Study, question: Question, people: Alike, p: Plan, tiers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return who is in the plan of a result: `table`, in at most twelve rows, its `tiers`, and how many were `short`.

    By the ledger somebody may have less left than by the register, after a charge that was given up, and never more. If
    as many people as these bring are at each level of the plan, everybody entered with that. Else no row is called
    after a choice, and nothing is said of how many had less left.
    """
    (counts, names), levels, there = study.entered(question, people), p.levels, Counter[float]()
    for level, like in zip(counts, levels.like(np.array([*counts])).tolist(), strict=True):
        there[like] += counts[level]
    known = there == Counter(dict(zip(levels.epsilon.tolist(), levels.count.tolist(), strict=True)))
    names = names if known and not levels.rounded else {}
    table = []
    for band in p.facts.bands:
        low, top = band.epsilon
        name = _called(names, levels.epsilon[(levels.epsilon >= low) & (levels.epsilon <= top)].tolist())
        cells = {"name": name, "epsilon": top, "people": band.people, "spent": band.spent[1], "share": band.share}
        table.append(jsonable(cells))
    called = [{**tier, "name": _called(names, [epsilon_of(tier["epsilon"])])} for tier in tiers]
    short = sum(count for pair, count in people.items() if study.is_short(*pair)) if known else None
    return {"table": table, "tiers": called, "short": short}


def _called(names: Mapping[float, str], levels: Sequence[float]) -> str:
    """Return what neighbouring levels are called: by names if all have one, else by the ε that entered."""
    named = all(level in names for level in levels)
    first, last = (names[one] if named else f"ε = {report.spent_epsilon(one)}" for one in (levels[0], levels[-1]))
    return first if first == last else f"{first} to {last.removeprefix('ε = ')}"


def new_id() -> str:
    """Return a new identifier that says nothing and is no secret."""
    return secrets.token_hex(8)


def is_imported(person: str) -> bool:
    """Say whether a person came from a file: their id begins with the mark of it, so it is longer."""
    return len(person) > 16


def create(transaction: Transaction, new: NewStudy) -> Study:
    """Store a new study and return it."""
    until, each = new.until or new.waves[-1].closes + KEPT, math.floor(1e5 / len(new.questions)) / 1e5
    asked = [one if one.share else one.model_copy(update={"share": each}) for one in new.questions]
    kept = new.model_copy(update={"questions": asked}).model_dump_json(include=set(Kept.model_fields))
    row: dict[str, Any] = {
        **new.model_dump(include={"opens", "fewest", "changeable"}),
        "id": new_id(),
        "question": new.title,
        "unit": "",
        "lo": 0.0,
        "hi": 0.0,
        "choices": json.dumps({**new.model_dump(include={"tiers", "free"}), "until": until}),
        "waves": waves_text(new.waves),
        "wave": 0,
        "status": "open",
        "created": int(access.now()),
        "version": new_version(),
        "more": kept,
    }
    transaction.insert("study", [row])
    transaction.note("study created", row["id"], questions=len(asked), tiers=len(new.tiers), waves=len(new.waves))
    return get(transaction, row["id"])


def waves_text(waves: Iterable[Wave]) -> str:
    """Return waves as their column has them."""
    return json.dumps([wave.model_dump(exclude_none=True) for wave in waves])


def get(transaction: Transaction, study: str) -> Study:
    """Return a study by its id, or raise; also if it is not as this server wrote it last."""
    return Study.of(transaction.believed("study", _row(transaction, study)))


def not_ended(study: Study) -> None:
    """Raise from the date on at which everything is deleted: nothing more comes of the study."""
    if study.status not in {"published", "deleted"} and study.until <= access.now():
        why = f"This study ended on {access.date(study.until)}: nothing more is published, and nobody can be invited."
        raise RefusedError(409, "ended", why, until=study.until)


def shown(transaction: Transaction, study: str) -> Study:
    """Return a study by its id as the database has it: to be shown, never to decide anything."""
    return Study.of(_row(transaction, study))


def facts(transaction: Transaction, study: Study) -> dict[str, Any]:
    """Return what its curators are shown of a study; its phase is `changed` if the register does not vouch for it."""
    known = transaction.vouches("study", _row(transaction, study.id))
    return {**study.to_dict(), **({} if known else {"phase": "changed"})}


def _row(transaction: Transaction, study: str) -> dict[str, Any]:
    row = transaction.row("study", study)
    if row is None:
        raise RefusedError(404)
    return row


def move(transaction: Transaction, study: str, **changes: Any) -> None:
    """Change where a study stands; raise if it is not as this server wrote it last."""
    before = transaction.believed("study", _row(transaction, study))
    transaction.change("study", {**before, **changes, "version": new_version()})


def taking_part(study: Study) -> list[sa.ColumnElement[bool]]:
    """Return who takes part, as conditions; until it is over, those who have answered if people are asked again."""
    about, again = tables.people.c, study.each_wave == "ask" and study.phase() not in {"published", "ended"}
    return [about.epsilon.is_not(None), *([about.answer.is_not(None)] if again else [])]


def joined(transaction: Transaction, study: Study) -> dict[float, int]:
    """Return {ε: people} of a study: who has answered, or once it is over who had."""
    about = tables.people.c
    mine = sa.and_(about.study == study.id, *taking_part(study))
    query = sa.select(about.epsilon, sa.func.count().label("people")).where(mine)
    rows = transaction.execute(query.group_by(about.epsilon).order_by(about.epsilon))
    return {row.epsilon: row.people for row in rows}


# ---------------------------------------------------------------------------------------------------------
# Answers


def send(transaction: Transaction, vault: access.Vault, token: str, new: NewAnswer) -> dict[str, Any]:
    """Store or change what a person says and return the receipt."""
    person, session, study_id = who(transaction, token)
    study = get(transaction, study_id)
    row = transaction.believed("person", transaction.row("person", person))
    chosen, answered = row["epsilon"] is not None, row["answer"] is not None
    if study.phase() != "open" or transaction.register.opened(study.id, study.wave):
        raise RefusedError(409, "closed", "This study does not take answers now.")
    if new.wave not in {None, study.wave} or new.closes not in {None, study.current.closes}:
        raise RefusedError(409, "outdated", _OUTDATED)
    if answered and not study.changeable:
        raise RefusedError(409, "final", "In this study an answer cannot be changed; it can be withdrawn.")
    if study.about.consent and not new.consent:
        raise RefusedError(422, "consent", "Nothing was sent: agree to the words beside the box first.", "consent")
    level = study.level(new.tier, new.epsilon)
    if chosen and level > row["epsilon"] and not new.allow_more:
        raise RefusedError(409, "more", _MORE)
    codes = [question.code(new.answers.get(question.name)) for question in study.questions]
    now = {**row, **sealed(codes, person, level, study, vault)}
    again = None
    if not chosen:
        again = access.new_token()
        now |= {"invitation": None, "again": access.digest("again", again)}
        transaction.end_sessions(person, but=session)  # the first answer uses the invitation up
    transaction.change("person", now)
    transaction.scrub |= answered
    dates = {"at": int(access.now()), "closes": min(study.current.closes, study.until)}
    return {"received": True, "first": not answered, "again": again, **study.choice(level), **dates}


def who(transaction: Transaction, token: str) -> tuple[str, int, str]:
    """Return the person and the number of a session, and the person's study as the register has it; or raise."""
    session = access.session(transaction.register, access.PARTICIPANT, token)
    known = None if session is None else transaction.register.known("person", session[0])
    if session is None or known is None:
        raise RefusedError(401)
    return *session, known[0]


def sealed(codes: Sequence[int], person: str, level: float, study: Study, vault: access.Vault) -> dict[str, Any]:
    """Return the row of a person with their codes sealed; those of somebody who is never used are not kept at all."""
    said = vault.seal(codes if level > 0 else [UNSAID] * len(codes), person, study.id, level)
    return {"id": person, "study": study.id, "epsilon": level, "answer": said, "version": new_version()}
