"""Several answers: of public groups, and to several questions about the same people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from hetdp.core.domain import jsonable
from hetdp.errors import InputError
from hetdp.report.about import Figure, Provenance, Reported

from .combine import Combined, combined
from .statistic import Answer

if TYPE_CHECKING:
    from hetdp.report.text import Parts

CHECKED = (
    "Each person is in one group, so their value enters one of these results only (parallel composition): the whole "
    "table protects everybody at their own ε. Who is in which group is public."
)
ASSUMED = (
    "Assumed: every row is another person, so that everybody is in one group. It was not checked, because no column of "
    "ids was named: somebody with rows in several groups spends the sum over them. Who is in which group is public."
)
SEVERAL = (
    "Each person is in one group, and on all questions about it together they spend at most their ε (parallel "
    "composition): all tables together protect everybody at their own ε. Who is in which group is public."
)
"""What a table of groups promises as a whole: with a column of ids, without, and of several questions with one."""


ROWS = "Assumed: every row is another person."
"""What is assumed about people where no column of ids was named."""

Group = str | tuple[str, ...]
"""The name of a group: a text, or of several columns the text of each."""


def label(group: Group) -> str:
    """Return a group as one text; no two groups have the same, so a dot within a text of several is doubled.

    >>> label("north"), label(("north", "f"))
    ('north', 'north · f')
    """
    return group if isinstance(group, str) else " · ".join(text.replace("·", "··") for text in group)


class Groups(Reported, dict[Group, Any]):
    """{group: answer}, in the order of the groups; if several questions were asked, {group: answers}.

    All of it may be published. A group is a text; if several columns make the groups, a tuple with the text of each.

    Attributes
    ----------
    by
        The names of the columns that make the groups.
    composition
        What is promised for the table as a whole, in a sentence; the loss is in one group only if ids were checked.
    """

    def __init__(self, releases: Mapping[Group, Any], *, checked: bool, by: Sequence[str] = ("group",)) -> None:
        super().__init__(releases)
        several = any(isinstance(found, Answers) for found in releases.values())
        self.by, self.composition = tuple(by), (SEVERAL if several else CHECKED) if checked else ASSUMED

    def _columns(self, group: Group) -> dict[str, str]:
        return dict(zip(self.by, (group,) if isinstance(group, str) else group, strict=True))

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What would be wrong with one release over all groups, if their people chose privacy differently."""
        from hetdp.report.drift import group_warnings

        questions = dict.fromkeys(question for _, question, _ in self._answers())
        return tuple(said for name in questions for said in group_warnings(self._about(name)))

    def _about(self, question: str) -> Groups:
        """Return the answers to one question; of groups with one answer each, where it has no name, all of them."""
        found = {group: r for group, asked, r in self._answers() if asked == question}
        one = Groups(found, checked=True, by=self.by)
        one.composition = self.composition
        return one

    def combine(self, shares: Mapping[str, float]) -> Combined:
        """Return one number about everybody: the means of the groups, weighted by known shares (post-stratification).

        It is right where ε goes with the group, or where the groups are not in the data as they are in the population.
        Nothing more is spent.

        Parameters
        ----------
        shares
            {group: its share of the population}, in any unit; for every group and no other. They must be public, from a
            census or from how many people each group has, never from the private values.
        """
        if any(isinstance(found, Answers) for found in self.values()):
            raise InputError("groups with several answers each are combined one question at a time: ask for it alone")
        return combined(self, shares)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answers as plain data, each under its label and with the columns that make its group."""
        groups = {label(name): {"group": self._columns(name), **r.to_dict(level)} for name, r in self.items()}
        whole = {"composition": self.composition, "warnings": list(self.warnings)}
        return {"by": list(self.by), "groups": groups, **whole, "provenance": self.provenance.to_dict()}

    def to_frame(self, level: float = 0.95) -> Any:
        """Return a Polars frame with a row for each number of each group.

        First come the columns that make the groups, then the question and the name of the number (where there are
        several), its estimate and guaranteed interval, the people of the group, the largest ε that one of them spends,
        and whether the number is from the data at all. Where there is no interval in units `low` and `high` are null: a
        quantile without within= has the ends of its bin instead, `bin_low` and `bin_high`, and a mode is a text,
        `cell`, with how far its share can be below the largest one.
        """
        import polars as pl

        rows = []
        for group, question, r in self._answers():
            size = {"n": r.plan.n, "most_spent": float(r.plan.spent.max()), "from_data": not r.plan.abstains}
            for f in r.figures(level):
                row: dict[str, Any]
                row = {**({"question": question} if question else {}), **({"number": f.label} if r.heading else {})}
                row |= {**_numbers(f), **size, **f.about}
                columns = self._columns(group).items()
                rows.append({**{f"{name} (group)" if name in row else name: text for name, text in columns}, **row})
        return pl.DataFrame(rows, infer_schema_length=None)

    def _answers(self) -> list[tuple[Group, str, Answer]]:
        several = [(g, found if isinstance(found, Answers) else {"": found}) for g, found in self.items()]
        return [(group, question, r) for group, found in several for question, r in found.items()]

    @property
    def provenance(self) -> Provenance:
        """What the groups are about and where they come from; it is the same for all."""
        return next(iter(self.values())).provenance if self else Provenance()

    def parts(self, level: float) -> Parts:
        """Return a table of the groups, and what is promised for it as a whole; of several questions, one for each."""
        from hetdp.report.text import group_parts

        parts: list[Any] = []
        for name in dict.fromkeys(question for _, question, _ in self._answers()):
            parts += [*([[("Question", name)]] if name else []), *group_parts(self._about(name), level)]
        return parts

    def __repr__(self) -> str:
        return f"Groups({{{', '.join(f'{name!r}: {release!r}' for name, release in self.items())}}})"


def _numbers(f: Figure) -> dict[str, Any]:
    """Return estimate and interval for a frame; what is no interval for the estimate has another name."""
    if f.shown is not None:
        return {"estimate": None, "low": None, "high": None, "cell": f.shown, "at_most_below_the_largest": f.high}
    if "rank" in f.about and f.about.get("within") is None:
        return {"estimate": f.estimate, "low": None, "high": None, "bin_low": f.low, "bin_high": f.high}
    return {"estimate": f.estimate, "low": f.low, "high": f.high}


class Answers(Reported, dict[str, Answer]):
    """{question: answer}, all about the same people, who spend their ε once on all of them.

    Attributes
    ----------
    shares
        The share of everybody's ε that each question could use.
    """

    def __init__(self, answers: Mapping[str, Answer], shares: Mapping[str, float]) -> None:
        super().__init__(answers)
        self.shares = dict(shares)

    @property
    def spent(self) -> dict[float, float]:
        """{ε: what a person of this level spends on all questions together}, rounded up; never above ε.

        The exact sum is not above ε (`privacy.exact.check_together`), so neither of the two is below it.
        """
        levels = next(iter(self.values())).plan.levels
        parts = [answer.plan.spent.tolist() for answer in self.values()]
        rows = zip(levels.epsilon.tolist(), *parts, strict=True)
        return {e: min(math.nextafter(math.fsum(each), math.inf), e) if any(each) else 0.0 for e, *each in rows}

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answers as plain data."""
        answers = {name: answer.to_dict(level) for name, answer in self.items()}
        spent = [{"epsilon": epsilon, "spent": spent} for epsilon, spent in self.spent.items()]
        about = self.provenance.to_dict()
        return dict(jsonable({"answers": answers, "shares": self.shares, "spent_together": spent, "provenance": about}))

    @property
    def provenance(self) -> Provenance:
        """What all answers together are about and where they come from; they were released at once."""
        found = [answer.provenance for answer in self.values()]
        names = ", ".join(dict.fromkeys(one.statistic for one in found))
        return replace(reduce(Provenance.__add__, found), statistic=names)

    def parts(self, level: float) -> Parts:
        """Return all answers, and what is spent on them together."""
        from hetdp.report.text import answers_parts

        return answers_parts(self, level)

    def __repr__(self) -> str:
        return f"Answers({{{', '.join(f'{name!r}: {answer!r}' for name, answer in self.items())}}})"


