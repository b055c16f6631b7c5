"""Studies: a question, its bounds, the privacy choices, the waves, the invitations. All of it public."""

from __future__ import annotations

import json
import math
import time
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from hetdp.core.domain import Interval, epsilon_of
from hetdp.files import jsonable

from . import access, store
from .guard import RefusedError
from .register import ChangedError, new_version

MOST_TIERS = 12
MOST_WAVES = 24
MOST_INVITATIONS = 10_000
# A free choice ends here; more protects nobody and `public` says so more honestly.
LARGEST_CHOICE = 20.0

_PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
_LATEST = 4_102_444_800  # the year 2100


Name = Annotated[str, Field(min_length=1, max_length=40, pattern=_PLAIN)]
Question = Annotated[str, Field(min_length=1, max_length=300, pattern=_PLAIN)]
Sentence = Annotated[str, Field(max_length=200, pattern=_PLAIN)]
Unit = Annotated[str, Field(max_length=30, pattern=_PLAIN)]


class Strict(BaseModel):
    """Data from outside: no unknown field, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Tier(Strict):
    """One privacy choice: its name, its ε (a number, `inf` or `public`) and one plain sentence."""

    name: Name
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | Literal["inf", "public"]
    sentence: Sentence = ""

    @property
    def level(self) -> float:
        """The ε as a double."""
        return epsilon_of(self.epsilon)


class FreeChoice(Strict):
    """People choose ε themselves, between two ends."""

    least: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]
    most: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]

    @model_validator(mode="after")
    def _ordered(self) -> FreeChoice:
        if not self.least < self.most:
            raise ValueError("least must be below most")
        return self


class Wave(Strict):
    """One publication: when its answers close, and the share of everybody's ε that it may spend."""

    closes: Annotated[int, Field(ge=0, le=_LATEST)]
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


class NewStudy(Strict):
    """What a curator decides before anybody answers."""

    question: Question
    unit: Unit = ""
    bounds: Annotated[list[Annotated[float, Field(ge=-1e15, le=1e15)]], Field(min_length=2, max_length=2)]
    tiers: Annotated[list[Tier], Field(max_length=MOST_TIERS)] = []
    free: FreeChoice | None = None
    opens: Annotated[int, Field(ge=0, le=_LATEST)]
    waves: Annotated[list[Wave], Field(min_length=1, max_length=MOST_WAVES)]
    fewest: Annotated[int, Field(ge=1, le=10**9)] = 1
    changeable: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> NewStudy:
        closes = [self.opens, *(wave.closes for wave in self.waves)]
        names, levels = {tier.name for tier in self.tiers}, {tier.level for tier in self.tiers}
        if closes != sorted(set(closes)):
            raise ValueError("times must ascend")
        if bool(self.tiers) == bool(self.free) or not len(names) == len(levels) == len(self.tiers):
            raise ValueError("tiers with different names and levels, or a free choice")
        if math.fsum(wave.share for wave in self.waves) > 1:
            raise ValueError("shares above one")
        return self


