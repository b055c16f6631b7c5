"""Who comes and goes: curators and their keys, invitations, links, people from a file; and everything that is erased.

What is erased. A row stays, empty: a random id, for which the register vouches. What was published stays, as do the
charges in the ledger: deleting an answer does not take back what a published number told about it. Withdrawing needs
nothing of the row that is there: it is written anew, so it works also when somebody has changed it.

A file is read by the library's own rule for delimited text: no value can raise or move another person's choice, and no
message quotes one. The library reads from files only, so the body is put into one for that moment: an unnamed one in
memory, which is gone when this process is, however it ends.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from hetdp.core.cells import Words
from hetdp.core.domain import GRID
from hetdp.errors import InputError
from hetdp.sources import Source
from hetdp.sources.request import Batch

from . import access, publish, studies, tables
from .access import RefusedError
from .fields import FreeChoice
from .store import SERVER, Transaction, new_version
from .studies import UNSAID, Question, Study, new_id

# How compressed and binary files begin: they could expand beyond the limit on a body.
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
# How many digits of the mark of a file begin the ids of its people.
MARK = 16
_PIECE = 1000  # people of a file who are written as text at a time
# How yes and no are written in a file; true is 1 and false is 0.
_YES_NO = Words.of({"yes": 1, "no": 0, "1": 1, "0": 0})
_NOT_SOONER = (
    "This wave closes on {} anyway. Closing early leaves people time to withdraw, until {}, so it is no sooner."
)
STAYS = "What was published stays; so does what you allowed and what it cost, once one that counts you was begun."
_LINK = "This link is not valid, was used already, or was deleted. If you have answered, use the one from your receipt."


# ---------------------------------------------------------------------------------------------------------
# Curators, and what they see of all studies


def new_key(transaction: Transaction, name: str = tables.FIRST) -> str:
    """Make or replace a curator's key and end the sessions of this curator; return it, which is stored nowhere."""
    key, table = access.new_token(), tables.curators
    transaction.execute(sa.delete(table).where(table.c.name == name))
    row = {"name": name, "key": access.digest("curator", key), "created": int(access.now())}
    transaction.execute(sa.insert(table).values(row))
    transaction.register.end_sessions(f"curator:{name}")
    transaction.note("curator key made", name=name)
    return key


def curators(transaction: Transaction) -> list[str]:
    """Return the names of all curators."""
    return list(transaction.execute(sa.select(tables.curators.c.name).order_by(tables.curators.c.name)).scalars())


def add_curator(transaction: Transaction, name: str) -> str:
    """Make a further curator and return the key."""
    was = transaction.register.kept(f"curator:{name}") is not None  # sessions of this name have ended
    if was or name == SERVER or name in curators(transaction):
        why = "There is or was a curator of this name. A name is used once, so that the log means one person by it."
        raise RefusedError(409, "curator-exists", why, "name")
    return new_key(transaction, name)


def remove_curator(transaction: Transaction, name: str) -> dict[str, bool]:
    """Remove a curator, whose key and sessions end; nobody removes themselves, so one is always left."""
    if name not in curators(transaction):
        raise RefusedError(404)
    if name == transaction.by:
        raise RefusedError(409, "yourself", "Nobody removes themselves; another curator can.")
    transaction.execute(sa.delete(tables.curators).where(tables.curators.c.name == name))
    transaction.register.end_sessions(f"curator:{name}")
    transaction.note("curator removed", name=name)
    return {"removed": True}


def every(transaction: Transaction) -> list[Study]:
    """Return all studies that were not deleted, the newest first, as the database has them: to be shown."""
    about = tables.studies.c
    query = sa.select(tables.studies).where(about.status != "deleted").order_by(about.created.desc(), about.id)
    return [Study.of(dict(row._mapping)) for row in transaction.execute(query)]


def levels(transaction: Transaction, study: Study) -> dict[tuple[bool, float | None], list[str]]:
    """Return who is or was in a study by whether they take part now, as `studies.joined` counts, and by their ε.

    It is as the database has it: to be shown. The database puts the ids together, which takes a third of the time.
    """
    about, part = tables.people.c, sa.and_(*studies.taking_part(study))
    found: dict[tuple[bool, float | None], list[str]] = {}
    for here, which in ((True, part), (False, sa.not_(part))):
        query = sa.select(about.epsilon, sa.func.aggregate_strings(about.id, " ").label("ids"))
        for row in transaction.execute(query.where(about.study == study.id, which).group_by(about.epsilon)):
            found[here, row.epsilon] = row.ids.split()
    return found


