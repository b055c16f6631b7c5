"""Several answers: of public groups, which known shares put together, and to several questions about one people."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from hetdp.core.accuracy import IntervalKind, check_level, condition, rounding, worst_corner
from hetdp.core.domain import Interval, jsonable
from hetdp.core.intervals import clamped_log_mgf, hoeffding, log_laplace
from hetdp.errors import InputError
from hetdp.report import Figure, Parts, Provenance, Reported

from .bounds import spent_in_all
from .statistic import Answer, Release

if TYPE_CHECKING:
    from hetdp.core.plan import Plan

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

ONE_EPSILON = "One ε was given for everybody: nobody's own choice was read."
"""What a reader should know where ε was a number, and not one for each person."""

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
    question
        Of `about`: the question to which these are the answers.
    """

    def __init__(self, releases: Mapping[Group, Any], *, checked: bool, by: Sequence[str] = ("group",)) -> None:
        super().__init__({name: _in_group(found, name) for name, found in releases.items()})
        several = any(isinstance(found, Answers) for found in releases.values())
        self.by, self.composition = tuple(by), (SEVERAL if several else CHECKED) if checked else ASSUMED
        self.question = ""

    def _columns(self, group: Group) -> dict[str, str]:
        return dict(zip(self.by, (group,) if isinstance(group, str) else group, strict=True))

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What would be wrong with one release over all groups, if their people chose privacy differently."""
        from hetdp.report.drift import group_warnings

        questions = dict.fromkeys(question for _, question, _ in self._answers())
        return tuple(said for name in questions for said in group_warnings(self.about(name)))

    def about(self, question: str) -> Groups:
        """Return the answers to one of several questions, as groups with one answer each.

        Parameters
        ----------
        question
            Its name; of groups with one answer each, where it has none, "".

        Returns
        -------
        Groups
            The same groups, which can be combined.
        """
        found = {group: r for group, asked, r in self._answers() if asked == question}
        if not found and self:
            asked = ", ".join(dict.fromkeys(name for _, name, _ in self._answers()))
            raise InputError(f"there is no question {question!r} here; there are: {asked}")
        one = Groups(found, checked=True, by=self.by)
        one.composition, one.question = self.composition, question
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

        Returns
        -------
        Combined
            The number, with an interval.
        """
        if any(isinstance(found, Answers) for found in self.values()):
            raise InputError(
                "groups with several answers each are combined one question at a time: .about(question).combine(…)"
            )
        return combined(self, shares)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answers as plain data, each under its label and with the columns that make its group."""
        groups = {label(name): {"group": self._columns(name), **r.to_dict(level)} for name, r in self.items()}
        whole = {"composition": self.composition, "warnings": list(self.warnings)}
        return {"by": list(self.by), "groups": groups, **whole, "provenance": self.provenance.to_dict()}

    def to_frame(self, level: float = 0.95) -> Any:
        """Return a Polars frame with a row for each number of each group.

        First come the columns that make the groups, then the question and the name of the number (where there are
        several), its estimate and guaranteed interval, whether it is too uncertain to use or at the end of the range,
        the people of the group, the largest ε that one of them spends, and whether it is from the data at all. Without
        an interval in units `low` and `high` are null: a quantile without within= has the ends of its bin instead,
        `bin_low` and `bin_high`, and a mode is a text, `cell`, with how far its share can be below the largest one.

        Returns
        -------
        polars.DataFrame
            One row for each number of each group.
        """
        import polars as pl

        rows = []
        for group, question, r in self._answers():
            size = {"n": r.plan.n, "most_spent": float(r.plan.spent_in_all.max()), "from_data": not r.plan.abstains}
            for f in r.figures(level):
                row: dict[str, Any]
                row = {**({"question": question} if question else {}), **({"number": f.label} if r.heading else {})}
                row |= {**_numbers(f), "uncertain": f.uncertain, "at_end": f.edge, **size, **f.about}
                columns = self._columns(group).items()
                rows.append({**{f"{name} (group)" if name in row else name: text for name, text in columns}, **row})
        return pl.DataFrame(rows, infer_schema_length=None)

    def _answers(self) -> list[tuple[Group, str, Answer]]:
        several = [(g, found if isinstance(found, Answers) else {"": found}) for g, found in self.items()]
        return [(group, question, r) for group, found in several for question, r in found.items()]

    @property
    def provenance(self) -> Provenance:
        """What the groups are about and where they come from; it is the same for all."""
        return replace(next(iter(self.values())).provenance, group="") if self else Provenance()

    def parts(self, level: float) -> Parts:
        """Return a table of the groups, and what is promised for it as a whole; of several questions, one for each."""
        from hetdp.report.text import group_parts

        parts: list[Any] = []
        for name in dict.fromkeys(question for _, question, _ in self._answers()):
            parts += [*([[("Question", name)]] if name else []), *group_parts(self.about(name), level)]
        return parts

    def __repr__(self) -> str:
        return f"Groups({{{', '.join(f'{name!r}: {release!r}' for name, release in self.items())}}})"


def _in_group(found: Any, group: Group) -> Any:
    """Return an answer, or several, that say of which group they are."""
    if isinstance(found, Answers):
        return Answers({name: _in_group(answer, group) for name, answer in found.items()}, found.shares)
    return replace(found, about=replace(found.about, group=label(group)))


def _numbers(f: Figure) -> dict[str, Any]:
    """Return estimate and interval for a frame; what is no interval for the estimate has another name."""
    if f.shown is not None:
        return {"estimate": None, "low": None, "high": None, "cell": f.shown, "at_most_below_the_largest": f.high}
    if "rank" in f.about and f.about.get("within") is None:
        return {"estimate": f.estimate, "low": None, "high": None, "bin_low": f.low, "bin_high": f.high}
    return {"estimate": f.estimate, "low": f.low, "high": f.high}


class Answers(Reported, dict[str, Any]):  # which answer it is, a checker cannot know: the question decides it
    """{question: answer}, all about the same people, who spend their ε once on all of them.

    Attributes
    ----------
    shares
        The share of everybody's ε that each question could use.
    """

    def __init__(self, answers: Mapping[str, Answer], shares: Mapping[str, float]) -> None:
        super().__init__(answers)
        self.shares = dict(shares)

    def __missing__(self, name: object) -> Answer:
        raise KeyError(f"there is no question {name!r}; the questions are {', '.join(map(repr, self))}")

    @property
    def spent(self) -> dict[float, float]:
        """{ε: what a person of this level spends on all questions together}, rounded up; never above ε.

        Private bounds that they use are counted, once.
        """
        plans = [answer.plan for answer in self.values()]
        return dict(zip(plans[0].levels.epsilon.tolist(), spent_in_all(plans), strict=True))

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answers as plain data."""
        answers = {name: answer.to_dict(level) for name, answer in self.items()}
        spent = [{"epsilon": epsilon, "spent": spent} for epsilon, spent in self.spent.items()]
        about = self.provenance.to_dict()
        return dict(jsonable({"answers": answers, "shares": self.shares, "spent_together": spent, "provenance": about}))

    @property
    def provenance(self) -> Provenance:
        """What all answers together are about and where they come from; they were released at once."""
        found: list[Provenance] = [answer.provenance for answer in self.values()]
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


