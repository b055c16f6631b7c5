"""How numbers and columns are written in a file of text. It is public and said by the user, never found in the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hetdp.errors import InputError


@dataclass(frozen=True)
class Form:
    """The signs of a file of text.

    Attributes
    ----------
    delimiter
        What stands between columns. None: a tab in .tsv and .tab files, else a comma.
    decimal
        The decimal sign, a point or a comma. The other one is then no decimal sign.
    thousands
        What stands between groups of three digits; None: nothing does.

    Examples
    --------
    >>> Form(";", ",", ".").delimiter
    ';'
    >>> Form(",", ",")
    Traceback (most recent call last):
    hetdp.errors.InputError: the delimiter and the decimal sign must differ (got ',' for both)
    """

    delimiter: str | None = None
    decimal: str = "."
    thousands: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in {".", ","}:
            raise InputError(f"the decimal sign must be a point or a comma (got {self.decimal!r})")
        for name, sign in (("delimiter", self.delimiter), ("thousands sign", self.thousands)):
            if sign is not None and not _is_sign(sign):
                raise InputError(
                    f"the {name} must be one ASCII character that is no digit, letter, quote, plus, minus or line end "
                    f"(got {sign!r})"
                )
        _differ("delimiter", self.delimiter, "decimal sign", self.decimal)
        _differ("delimiter", self.delimiter, "thousands sign", self.thousands)
        _differ("decimal sign", self.decimal, "thousands sign", self.thousands)

    def delimiter_of(self, path: Path) -> str:
        """Return what stands between the columns of this file: as said, else by the end of its name."""
        if self.delimiter is not None:
            return self.delimiter
        usual = "\t" if path.suffix.lower() in {".tsv", ".tab"} else ","
        if usual in {self.decimal, self.thousands}:
            raise InputError(f"{path} would have {usual!r} between its columns and in its numbers; name its delimiter")
        return usual


def _is_sign(sign: str) -> bool:
    return len(sign) == 1 and sign.isascii() and not sign.isalnum() and sign not in "\"'+-\r\n\x00"


def _differ(one: str, first: str | None, other: str, second: str | None) -> None:
    if first is not None and first == second:
        raise InputError(f"the {one} and the {other} must differ (got {first!r} for both)")
