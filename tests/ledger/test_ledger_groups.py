"""A release through a ledger by public groups, what a dry run tells, and what is said about people without budget."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

import hetdp
from hetdp import InputError, Ledger
from hetdp.ledger import ChargedError, DryRun, OtherRequestError, charge
from hetdp.ledger import rows as ledger_rows
from ledgers import PEOPLE, VALUES, Untouchable, made, mean

GROUPS = {person: ("north", "south", "10")[i % 3] for i, person in enumerate(PEOPLE)}
NAMES = ["10", "north", "south"]


def spent(ledger):
    return {balance.person: balance.spent for balance in ledger.balances()}


def ids(release_id="may"):
    return [f"{release_id}/{name}" for name in NAMES]


# ---------------------------------------------------------------------------------------------------------
# Groups


def test_every_group_has_its_own_answer_and_everybody_is_charged_once(ledger):
    found = mean(ledger, by=GROUPS)
    assert list(found) == NAMES
    assert [release.release_id for release in found.values()] == ids()
    for person, paid in spent(ledger).items():
        plan = found[GROUPS[person]].plan
        assert plan.n in (66, 67)
        (cost,), (term,) = plan.costs.tolist(), plan.noise
        assert paid == math.ceil(10**9 * Fraction(cost) / Fraction(term.scale)) / 10**9 <= 0.1
    assert ledger.verify().charges == 3


def test_each_group_is_the_mean_of_its_own_people(where):
    """Public people need no noise, so each number is exact; who has no row counts as the midpoint of their group."""
    with made(where, dict.fromkeys(PEOPLE, "public")) as ledger:
        values = [(0.0, 1.0, 0.25)[i % 3] for i in range(200)]
        found = mean(ledger, by=GROUPS, values=values[:150], person=PEOPLE[:150])
        for name, value in {"north": 0.0, "south": 1.0, "10": 0.25}.items():
            here = [i for i, person in enumerate(PEOPLE) if GROUPS[person] == name]
            told = [value if i < 150 else 0.5 for i in here]
            assert found[name].estimate == pytest.approx(sum(told) / len(told), abs=1e-6)


def test_groups_of_several_columns_come_from_the_rows_of_a_file(ledger, tmp_path):
    rows = [f"{p},{GROUPS[p]},{'fm'[i // 3 % 2]},{VALUES[i]}" for i, p in enumerate(PEOPLE)]
    (tmp_path / "people.csv").write_text("id,region,sex,x\n" + "\n".join(rows))
    ask = {
        "person": "id",
        "value": "x",
        "bounds": (0, 1),
        "spend": 0.1,
        "release_id": "may",
        "people": "source",
        "missing": "none",
    }
    by = {"by": ["region", "sex"], "public_columns": ["region", "sex"]}
    found = ledger.mean(tmp_path / "people.csv", **ask, **by)
    assert list(found) == [(r, s) for r in NAMES for s in "fm"]
    assert found["north", "f"].release_id == "may/north · f"
    assert sum(release.plan.n for release in found.values()) == 200
    assert found.by == ("region", "sex")
    assert "parallel composition" in found.composition
    assert set(spent(ledger).values()) == {0.1}
    named = [*found, ("west", "f")]
    empty = ledger.mean(tmp_path / "people.csv", **{**ask, "release_id": "june"}, **by, groups=named)
    assert list(empty) == named
    assert empty["west", "f"].plan.n == 0
    assert not ledger.charged("june/west · f")
    with pytest.raises(InputError, match="1 groups are not in the list"):
        ledger.mean(tmp_path / "people.csv", **{**ask, "release_id": "july"}, **by, groups=named[1:])
    with pytest.raises(InputError, match="column 'sex' would be published"):
        ledger.mean(tmp_path / "people.csv", **ask, by=["region", "sex"], public_columns=["region"])
    (tmp_path / "people.csv").write_text("id,region,sex,x\n" + "\n".join([*rows, rows[0].replace("north", "south")]))
    with pytest.raises(InputError, match="more than one row"):
        ledger.mean(tmp_path / "people.csv", **{**ask, "release_id": "july"}, **by)


def test_the_same_request_gives_the_same_numbers_and_another_one_is_refused(ledger):
    first = mean(ledger, by=GROUPS)
    before = ledger.head
    again = mean(ledger, by=GROUPS)
    assert {g: r.unclamped for g, r in again.items()} == {g: r.unclamped for g, r in first.items()}
    assert ledger.head == before
    moved = {**GROUPS, PEOPLE[0]: "south"}
    for other in (moved, dict.fromkeys(GROUPS, "north"), {**GROUPS, PEOPLE[0]: "west"}):
        with pytest.raises(OtherRequestError, match="stands for another request"):
            mean(ledger, by=other)
    assert ledger.head == before


def watched(ledger, where, monkeypatch):
    """Fail when values are read before every group is charged; give back the plans for which they were read."""
    real, seen = ledger_rows.tallies_of, []

    def look(rows, parts):
        with Ledger(where) as other:
            assert all(map(other.charged, ids())), "values are read before all charges are on disk"
        seen.extend(plan for _, plan in parts)
        return real(rows, parts)

    monkeypatch.setattr(ledger_rows, "tallies_of", look)
    return seen


def test_values_are_read_only_after_all_groups_are_charged(ledger, where, monkeypatch):
    seen = watched(ledger, where, monkeypatch)
    mean(ledger, by=GROUPS)
    assert len(seen) == 3


def test_control_the_watch_notices_who_charges_group_by_group(ledger, where, monkeypatch):
    watched(ledger, where, monkeypatch)
    real = charge.carry_out
    monkeypatch.setattr(
        charge, "carry_out", lambda store, requests, *rest: [real(store, [one], *rest)[0] for one in requests]
    )
    with pytest.raises(AssertionError, match="before all charges"):
        mean(ledger, by=GROUPS)


class Rows(list):
    """Values that count how often they are read, and can fail to be."""

    times, broken = 0, False

    def __iter__(self):
        self.times += 1
        if self.broken:
            raise InputError("the disk is gone")
        return super().__iter__()


def test_a_source_is_read_once_for_all_groups(ledger):
    alone, grouped = Rows(VALUES), Rows(VALUES)
    mean(ledger, "june", values=alone)
    mean(ledger, by=GROUPS, values=grouped)
    assert grouped.times == alone.times > 0
    mean(ledger, by=GROUPS, values=grouped)
    assert grouped.times == alone.times, "what has a result is not read again"


def test_control_a_source_that_is_read_for_every_group_is_noticed(ledger, monkeypatch):
    real, rows, alone = ledger_rows.tallies_of, Rows(VALUES), Rows(VALUES)
    mean(ledger, "june", values=alone)
    monkeypatch.setattr(ledger_rows, "tallies_of", lambda source, parts: [real(source, [part])[0] for part in parts])
    mean(ledger, by=GROUPS, values=rows)
    assert rows.times == 3 * alone.times


def test_groups_that_are_read_together_give_the_tallies_of_groups_that_are_read_alone():
    """Whoever has several rows, none, or is nobody's: each group is the same as if it were the only one."""
    ids_of_rows = [*PEOPLE, *PEOPLE[:50], "stranger"] * 2
    cells = [(i * 7 % 11) / 10 if i % 5 else math.nan for i in range(len(ids_of_rows))]
    for missing in ("midpoint", "estimate"):
        asked = hetdp.ask.mean(bounds=(0, 1), missing=missing)
        parts = []
        for name in NAMES:
            mine = [*(p for p in PEOPLE[20:] if GROUPS[p] == name), f"absent in {name}"]
            plan = hetdp.plan({0.5: len(mine) - 30, 1.0: 30}, statistic=asked)
            parts.append(({p: int(i < 30) for i, p in enumerate(mine)}, plan))
        source = ledger_rows.source_of(cells, asked, ids_of_rows)
        together = ledger_rows.tallies_of(source, parts)
        for part, found in zip(parts, together, strict=True):
            (alone,) = ledger_rows.tallies_of(source, [part])
            assert found.table.total.tolist() == alone.table.total.tolist()
            assert found.levels == alone.levels == part[1].levels