# Groups put together with known shares --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Combined(Reported):
    """Σ π·m over groups: the private mean m of each, weighted by the known share π of its people in the population.

    Nothing more is spent: it is computed from what was released.

    Attributes
    ----------
    groups
        The releases of the groups.
    shares
        The share of each group; they add up to 1.
    """

    groups: Groups
    shares: Mapping[Group, float]

    meaning = "the means of the groups, weighted by shares that were stated; nothing more is spent"

    @property
    def _parts(self) -> list[tuple[float, Any]]:
        return [(self.shares[name], release) for name, release in self.groups.items()]

    @property
    def _of_answers(self) -> bool:
        """Whether the groups have means of those who answered."""
        return not isinstance(self._parts[0][1], Release)

    @property
    def unclamped(self) -> float:
        """The estimate before it is clamped to the interval: noise can carry it outside. A ratio is taken as it is."""
        return math.fsum(share * getattr(release, "unclamped", release.estimate) for share, release in self._parts)

    @property
    def estimate(self) -> float:
        """The estimate, clamped to the interval: the number to publish."""
        return float(self._parts[0][1].plan.interval.clamp(self.unclamped))

    @cached_property
    def worst_case_error(self) -> float:
        """The root of the worst-case mean squared error, in units of the values.

        The errors of groups are independent, so only their biases b add up: Σπ²·MSE + (Σπ·b)² − Σ(π·b)² is not
        below it.
        """
        squares = bias = own = 0.0
        for share, release in self._parts:
            square, most = _square_and_bias(release)
            squares += share * share * square
            bias, own = bias + share * most, own + (share * most) ** 2
        return float(math.sqrt(squares + max(bias * bias - own, 0.0)) * self._parts[0][1].plan.interval.width)

    @property
    def drift_bias(self) -> float:
        """How far the estimate is off at most if in every group the means of two levels differ by the whole range.

        As a share of the range. Of those who answered the bias of a group is divided by their share, as it was released
        (`Ratio.bias_answered`).
        """
        parts = [(share, r.plan.bias_share / _answering(r)) for share, r in self._parts]
        return math.fsum(share * min(each, 1.0) for share, each in parts)

    @property
    def warnings(self) -> list[str]:
        """What is warned of: groups whose number is not from the data, and what their own report warns of."""
        unused = [name for name, r in self.groups.items() if r.plan.abstains]
        return [*([not_from_data(unused)] if unused else []), *self.groups.warnings]

    def radius(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> float:
        """Return r: the unclamped estimate is within r of Σ π·μ with probability at least `level`.

        Claim: "guaranteed" holds for every distribution in every group.

        Argument: people are in one group each, and every group has its own noise, so the estimates of the groups are
        independent. E exp(λ·Σ π·(m − E m)) is then the product over the groups of what it is for one with weights π·w
        and noise scales π·η: by Hoeffding's lemma at most exp(λ²·π²·Σw²/8)·Π E exp(λ·π·noise). So the bound of
        `core.intervals.hoeffding` holds with Σ π²·Σw² and all scales π·η together. The biases and the rounding of
        the groups add up with their shares. A clamp cuts off one tail, which only helps, and lifts the other to a point
        that no data lie beyond: `clamped_log_mgf` is the factor of such a noise.

        The `kind` "normal" takes the variances of the groups together and promises nothing for small groups.

        Returns
        -------
        float
            r, in units of the values.
        """
        check_level(level, kind)
        if self._of_answers:  # their intervals are not symmetric
            raise InputError("the mean of those who answered has no radius; use confidence_interval")
        ranges = variance = fixed = 0.0
        scales: list[float] = []
        clamped: list[float] = []
        for share, release in self._parts:
            plan, errors = release.plan, release.plan.errors
            ranges += share * share * errors.ranges
            spread = worst_corner(errors.spread, errors.pull - (2 * errors.bias) ** 2, plan.variance_bound)
            variance += share * share * (errors.noise + max(spread, 0.0))
            (scales if errors.clamp is None else clamped).extend(share * scale for scale in errors.scales)
            slack = 0.0 if plan.abstains else rounding(plan.total, 2 * len(plan.noise) + 1)  # the noise is discrete
            fixed += share * (errors.bias + errors.drift * errors.shift + slack)
        if kind == "guaranteed":
            most = (1 - 1e-9) / max(scales + clamped) if scales + clamped else math.inf

            def log_noise(lam: float) -> float:
                return log_laplace(lam, scales) + sum(clamped_log_mgf(lam * eta) for eta in clamped)

            found = hoeffding(ranges, log_noise, most, (1 - level) / 2)
        else:
            found = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(variance)
        span: Interval = self._parts[0][1].plan.span
        return (found + fixed) * span.width + 2 * (len(self.shares) + 1) * math.ulp(max(abs(span.lo), abs(span.hi)))

    def confidence_interval(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> tuple[float, float]:
        """Return an interval for Σ π·μ; `level` and `kind` as for `radius`.

        Means of those who answered have intervals that are not symmetric, and those with a stated or a learned bound on
        the variance are narrower than `radius` knows. Each of these is taken at a level at which all of them hold at
        once, and their ends are added up with the shares. Which way is taken is decided by the plans alone.

        Returns
        -------
        tuple[float, float]
            (low, high), in units of the values.
        """
        if self._of_answers or (kind == "guaranteed" and any(_by_variance(r.plan) for _, r in self._parts)):
            each = 1 - (1 - level) / len(self.shares)
            ends = [(share, release.confidence_interval(each)) for share, release in self._parts]
            low, high = (math.fsum(share * pair[i] for share, pair in ends) for i in (0, 1))
            return low, high
        radius, span = self.radius(level, kind), self._parts[0][1].plan.span
        return span.clamp(self.unclamped - radius), span.clamp(self.unclamped + radius)

    def figure(self, level: float = 0.95) -> Figure:
        """Return the number with its guaranteed interval; `Figure.uncertain` says whether it is of any use."""
        low, high = self.confidence_interval(level)
        room = self._parts[0][1].plan.interval.width  # not `span`, which of those who answered is [0, 1]
        return Figure("", self.estimate, low, high, self.worst_case_error, room=room)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the number, its intervals, the shares and the groups as plain data."""
        found = self.figure(level)
        interval = {"level": level, "guaranteed": [found.low, found.high], "uncertain": found.uncertain}
        if not self._of_answers:
            interval["normal"] = list(self.confidence_interval(level, "normal"))
        facts = {
            "estimate": self.estimate,
            "unclamped": self.unclamped,
            "interval": interval,
            "condition": next((said for _, r in self._parts if (said := condition(r.plan))), None),
            "worst_case_error": self.worst_case_error,
            "shares": {label(group): share for group, share in self.shares.items()},
            "meaning": self.meaning,
        }
        return {**jsonable(facts), **self.groups.to_dict(level), "warnings": self.warnings}

    def parts(self, level: float) -> Parts:
        """Return the report as its parts."""
        from hetdp.report.drift import combined_parts

        return combined_parts(self, level)

    def __float__(self) -> float:
        return self.estimate

    def __repr__(self) -> str:
        unused = sum(r.plan.abstains for r in self.groups.values())
        said = f", {unused} of them without data" if unused else ""
        return f"Combined(estimate={self.estimate:.6g}, groups={len(self.shares)}{said})"


def _by_variance(plan: Plan) -> bool:
    """Say whether a bound on the variance narrows the interval of a group's own mean."""
    bound = plan.squares is not None or plan.variance_bound < 0.25
    return bound and not plan.drift and plan.target == "population" and not plan.abstains


def _answering(release: Any) -> float:
    """Return the released share of people who answered, not below a twentieth; 1 where all are behind the number."""
    return max(float(getattr(release, "share", 1.0)), 0.05)


def _square_and_bias(release: Any) -> tuple[float, float]:
    """Return the worst mean squared error of a group's number, and its largest bias, on an interval of length 1."""
    plan, statistic = release.plan, release.plan.statistic
    if statistic.one:
        return plan.errors.worst(plan.variance_bound), plan.errors.most_bias + plan.errors.drift * plan.errors.shift
    share = _answering(release)
    error = statistic.error_answered(plan, share) / statistic.interval.width
    return error * error, statistic.bias_answered(plan, share)


def not_from_data(groups: Sequence[Group]) -> str:
    """Return the warning about numbers that use no data: of groups, or of the one answer if none is named."""
    where = f" of {', '.join(map(label, groups))}" if any(groups) else ""
    return f"the number{where} is NOT from the data (too few people or too little ε)"


def combined(groups: Groups, shares: Mapping[Any, Any]) -> Combined:
    """Return the groups put together; raise unless there is a positive share for every group and for no other."""
    first = next(iter(groups.values())).plan.statistic
    answered = hasattr(first, "error_answered") and first.keeps_missing
    if not (first.one or answered) or first.whole:
        raise InputError(f"only means and proportions of groups can be combined, not a {first.name}")
    if not isinstance(shares, Mapping) or shares.keys() != groups.keys():
        named = ", ".join(map(repr, groups))
        raise InputError(f"combine needs the share of every group and of no other: {{group: share}} for {named}")
    parts: dict[Group, float] = {}
    for name in groups:
        share = shares[name]
        if isinstance(share, bool) or not isinstance(share, numbers.Real) or not 0 < float(share) < math.inf:
            raise InputError(f"the share of a group must be a positive number (got {share!r} for {name!r})")
        parts[name] = float(share)
    largest = max(parts.values())
    whole = math.fsum(part / largest for part in parts.values())
    return Combined(groups, {name: part / largest / whole for name, part in parts.items()})
