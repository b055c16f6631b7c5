"""Who is in which cohort, at every moment: a row for every time that a person changed cohort, never changed itself."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetdp.core.cells import BAD_ID, LONGEST_ID, NOT_IN_ID
from hetdp.errors import InputError

from ._schema import failed, tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FEW = 500
_BAD = re.compile(NOT_IN_ID)
_PLAIN = re.compile("[!#-~](?:[ !#-~]*[!#-~])?")  # visible ASCII but for a quote: most ids, and quick to see


def clean_ids(ids: Iterable[Any], what: str = "id") -> list[str]:
    r"""Return ids as they are kept: text in Unicode's normal form C, otherwise exact; a bad one raises.

    >>> clean_ids(["007", "7", "Zoe\u0308"]) == ["007", "7", "Zoë"]
    True
    """
    found = []
    for place, cell in enumerate(ids):
        plain = isinstance(cell, str) and len(cell) <= LONGEST_ID and _PLAIN.fullmatch(cell)
        found.append(cell if plain else _careful(cell, f"{what} {place + 1}"))
    return found


def readable_ids(ids: Iterable[Any]) -> list[str | None]:
    """Return ids of rows of a private file, None where one cannot be an id: such a row is nobody's."""
    found: list[str | None] = []
    for cell in ids:
        try:
            found.extend(clean_ids([cell]))
        except InputError:
            found.append(None)
    return found


def _careful(cell: Any, where: str) -> str:
    if not isinstance(cell, str):
        raise InputError(
            f"an id must be text (got {type(cell).__name__} at {where}); write numbers as text: '007' is not '7'"
        )
    text = unicodedata.normalize("NFC", cell) if len(cell) <= LONGEST_ID else cell
    if not text:
        raise InputError(f"an id must not be empty (at {where})")
    if len(text) > LONGEST_ID or _BAD.search(text) or not _is_text(text):
        raise InputError(f"an id {BAD_ID} (at {where})")
    return text


def _is_text(text: str) -> bool:
    """Say whether a text can be written down: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def digest(ids: Iterable[str]) -> str:
    """Return a fingerprint of a set of ids. Ids are public."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def digests(rows: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return for each cohort the fingerprint of the people who came to it; rows are (person, cohort)."""
    came: dict[int, list[str]] = {}
    for person, cohort in rows:
        came.setdefault(cohort, []).append(person)
    return {str(cohort): digest(people) for cohort, people in sorted(came.items())}


def members(connection: Connection, upto: int, ids: Sequence[str] | None = None) -> dict[str, int]:
    """Return {person: cohort} as of an event; of some people, if they are few, or of all.

    Rows come in the order of events, so the last one of a person stays.
    """
    member = tables().member
    query = member.select().with_only_columns(member.c.person, member.c.cohort).where(member.c.event <= upto)
    query = query.order_by(member.c.person, member.c.event)
    if ids is None or len(ids) > _FEW:
        return dict(map(tuple, connection.execute(query)))
    return dict(map(tuple, connection.execute(query.where(member.c.person.in_(ids)))))


def insert(connection: Connection, event: int, moved: Mapping[str, int]) -> None:
    """Write that people changed cohort at an event; in the order of their ids, which suits the tree of the index."""
    rows = [(person, event, moved[person]) for person in sorted(moved)]
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("INSERT INTO hetdp_member (person, event, cohort) VALUES (?, ?, ?)", rows)
        return
    raw: Any = connection.connection.driver_connection
    try:
        with raw.cursor() as cursor, cursor.copy("COPY hetdp_member (person, event, cohort) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as error:  # what it says may quote an id
        raise failed(connection, error) from None