def test_if_reading_fails_all_groups_stay_charged_and_the_same_request_finishes_them(ledger):
    rows = Rows(VALUES)
    rows.broken = True
    with pytest.raises(ChargedError, match="'may/10' is charged and has no result"):
        mean(ledger, by=GROUPS, values=rows)
    paid = spent(ledger)
    assert set(paid.values()) == {0.1}
    assert ledger.verify().results == 0
    rows.broken = False
    assert list(mean(ledger, by=GROUPS, values=rows)) == NAMES
    assert spent(ledger) == paid


def test_a_crash_between_two_groups_leaves_charges_and_the_same_request_finishes_them(ledger, monkeypatch):
    real, drawn = charge.release, []

    def fails(tally, plan):
        drawn.append(plan)
        if len(drawn) == 2:
            raise InputError("the disk is gone")
        return real(tally, plan)

    monkeypatch.setattr(charge, "release", fails)
    with pytest.raises(ChargedError, match="'may/north' is charged and has no result"):
        mean(ledger, by=GROUPS)
    paid = spent(ledger)
    assert set(paid.values()) == {0.1}
    first = ledger.history()[-1]
    assert (first.release, first.kind) == ("may/10", "result")
    found = mean(ledger, by=GROUPS)
    assert found["10"].estimate == first.estimate
    assert spent(ledger) == paid
    assert len(drawn) == 4  # the group with a result is not drawn again


