"""People from a file: how it is read, by what it is known again, and how a large one is taken while others answer.

A file is read by the library's own rule for delimited text: no value can raise or move another person's choice, and no
message quotes one. The library reads from files only, so the body is put into one for that moment: an unnamed one in
memory, which is gone when this process is, however it ends.

Nobody waits for a whole file: its rows are written in transactions of a few, and between them others have their turn.
Until the last one is written the study has a mark that an import is under way: it is not published, and no other file
is taken. If anything goes wrong, or the server is cut off, the rows that were written are emptied again.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from hetdp.core.cells import Words
from hetdp.core.domain import GRID
from hetdp.errors import InputError
from hetdp.sources import Source
from hetdp.sources.request import Batch, Form

from . import access, publish, studies, tables
from .access import RefusedError
from .fields import FreeChoice
from .store import ChangedError, Store, Transaction, new_version
from .studies import UNSAID, Question, Study

# How compressed and binary files begin: they could expand beyond the limit on a body.
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
_OLD_ID = 64  # the length of the id of a file that an older hetdp imported, which is the mark of its content
_PIECE = 1000  # people of a file who are written as text at a time
# How yes and no are written in a file, small or not, beside true and false; the page and docs/server.md list them.
_WORDS = {"yes": 1, "no": 0, "ja": 1, "nein": 0, "wahr": 1, "falsch": 0, "1": 1, "0": 0}
_YES_NO = Words.of({way(word): code for word, code in _WORDS.items() for way in (str, str.capitalize, str.upper)})


# ---------------------------------------------------------------------------------------------------------
# People from a file


class File(NamedTuple):
    """A file of people: the mark of its content, and a random salt without which its id tells nothing about that.

    The salt is a fact of the database until the answers of the file are deleted. So whoever has the key and the
    database can try out what a file said while they could open its answers anyway, and not afterwards. The first half
    of the id is a hash of the salt alone: a salt that somebody changed or took away is noticed.
    """

    salt: str
    mark: str

    @property
    def id(self) -> str:
        """By what the file is known here; its people and the log have the beginning of it."""
        return access.digest("salt", self.salt) + access.digest("file", f"{self.salt} {self.mark}")


def read_rows(body: bytes, study: Study, vault: access.Vault, by: str) -> tuple[File, list[dict[str, Any]]]:
    """Return a CSV file as it is known here and its people, their answers sealed as if they had sent them.

    A column is called like its question; the only one of a study may be called `value`. The header alone, which is
    public, says what stands between cells; with semicolons decimals have a comma, as spreadsheets write them.

    Ids begin like that of the file; by that its people are found again. They come in the order of their ids: these are
    random, so that tells nothing of the order in the file, and rows that are written together stand together in every
    index.

    Others are served meanwhile, so no single step is long: while Python sorts or writes a large list nobody else runs.
    """
    if body.startswith(_COMPRESSED):
        raise RefusedError(415)
    names = [question.name for question in study.questions]
    header = re.split(rb"[\r\n]", body.removeprefix(b"\xef\xbb\xbf"), maxsplit=1)[0].decode(errors="replace")
    there = re.findall(r"[^,;\t\"|]+", header)
    if len(names) == 1 and names[0] not in there and "value" in there:
        names = ["value"]
    column = "epsilon" if study.free else "tier"
    form = _form(header, {*names, column})
    tiers = {tier.name: tier.epsilon for tier in study.tiers} or None
    reads = tuple(_reading(question) for question in study.questions)
    with os.fdopen(os.memfd_create("rows"), "wb") as file:
        file.write(body)
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}")
        try:
            source = Source.of(path, value=tuple(names), reads=reads, epsilon=column, tiers=tiers, form=form)
            batches = list(source.batches())
            if study.free:
                _within(study.free, source, batches)
        except InputError as error:
            raise RefusedError(422, "rows", str(error).replace(str(path), "the file")) from None
    levels = [level for batch in batches for level in batch.epsilon.tolist()]
    if not levels:
        raise RefusedError(422, "rows", "the file has no people")
    if study.free:
        levels = [study.level(None, level) for level in levels]
    asked = enumerate(study.questions)
    columns = [[code for batch in batches for code in _codes(question, batch.columns[i])] for i, question in asked]
    said = list(zip(*columns, strict=True))
    file_here = File(access.new_token(), _mark(study, by, vault, _content(study, levels, columns)))
    begins = file_here.id[: tables.MARK]
    ids = np.frombuffer(secrets.token_bytes(8 * len(levels)), np.uint64)
    order = np.argsort(ids)
    people = zip(order.tolist(), (f"{begins}{one:016x}" for one in ids[order].tolist()), strict=True)
    return file_here, [studies.sealed(said[i], person, levels[i], study, vault) for i, person in people]


def _form(header: str, names: set[str]) -> Form:
    """Return how a file is written: by what most of the names that are asked for stand between, else by what is most.

    >>> _form("hours;tier;Name, first", {"hours", "tier"}), _form("a,b", {"c"})
    (Form(delimiter=';', decimal=',', thousands=None), Form(delimiter=',', decimal='.', thousands=None))
    """
    known = {sign: names.intersection(re.sub(r" *\"", "", header).split(sign)) for sign in ",;\t"}
    sign = max(known, key=lambda sign: (len(known[sign]), header.count(sign)))
    return Form(sign, "," if sign == ";" else ".")


def _within(free: FreeChoice, source: Source, batches: list[Batch]) -> None:
    """Raise if an ε is outside of what people may choose, and say in which line: then the file is read once more."""
    if all(((free.least <= batch.epsilon) & (batch.epsilon <= free.most)).all() for batch in batches):
        return
    for batch in source.batches(owner=True):
        wrong = np.flatnonzero((batch.epsilon < free.least) | (batch.epsilon > free.most))
        if wrong.size and batch.places is not None:
            line, least, most = int(batch.places[wrong[0]]), free.least, free.most
            why = f"in line {line} of the file epsilon is outside of what people may choose: {least:g} to {most:g}"
            raise RefusedError(422, "rows", why, line=line, least=least, most=most)


def _mark(study: Study, by: str, vault: access.Vault, content: list[Any]) -> str:
    """Return by what a file is known again: a keyed hash of the study, of who sends it, and of all levels and codes.

    Claim: nobody but its sender learns from the server whether a file that was imported says what they guess.
    Argument: the name of the sender is part of it, a name is used once (`add_curator`), and nobody without the key can
    compute the mark of somebody else. So a guess has another mark than the file and is imported, or refused, like every
    other guess. The database has no mark, only the id of a `File`.

    Where people are asked again in each wave, the same file is a new one in the next: its answers are not there then.
    Before version 5 there was one curator and one question, and the mark was without a name.
    """
    if study.old and by == tables.FIRST:
        return vault.mark(_written(study.id, content))
    wave = f" {study.wave}" if study.each_wave == "ask" else ""
    return vault.mark(_written(f"{study.id} {by}{wave}", content))


def _written(said: str, content: list[Any]) -> Iterator[str]:
    """Yield the text f"{said} {content}", some of it at a time."""
    yield f"{said} ["
    for start in range(0, len(content), _PIECE):
        yield f"{', ' if start else ''}{str(content[start : start + _PIECE])[1:-1]}"
    yield "]"


def _reading(question: Question) -> Any:
    sorting = question.statistic.sorting
    return {"number": None, "yes-no": _YES_NO, "choice": sorting}[question.kind]


def _codes(question: Question, column: Any) -> list[int]:
    """Return the codes of a column of a file."""
    values = np.asarray(column)
    if question.kind == "number":
        return question.codes(values)
    cells = values if question.kind == "choice" else np.where(np.isnan(values), 2, 1 - values)
    most = len(question.choices) or 2
    return np.where(cells < most, cells, UNSAID).astype(np.int64).tolist()  # type: ignore[no-any-return]


def _content(study: Study, levels: list[float], columns: list[list[int]]) -> list[Any]:
    """Return what a file says, in order of size; of a study from before version 5 as it was then."""
    level, codes = np.array(levels), [np.array(column) for column in columns]
    if study.old:
        codes = [np.where(column == UNSAID, GRID // 2, column) for column in codes]
    codes = [np.where(level > 0, column, 0) for column in codes]
    order = np.lexsort((*reversed(codes), level))
    rows = zip(level[order].tolist(), *(column[order].tolist() for column in codes), strict=True)
    return list(rows) if study.old else [(level, tuple(said) if level else ()) for level, *said in rows]


def taking(study: Study) -> Study:
    """Return a study that takes answers now, or raise: before a file is looked at, so that nothing depends on it."""
    if study.phase() != "open":
        raise RefusedError(409, "closed", "This study does not take answers now.")
    return study


def came_before(transaction: Transaction, study: str, file: File) -> int:
    """Return how many people of the same file are in a study; 0 if it did not come, or its answers are gone again.

    The register says which files came: one that was taken out of the database, or whose salt was, would come twice.
    """
    for name in transaction.register.people(study, "import"):
        row = transaction.believed("import", transaction.row("import", name))
        if row["people"] <= 0:
            continue
        known = File(transaction.fact(publish.salt_of(study, name)) or "", file.mark)
        if len(name) != _OLD_ID and access.digest("salt", known.salt) != name[:_OLD_ID]:
            raise ChangedError
        if name in {known.id, file.mark}:
            return int(row["people"])
    return 0


def add_rows(
    transaction: Transaction, study: str, file: File, people: list[dict[str, Any]], written: int = 0
) -> dict[str, int]:
    """Add people from a file, of which some may be `written`; if the same came before, they are there already."""
    taking(studies.get(transaction, study))
    if before := came_before(transaction, study, file):
        return {"people": before}
    transaction.insert("person", people)
    count = len(people) + written
    transaction.insert("import", [{"id": file.id, "study": study, "people": count}])
    transaction.set_fact(publish.salt_of(study, file.id), file.salt)
    transaction.note("rows imported", study, count=count, file=file.id[: tables.MARK])
    return {"people": count}


def imports(transaction: Transaction, study: str) -> list[dict[str, Any]]:
    """Return the files that were imported into a study and not deleted: how each is named here, and its people.

    Of one that is `used` the answers are gone, with the publication that counted them.
    """
    table = tables.imports
    rows = transaction.execute(sa.select(table).where((table.c.study == study) & (table.c.people != 0)))
    return [{"file": row.id[: tables.MARK], "people": abs(row.people), "used": row.people < 0} for row in rows]


def marked(transaction: Transaction, study: str) -> bool:
    """Say whether ids of people, and the log, hold the mark of a file: an older hetdp imported it."""
    return any(len(name) == _OLD_ID for name in transaction.register.people(study, "import"))


def from_files(transaction: Transaction, study: Study) -> int:
    """Return how many of those who count in a study now, as `studies.joined` has it, come from files."""
    about = tables.people.c
    mine = sa.and_(about.study == study.id, *studies.taking_part(study), sa.func.length(about.id) > tables.MARK)
    return int(transaction.execute(sa.select(sa.func.count()).where(mine)).scalar_one())


def delete_import(transaction: Transaction, study_id: str, file: str) -> dict[str, bool]:
    """Delete the people of a file, until the wave closes."""
    table, study = tables.imports, studies.get(transaction, study_id)
    mine = (table.c.study == study_id) & table.c.id.startswith(file, autoescape=True)
    row = transaction.row("import", transaction.execute(sa.select(table.c.id).where(mine)).scalar() or "")
    if row is None or len(file) != tables.MARK:
        raise RefusedError(404)
    if study.phase() != "open":
        raise RefusedError(409, "closed", "A file can be deleted until the wave closes, not after. The study can be.")
    publish.emptied(transaction, study_id, transaction.believed("import", row)["id"][: tables.MARK])
    transaction.note("import deleted", study_id, count=abs(row["people"]))
    return {"deleted": True}


# ---------------------------------------------------------------------------------------------------------
# A large one, while others answer

# Rows in one transaction: so many at first, then as many as take about so many seconds.
BATCH, _LARGEST, _SECONDS = 250, 2000, 0.05
_PAUSE, _LONGEST = 0.005, 0.05  # seconds in which others get the turn to write: as long as the transaction took
_UNDER_WAY = "A file is being imported into this study. Wait until that is done."


def add(write: Callable[..., Any], study: str, file: File, people: list[dict[str, Any]]) -> dict[str, int]:
    """Add the people of a file; of a large one all but the last are written before, in batches."""
    if len(people) <= BATCH:
        done: dict[str, int] = write(_alone, study, file, people)
        return done
    there = write(_begin, study, file)
    if there:
        return {"people": there}
    at, size = 0, BATCH
    try:
        while len(people) - at > size:
            start = time.perf_counter()
            write(_some, study, people[at : at + size])
            at += size
            took = time.perf_counter() - start
            size = max(BATCH, min(_LARGEST, round(size * _SECONDS / took)))
            time.sleep(min(max(_PAUSE, took), _LONGEST))
        done = write(_last, study, file, people[at:], at)
    except BaseException:  # whatever it is, half a file does not stay
        undo(write, study, file.id)
        raise
    return done


def _name(study: str) -> str:
    return f"importing {study}"


def under_way(transaction: Transaction, study: str) -> None:
    """Raise if a file is being imported into a study."""
    if transaction.fact(_name(study)) is not None:
        raise RefusedError(409, "importing", _UNDER_WAY)


def _alone(transaction: Transaction, study: str, *rest: Any) -> dict[str, int]:
    under_way(transaction, study)
    return add_rows(transaction, study, *rest)


def _begin(transaction: Transaction, study: str, file: File) -> int:
    """Mark the study; if the same file came before, return how many people it has, before a row is written."""
    under_way(transaction, study)
    if before := came_before(transaction, study, file):
        return before
    _open(transaction, study)
    transaction.set_fact(_name(study), file.id)
    return 0


def _open(transaction: Transaction, study: str) -> None:
    if studies.get(transaction, study).phase() != "open":
        raise RefusedError(409, "closed", "This study does not take answers now.")


def _some(transaction: Transaction, study: str, people: list[dict[str, Any]]) -> None:
    _open(transaction, study)
    transaction.insert("person", people)


def _last(transaction: Transaction, study: str, *rest: Any) -> dict[str, int]:
    _forget(transaction, study)
    return add_rows(transaction, study, *rest)


def _forget(transaction: Transaction, study: str) -> None:
    transaction.execute(sa.delete(tables.facts).where(tables.facts.c.name == _name(study)))


# ---------------------------------------------------------------------------------------------------------
# Half a file


def undo(write: Callable[..., Any], study: str, file: str) -> None:
    """Empty the rows of a file that was not written to its end, some at a time, then take the mark away."""
    while write(_emptied, study, file[: tables.MARK]):
        time.sleep(_PAUSE)
    write(_forget, study)


def _emptied(transaction: Transaction, study: str, begins: str) -> int:
    table = tables.people
    mine = (table.c.study == study) & table.c.id.startswith(begins) & table.c.epsilon.is_not(None)
    rows = transaction.execute(sa.select(table).where(mine).limit(BATCH)).all()
    for row in rows:
        gone = {**dict.fromkeys(table.c.keys()), "id": row.id, "study": study, "version": new_version()}
        transaction.change("person", gone)
    transaction.scrub |= bool(rows)
    return len(rows)


def clear(store: Store) -> None:
    """Undo what a server that was cut off left of files, before anything is published."""

    def found(transaction: Transaction) -> list[tuple[str, str]]:
        table = tables.facts
        rows = transaction.execute(sa.select(table).where(table.c.name.startswith(_name(""))))
        return [(row.name.removeprefix(_name("")), row.text) for row in rows]

    for study, file in store.read(found):
        undo(store.write, study, file)
