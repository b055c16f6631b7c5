"""Studies, which are public, and what people send to them, change and withdraw. A value becomes a sealed code at once.

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

import json
import math
import os
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from hetdp.core.domain import Interval, epsilon_of, jsonable
from hetdp.core.levels import joined_names
from hetdp.core.plan import Plan
from hetdp.errors import InputError
from hetdp.ledger import UNLIMITED, Rule, budget_units
from hetdp.ledger import level as ledger_level
from hetdp.report import numbers
from hetdp.sources import Source

from . import access, tables
from .access import RefusedError
from .store import Transaction, new_version

MOST_WAVES = 24
# A free choice ends here; more protects nobody and `public` says so more honestly.
LARGEST_CHOICE = 20.0

_PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
# How compressed and binary files begin: they could expand beyond the limit on a body.
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
_LATEST = 4_102_444_800  # the year 2100
_MORE = "This choice allows more to be learnt than your choice before. Nothing was changed; confirm it if you mean it."
# How long answers are kept after the last closing date if nothing else is said, in seconds.
KEPT = 365 * 86_400
# How many digits of the mark of a file begin the ids of its people.
MARK = 16


class Strict(BaseModel):
    """Data from outside: no unknown field, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Tier(Strict):
    """One privacy choice: its name, its ε (a number, `inf` or `public`) and one plain sentence."""

    name: Annotated[str, Field(min_length=1, max_length=40, pattern=_PLAIN)]
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | Literal["inf", "public"]
    sentence: Annotated[str, Field(max_length=200, pattern=_PLAIN)] = ""

    @property
    def level(self) -> float:
        """The ε as a double."""
        return epsilon_of(self.epsilon)


class FreeChoice(Strict):
    """People choose ε themselves, between two ends."""

    least: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]
    most: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]


class Wave(Strict):
    """One publication: when its answers close, and the share of everybody's ε that it may spend."""

    closes: Annotated[int, Field(ge=0, le=_LATEST)]
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


class Dated(Wave):
    """A wave as it is stored: with the date that was said first, if its closing was brought forward."""

    first: int | None = None