def test_if_one_group_cannot_be_charged_none_is(ledger):
    before = ledger.head
    with pytest.raises(InputError, match="not enrolled: 1 person, such as 'nobody'"):
        mean(ledger, by={**GROUPS, "nobody": "south"}, values=Untouchable())
    assert ledger.head == before
    assert not any(map(ledger.charged, ids()))


WRONG = {
    "a column and everybody enrolled": ({"by": "region", "public_columns": ["region"]}, "by=\\{id: group\\}"),
    "a column and a list of people": (
        {"by": "region", "public_columns": ["region"], "people": PEOPLE[:2]},
        "by=\\{id: group\\}",
    ),
    "groups without by": ({"groups": ["north"]}, "who is in them"),
    "somebody without a group": (
        {"by": {PEOPLE[0]: "north"}, "people": PEOPLE[:2]},
        "1 of those who take part have",
    ),
    "no text": ({"by": {PEOPLE[0]: 1.5}}, "a group is a text"),
    "a text among tuples": ({"by": {PEOPLE[0]: ("a", "b"), PEOPLE[1]: "a"}}, "a tuple of 2 texts"),
    "one id twice": ({"by": {"Zoë": "a", "Zoe\u0308": "b"}}, "stands twice"),
    "a group that no id can hold": ({"by": {PEOPLE[0]: 'a"b'}}, "release id of group 1"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_groups_that_do_not_fit_are_refused_before_anything_is_charged(wrong, tmp_path):
    options, why = WRONG[wrong]
    rows = "".join(f"{p},{GROUPS[p]},0.5\n" for p in PEOPLE)
    (tmp_path / "people.csv").write_text("id,region,x\n" + rows)
    with made(tmp_path / "b.db") as ledger:
        before = ledger.head
        with pytest.raises(InputError, match=why):
            ledger.mean(
                tmp_path / "people.csv",
                person="id",
                value="x",
                missing="midpoint",
                bounds=(0, 1),
                spend=0.1,
                release_id="may",
                **options,
            )
        assert ledger.head == before


def test_limits_of_people_hold_in_groups(ledger):
    limits = dict.fromkeys(PEOPLE[:60], 0.05)
    found = mean(ledger, by=GROUPS, people=limits)
    assert sum(release.plan.n for release in found.values()) == 60
    paid = spent(ledger)
    assert all(paid[person] <= 0.05 for person in limits)
    assert all(paid[person] == 0 for person in PEOPLE[60:])


# ---------------------------------------------------------------------------------------------------------
# Dry runs, and people whose budget ends

TIERS = {"strict": 0.2, "standard": 0.5, "open": "public", "never": 0}


@pytest.fixture
def tiers(where):
    names = list(TIERS)
    with made(where, {p: names[i % 4] for i, p in enumerate(PEOPLE)}, tiers=TIERS) as found:
        yield found


def files(where):
    return [path.read_bytes() for path in sorted(Path(where).parent.glob("budgets.db*"))] if "://" not in where else []


@pytest.mark.parametrize("by", [None, GROUPS], ids=["everybody", "groups"])
def test_a_dry_run_tells_exactly_what_the_release_then_does_and_does_nothing(tiers, where, by):
    for release_id in ("a", "b", "c"):
        head, kept = tiers.head, files(where)
        told = mean(tiers, release_id, by=by, dry_run=True, values=Untouchable())
        assert isinstance(told, DryRun)
        assert (tiers.head, files(where)) == (head, kept)
        before = {b.person: b for b in tiers.balances()}
        found = mean(tiers, release_id, by=by)
        after = {b.person: b for b in tiers.balances()}
        assert [p.to_dict() for p in told.plans.values()] == (
            [found.plan.to_dict()] if by is None else [r.plan.to_dict() for r in found.values()]
        )
        rows = {row["name"]: row for row in told.tiers}
        for name, budget in TIERS.items():
            mine = [p for p in PEOPLE if before[p].tier == name]
            paid = [after[p].spent - before[p].spent for p in mine]
            left = [after[p].left for p in mine]
            assert rows[name]["people"] == len(mine) == 50
            assert rows[name]["budget"] == (math.inf if budget == "public" else budget)
            assert rows[name]["charged"] == pytest.approx(max(paid), abs=1e-12)
            assert rows[name]["spent"] == [min(after[p].spent for p in mine), max(after[p].spent for p in mine)]
            assert rows[name]["left"] == [min(left), max(left)]
            assert rows[name]["exhausted"] == sum(before[p].exhausted for p in mine)
            assert rows[name]["emptied"] == sum(after[p].exhausted and not before[p].exhausted for p in mine)
        assert mean(tiers, release_id, by=by, dry_run=True, values=Untouchable()).done
        assert not told.done


def test_a_release_that_empties_a_tier_is_warned_of_before_it_is_charged(tiers):
    heard = []

    def warn(sentence):
        heard.append((sentence, tiers.charged(release_id)))

    for release_id in ("a", "b", "c"):
        told = mean(tiers, release_id, dry_run=True)
        found = mean(tiers, release_id, warn=warn)
        sentences = [sentence for sentence, _ in heard]
        assert list(told.warnings) == found.ledger["warnings"] == sentences
        assert set(sentences) <= set(found.to_dict()["warnings"])
        assert all(sentence in " ".join(found.report().split()) for sentence in sentences)
        assert len(sentences) == (release_id == "b")
        assert not any(charged for _, charged in heard)
        heard.clear()
        mean(tiers, release_id, warn=warn)
        assert heard == []  # nothing is charged any more
    assert "all 50 people of tier strict (budget 0.2)" in mean(tiers, "b").ledger["warnings"][0]


def test_control_a_release_that_leaves_something_is_not_warned_of(tiers):
    found = mean(tiers, "a", spend="0.199999999")
    assert found.ledger["warnings"] == []
    assert "uses up the budget" not in found.report()


def test_people_with_nothing_left_are_shown_as_exhausted_and_not_as_asking_for_0(tiers):
    for release_id in ("a", "b"):
        assert "exhausted" not in mean(tiers, release_id).report().split("ε spent")[1].split("Saturation")[0]
    found = mean(tiers, "c")
    row = next(line for line in found.report().splitlines() if line.startswith("exhausted"))
    assert row.split()[:5] == ["exhausted,", "never", "use", "–", "100"]
    assert found.to_dict()["tiers"][0]["name"] == "exhausted, never use"
    budgets = next(line for line in found.report().splitlines() if line.startswith("strict"))
    assert budgets.split() == ["strict", "0.2", "50", "0", "0.2", "exhausted", "50"]
    assert "exhausted" in str(tiers.balance(PEOPLE[0]))
    assert tiers.balance(PEOPLE[0]).to_dict()["exhausted"]
    assert not tiers.balance(PEOPLE[3]).exhausted  # who never had a budget has not used it up


def test_control_who_asks_for_0_without_a_ledger_is_still_shown_so():
    report = hetdp.mean([0.5] * 90, epsilon=[0.0] * 30 + [1.0] * 60, bounds=(0, 1)).report()
    assert next(line for line in report.splitlines() if line.startswith("never use")).split()[2] == "0"


def test_the_frozen_are_shown_as_frozen(ledger):
    mean(ledger)
    ledger.enroll({PEOPLE[0]: 0.01})
    report = mean(ledger, "june").report()
    assert next(line for line in report.splitlines() if line.startswith("frozen")).split()[1:3] == ["–", "1"]


def test_the_command_line_warns_on_stderr_and_goes_on(tmp_path, monkeypatch, hetdp_command):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("id,region,x\n" + "".join(f"{p},{GROUPS[p]},0.5\n" for p in PEOPLE))
    made("b.db", dict.fromkeys(PEOPLE, 0.2)).close()
    ask = (
        "mean",
        "people.csv",
        "--value",
        "x",
        "--missing",
        "midpoint",
        "--person",
        "id",
        "--bounds",
        0,
        1,
        "--ledger",
        "b.db",
        "--json",
    )
    by = ("--by", "region", "--public-column", "region", "--people", "source")
    with Ledger("b.db") as ledger:
        head = ledger.head
        code, out, err = hetdp_command(*ask, *by, "--spend", 0.2, "--release-id", "may", "--dry-run")
        told = json.loads(out)
        assert (code, err) == (0, "")
        assert (told["dry_run"], told["people"], told["tiers"][0]["emptied"]) == (True, 200, 200)
        assert list(told["worst_case_error"]) == NAMES
        assert ledger.head == head
        code, out, err = hetdp_command(*ask, *by, "--spend", 0.2, "--release-id", "may")
        assert code == 0
        assert "warning: this release uses up the budget of all 200 people" in err
        assert list(json.loads(out)["groups"]) == NAMES
        assert ledger.balance(PEOPLE[0]).exhausted
    code, _, err = hetdp_command(*ask[:-3], "--epsilon", 1, "--dry-run")
    assert code == 2
    assert "--dry-run" in err
