"""What several tests need: extreme values and strategies for levels."""

from __future__ import annotations

import math

from hypothesis import strategies as st

EXTREME_VALUES = (
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1e9,
    -1e9,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    1.0,
    0.5,
    0.49999999999999994,
    0.1,
)
"""Values that have broken somebody's DP mean; tests add the ends and the middle of their own interval."""

epsilons = st.one_of(
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-12, 0.01, 0.1, 0.5, 1.0, 2.0, 20.0, 1e300, math.inf]),
    st.floats(min_value=1e-6, max_value=50, allow_nan=False),
)

level_counts = st.dictionaries(epsilons, st.integers(min_value=1, max_value=2000), min_size=1, max_size=8)

bounds = st.tuples(
    st.floats(min_value=-1e6, max_value=1e6, allow_nan=False), st.floats(min_value=1e-3, max_value=1e6, allow_nan=False)
).map(lambda pair: (pair[0], pair[0] + pair[1]))
