"""The proof pages: they name functions and tests that exist, and a proven function cannot change unnoticed."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hetdp
from hetdp.core.domain import GRID, Interval
from hetdp.core.levels import BITS, round_down, split
from hetdp.privacy import release as _release
from hetdp.privacy.sampling import KEEP_ONE

ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("look", ROOT / "docs" / "proofs" / "look.py")
look = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(look)


# --- Pages and code -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", look.pages())
def test_no_proven_function_has_changed_since_its_page_was_looked_at(page):
    changed = look.changed(page)
    assert not changed, (
        f"{', '.join(changed)} changed. Read docs/proofs/{page}.md again; when it is true of the new code, record that "
        f"with: python docs/proofs/look.py {page}"
    )


WAITING: set[str] = set()
"""Pages whose table of claims is still to be written."""


def test_every_page_has_its_table():
    assert {path.stem for path in look.PAGES.glob("*.md")} - set(look.pages()) == WAITING


@pytest.mark.parametrize("page", look.pages())
def test_every_page_proves_something_and_says_what_would_break_it(page):
    """Each page ends in a table of claims, functions and tests, and every row has all three."""
    text = (look.PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert look.functions(page)
    rows = text.rpartition(look.HEADING)[2].splitlines()[1:]
    for row in rows:
        _, functions, tests = row.strip("| ").split(" | ")
        assert "`" in functions, row
        assert "tests/" in tests, row
    assert "What would break it" in text


@pytest.mark.parametrize("page", look.pages())
def test_every_test_that_a_page_names_exists(page):
    text = (look.PAGES / f"{page}.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert named
    for file, name in named:
        assert (ROOT / file).exists(), file
        assert not name or name in defined_in(file), f"{file}::{name}"


def test_every_test_in_the_threat_model_and_every_link_of_the_security_page_exists():
    model, security = (
        path.read_text(encoding="utf-8") for path in (ROOT / "docs/threat-model.md", ROOT / "SECURITY.md")
    )
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", model)
    assert len(named) > 15
    for file, name in named:
        assert name in defined_in(file), f"{file}::{name}"
    for link in re.findall(r"\]\(([^)]+)\)", security):
        assert (ROOT / link).exists(), link


def test_the_map_from_paper_to_code_names_what_exists():
    page = (ROOT / "docs" / "paper-and-code.md").read_text(encoding="utf-8")
    for name in re.findall(r"\bbounds\.(\w+)", page):
        assert hasattr(hetdp.paper.bounds, name), name
    for name in re.findall(r"\bhetdp\.([a-z]\w+)", page):
        assert hasattr(hetdp, name), name
    experiments = set(re.findall(r'"((?:figure|table|example|remark)-\w+)"', page))
    assert experiments == set(hetdp.paper.experiments.EXPERIMENTS)
    for file in re.findall(r"`((?:tests|estimators)/\w+\.py)`", page):
        assert (ROOT / file).exists() or (ROOT / "src" / "hetdp" / file).exists(), file
    methods = {name for _, name in re.findall(r"`(method=\")?(\w+)\"?` \| `estimators/", page)}
    assert methods <= set(hetdp.methods())


@cache
def defined_in(file):
    return {node.name for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body if hasattr(node, "name")}


FUNCTION = '''
LIMIT = 3
class Plan:
    """A plan."""
    def check(self, x):
        """Check."""
        return x <= self.limit  # as promised
'''


@pytest.mark.parametrize(
    ("old", "new", "noticed"),
    [
        ("<=", "<", True),
        ("self, x", "self, x, y", True),
        ("    def", "    @property\n    def", True),
        ("# as promised", "# as it should be", False),
        ('"""Check."""', '"""Check that\n        it holds."""', False),
        ("return x <= self.limit", "return (x\n            <= self.limit)", False),
        ("LIMIT = 3", "LIMIT = 4", False),
    ],
    ids=["operator", "argument", "decorator", "comment", "docstring", "layout", "another constant"],
)
def test_control_a_changed_function_is_noticed_and_a_changed_comment_is_not(old, new, noticed, tmp_path):
    assert old in FUNCTION
    (tmp_path / "_plan.py").write_text(FUNCTION)
    before = look.digest("_plan.Plan.check", tmp_path)
    (tmp_path / "_plan.py").write_text(FUNCTION.replace(old, new))
    assert (look.digest("_plan.Plan.check", tmp_path) != before) == noticed


def test_a_constant_is_proven_too_and_what_is_gone_is_said(tmp_path):
    (tmp_path / "_plan.py").write_text(FUNCTION)
    before = look.digest("_plan.LIMIT", tmp_path)
    (tmp_path / "_plan.py").write_text(FUNCTION.replace("LIMIT = 3", "LIMIT = 4"))
    assert look.digest("_plan.LIMIT", tmp_path) != before
    with pytest.raises(LookupError, match="no longer there"):
        look.digest("_plan.Plan.checked", tmp_path)
    with pytest.raises(LookupError, match="no module"):
        look.digest("_planned.Plan", tmp_path)


@pytest.mark.slow
def test_looking_at_a_page_records_it_and_only_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(look, "RECORD", tmp_path / "proven.json")
    assert set(look.changed("grid")) == set(look.functions("grid"))
    assert look.main(["grid"]) == 0
    assert look.changed("grid") == []
    assert list(json.loads(look.RECORD.read_text())) == ["grid"]
    assert "docs/proofs/sampling.md: privacy.release.coins has changed" in capsys.readouterr().out
    assert look.main(["no-such-page"]) == 2


# --- What the pages claim, checked where nothing else does ---------------------------------------------------------


@pytest.mark.parametrize("bounds", [(0, 1), (-0.1, 0.2), (1e15, 1e15 + 1), (-1e300, 3e299), (0, 5e-324)], ids=str)
def test_a_code_is_within_half_a_step_of_its_value(bounds):
    """Grid, claim 2: in exact fractions, at random values, at the ties between codes and beside them."""
    interval = Interval(*bounds)
    lo, span = Fraction(interval.lo), Fraction(interval.hi) - Fraction(interval.lo)
    ties = [float(lo + span * Fraction(2 * k + 1, 2 * GRID)) for k in (0, 1, 12345, GRID // 2, GRID - 1)]
    values = [*np.random.default_rng(5).uniform(0, 1, 500) * interval.width + interval.lo, *ties]
    values += [math.nextafter(x, toward) for x in ties for toward in (-math.inf, math.inf)]
    values = np.clip(values, *bounds)
    codes = interval.codes(values, np.empty(values.size))
    for x, code in zip(values.tolist(), codes.tolist(), strict=True):
        steps = abs(Fraction(int(code)) - (Fraction(x) - lo) / span * GRID)
        assert steps <= Fraction(1, 2) + Fraction(1, 2**30)


def nearest(x):
    return split(BITS) * x - (split(BITS) * x - x)


def test_splitting_is_right_where_the_proof_divides_into_cases():
    """Grid, claim 7: at both ends of an octave, where products pass the next power of two, and at ties."""
    edge = np.arange(1, 2**12 + 40, dtype=np.float64)
    ties = np.arange(2**11, 2**12, dtype=np.float64) * 2.0**41 + 2.0**40
    x = np.concatenate([2.0**53 - edge, 2.0**52 + edge - 1, ties, ties - 1, ties + 1, ties - 2.0**40])
    near = nearest(x)
    assert (np.abs(near - x) <= 2.0**40).all()
    assert (near % 2.0**41 == 0).all()
    key = np.where(near > x, near * (1 - 2.0**-BITS), near)
    assert np.array_equal(np.floor(key / 2.0**41), np.floor(x / 2.0**41))
    assert np.array_equal(round_down(key), round_down(x))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 0.69, 0.7])
def test_the_counterexample_of_the_sampling_page(epsilon):
    """Sampling, claim 1: the densities give 3/(1 + 2e^(−2ε)), which is above e^ε exactly below ln 2."""
    t, p = 2 * epsilon, math.expm1(epsilon) / math.expm1(2 * epsilon)

    def density(x1, x2=-0.5, y=0.0):
        both, alone = 1 / (2 * t), 1 / t
        kept = math.exp(-abs(y - (x1 + x2) / 2) / both) / (2 * both)
        return p * kept + (1 - p) * math.exp(-abs(y - x2) / alone) / (2 * alone)

    ratio = density(0.5) / density(-0.5)
    assert ratio == pytest.approx(3 / (1 + 2 * math.exp(-2 * epsilon)), rel=1e-12)
    assert (math.log(ratio) > epsilon) == (epsilon < math.log(2))


def test_one_plus_p_times_gain_is_the_largest_ratio():
    """Sampling, claim 2: for a, b, c within e^t of each other nothing passes 1 + p(e^t − 1), and that is reached."""
    t = 0.7
    steps = [math.exp(t * k / 12) for k in range(13)]
    for p in (0.01, 0.3, 0.9):
        ratios = [(p * a + (1 - p) * c) / (p * b + (1 - p) * c) for a, b, c in itertools.product(steps, repeat=3)]
        assert max(ratios) == pytest.approx(1 + p * math.expm1(t), rel=1e-12)


def test_coins_compare_53_bits_with_the_probability(monkeypatch):
    """Sampling, claim 4: a coin is true exactly if the leading 53 of its 64 bits are below `keep`."""
    drawn = [0, 2**64 - 1, 5 << 11, (5 << 11) - 1, 1 << 63]
    monkeypatch.setattr(_release.secrets, "token_bytes", lambda n: np.array(drawn, np.uint64).tobytes()[:n])
    assert _release.coins(np.full(5, 5)).tolist() == [True, False, False, True, False]
    assert _release.coins(np.full(5, KEEP_ONE)).all()
    assert not _release.coins(np.zeros(5, np.int64)).any()
