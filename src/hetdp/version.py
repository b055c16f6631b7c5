"""The version of the package; in a module of its own so that everything can say it."""

__version__ = "0.1.0"