def shares_of(questions: Mapping[str, Any], split: Mapping[str, Any] | None) -> dict[str, float]:
    """Return everybody's share of ε for each question; they add up to at most 1, exactly.

    >>> shares_of({"a": None, "b": None, "c": None}, {"a": 2, "b": 1, "c": 1})
    {'a': 0.5, 'b': 0.25, 'c': 0.25}
    """
    if not isinstance(questions, Mapping) or not questions or not all(isinstance(name, str) for name in questions):
        raise InputError("questions are a mapping of names to questions: {'income': hetdp.ask.mean(bounds=…)}")
    given = dict.fromkeys(questions, 1) if split is None else dict(split)
    if given.keys() != questions.keys():
        raise InputError(f"split has a share for every question and no other: {', '.join(questions)}")
    parts = {}
    for name, part in given.items():
        if isinstance(part, bool) or not isinstance(part, (int, float, Fraction)) or not 0 < part < 2**53:
            raise InputError(f"a share of ε must be a positive number (got {part!r} for {name!r})")
        parts[name] = Fraction(part)
    whole = sum(parts.values())
    shares = {name: float(part / whole) for name, part in parts.items()}
    while sum(map(Fraction, shares.values())) > 1:
        shares = {name: share * (1 - 2.0**-52) for name, share in shares.items()}
    return shares
