"""The version of the package and of its JSON; in a module of its own so that everything can say them."""

__version__ = "0.1.0"
SCHEMA = 1
"""Counts up when a field of the JSON changes its meaning or goes; new fields may come without it."""
