"""What a ledger says in a report: the budgets of each tier after a release, and warnings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetdp.core.domain import epsilon_of
from hetdp.statistics.answer import label

from .numbers import epsilon, number, people, shorten, spent_epsilon
from .text import Grid, Parts

if TYPE_CHECKING:
    from hetdp.ledger import DryRun
    from hetdp.statistics.answer import Groups

_HEADINGS = ("Tier", "Budget", "People", "Charged now", "Spent so far", "Left", "Nothing left")
_MOST_TIERS = 24


def budgets(tiers: Sequence[Mapping[str, Any]]) -> Grid:
    """Return what the people of each tier have spent and have left after a release, as a table."""
    rows = []
    for tier in tiers[:_MOST_TIERS]:
        amounts = {name: epsilon_of(tier[name]) for name in ("budget", "charged")}  # JSON has "inf" as a text
        public = math.isinf(amounts["budget"])
        name = shorten(tier["name"] or ("public" if public else "never use" if not amounts["budget"] else ""))
        gone = tier["exhausted"] + tier["emptied"]
        left = "no limit" if public else _range(tier["left"])
        left = "exhausted" if gone and gone == tier["people"] else left
        budget, charged = epsilon(amounts["budget"]), spent_epsilon(amounts["charged"])
        rows.append((name, budget, f"{tier['people']:,}", charged, _range(tier["spent"]), left, f"{gone:,}"))
    return Grid(_HEADINGS, rows)


def _range(ends: Sequence[Any]) -> str:
    low, high = (f"{float(end):.6g}" if math.isfinite(float(end)) else "∞" for end in ends)
    return low if low == high else f"{low} to {high}"


def with_budgets(parts: Parts, ledger: Mapping[str, Any]) -> Parts:
    """Return the report on a release with its warnings first, and the budgets before what is assumed."""
    warnings = [[("Warning", sentence) for sentence in ledger["warnings"]]] if ledger["warnings"] else []
    table = [budgets(ledger["tiers"])] if ledger["tiers"] else []
    more = [[("Budgets", f"{len(ledger['tiers']):,} tiers; the JSON has them all")]]
    return [*warnings, *parts[:-1], *table, *(more if len(ledger["tiers"]) > _MOST_TIERS else []), parts[-1]]


def budget_lines(groups: Groups) -> list[tuple[str, str]]:
    """Return what a ledger says about a table of groups as a whole; nothing without a ledger."""
    charged = {label(group): r for group, r in groups.items() if r.ledger}
    if not charged:
        return []
    warned = [("Warning", f"{name}: {why}") for name, r in charged.items() for why in r.ledger["warnings"]]
    first = next(iter(charged.values()))
    said = f"each group is charged under its own id, as {first.release_id}; the JSON has what each was charged"
    gone = sum(r.ledger["used_up"] + r.ledger["frozen"] for r in charged.values())
    out = [("Exhausted", f"{people(gone)} with nothing left of their budget, weight 0")] if gone else []
    return [*warned, ("Ledger", said), *out]


def group_notes(groups: Groups) -> list[str]:
    """Return what is assumed about the people of groups; what a ledger says about one of several is in the JSON."""
    times = Counter(note for r in groups.values() for note in r.notes)
    alone = len(groups) == 1
    return [note for r in groups.values() for note in r.notes if alone or not r.ledger or times[note] > 1]


def dry_run_parts(run: DryRun) -> Parts:
    """Return what a release would do."""
    said = "no value was read, nothing was charged and nothing was written"
    if run.done:
        said = "it is charged already with this request: asking again gives its result and costs nothing"
    lines = [
        ("Dry run", f"release {run.release_id}, which may use {run.rule}: {said}"),
        ("People", people(sum(plan.n for plan in run.plans.values()))),
    ]
    for i, (group, plan) in enumerate(list(run.plans.items())[:_MOST_TIERS]):
        name, error = f"{label(group)}: " if group else "", plan.worst_case_error
        size = "too few people or too little ε, no data would be used"
        if not plan.abstains:
            size = f"root mean square ± {number(error, error)} in the worst case"
        if not plan.abstains and (answered := plan.facts.answered_errors) is not None:
            size = f"root mean square about ± {number(answered[0]['error'], answered[0]['error'])} if everybody answers"
        lines.append(("" if i else "Error", f"{name}{size}"))
    return [[*lines, *(("Warning", sentence) for sentence in run.warnings)], budgets(run.tiers)]
