"""The group-by: rounding that any engine can do, and compiled kernels that give the integers of numpy and of Python."""

from __future__ import annotations

import math
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetdp
import oracle
from hetdp import InputError
from hetdp.core import levels as _levels
from hetdp.core.domain import GRID, Interval
from hetdp.core.levels import BITS, HUGE, MOST_PEOPLE, TINY, round_down
from hetdp.core.levels import split as veltkamp
from hetdp.statistics.mean import Mean
from hetdp.statistics.moments import Columns
from hetdp.tally import Table, merge
from hetdp.tally import groupby as _groupby
from hetdp.tally import kernels as _kernels
from hetdp.tally.groupby import Grouping, tabulate
from oracle import expected, rounded_down
from support import examples

INF = math.inf


# ---------------------------------------------------------------------------------------------------------
# Rounding by splitting


FACTOR = veltkamp(BITS)


def split(x, factor=FACTOR):
    large = factor * x
    return large - (large - x)


def put_together(epsilon, factor=FACTOR, below=1 - 2.0**-BITS):
    """Return the keys by which an engine groups, with sums, products and comparisons of doubles alone."""
    with np.errstate(over="ignore", invalid="ignore"):  # in the branch that is not taken
        near = split(epsilon, factor)
        key = np.where(near > epsilon, near * below, near)
        return np.where((epsilon < TINY) | (epsilon >= HUGE), epsilon, key)


def every_octave():
    """In each octave: the numbers of 12 bits at its ends, the ties between them, and the neighbours of all."""
    m = np.array([2048, 2048.5, 2049, 2049.5, 3000, 4094.5, 4095, 4095.5])
    near = [m]
    for toward in (0, INF):
        step = m
        for _ in range(3):
            step = np.nextafter(step, toward)
            near.append(step)
    near.append(np.random.default_rng(1).uniform(2048, 4096, 200))
    return np.ldexp(np.concatenate(near), np.arange(-1012, 1013)[:, None]).ravel()


def test_splitting_puts_only_levels_together_that_round_down_to_one_in_every_octave():
    epsilon = every_octave()
    assert epsilon.min() < TINY < HUGE < epsilon.max() < INF
    keys = put_together(epsilon)
    assert np.array_equal(round_down(keys), round_down(epsilon))
    inside = (epsilon >= TINY) & (epsilon < HUGE)
    assert np.unique(keys[inside]).size <= 2 * np.unique(round_down(epsilon[inside])).size


def test_both_round_down_to_what_fractions_say():
    epsilon = every_octave()[::41]
    want = [rounded_down(x) for x in epsilon.tolist()]
    assert round_down(epsilon).tolist() == want
    assert round_down(put_together(epsilon)).tolist() == want


@pytest.mark.parametrize("wrong", [{"factor": 2.0**40 + 1}, {"below": 1.0}, {"below": 1 - 2.0**-11}], ids=str)
def test_control_every_constant_of_the_splitting_matters(wrong):
    epsilon = every_octave()
    assert not np.array_equal(round_down(put_together(epsilon, **wrong)), round_down(epsilon))


# ---------------------------------------------------------------------------------------------------------
# Three ways to the same integers: Python, numpy, compiled


def by_python(epsilon, values, interval, limit):
    """{level: (people, sum of codes)} in Python's numbers, and whether levels were rounded."""
    table = expected(zip(values, epsilon, strict=True), (interval.lo, interval.hi), limit)
    return table, len(set(epsilon)) > limit


def seen(table):
    return oracle.seen(table), table.rounded


def forced(*, compiled):
    """Have every group-by done by the kernels, or none."""
    people = 0 if compiled else INF
    return mock.patch.multiple(_groupby, LOADED_FROM=people, COMPILED_FROM=people)


def ways(grouping):
    """Whether numpy, and whether the kernels, have added people."""
    return grouping._known.epsilon.size > 0, bool(grouping._hashed)


def grouped(epsilon, values, interval, *, compiled, cuts=()):
    """What a grouping sees that gets its people in pieces."""
    with forced(compiled=compiled):
        grouping = Grouping(Mean(interval))
        for part in zip(np.split(epsilon, cuts), np.split(values, cuts), strict=True):
            grouping.add(part[0], [part[1]])
        assert ways(grouping) == (not compiled, compiled)
        return seen(grouping.table())


