"""Studies: a question, its bounds, the privacy choices, the waves, the invitations. All of it public."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from hetdp.core import cells
from hetdp.core.domain import Interval

from . import keys, store
from .access import Execute
from .errors import RefusedError
from .register import ChangedError, new_version

Phase = Literal["planned", "open", "closed", "publishing", "published"]

MOST_TIERS = 12
MOST_WAVES = 24
MOST_INVITATIONS = 10_000
LARGEST_CHOICE = 20.0
"""A free choice ends here; more protects nobody and `public` says so more honestly."""

_PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
_LATEST = 4_102_444_800  # the year 2100


Name = Annotated[str, Field(min_length=1, max_length=40, pattern=_PLAIN)]
Question = Annotated[str, Field(min_length=1, max_length=300, pattern=_PLAIN)]
Sentence = Annotated[str, Field(max_length=200, pattern=_PLAIN)]
Unit = Annotated[str, Field(max_length=30, pattern=_PLAIN)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Tier(_Strict):
    """One privacy choice: its name, its ε (a number, `inf` or `public`) and one plain sentence."""

    name: Name
    epsilon: Annotated[float, Field(ge=0, le=1e6)] | Literal["inf", "public"]
    sentence: Sentence = ""

    @property
    def level(self) -> float:
        """The ε as a double."""
        return cells.epsilon_of(self.epsilon)


class FreeChoice(_Strict):
    """People choose ε themselves, between two ends."""

    least: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]
    most: Annotated[float, Field(ge=1e-3, le=LARGEST_CHOICE)]

    @model_validator(mode="after")
    def _ordered(self) -> FreeChoice:
        if not self.least < self.most:
            raise ValueError("least must be below most")
        return self


class Wave(_Strict):
    """One publication: when its answers close, and the share of everybody's ε that it may spend."""

    closes: Annotated[int, Field(ge=0, le=_LATEST)]
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


class NewStudy(_Strict):
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


@dataclass(frozen=True)
class Study:
    """A study as it is stored."""

    id: str
    question: str
    unit: str
    interval: Interval
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
        tiers, free = _choices(row.choices)
        return cls(
            id=row.id,
            question=row.question,
            unit=row.unit,
            interval=Interval(row.lo, row.hi),
            tiers=tiers,
            free=free,
            opens=row.opens,
            waves=_waves(row.waves),
            fewest=row.fewest,
            changeable=row.changeable,
            wave=row.wave,
            status=row.status,
        )

    @property
    def current(self) -> Wave:
        """The wave that is open now, or the last one."""
        return self.waves[min(self.wave, len(self.waves) - 1)]

    def phase(self, now: float | None = None) -> Phase:
        """Return where the study stands."""
        now = time.time() if now is None else now
        if self.status in {"publishing", "published"}:
            return "publishing" if self.status == "publishing" else "published"
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

    @property
    def names(self) -> dict[float, str]:
        """The tiers' names by their ε."""
        return {tier.level: tier.name for tier in self.tiers}

    def to_dict(self) -> dict[str, Any]:
        """Return everything public about the study, as JSON has it."""
        return {
            "id": self.id,
            "question": self.question,
            "unit": self.unit,
            "bounds": [self.interval.lo, self.interval.hi],
            "tiers": [tier.model_dump() for tier in self.tiers],
            "free": self.free.model_dump() if self.free else None,
            "opens": self.opens,
            "closes": self.current.closes,
            "waves": [wave.model_dump() for wave in self.waves],
            "wave": min(self.wave, len(self.waves) - 1),
            "fewest": self.fewest,
            "changeable": self.changeable,
            "phase": self.phase(),
        }


@lru_cache(maxsize=256)
def _choices(text: str) -> tuple[tuple[Tier, ...], FreeChoice | None]:
    found = json.loads(text)
    free = FreeChoice.model_validate(found["free"]) if found["free"] else None
    return tuple(Tier.model_validate(tier) for tier in found["tiers"]), free


@lru_cache(maxsize=256)
def _waves(text: str) -> tuple[Wave, ...]:
    return tuple(Wave.model_validate(wave) for wave in json.loads(text))


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
    choices = {"tiers": [t.model_dump() for t in new.tiers], "free": new.free.model_dump() if new.free else None}
    row: dict[str, Any] = {
        "id": keys.opaque_id(),
        "question": new.question,
        "unit": new.unit,
        "lo": interval.lo,
        "hi": interval.hi,
        "choices": json.dumps(choices),
        "waves": json.dumps([wave.model_dump() for wave in new.waves]),
        "opens": new.opens,
        "fewest": new.fewest,
        "changeable": new.changeable,
        "wave": 0,
        "status": "open",
        "created": int(time.time()),
        "version": new_version(),
    }
    transaction.execute(sa.insert(store.studies).values(row))
    transaction.wrote("study", row)
    note(transaction, "study created", row["id"], {"tiers": len(new.tiers), "waves": len(new.waves)})
    return get(transaction, row["id"])


def get(transaction: store.Transaction, study: str) -> Study:
    """Return a study by its id, or raise; also if it is not as this server wrote it last."""
    row = _row(transaction.execute, study)
    if not transaction.vouches("study", row._mapping):
        raise ChangedError
    return Study.of(row)


def shown(execute: Execute, study: str) -> Study:
    """Return a study by its id as the database has it: to be shown, never to decide anything."""
    return Study.of(_row(execute, study))


def _row(execute: Execute, study: str) -> Any:
    row = execute(sa.select(store.studies).where(store.studies.c.id == study)).first()
    if row is None:
        raise RefusedError(404)
    return row


def move(transaction: store.Transaction, study: str, **changes: Any) -> None:
    """Change where a study stands; raise if it is not as this server wrote it last."""
    before = _row(transaction.execute, study)._mapping
    if not transaction.vouches("study", before):
        raise ChangedError
    now = {**before, **changes, "version": new_version()}
    transaction.execute(sa.update(store.studies).where(store.studies.c.id == study).values(now))
    transaction.wrote("study", now)


def every(execute: Execute) -> list[Study]:
    """Return all studies, the newest first, as the database has them: to be shown."""
    order = (store.studies.c.created.desc(), store.studies.c.id)
    return [Study.of(row) for row in execute(sa.select(store.studies).order_by(*order))]


def invite(transaction: store.Transaction, study: str, count: int) -> list[str]:
    """Make invitations and return their tokens, which are stored nowhere."""
    if get(transaction, study).status == "published":
        raise RefusedError(409, "closed", "This study is closed.")
    tokens = [keys.fresh() for _ in range(count)]
    rows = [_invited(study, token) for token in tokens]
    transaction.execute(sa.insert(store.people), rows)
    for row in rows:
        transaction.wrote("person", row)
    note(transaction, "invitations made", study, {"count": count})
    return tokens


def _invited(study: str, token: str) -> dict[str, str]:
    hashed = keys.digest("invitation", token)
    return {"id": keys.opaque_id(), "study": study, "invitation": hashed, "version": new_version()}


def note(transaction: store.Transaction, event: str, study: str | None = None, detail: Any = None) -> None:
    """Write a public event into the audit log."""
    row = {"at": int(time.time()), "event": event, "study": study, "detail": json.dumps(detail or {})}
    transaction.execute(sa.insert(store.audit).values(row))


def events(execute: Execute, study: str, most: int = 200) -> list[dict[str, Any]]:
    """Return the public events of a study, the newest first."""
    table = store.audit
    query = sa.select(table).where(table.c.study == study).order_by(table.c.number.desc()).limit(most)
    return [{"at": row.at, "event": row.event, **json.loads(row.detail)} for row in execute(query)]
