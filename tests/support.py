"""What several tests need: extreme values and strategies for levels."""

from __future__ import annotations

import math
import re
import unicodedata

from hypothesis import settings
from hypothesis import strategies as st


def timeless(text: str) -> str:
    """A text without the times in it, which differ from one run to the next whatever the values are."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+Z?", "a time", text)


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

_VISIBLE = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that are drawn around or above the letters that follow."""
_UNSEEN = (
    "HANGUL FILLER",
    "HANGUL CHOSEONG FILLER",
    "HANGUL JUNGSEONG FILLER",
    "HALFWIDTH HANGUL FILLER",
    "VARIATION SELECTOR",
    "GRAPHEME JOINER",
    "KHMER VOWEL INHERENT",
    "BRAILLE PATTERN BLANK",
)

UNIT = (-0.5, 0.5)
"""The paper's interval, of length 1."""


def examples(usual: int) -> int:
    """Return how many examples Hypothesis tries where it usually tries so many: fewer in a profile that asks for fewer.

    `make check` chooses the profile "quick"; `make test` runs all of them.
    """
    whole = settings.get_profile("default").max_examples
    return max(5, usual * settings().max_examples // whole)


def is_unseen(character: str) -> bool:
    """Say whether nobody sees a character, by its name and its kind: an oracle for what ids must not hold."""
    kind, name = unicodedata.category(character), unicodedata.name(character, "")
    hieroglyph = "\U00013430" <= character <= "\U0001345f"  # it changes how its neighbours are drawn
    format_ = kind == "Cf" and character not in _VISIBLE and not hieroglyph
    ignored = ("\u2065", "\u2065"), ("\ufff0", "\ufff8"), ("\U000e0000", "\U000e0fff")  # not in display, says Unicode
    reserved = any(first <= character <= last for first, last in ignored)
    return kind in {"Cc", "Cs"} or format_ or reserved or any(word in name for word in _UNSEEN)


def is_id(text: str) -> bool:
    """Say whether a text may be somebody's id."""
    blank = text[:1].isspace() or text[-1:].isspace()
    return bool(text) and len(text) <= 256 and not blank and '"' not in text and not any(map(is_unseen, text))