INTERVALS = [
    *(Interval(0, 1), Interval(-0.1, 0.2), Interval(-3, 1e6), Interval(5e-324, 1e-320), Interval(-1e307, 1e308)),
    *(Interval(0.1, 0.1 + 2**-40), Interval(0, 2.0**-1000), Interval(-(2.0**999), 2.0**999)),
]


def odd_values(interval):
    """Values at the ends, outside, between grid points, just beside all of these, and no numbers."""
    ties = [interval.lo + (k + 0.5) / GRID * interval.width for k in (0, 1, 777, GRID // 2, GRID - 1)]
    points = [interval.lo, interval.hi, interval.mid, 0.0, *ties]
    beside = [math.nextafter(x, way) for x in points for way in (-INF, INF)]
    return [*points, *beside, -0.0, 5e-324, -5e-324, 2.3e-308, 1e308, -1e308, INF, -INF, math.nan, -math.nan]


ODD_LEVELS = [0.0, -0.0, INF, 5e-324, 1e-310, TINY, math.nextafter(TINY, 0), 1e-200, HUGE, 1.7e308]
TWINS = [math.nextafter(x, way) for x in (0.1, 0.5, 1.0) for way in (0, INF)]

some_levels = st.one_of(
    st.lists(st.sampled_from([0.1, 0.5, 1.0, 4.0, *ODD_LEVELS, *TWINS]), min_size=1, max_size=20),
    st.builds(lambda a, b: (np.arange(a, a + b) / 100).tolist(), st.integers(0, 50), st.integers(1, 3000)),
    st.builds(
        lambda seed, n, wide: np.exp(np.random.default_rng(seed).uniform(-wide, wide, n)).tolist(),
        st.integers(0, 2**32),
        st.integers(1, 9000),
        st.sampled_from([0.001, 1, 600]),
    ),
)


@st.composite
def crowds(draw):
    """Arrays of thousands of people: levels few or many, near or far, and values of every sort."""
    interval = draw(st.sampled_from(INTERVALS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = np.array(draw(some_levels) + draw(st.lists(st.sampled_from(ODD_LEVELS), max_size=4)))
    n = draw(st.sampled_from([1, 1023, 1024, 1025, 3000, 9000]))
    epsilon = levels[rng.integers(0, levels.size, n)]
    values = rng.uniform(interval.lo, interval.hi, n)
    odd = rng.random(n) < 0.3
    values[odd] = rng.choice(odd_values(interval), odd.sum())
    if draw(st.booleans()):
        epsilon = np.sort(epsilon)
    return epsilon, values, interval


@settings(max_examples=examples(150), deadline=None)
@given(
    crowd=crowds(),
    limit=st.sampled_from([3, 13, 700, 4000, 65_536]),
    chunk=st.sampled_from([1024, 1500, 2**20]),
    cuts=st.lists(st.integers(0, 9000), max_size=3).map(sorted),
    threads=st.sampled_from([1, 2]),
)
def test_python_numpy_and_the_kernels_give_the_same_integers(crowd, limit, chunk, cuts, threads):
    epsilon, values, interval = crowd
    with (
        mock.patch.object(_levels, "LIMIT", limit),
        mock.patch.multiple(_groupby, CHUNK=chunk, PIECE=chunk),
        mock.patch("os.cpu_count", return_value=threads),
    ):
        want = by_python(epsilon.tolist(), values.tolist(), interval, limit)
        assert grouped(epsilon, values, interval, compiled=True, cuts=cuts) == want
        assert grouped(epsilon, values, interval, compiled=False, cuts=cuts) == want


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, False])
def test_a_table_may_be_asked_for_at_any_time(compiled):
    """What threads have added is put together for a table; who was put together once is not counted again."""
    rng = np.random.default_rng(7)
    parts = [(rng.uniform(low, 2 * low, 6000), rng.random(6000)) for low in (1.0, 0.01, 30.0)]
    for epsilon, _ in parts:
        epsilon[rng.integers(0, 6000, 600)] = rng.choice([0, INF], 600)
    with (
        forced(compiled=compiled),
        mock.patch.object(_levels, "LIMIT", 50),
        mock.patch.multiple(_groupby, CHUNK=1024, PIECE=1024),
        mock.patch("os.cpu_count", return_value=3),
    ):
        grouping = Grouping(Mean((0, 1)))
        for i, part in enumerate(parts):
            grouping.add(part[0], [part[1]])
            epsilon, values = (np.concatenate(column).tolist() for column in zip(*parts[: i + 1], strict=True))
            for _ in range(2):
                assert seen(grouping.table()) == by_python(epsilon, values, Interval(0, 1), 50)
        assert len(grouping._hashed) == (3 if compiled else 0)


@pytest.mark.parametrize("compiled", [True, False])
def test_both_zeros_are_one_level_at_the_limit(compiled):
    levels = np.array([0.0, -0.0, *np.arange(1, 600) / 7])
    epsilon, values = np.tile(levels, 4), np.zeros(4 * levels.size)
    with mock.patch.object(_levels, "LIMIT", 600):
        assert not grouped(epsilon, values, Interval(0, 1), compiled=compiled)[1]
    with mock.patch.object(_levels, "LIMIT", 599):
        assert grouped(epsilon, values, Interval(0, 1), compiled=compiled)[1]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("limit", [4000, 65_536])
@pytest.mark.parametrize(
    "shape", [lambda i: (i + 1) / 7, lambda i: 1.001 ** (i / 9), lambda i: 1 / (i + 1)], ids=["even", "grow", "fall"]
)
def test_a_look_at_the_first_people_never_rounds_levels_that_fit(compiled, limit, shape):
    """The kernels look ahead by counting hashes, which are no more than levels: at the limit nothing may be rounded."""
    levels = np.append(shape(np.arange(limit - 1)), 0.0)
    assert np.unique(levels).size == limit
    with mock.patch.object(_levels, "LIMIT", limit):
        for more, rounded in ([], False), ([-0.0], False), ([12345.5], True), (12345.5 + np.arange(limit), True):
            epsilon = np.tile(np.concatenate([levels, more]), 2)
            assert grouped(epsilon, np.zeros(epsilon.size), Interval(0, 1), compiled=compiled)[1] is rounded


@pytest.mark.filterwarnings("error")
def test_a_signalling_nan_among_the_first_people_is_refused_without_a_warning():
    epsilon = np.arange(1.0, 100_001.0)
    epsilon[7] = np.array([0x7FF0000000000001]).view(np.float64)[0]
    with pytest.raises(InputError, match="NaN"):
        grouped(epsilon, np.zeros(epsilon.size), Interval(0, 1), compiled=True)


def test_many_people_pass_the_limit_late_both_ways():
    """Few levels first, then thousands, then more than the limit, in arrays longer than a piece of the kernels."""
    rng = np.random.default_rng(5)
    epsilon = np.concatenate(
        [rng.choice([0.5, 0.0], 600_000), rng.integers(1, 5000, 700_000) / 500, rng.uniform(0.01, 5, 200_000), [INF]]
    )
    values = rng.normal(0.5, 1, epsilon.size)
    for part in (slice(None, 1_300_000), slice(None)):
        fast = grouped(epsilon[part], values[part], Interval(0, 1), compiled=True)
        assert fast == grouped(epsilon[part], values[part], Interval(0, 1), compiled=False)
    assert fast[1]


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False  # the kernels are compiled for such arrays
    return copy


@pytest.mark.parametrize(
    ("people", "fits"), [(_kernels.BLOCK, True), (2**20, False)], ids=["a block", "control: too many"]
)
def test_a_block_of_people_with_the_largest_code_fits_what_they_are_packed_in(people, fits):
    ones = read_only(np.ones(people))
    packed = _kernels.compare(ones, ones, (0.0, 1.0, 1.0), (1.0, math.nan, math.nan, math.nan))[0]
    assert (divmod(packed, _kernels.PERSON) == (people, people * GRID)) is fits


@pytest.mark.parametrize("bits", [-1, -2, -(2**63) + 1, 2**63 - 1, 0x7FF0000000000001], ids=hex)
@pytest.mark.parametrize("levels", [4, 1000, 5000], ids=["few", "many", "rounded"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "numpy"])
def test_no_pattern_of_bits_that_is_no_epsilon_passes_for_one(compiled, levels, bits):
    epsilon = np.tile(np.arange(1, levels + 1) / 100, 12_000 // levels)
    epsilon[-1] = np.array([bits]).view(np.float64)[0]
    with mock.patch.object(_levels, "LIMIT", 2000), pytest.raises(InputError):
        grouped(epsilon, np.zeros(epsilon.size), Interval(0, 1), compiled=compiled)


def nan_is_low(kernel):
    return lambda bits, values, *rest: kernel(bits, read_only(np.where(np.isnan(values), -INF, values)), *rest)


def values_a_hair_low(kernel):
    return lambda bits, values, *rest: kernel(bits, read_only(np.nextafter(values, -INF)), *rest)


def the_neighbours_level(kernel):
    return lambda bits, values, *rest: kernel(read_only(np.roll(bits, 1)), values, *rest)


@pytest.mark.parametrize("bug", [nan_is_low, values_a_hair_low, the_neighbours_level], ids=lambda bug: bug.__name__)
@pytest.mark.parametrize(
    ("kernel", "levels"), [("add_few", 4), ("add", 50), ("add_rounded", 600)], ids=["few", "many", "rounded"]
)
def test_control_the_comparison_notices_a_planted_bug(kernel, levels, bug):
    rng = np.random.default_rng(2)
    epsilon = rng.uniform(0.1, 1, levels)[np.arange(3000) % levels]
    values = np.resize(odd_values(Interval(0, 1)), 3000)
    with mock.patch.object(_levels, "LIMIT", 100):
        want = by_python(epsilon.tolist(), values.tolist(), Interval(0, 1), 100)
        assert grouped(epsilon, values, Interval(0, 1), compiled=True) == want
        with mock.patch.object(_kernels, kernel, bug(getattr(_kernels, kernel))):
            assert grouped(epsilon, values, Interval(0, 1), compiled=True) != want


# ---------------------------------------------------------------------------------------------------------
# Several codes a person


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    width=st.sampled_from([1, 2, 5]),
    levels=st.sampled_from([1, 9, 300]),
    chunk=st.sampled_from([7, 100, 2**18]),
    cuts=st.lists(st.integers(0, 900), max_size=3).map(sorted),
)
def test_codes_of_any_width_are_summed_column_by_column(seed, width, levels, chunk, cuts):
    rng = np.random.default_rng(seed)
    epsilon = np.append(rng.uniform(0.01, 30, levels), [0.0, INF])[rng.integers(0, levels + 2, 900)]
    codes = rng.integers(0, GRID + 1, (900, width))
    with mock.patch.object(_levels, "LIMIT", 100), mock.patch.object(_groupby, "CHUNK", chunk):
        grouping = Grouping(Columns({f"c{i}": (0, GRID) for i in range(width)}))
        for part in zip(np.split(epsilon, cuts), np.split(codes, cuts), strict=True):
            grouping.add(part[0], list(part[1].T))
        table = grouping.table()
        assert table.total.shape == (table.epsilon.size, width)
        for i in range(width):
            want = tabulate(epsilon, codes[:, i].astype(float), Interval(0, GRID))
            assert seen(Table.single(table.epsilon, table.count, table.total[:, i], rounded=table.rounded)) == seen(
                want
            )


def test_in_every_column_the_sum_of_the_most_people_fits_and_one_person_more_is_refused():
    def table(people):
        return Table(np.ones(1), np.array([people]), np.full((1, 3), people * GRID))

    whole = merge([table(MOST_PEOPLE - 1), table(1)])
    assert (whole.n, whole.total.tolist()) == (MOST_PEOPLE, [[MOST_PEOPLE * GRID] * 3])
    for parts in ([MOST_PEOPLE, 1], [MOST_PEOPLE] * 5):
        with pytest.raises(InputError, match="at most"):
            merge(map(table, parts))


# ---------------------------------------------------------------------------------------------------------
# What is refused, and what is not


BAD = [-1.0, -5e-324, -INF, math.nan, -math.nan, float(np.array(-1).view(np.float64))]


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
@pytest.mark.parametrize("levels", [1, 50, 4000])
@pytest.mark.parametrize("bad", BAD, ids=[f"{i}: {bad}" for i, bad in enumerate(BAD)])
def test_a_bad_epsilon_is_found_with_the_same_message_and_place(bad, levels, compiled):
    """The last has the bits before those of 0, which stand for an empty slot in the kernels' table."""
    epsilon = np.resize(np.linspace(0.1, 3, levels), 9000)
    epsilon[[5000, 8000]] = bad
    got = "NaN" if math.isnan(bad) else f"{bad:g}"
    message = f"epsilon must be 0, positive or inf (got {got} at index 5000); use 0 to leave people out"
    with mock.patch.object(_levels, "LIMIT", 100), forced(compiled=compiled), pytest.raises(hetdp.InputError) as error:
        tabulate(epsilon, np.zeros(9000), Interval(0, 1))
    assert str(error.value) == message


def as_column(array):
    return np.stack([array, array], axis=1)[:, 0]


def unaligned(array):
    raw = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:]
    return raw.view(array.dtype)


FORMS = {
    "float32": lambda x: x.astype(np.float32),
    "int16": lambda x: np.nan_to_num(x, posinf=9, neginf=-9).astype(np.int16),
    "longdouble": lambda x: np.where(np.isnan(x), np.longdouble("1e4000"), x.astype(np.longdouble)),
    "big-endian": lambda x: x.astype(">f8"),
    "strided": as_column,
    "backwards": lambda x: x[::-1],
    "unaligned": unaligned,
    "read-only": read_only,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("levels", [3, 60, 2000])
def test_arrays_of_every_form_give_the_same_table(form, levels):
    rng = np.random.default_rng(levels)
    values = FORMS[form](rng.choice([math.nan, INF, -2.0, 0.1, 0.30000001, 0.9999999, 40.0], 5000))
    epsilon = rng.uniform(0.1, 3, levels)[rng.integers(0, levels, 5000)]
    epsilon = FORMS[form](epsilon) if form in ("strided", "backwards", "unaligned", "read-only") else epsilon
    with mock.patch.object(_levels, "LIMIT", 100):
        doubles = [float(x) for x in values]
        want = by_python(epsilon.tolist(), doubles, Interval(-1, 1), 100)
        assert grouped(epsilon, values, Interval(-1, 1), compiled=True) == want
        assert grouped(epsilon, values, Interval(-1, 1), compiled=False) == want


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
def test_one_epsilon_for_everybody_needs_no_array_of_its_own(compiled):
    epsilon, values = np.broadcast_to(0.5, 300_000), np.linspace(-1, 2, 300_000)
    found = grouped(epsilon, values, Interval(0, 1), compiled=compiled)
    assert found == grouped(np.full(300_000, 0.5), values, Interval(0, 1), compiled=compiled)
    assert found[0][0.5][0] == 300_000


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
def test_without_values_or_an_interval_people_are_counted_and_sums_are_zero(compiled):
    epsilon = np.resize([0.1, 0.2, 0.0, INF], 4001)
    want = {0.0: (1000, 0), 0.1: (1001, 0), 0.2: (1000, 0), INF: (1000, 0)}
    with forced(compiled=compiled):
        for columns in ((), [np.ones(4001)]):
            grouping = Grouping()
            grouping.add(epsilon, columns)
            assert seen(grouping.table()) == (want, False)
        assert seen(Grouping().table()) == ({}, False)


def test_numpy_and_the_kernels_of_one_grouping_add_up():
    """A reader does not know how many people will come: the first batches go to numpy, later ones to the kernels."""
    rng = np.random.default_rng(3)
    epsilon, values = rng.choice([0.1, 0.2, 0.3], 3000), rng.random(3000)
    grouping = Grouping(Mean((0, 1)))
    with mock.patch.multiple(_groupby, LOADED_FROM=INF, COMPILED_FROM=2000):
        for part in np.split(np.arange(3000), 3):
            grouping.add(epsilon[part], [values[part]])
    assert ways(grouping) == (True, True)
    assert seen(grouping.table()) == by_python(epsilon.tolist(), values.tolist(), Interval(0, 1), 9)


# ---------------------------------------------------------------------------------------------------------
# When the kernels are there


def printed(code):
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


PROLOGUE = """
import sys
import numpy as np
from hetdp.tally import groupby as _groupby
from hetdp.core.domain import Interval
def loaded(n):
    _groupby.tabulate(np.full(n, 0.5), np.full(n, 0.25), Interval(0, 1))
    return "hetdp.tally.kernels" in sys.modules
"""


@pytest.mark.slow
def test_numba_is_loaded_for_large_arrays_only():
    code = "print(loaded(10**6), 'numba' in sys.modules); _groupby.LOADED_FROM = 10**6; print(loaded(10**6))"
    assert printed(PROLOGUE + code) == ["False", "False", "True"]


def test_without_numba_large_arrays_are_grouped_by_numpy():
    code = "_groupby.LOADED_FROM = 0; print(loaded(10**6))"
    assert printed("import sys; sys.modules['numba'] = None" + PROLOGUE + code) == ["False"]


def test_a_kernel_that_cannot_be_kept_on_disk_is_compiled_all_the_same():
    space = {}
    exec("def double(x):\n    return 2 * x", space)  # noqa: S102  a function without a file cannot be kept
    assert _kernels.kernel(space["double"])(21) == 42
