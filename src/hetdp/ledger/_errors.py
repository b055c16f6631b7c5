"""What a ledger refuses with.

::

    HetdpError
    ├── LedgerError            the ledger cannot be trusted or written: no value was read
    │   └── ChargedError       a release was charged and its result is not stored yet; the same id resumes it
    └── InputError
        └── OtherRequestError  the id of a release stands for another request
"""

from __future__ import annotations

from hetdp.errors import HetdpError, InputError


class LedgerError(HetdpError):
    """The ledger is missing, damaged, older, newer, elsewhere than it should be, or cannot be written."""


class ChargedError(LedgerError):
    """A release was charged but has no stored result yet: asking again under its id resumes it without a charge."""


class OtherRequestError(InputError):
    """A release id was charged for another request, so that charge is not carried out."""
