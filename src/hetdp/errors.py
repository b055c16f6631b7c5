"""Every error this package raises on purpose.

::

    HetdpError
    ├── InputError (also ValueError)   a public input breaks a rule: bounds, ε, names, options, files
    │   ├── ExhaustedError             people have too little left for a charge; nobody was charged
    │   └── OtherRequestError          the id of a release stands for another request
    ├── PrivacyError                   a plan fails the exact check; nothing was released
    └── LedgerError                    the ledger cannot be trusted or written: no value was read
        └── ChargedError               a release was charged and has no stored result yet; the same id resumes it

A message says what is wrong, the rule, what was got and the remedy. It may quote parameters; it never
quotes a record: no value, no row, no cell of a private column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


class HetdpError(Exception):
    """Root of the errors that this package raises on purpose."""


class InputError(HetdpError, ValueError):
    """A public input (ε, bounds, a name, an option, a file's form) breaks a rule."""


class PrivacyError(HetdpError):
    """A plan would spend more of somebody's privacy than they allowed: nothing is released."""


class LedgerError(HetdpError):
    """The ledger is missing, damaged, older, newer, elsewhere than it should be, or cannot be written."""


class ChargedError(LedgerError):
    """A release was charged but has no stored result yet: asking again under its id resumes it without a charge."""


class ExhaustedError(InputError):
    """People have too little left of their budgets for a charge, or all of them: nobody was charged."""


class OtherRequestError(InputError):
    """A release id was charged for another request, so that charge is not carried out."""


PEOPLE = """counts {ε: people}, as df["eps"].value_counts().to_dict(), or one ε a person, as df["eps"]"""
"""How a plan takes people, for messages."""

_SEEDS = ("seed", "rng", "random_state", "random_seed", "generator")


def either(what: str, bounds: object) -> InputError:
    """Return the error for a call that needs bounds or a statistic, and got both or neither."""
    if bounds is not None:
        return InputError(f"{what} takes bounds or a statistic, not both: a statistic has bounds of its own")
    return InputError(f"{what} needs the public bounds of the values, (lo, hi), or a statistic that has its own")


def unknown_option(function: str, given: Iterable[str], known: Collection[str]) -> InputError | TypeError:
    """Return the error for a keyword that a public function does not take, the first that it does not know."""
    name = next((name for name in given if name not in known), next(iter(given)))
    if name in _SEEDS and "rng" in known:
        return InputError(f"{function} takes a seed as rng=…, a number or a generator of NumPy (got {name}=)")
    if name in _SEEDS:
        return InputError(
            f"a release takes no {name}: whoever knows it could take the noise away; to see the error of a method "
            "on invented people, with numbers that repeat, use hetdp.simulate(rng=…)"
        )
    if name in ("missing", "values") and function in ("hetdp.plan", "hetdp.compare", "hetdp.people_needed"):
        named = "hetdp.ask.mean(bounds=…, missing=…)"
        return TypeError(f"{function} has no option {name!r}; it is part of the question: statistic={named}")
    if name == "delta":
        return InputError(f"{function} takes no delta: pure ε only; see 'hetdp or OpenDP' in the documentation")
    said = f"; say form=hetdp.sources.Form({name}=…)" if name in ("delimiter", "decimal", "thousands") else ""
    if name == "epsilon" and function in ("hetdp.plan", "hetdp.compare"):
        said = f"; people come first: {PEOPLE}"
    elif name == "epsilon" and function.startswith("Ledger."):
        said = "; a ledger knows everybody's ε: say spend=, share= or share_left="
    near = get_close_matches(name, sorted({*known} - {"unknown"}), 1)
    said = said or (f"; did you mean {near[0]!r}?" if near else "")
    return TypeError(f"{function} has no option {name!r}{said}")