def events(transaction: Transaction, study: str | None, most: int = 200) -> list[dict[str, Any]]:
    """Return the public events of a study, or of none, the newest first; old ones, without names, are by nobody."""
    table = tables.audit
    query = sa.select(table).where(table.c.study == study).order_by(table.c.number.desc()).limit(most)
    rows = transaction.execute(query)
    return [{"at": row.at, "event": row.event, "by": "", **json.loads(row.detail)} for row in rows]


# ---------------------------------------------------------------------------------------------------------
# Invitations and links


def invite(transaction: Transaction, study: str, count: int) -> dict[str, Any]:
    """Make invitations and return their tokens, which are stored nowhere, and the number of the first."""
    if studies.get(transaction, study).status in {"published", "deleted"}:
        raise RefusedError(409, "closed", "This study is closed.")
    about, tokens = tables.people.c, [access.new_token() for _ in range(count)]
    last = transaction.execute(sa.select(sa.func.max(about.number)).where(about.study == study)).scalar() or 0
    before = transaction.fact(f"invited {study}") or ""  # the number of somebody who is erased is not given again
    last = max(last, int(before) if before.isdecimal() else 0)
    rows = [
        {"id": new_id(), "study": study, "invitation": access.digest("invitation", token), "version": new_version()}
        for token in tokens
    ]
    transaction.insert("person", [{**row, "number": last + i} for i, row in enumerate(rows, 1)])
    transaction.set_fact(f"invited {study}", str(last + count))
    transaction.note("invitations made", study, count=count, first=last + 1)
    return {"tokens": tokens, "first": last + 1}


def invitations(transaction: Transaction, study: str) -> dict[str, int]:
    """Return how many invitations of a study were made, used by a first answer, are open, were revoked or deleted."""
    studies.shown(transaction, study)
    about = tables.people.c
    mine = (about.study == study) & (sa.func.length(about.id) <= MARK)
    ended = [sa.func.count().filter(about.gone == how) for how in ("revoked", "erased")]
    counts = sa.select(sa.func.count(), sa.func.count(about.invitation), *ended).where(mine)
    made, waiting, revoked, deleted = tuple(transaction.execute(counts).one())
    used = made - waiting - revoked - deleted
    return {"made": made, "used": used, "open": waiting, "revoked": revoked, "deleted": deleted}


def revoke(transaction: Transaction, study: str, number: int | None = None) -> dict[str, int]:
    """Revoke all open invitations of a study, or the one of this number, with the sessions that they began."""
    table = tables.people
    studies.get(transaction, study)
    mine = (table.c.study == study) & table.c.invitation.is_not(None)
    mine &= True if number is None else table.c.number == number
    rows = [row for row in transaction.execute(sa.select(table).where(mine)) if row.epsilon is None]
    if number is not None and not rows:
        raise RefusedError(404)
    for row in rows:
        transaction.believed("person", dict(row._mapping))
        gone = {"invitation": None, "gone": "revoked", "version": new_version()}
        transaction.change("person", {**row._mapping, **gone})
    transaction.register.end_sessions(*(row.id for row in rows))
    transaction.note("invitations revoked", study, count=len(rows))
    return {"revoked": len(rows)}


def _by_link(transaction: Transaction, token: str) -> dict[str, Any] | None:
    """Return the row of the person whose invitation or link to come back this is."""
    table, found = tables.people, None
    for kind, column in (("invitation", table.c.invitation), ("again", table.c.again)):
        hashed = access.digest(kind, token)
        row = transaction.execute(sa.select(table).where(column == hashed)).first()
        if row is not None and access.same(row._mapping[kind], hashed):
            found = dict(row._mapping)  # no early end: every token costs two lookups
    return found


def enter(transaction: Transaction, token: str) -> str:
    """Return a new session of the person whose invitation or link this is; every other token is refused alike."""
    found = _by_link(transaction, token)
    if found is None:
        raise RefusedError(403, "invitation", _LINK)
    person = transaction.believed("person", found)["id"]
    return access.open_session(transaction.register, access.PARTICIPANT, person)


def seen(transaction: Transaction, token: str, *, changed: bool) -> tuple[Study, dict[str, Any]]:
    """Return a person's study and what they chose, not what they answered.

    With `changed`, if the study or their row was changed from outside: nothing can be sent, but it can be withdrawn.
    It is `over` once all that people sent to it was deleted.
    """
    person, _, study_id = studies.who(transaction, token)
    about: dict[str, Any] = {"person": person, "changed": changed}
    if changed:
        more = {"joined": True, "choice": None, "may_send": False, "answered_this_wave": True, "over": False}
        return studies.shown(transaction, study_id), {**about, **more}
    study = studies.get(transaction, study_id)
    row = transaction.believed("person", transaction.row("person", person))
    joined, answered = row["epsilon"] is not None, row["answer"] is not None
    chosen = study.choice(row["epsilon"]) if joined else None
    may, over = study.phase() == "open" and (study.changeable or not answered), row["gone"] == "erased"
    about |= {"joined": joined, "choice": chosen, "may_send": may, "answered_this_wave": answered, "over": over}
    return study, about


