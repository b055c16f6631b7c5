"""Every error this package raises on purpose.

::

    HetdpError
    ├── InputError (also ValueError)   a public input breaks a rule: bounds, ε, names, options, files
    └── PrivacyError                   a plan fails the exact check; nothing was released

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