class NewStudy(Strict):
    """What a curator decides before anybody answers."""

    question: Annotated[str, Field(min_length=1, max_length=300, pattern=_PLAIN)]
    unit: Annotated[str, Field(max_length=30, pattern=_PLAIN)] = ""
    bounds: Annotated[list[Annotated[float, Field(ge=-1e15, le=1e15)]], Field(min_length=2, max_length=2)]
    tiers: Annotated[list[Tier], Field(max_length=12)] = []
    free: FreeChoice | None = None
    opens: Annotated[int, Field(ge=0, le=_LATEST)]
    waves: Annotated[list[Wave], Field(min_length=1, max_length=MOST_WAVES)]
    fewest: Annotated[int, Field(ge=1, le=10**9)] = 1
    changeable: bool = True
    until: Annotated[int, Field(ge=0, le=2 * _LATEST)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> NewStudy:
        closes = [self.opens, *(wave.closes for wave in self.waves)]
        names, levels = {tier.name for tier in self.tiers}, {tier.level for tier in self.tiers}
        rules = (
            closes == sorted(set(closes)),
            math.fsum(wave.share for wave in self.waves) <= 1,
            bool(self.tiers) != bool(self.free),
            len(names) == len(levels) == len(self.tiers),
            self.free is None or self.free.least < self.free.most,
            self.until is None or self.until > closes[-1],
        )
        if not all(rules):
            raise ValueError  # which one it is, is not said: the answer is a fixed text
        return self


class Study(BaseModel):
    """A study as it is stored. Its limits were checked when it was made; one that was changed can still be shown."""

    model_config = ConfigDict(frozen=True)  # what else its row holds is left out

    id: str
    question: str
    unit: str
    bounds: tuple[float, float]
    tiers: tuple[Tier, ...]
    free: FreeChoice | None
    opens: int
    waves: tuple[Dated, ...]
    fewest: int
    changeable: bool
    until: int  # then everything that people sent is deleted, published or not
    wave: int
    status: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Study:
        """Return the study of a row."""
        choices, waves = json.loads(row["choices"]), json.loads(row["waves"])
        until = {"until": waves[-1]["closes"] + KEPT}  # of a study that was made before there were such dates
        return cls.model_validate({**row, **until, **choices, "bounds": (row["lo"], row["hi"]), "waves": waves})

    @property
    def interval(self) -> Interval:
        """The smallest and the largest answer."""
        return Interval(*self.bounds)

    @property
    def current(self) -> Dated:
        """The wave that is open now, or the last one."""
        return self.waves[min(self.wave, len(self.waves) - 1)]

    def phase(self) -> str:
        """Return where the study stands: planned, open, closed, publishing, published or deleted."""
        if self.status in {"publishing", "published", "deleted"}:
            return self.status
        now = access.now()
        if now < self.opens:
            return "planned"
        return "open" if now < self.current.closes else "closed"

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

    def shared(self, level: float) -> float:
        """Return the ε with which somebody enters the current wave: its share of theirs, rounded as in the ledger."""
        return ledger_level(most(level, self.current.share))

    def names(self, levels: Iterable[float]) -> dict[float, str]:
        """Return names for the levels of the current wave: of tiers, or of free choices."""
        named = [(tier.level, tier.name) for tier in self.tiers] or [(level, f"ε = {level:g}") for level in levels]
        return joined_names((self.shared(level), name) for level, name in named)

    def to_dict(self) -> dict[str, Any]:
        """Return everything public about the study, as JSON has it."""
        return {
            **self.model_dump(mode="json", exclude={"status"}),
            "closes": self.current.closes,
            "wave": min(self.wave, len(self.waves) - 1),
            "phase": self.phase(),
        }


def rounded_down(epsilon: float) -> float:
    """Return ε cut to three significant digits, never up: a free choice then has few levels.

    >>> rounded_down(0.12399), rounded_down(2.0)
    (0.123, 2.0)
    """
    digits: int = 2 - math.floor(math.log10(epsilon))
    cut = math.floor(round(epsilon * 10.0**digits, 9)) / 10.0**digits
    return min(cut, epsilon)


@lru_cache(maxsize=4096)
def most(epsilon: float, share: float, used: int = 0) -> int:
    """Return what a wave may use of somebody, in the ledger's units: the share of their ε, if that much is left."""
    units = budget_units(epsilon)
    left = units if units == UNLIMITED else max(units - used, 0)
    return Rule.given(share=share).allowed(units, left)


def table(p: Plan, names: Mapping[float, str]) -> list[dict[str, Any]]:
    """Return who is in a plan, in at most twelve rows: a level, or a band of neighbouring ones."""
    rows = []
    for band in p.facts.bands:
        low, high = band.epsilon
        first = f"ε = {numbers.epsilon(low)}"
        name = names.get(low, first) if low == high else f"{first} to {numbers.epsilon(high)}"
        cells = {"name": name, "epsilon": high, "people": band.people, "spent": band.spent[1], "share": band.share}
        rows.append(jsonable(cells))
    return rows


def new_id() -> str:
    """Return a new identifier that says nothing and is no secret."""
    return secrets.token_hex(8)


def create(transaction: Transaction, new: NewStudy) -> Study:
    """Store a new study and return it."""
    interval, until = Interval(*new.bounds).ordinary(), new.until or new.waves[-1].closes + KEPT
    row: dict[str, Any] = {
        **new.model_dump(include={"question", "unit", "opens", "fewest", "changeable"}),
        "id": new_id(),
        "lo": interval.lo,
        "hi": interval.hi,
        "choices": json.dumps({**new.model_dump(include={"tiers", "free"}), "until": until}),
        "waves": waves_text(new.waves),
        "wave": 0,
        "status": "open",
        "created": int(access.now()),
        "version": new_version(),
    }
    transaction.insert("study", [row])
    transaction.note("study created", row["id"], tiers=len(new.tiers), waves=len(new.waves))
    return get(transaction, row["id"])


def waves_text(waves: Iterable[Wave]) -> str:
    """Return waves as their column has them."""
    return json.dumps([wave.model_dump(exclude_none=True) for wave in waves])


def get(transaction: Transaction, study: str) -> Study:
    """Return a study by its id, or raise; also if it is not as this server wrote it last."""
    return Study.of(transaction.believed("study", _row(transaction, study)))


def shown(transaction: Transaction, study: str) -> Study:
    """Return a study by its id as the database has it: to be shown, never to decide anything."""
    return Study.of(_row(transaction, study))


def _row(transaction: Transaction, study: str) -> dict[str, Any]:
    row = transaction.row("study", study)
    if row is None:
        raise RefusedError(404)
    return row


def move(transaction: Transaction, study: str, **changes: Any) -> None:
    """Change where a study stands; raise if it is not as this server wrote it last."""
    before = transaction.believed("study", _row(transaction, study))
    transaction.change("study", {**before, **changes, "version": new_version()})


def every(transaction: Transaction) -> list[Study]:
    """Return all studies that were not deleted, the newest first, as the database has them: to be shown."""
    about = tables.studies.c
    query = sa.select(tables.studies).where(about.status != "deleted").order_by(about.created.desc(), about.id)
    return [Study.of(dict(row._mapping)) for row in transaction.execute(query)]


def joined(transaction: Transaction, study: str) -> dict[float, int]:
    """Return {ε: people} of a study; a choice stays when the answer is deleted after the last publication."""
    level = tables.people.c.epsilon
    mine = (tables.people.c.study == study) & level.is_not(None)
    query = sa.select(level, sa.func.count().label("people")).where(mine).group_by(level).order_by(level)
    return {row.epsilon: row.people for row in transaction.execute(query)}


def invite(transaction: Transaction, study: str, count: int) -> list[str]:
    """Make invitations and return their tokens, which are stored nowhere."""
    if get(transaction, study).status in {"published", "deleted"}:
        raise RefusedError(409, "closed", "This study is closed.")
    tokens = [access.new_token() for _ in range(count)]
    hashes = [access.digest("invitation", token) for token in tokens]
    fresh = ({"id": new_id(), "study": study, "version": new_version()} for _ in tokens)
    transaction.insert("person", [{**row, "invitation": hashed} for row, hashed in zip(fresh, hashes, strict=True)])
    transaction.note("invitations made", study, count=count)
    return tokens


def events(transaction: Transaction, study: str, most: int = 200) -> list[dict[str, Any]]:
    """Return the public events of a study, the newest first."""
    table = tables.audit
    query = sa.select(table).where(table.c.study == study).order_by(table.c.number.desc()).limit(most)
    return [{"at": row.at, "event": row.event, **json.loads(row.detail)} for row in transaction.execute(query)]


# ---------------------------------------------------------------------------------------------------------
# Answers


class NewAnswer(Strict):
    """A value and a privacy choice: a tier by name, or an ε where the study leaves it free.

    A change with a larger ε than before is refused unless `allow_more` says that this is meant.
    """

    value: float
    tier: Annotated[str, Field(max_length=40)] | None = None
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | None = None
    allow_more: bool = False


def enter(transaction: Transaction, token: str) -> str:
    """Return a new session of the person whose invitation or link this is; every other token is refused alike."""
    table, found = tables.people, None
    for kind, column in (("invitation", table.c.invitation), ("again", table.c.again)):
        hashed = access.digest(kind, token)
        row = transaction.execute(sa.select(table).where(column == hashed)).first()
        if row is not None and access.same(row._mapping[kind], hashed):
            found = dict(row._mapping)  # no early end: every token costs two lookups
    if found is None:
        raise RefusedError(403, "invitation", "This link is not valid, or it was used already.")
    person = transaction.believed("person", found)["id"]
    return access.open_session(transaction.register, access.PARTICIPANT, person)


def seen(transaction: Transaction, token: str, *, changed: bool) -> tuple[Study, dict[str, Any]]:
    """Return a person's study and what they chose, not what they answered.

    With `changed`, if the study or their row was changed from outside: nothing can be sent, but it can be withdrawn.
    """
    person, _, study_id = _who(transaction, token)
    about = {"person": person, "changed": changed}
    if changed:
        return shown(transaction, study_id), {**about, "joined": True, "choice": None, "may_send": False}
    study = get(transaction, study_id)
    row = transaction.believed("person", transaction.row("person", person))
    joined = row["epsilon"] is not None
    chosen = study.choice(row["epsilon"]) if joined else None
    may = study.phase() == "open" and (study.changeable or not joined)
    return study, {**about, "joined": joined, "choice": chosen, "may_send": may}


def send(transaction: Transaction, vault: access.Vault, token: str, new: NewAnswer) -> dict[str, Any]:
    """Store or change a person's answer and return the receipt."""
    person, session, study_id = _who(transaction, token)
    study = get(transaction, study_id)
    row = transaction.believed("person", transaction.row("person", person))
    answered = row["epsilon"] is not None
    if study.phase() != "open" or transaction.register.opened(study.id, study.wave):
        raise RefusedError(409, "closed", "This study does not take answers now.")
    if answered and not study.changeable:
        raise RefusedError(409, "final", "In this study an answer cannot be changed; it can be withdrawn.")
    level = study.level(new.tier, new.epsilon)
    if answered and level > row["epsilon"] and not new.allow_more:
        raise RefusedError(409, "more", _MORE)
    now = {**row, **_sealed(_codes([new.value], study), {person: level}, study, vault)[0]}
    again = None
    if not answered:
        again = access.new_token()
        now |= {"invitation": None, "again": access.digest("again", again)}
        transaction.register.end_sessions(person, but=session)  # the first answer uses the invitation up
    transaction.change("person", now)
    transaction.scrub |= answered
    return {"received": True, "first": not answered, "again": again, **study.choice(level)}


def withdraw(transaction: Transaction, token: str) -> dict[str, Any]:
    """Delete a person's answer, until answers are read; they may send another one until closing."""
    person, _, study = _who(transaction, token)
    row = transaction.row("person", person)
    believed = row if row is not None and transaction.vouches("person", row) else {}
    if believed and believed["epsilon"] is None:
        return {"withdrawn": True}
    published = believed and believed["answer"] is None
    if published or _being_read(transaction, study):
        raise RefusedError(409, "closed", "Answers are closed: they are being published, or were.")
    gone = dict.fromkeys(tables.people.c.keys()) | {name: believed.get(name) for name in ("invitation", "again")}
    gone |= {"id": person, "study": study, "version": new_version()}
    if row is None:  # somebody has removed it; it comes back empty
        transaction.insert("person", [gone])
    else:
        transaction.change("person", gone)
    transaction.scrub = True
    return {"withdrawn": True}


def _who(transaction: Transaction, token: str) -> tuple[str, int, str]:
    """Return the person and the number of a session, and the person's study as the register has it; or raise."""
    session = access.session(transaction.register, access.PARTICIPANT, token)
    known = None if session is None else transaction.register.known("person", session[0])
    if session is None or known is None:
        raise RefusedError(401)
    return *session, known[0]


def _being_read(transaction: Transaction, study: str) -> bool:
    """Say whether answers are being published, or were; of a study that was changed from outside the register knows."""
    try:
        found = get(transaction, study)
    except RefusedError:
        return transaction.register.opened(study)
    return found.status in {"publishing", "published"} or transaction.register.opened(study, found.wave)


def _codes(values: Any, study: Study) -> list[int]:
    found: list[int] = study.interval.codes(np.asarray(values), np.empty(len(values))).astype(np.int64).tolist()
    return found


def _sealed(codes: list[int], people: Mapping[str, float], study: Study, vault: access.Vault) -> list[dict[str, Any]]:
    """Return rows of {person: ε}, with their codes sealed; that of somebody never used is not kept at all."""
    rows = []
    for code, (person, level) in zip(codes, people.items(), strict=True):
        answer = vault.seal(code if level > 0 else 0, person, study.id, level)
        rows.append({"id": person, "study": study.id, "epsilon": level, "answer": answer, "version": new_version()})
    return rows


# ---------------------------------------------------------------------------------------------------------
# People from a file


def read_rows(body: bytes, study: Study, vault: access.Vault) -> tuple[str, list[dict[str, Any]]]:
    """Return the mark of a CSV file and its people, their answers sealed as if they had sent them.

    The mark is a keyed hash of all levels and codes in order of size: whoever has the database but no key learns that
    two files are the same, and nothing else. Ids begin with half of it; by that the people of a file are found again.
    """
    if body.startswith(_COMPRESSED):
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
    levels = [level for batch in batches for level in batch.epsilon.tolist()]
    if study.free:
        levels = [study.level(None, level) for level in levels]
    codes = [code for batch in batches for code in _codes(batch.values, study)]
    content = sorted((level, code if level else 0) for level, code in zip(levels, codes, strict=True))
    mark = vault.mark(f"{study.id} {content}")
    people = {mark[:MARK] + new_id(): level for level in levels}
    return mark, _sealed(codes, people, study, vault)


def add_rows(transaction: Transaction, study: str, mark: str, people: list[dict[str, Any]]) -> dict[str, int]:
    """Add people from a file; if the same content came before and was not deleted, they are there already."""
    before = transaction.row("import", mark)
    if before is not None or transaction.register.known("import", mark) is not None:
        known = transaction.believed("import", before)  # taken out of the database, its people would come a second time
        if known["people"]:
            return {"people": known["people"]}
    if get(transaction, study).phase() != "open":
        raise RefusedError(409, "closed", "This study does not take answers now.")
    transaction.insert("person", people)
    row = {"id": mark, "study": study, "people": len(people)}
    transaction.insert("import", [row]) if before is None else transaction.change("import", row)
    transaction.note("rows imported", study, count=len(people))
    return {"people": len(people)}