# ---------------------------------------------------------------------------------------------------------
# What people erase


def withdraw(transaction: Transaction, token: str, *, everything: bool = False) -> dict[str, Any]:
    """Delete a person's answer and choice, until answers are read; they may send another one until closing.

    With `everything` their link goes too, and their sessions: nobody can answer in their place any more. That is also
    possible after the publication, when their answer is gone already.
    """
    person, _, study = studies.who(transaction, token)
    return _erased(transaction, person, study, everything=everything)


def erase_by_link(transaction: Transaction, study: str, link: str) -> dict[str, Any]:
    """Delete all about the person whose invitation or link to come back this is: they handed it over for that.

    The link must stand in a row for which the register vouches. Else somebody who can write to the database could point
    it at another person, who would be erased, while this one is told that they were.
    """
    studies.shown(transaction, study)
    row = _by_link(transaction, link.rpartition("#")[2].strip())
    known = None if row is None else transaction.register.known("person", row["id"])
    if row is None or known is None or known[0] != study:
        raise RefusedError(404, "link", "No person of this study has this link.", "link")
    done = _erased(transaction, transaction.believed("person", row)["id"], study, everything=True)
    transaction.note("a person's data erased", study)
    return done


def _erased(transaction: Transaction, person: str, study: str, *, everything: bool) -> dict[str, Any]:
    row = transaction.row("person", person)
    believed = row if row is not None and transaction.vouches("person", row) else {}
    done = {"withdrawn": True, "erased": everything, "stays": STAYS}
    if believed and believed["epsilon"] is None and not everything:
        return done
    if _being_read(transaction, study, answered=not believed or believed["answer"] is not None, everything=everything):
        raise RefusedError(409, "closed", "Answers are closed: they are being published, or were.")
    # Who made the invitations may know to whom each number was sent: it goes too.
    kept = () if everything else ("invitation", "again", "number", "gone")
    gone = dict.fromkeys(tables.people.c.keys()) | {name: believed.get(name) for name in kept}
    gone |= {"id": person, "study": study, "version": new_version()}
    if everything:
        gone["gone"] = "erased"
        transaction.register.end_sessions(person)
    if row is None:  # somebody has removed it; it comes back empty
        transaction.insert("person", [gone])
    else:
        transaction.change("person", gone)
    transaction.scrub = True
    return done


def _being_read(transaction: Transaction, study: str, *, answered: bool, everything: bool) -> bool:
    """Say whether a person's answer is being published, or was, so that it is too late to withdraw it.

    The register knows, and so does this process while it publishes; that the study's row says so is not enough: it also
    does after a publication that was cut off. What is left after the last one, a choice and a link, can go at any time.
    """
    try:
        found = studies.get(transaction, study)
    except RefusedError:
        return transaction.register.opened(study) or not (answered or everything)
    if found.status == "published":
        return not everything
    publishing = found.status == "publishing" and study in transaction.register.at_work
    return publishing or transaction.register.opened(study, found.wave)


# ---------------------------------------------------------------------------------------------------------
# People from a file