class Study(BaseModel):
    """A study as it is stored."""

    model_config = ConfigDict(frozen=True)  # what else its row holds is left out

    id: str
    question: str
    unit: str
    lo: float
    hi: float
    tiers: tuple[Tier, ...]
    free: FreeChoice | None
    opens: int
    waves: tuple[Wave, ...]
    fewest: int
    changeable: bool
    wave: int
    status: str

    @classmethod
    def of(cls, row: Any) -> Study:
        """Return the study of a row."""
        return cls.model_validate({**row._mapping, **json.loads(row.choices), "waves": json.loads(row.waves)})

    @property
    def interval(self) -> Interval:
        """The smallest and the largest answer."""
        return Interval(self.lo, self.hi)

    @property
    def current(self) -> Wave:
        """The wave that is open now, or the last one."""
        return self.waves[min(self.wave, len(self.waves) - 1)]

    def phase(self) -> str:
        """Return where the study stands: planned, open, closed, publishing or published."""
        if self.status in {"publishing", "published"}:
            return self.status
        now = time.time()
        if now < self.opens:
            return "planned"
        return "open" if now < self.current.closes else "closed"

    def level(self, tier: str | None, epsilon: float | None) -> float:
        """Return the ε of a choice, or raise: a tier's, or a free one rounded down to three digits."""
        if self.free is not None and epsilon is not None and tier is None:
            if self.free.least <= epsilon <= self.free.most:
                return rounded_down(epsilon)
        elif self.free is None and epsilon is None:
            for known in self.tiers:
                if known.name == tier:
                    return known.level
        raise RefusedError(422, "choice", "This study has no such privacy choice.")

    def choice(self, level: float) -> dict[str, Any]:
        """Return what somebody chose: the name of the tier, if there are tiers, and its ε."""
        names = {tier.level: tier.name for tier in self.tiers}
        return {"tier": names.get(level), "epsilon": jsonable(level)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything public about the study, as JSON has it."""
        return {
            **self.model_dump(mode="json", exclude={"lo", "hi", "status"}),
            "bounds": [self.lo, self.hi],
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


def create(transaction: store.Transaction, new: NewStudy) -> Study:
    """Store a new study and return it."""
    interval = Interval(*new.bounds).ordinary()
    row: dict[str, Any] = {
        **new.model_dump(include={"question", "unit", "opens", "fewest", "changeable"}),
        "id": access.new_id(),
        "lo": interval.lo,
        "hi": interval.hi,
        "choices": json.dumps(new.model_dump(include={"tiers", "free"})),
        "waves": json.dumps([wave.model_dump() for wave in new.waves]),
        "wave": 0,
        "status": "open",
        "created": int(time.time()),
        "version": new_version(),
    }
    transaction.insert("study", [row])
    transaction.note("study created", row["id"], tiers=len(new.tiers), waves=len(new.waves))
    return get(transaction, row["id"])


def get(transaction: store.Transaction, study: str) -> Study:
    """Return a study by its id, or raise; also if it is not as this server wrote it last."""
    row = _row(transaction, study)
    if not transaction.vouches("study", row._mapping):
        raise ChangedError
    return Study.of(row)


def shown(transaction: store.Transaction, study: str) -> Study:
    """Return a study by its id as the database has it: to be shown, never to decide anything."""
    return Study.of(_row(transaction, study))


def _row(transaction: store.Transaction, study: str) -> Any:
    row = transaction.execute(sa.select(store.studies).where(store.studies.c.id == study)).first()
    if row is None:
        raise RefusedError(404)
    return row


def move(transaction: store.Transaction, study: str, **changes: Any) -> None:
    """Change where a study stands; raise if it is not as this server wrote it last."""
    before = _row(transaction, study)._mapping
    if not transaction.vouches("study", before):
        raise ChangedError
    transaction.change("study", {**before, **changes, "version": new_version()})


def every(transaction: store.Transaction) -> list[Study]:
    """Return all studies, the newest first, as the database has them: to be shown."""
    order = (store.studies.c.created.desc(), store.studies.c.id)
    return [Study.of(row) for row in transaction.execute(sa.select(store.studies).order_by(*order))]


def sizes(transaction: store.Transaction) -> dict[str, int]:
    """Return how many people have joined each study."""
    table = store.people
    query = sa.select(table.c.study, sa.func.count(table.c.epsilon).label("people")).group_by(table.c.study)
    return {row.study: row.people for row in transaction.execute(query)}


def joined(transaction: store.Transaction, study: str) -> dict[float, int]:
    """Return {ε: people} of a study; a choice stays when the answer is deleted after the last publication."""
    level = store.people.c.epsilon
    mine = (store.people.c.study == study) & level.is_not(None)
    query = sa.select(level, sa.func.count().label("people")).where(mine).group_by(level).order_by(level)
    return {row.epsilon: row.people for row in transaction.execute(query)}


def invite(transaction: store.Transaction, study: str, count: int) -> list[str]:
    """Make invitations and return their tokens, which are stored nowhere."""
    if get(transaction, study).status == "published":
        raise RefusedError(409, "closed", "This study is closed.")
    tokens = [access.new_token() for _ in range(count)]
    hashes = [access.digest("invitation", token) for token in tokens]
    fresh = ({"id": access.new_id(), "study": study, "version": new_version()} for _ in tokens)
    transaction.insert("person", [{**row, "invitation": hashed} for row, hashed in zip(fresh, hashes, strict=True)])
    transaction.note("invitations made", study, count=count)
    return tokens


def events(transaction: store.Transaction, study: str, most: int = 200) -> list[dict[str, Any]]:
    """Return the public events of a study, the newest first."""
    table = store.audit
    query = sa.select(table).where(table.c.study == study).order_by(table.c.number.desc()).limit(most)
    return [{"at": row.at, "event": row.event, **json.loads(row.detail)} for row in transaction.execute(query)]
