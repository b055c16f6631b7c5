"""Every error this package raises on purpose.

::

    HetdpError
    ├── InputError (also ValueError)   a public input breaks a rule: bounds, ε, names, options, files
    │   └── OtherRequestError          the id of a release stands for another request
    ├── PrivacyError                   a plan fails the exact check; nothing was released
    └── LedgerError                    the ledger cannot be trusted or written: no value was read
        └── ChargedError               a release was charged and has no stored result yet; the same id resumes it

A message says what is wrong, the rule, what was got and the remedy. It may quote parameters; it never
quotes a record: no value, no row, no cell of a private column.
"""

from __future__ import annotations


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


class OtherRequestError(InputError):
    """A release id was charged for another request, so that charge is not carried out."""