def read_rows(body: bytes, study: Study, vault: access.Vault, by: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the mark of a CSV file and its people, their answers sealed as if they had sent them.

    A column is called like its question; the only one of a study may be called `value`. Ids begin with half of the
    mark; by that the people of a file are found again. They come in the order of their ids: these are random, so that
    tells nothing of the order in the file, and rows that are written together stand together in every index.

    Others are served meanwhile, so no single step is long: while Python sorts or writes a large list nobody else runs.
    """
    if body.startswith(_COMPRESSED):
        raise RefusedError(415)
    names = [question.name for question in study.questions]
    header = re.split(rb"[\r\n]", body.removeprefix(b"\xef\xbb\xbf"), maxsplit=1)[0]
    there = re.findall(rb"[^,;\t\"|]+", header)
    if len(names) == 1 and names[0].encode() not in there and b"value" in there:
        names = ["value"]
    column = "epsilon" if study.free else "tier"
    tiers = {tier.name: tier.epsilon for tier in study.tiers} or None
    reads = tuple(_reading(question) for question in study.questions)
    with os.fdopen(os.memfd_create("rows"), "wb") as file:
        file.write(body)
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}")
        try:
            source = Source.of(path, value=tuple(names), reads=reads, epsilon=column, tiers=tiers)
            batches = list(source.batches())
            if study.free:
                _within(study.free, source, batches)
        except InputError as error:
            raise RefusedError(422, "rows", str(error).replace(str(path), "the file")) from None
    levels = [level for batch in batches for level in batch.epsilon.tolist()]
    if study.free:
        levels = [study.level(None, level) for level in levels]
    asked = enumerate(study.questions)
    columns = [[code for batch in batches for code in _codes(question, batch.columns[i])] for i, question in asked]
    said = list(zip(*columns, strict=True))
    mark = _mark(study, by, vault, _content(study, levels, columns))
    ids = np.frombuffer(secrets.token_bytes(8 * len(levels)), np.uint64)
    order = np.argsort(ids)
    people = zip(order.tolist(), (f"{mark[:MARK]}{one:016x}" for one in ids[order].tolist()), strict=True)
    return mark, [studies.sealed(said[i], person, levels[i], study, vault) for i, person in people]


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
    other guess. Whoever has the database learns that one curator sent the same file twice, and nothing else.

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


def add_rows(
    transaction: Transaction, study: str, mark: str, people: list[dict[str, Any]], written: int = 0
) -> dict[str, int]:
    """Add people from a file, of which some may be `written`; if the same came before, they are there already."""
    taking(studies.get(transaction, study))
    before = transaction.row("import", mark)
    if before is not None or transaction.register.known("import", mark) is not None:
        known = transaction.believed("import", before)  # taken out of the database, its people would come a second time
        if known["people"]:
            return {"people": known["people"]}
    transaction.insert("person", people)
    count = len(people) + written
    row = {"id": mark, "study": study, "people": count}
    transaction.insert("import", [row]) if before is None else transaction.change("import", row)
    transaction.note("rows imported", study, count=count, file=mark[:MARK])
    return {"people": count}


def imports(transaction: Transaction, study: str) -> list[dict[str, Any]]:
    """Return the files that were imported into a study and not deleted: how each is named here, and its people."""
    table = tables.imports
    rows = transaction.execute(sa.select(table).where((table.c.study == study) & (table.c.people > 0)))
    return [{"file": row.id[:MARK], "people": row.people} for row in rows]


def from_files(transaction: Transaction, study: Study) -> int:
    """Return how many of those who count in a study now, as `studies.joined` has it, come from files."""
    about = tables.people.c
    mine = sa.and_(about.study == study.id, *studies.taking_part(study), sa.func.length(about.id) > MARK)
    return int(transaction.execute(sa.select(sa.func.count()).where(mine)).scalar_one())


def delete_import(transaction: Transaction, study_id: str, file: str) -> dict[str, bool]:
    """Delete the people of a file, until the wave closes."""
    table, study = tables.imports, studies.get(transaction, study_id)
    mine = (table.c.study == study_id) & table.c.id.startswith(file, autoescape=True)
    row = transaction.row("import", transaction.execute(sa.select(table.c.id).where(mine)).scalar() or "")
    if row is None or len(file) != MARK:
        raise RefusedError(404)
    if study.phase() != "open":
        raise RefusedError(409, "closed", "A file can be deleted until the wave closes, not after. The study can be.")
    publish.emptied(transaction, study_id, transaction.believed("import", row)["id"][:MARK])
    transaction.note("import deleted", study_id, count=row["people"])
    return {"deleted": True}


def close_early(transaction: Transaction, study_id: str, wave: int, notice: int) -> Study:
    """Bring the closing date of the open wave forward to the end of the notice; people are told on their page."""
    study, closes = studies.get(transaction, study_id), math.ceil(access.now()) + notice
    said = study.current.closes
    if study.phase() != "open" or wave != study.wave or said >= study.until:  # the last was said not to take place
        raise RefusedError(409, "wave", "Only a wave that is open now, and takes place, can be closed early.")
    if closes >= said:
        why = _NOT_SOONER.format(access.date(said), access.date(closes))
        raise RefusedError(409, "notice", why, closes=said, earliest=closes)
    changed = study.current.model_copy(update={"closes": closes, "first": study.current.first or said})
    waves = [*study.waves[:wave], changed, *study.waves[wave + 1 :]]
    studies.move(transaction, study_id, waves=studies.waves_text(waves))
    transaction.note("closing brought forward", study_id, wave=wave, was=said, now=closes)
    return studies.get(transaction, study_id)


def delete_study(transaction: Transaction, study_id: str) -> dict[str, bool]:
    """Delete all that people sent to a study, with its links; also of one that was changed from outside."""
    row = transaction.row("study", study_id)
    if row is None:
        raise RefusedError(404)
    known = transaction.vouches("study", row)
    reading = known and row["status"] == "publishing" and study_id in transaction.register.at_work
    if reading or transaction.register.opened(study_id, row["wave"] if known else 0):
        raise RefusedError(409, "publishing", "This study is being published now; delete it when that is done.")
    transaction.change("study", {**row, "status": "deleted", "version": new_version()})
    publish.emptied(transaction, study_id)
    transaction.note("study deleted", study_id)
    return {"deleted": True}
