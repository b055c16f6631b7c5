"""Back from a backup, also from one that is older than the last publication: what may be used, and what must be lost.

A backup knows nothing of what came after it. Three witnesses may have survived, and each is asked: the register (which
rows are the newest, which waves were read and what they used of whom), the ledger (what was charged), the ledger's
head (whether the copy has all charges).

Claim. After `restore` no answer is used that its person withdrew or changed after the backup, nor one whose row or
study somebody else had changed before it, and all publications together, those of before and after the backup and those
that are made from now on, use at most the ε that each person has chosen last, unless the operator says `trusted` and is
wrong.

Argument. A person's answer stays if the register that was in use vouches for this very row, so that it is the newest
one; or if the operator says that nobody answered, changed or withdrew since, and the register of the backup vouches for
it. Every other answer is deleted: its person can answer again, but for those who the register in use says were erased
or revoked; nor does a study come back of which it says that it was deleted (`Register.sign_row` has a letter for each).
A row of a study or an import is believed if one of the two registers vouches for it, and stays changed if neither does:
the study is not published. (A backup from before there were registers has none. Its studies are believed, and their
answers only if the operator says so: whoever answers again is shown the study as it is now.) A register that does not
know every study of the backup was not in use after it: a server was started where everything was lost, and made a new
one. It is no witness. A register that was in use knows them all, since no study ever leaves it (but at a start with
`--trust-database`, on the operator's word). A restore without a witness notes in the register from which backup it went
on. One that went on from an older backup, and this backup did not, knows nothing of what came between the two; one that
lacks a note of this backup has another past: neither is a witness. Nor is a ledger the newest one if it went on from
another copy after this backup, as its history says (`Ledger.write_off`).

Of each wave that was read since, the use of each person counts as spent, in the register, whose uses bind every later
wave (`publish`), and in the ledger: exactly, if the register or the newest ledger is there. If neither is, every wave
counts as read that could have been: dates bind, so it had to be closed, at its date or at the end of a notice that was
given after the backup at the earliest. The notice is that of then or of now, whichever is shorter; the operator has to
name a shorter one that was set in between. What it used of a person is at most its share of the ε that they had chosen,
or of the largest that the study offers where a person may have chosen another one. That wave is over: it is not
published again. So is one that has a result in the ledger although nobody was read for it. As after every publication,
the answers of a wave that is over are deleted where people are asked again in each wave, and all after the last one;
and the wave after it is open for as long as it was to be, or for the days of the notice if that is less, counted from
now: dates that were postponed since are not known.

Nothing is deleted but answers: files that were there are moved to a folder, and the backup stays as it is. If this is
cut off, run it again: the witnesses are replaced last, the register before the head.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hetdp.core.domain import plural
from hetdp.errors import HetdpError, InputError
from hetdp.ledger import UNLIMITED, Ledger, Rule, budget_units, read_head

from . import access, publish, rotate, tables
from .backup import Backup, alone, beside, bind_answers, checked, copy, key_back, put_back, set_aside, vault_there
from .people import new_key
from .settings import Settings
from .store import Register, Transaction, begin, new_version
from .studies import Study

_Row = dict[str, Any]
# Waves of a study that are over: how its charge is called, if that is known, and what it used of whom, in units.
Lost = dict[int, tuple[str | None, dict[str, int]]]


@dataclass
class Restored:
    """What was brought back, and what was lost."""

    made: int
    kept: int = 0
    emptied: int = 0
    came_later: int = 0
    sent_later: int = 0
    waves: list[str] = field(default_factory=list)
    exact: bool = True
    written_off: int = 0
    deleted: int = 0
    changed: int = 0
    unknown: bool = False  # there was no register that knows what was ended since
    trusted: bool = False  # the operator vouched for what no register knows
    unheard: bool = False  # the operator vouched for it, and the register decides
    key: str = ""
    aside: str = ""
    old_key: Path | None = None  # the file of a key that was in use until a rotation

    def __str__(self) -> str:
        word = ", on your word that nobody withdrew or changed theirs since" if self.trusted and self.kept else ""
        said = [f"restored the backup of {access.date(self.made)}: {plural(self.kept, 'answer')} kept{word}"]
        some = {  # what is said of a number that is not 0
            "lost: {}, changed, withdrawn or deleted since, or perhaps; people whose link still works can answer again "
            "while their study is open": (self.emptied, "answer"),
            "lost: {} of people, studies or files that came after the backup": (self.came_later, "row"),
            "lost: what {} sent since who had no answer in the backup": (self.sent_later, "person"),
            "back, because no register survived that knows what was ended since: links that were deleted or revoked, "
            "and studies that were deleted, after the backup; delete or revoke them again. What people sent since is "
            "lost, and cannot be counted": (self.unknown, ""),
            "not needed: --trust-database; the register survived, and it alone says what is kept": (self.unheard, ""),
            "deleted, as they were before: {}": (self.deleted, "study"),
            "changed from outside before the backup, and not to be published: {}": (self.changed, "study"),
        }
        said += [words.format(plural(*count)) for words, count in some.items() if count[0]]
        said += [f"over: {wave}" for wave in self.waves]
        if self.written_off:
            how = "what they used" if self.exact else "the most that they could have used"
            said.append(f"written off as spent in the ledger, {how}: for {plural(self.written_off, 'person')}")
        if self.aside:
            said.append(f"what was there before is in {self.aside}")
        if self.old_key is not None:
            said.append(f"before the server starts, give it the key of then: {key_back(self.old_key)}")
        said.append(f'the one curator now is "{tables.FIRST}", with a new key (shown this once): {self.key}')
        return "\n".join(said)


def restore(settings: Settings, folder: Path, *, trusted: bool = False) -> Restored:
    """Put a backup in the place of the database, and make sure that nothing is used twice; no server may be running."""
    backup, vault = checked(settings, folder), vault_there(settings)
    with alone(settings):
        place = settings.sqlite_file or settings.register_file
        aside = beside(place, "before-restore")
        newest = _newest_ledger(settings, backup)
        put_back(settings, backup, aside, ledger=not newest)
        copied = backup.vouched()
        before = _survived(settings, backup, copied)
        staged = settings.register_file.with_name(f"{settings.register_file.name}.restoring")
        for end in ("", "-wal", "-shm"):
            Path(f"{staged}{end}").unlink(missing_ok=True)
        if (source := settings.register_file if before is not None else backup.register) is not None:
            copy(source, staged)
        if backup.schema == "1":
            bind_answers(settings)
        all_known = newest or _complete(settings, backup)
        told = Restored(backup.made, unknown=before is None, trusted=trusted and before is None)
        told.unheard = trusted and before is not None
        register, engine = Register(staged, vault.register_key), tables.connect(settings.database)
        try:
            with closing(_ledger(settings, backup, newest=newest)) as ledger, engine.begin() as connection:
                begin(connection, writes=True)
                transaction = Transaction(connection, register)
                tables.prepare(transaction, vault.fingerprint, trusted=True)
                results = {str(entry.release) for entry in ledger.history() if entry.kind == "result"}
                books = _Books(ledger.spends(), results, all_known)
                days = sorted((backup.notice, 86_400 * settings.notice_days))
                work = _Work(transaction, backup, told, before, copied, trusted, books, *days)
                owed = work.carry_out()
            _finish(settings, register, staged, aside)
            told.written_off = sum(units > 0 for units in owed.values())
            begins = told.unknown and not (all_known or trusted)  # charges may be missing in the ledger of the backup
            _write_off(settings, backup, owed if owed or begins else None, aside, newest=newest)
        finally:
            register.close()
            engine.dispose()
        told.aside = str(aside) if aside.exists() else ""
        if settings.key_file and ".until-" in settings.key_file.name:
            told.old_key = settings.key_file
            told.sent_later = 0  # the register was sealed with a newer key, and does not tell who sent something since
        return told


# ---------------------------------------------------------------------------------------------------------
# The witnesses


def _newest_ledger(settings: Settings, backup: Backup) -> bool:
    """Say whether the ledger that is there can be trusted, has its newest event and continues that of the backup."""
    if not settings.ledger_head.exists():
        return False
    try:
        with Ledger(settings.ledger, head_file=settings.ledger_head, expect_head=backup.head) as ledger:
            ledger.verify()
            seen = int(str(backup.head).partition(":")[0]) if backup.head else 0
            return all(backup.mac[:16] in (e.why or backup.mac) for e in ledger.history() if e.event > seen)
    except (HetdpError, sa.exc.SQLAlchemyError):
        return False


def _complete(settings: Settings, backup: Backup) -> bool:
    """Say whether the head outside proves that the ledger of the backup has all events."""
    try:
        head = read_head(settings.ledger_head)
    except HetdpError:
        return False
    return head is not None and str(head) == backup.head


def _survived(settings: Settings, backup: Backup, copied: tables.Known | None) -> tables.Known | None:
    """Return the MACs of the register that was in use after the backup; None if there is no such register.

    A study that the backup's own register does not know was put into the database by somebody else, and says nothing.
    """
    with tables.asked(settings.database) as connection:
        studies = {("study", row) for row in connection.execute(sa.select(tables.studies.c.id)).scalars()}
    before = _known(settings.register_file)
    if before is None or not (studies if copied is None else studies & copied.keys()) <= before.keys():
        return None
    now = tables.beginnings(settings.register_file)
    then = {} if backup.register is None else tables.beginnings(backup.register, copied=True)
    later = [made > backup.made or one.startswith(backup.mac) for one, made in now.items() if one not in then]
    return before if all(later) and then.keys() <= now.keys() else None


def _known(path: Path) -> tables.Known | None:
    """Return the MACs of the register that is there; None if it cannot be used."""
    if not path.exists():
        return None
    register = Register(path, b"")
    try:
        with register.connected(writes=False) as file:
            if file.exec_driver_sql("PRAGMA integrity_check").scalar() != "ok":
                return None
            rows = file.exec_driver_sql("SELECT kind, id, coalesce(coming, mac) FROM vouched").all()
            return {(kind, row): (mac,) for kind, row, mac in rows if mac is not None}
    except HetdpError:
        return None
    finally:
        register.close()


def _ledger(settings: Settings, backup: Backup, *, newest: bool) -> Ledger:
    """Open the ledger that is in place now: the newest one, or that of the backup, without a word to the head outside.

    A ledger of the backup gets a head file of its own until all is done.
    """
    if newest:
        return Ledger(settings.ledger, head_file=settings.ledger_head)
    temporary = _temporary(settings)
    temporary.unlink(missing_ok=True)
    if backup.head is None:
        raise InputError("this backup has no ledger; it was made before the first start had ended: use another one")
    # It may be from an older hetdp; one of this version stays as it is.
    return Ledger.upgrade(settings.ledger, head_file=temporary, expect_head=backup.head)


def _temporary(settings: Settings) -> Path:
    return settings.ledger_head.with_name(f"{settings.ledger_head.name}.restoring")


# ---------------------------------------------------------------------------------------------------------
# What may be used


@dataclass(frozen=True)
class _Books:
    """What the ledger that is in place says: what was charged to whom, which releases have a result."""

    charged: dict[str, dict[str, int]]
    results: set[str]
    complete: bool  # it has every charge

    def waves(self, study: Study) -> dict[int, dict[str, int]]:
        """Return the waves of a study from the open one on that were charged, with the use of each person."""
        found: dict[int, Counter[str]] = defaultdict(Counter)
        for release, uses in self.charged.items():
            match = re.fullmatch(rf"{study.id}-(\d+)(-.*)?", release)
            if match and int(match[1]) >= study.wave:
                found[int(match[1])].update(uses)
        return {wave: dict(uses) for wave, uses in found.items()}

    def has_result(self, study: str, wave: int) -> bool:
        """Say whether a result of a wave is there."""
        return any(re.fullmatch(rf"{study}-{wave}(-.*)?", release) for release in self.results)

    def has_charge(self, name: str | None) -> bool:
        """Say whether this attempt at a wave was charged; the names of its questions begin with no digit."""
        return name is not None and any(re.fullmatch(rf"{name}(-\D.*)?", release) for release in self.charged)


@dataclass
class _Work:
    """Decides about every row of the database that was put back."""

    transaction: Transaction
    backup: Backup
    told: Restored
    before: tables.Known | None  # what the register in use vouched for
    copied: tables.Known | None  # what the one of the backup vouches for
    trusted: bool
    books: _Books
    shortest: int  # the days to withdraw that the server of then, or of now, gives: the shorter and the longer
    notice: int

    def carry_out(self) -> dict[str, int]:
        """Change the rows and the register; return what the ledger does not know yet of whom, in units."""
        rows = {kind: self._rows(kind) for kind in tables.VOUCHED}
        newest = {row["id"] for row in rows["person"] if self._is_newest(row)}
        parts = ("study", "import")
        changed = {(kind, row["id"]) for kind in parts for row in rows[kind] if self._is_changed(kind, row)}
        there = {(kind, row["id"]) for kind in rows for row in rows[kind]}
        self.told.came_later = len((self.before or {}).keys() - there)
        owed = Counter[str]()
        for row in rows["study"]:
            people = [person for person in rows["person"] if person["study"] == row["id"]]
            if self._ended("study", row["id"]):
                self._delete(row, people)
                continue
            self.transaction.register.leave(row["id"])  # a server that was reading it is gone, and nothing was drawn
            self._empty(row, people, rows["import"], newest)
            if ("study", row["id"]) in changed:
                self.told.changed += 1
                continue
            study = Study.of(row)
            lost = self._lost(study, people)
            for wave, (name, uses) in lost.items():
                self._write_down(study.id, wave, uses)
                if not (self.books.complete or self.books.has_charge(name)):
                    owed.update(uses)
            self._move_on(study, row, sorted(lost))
        self._vouch(changed)
        with self.transaction.register.connected(writes=True) as file:
            rotate.end_all(file)  # sessions may have been ended since
            if self.before is None:
                name = f"{self.backup.mac} {secrets.token_hex(8)}"
                file.exec_driver_sql("INSERT INTO restored VALUES (?, ?)", (name, self.backup.made))
        self.transaction.execute(sa.delete(tables.curators))  # keys of then may have been replaced or taken away since
        self.told.key = new_key(self.transaction)
        self.transaction.note("restored from a backup", made=self.backup.made, emptied=self.told.emptied)
        return {person: min(units, UNLIMITED) for person, units in owed.items()}

    def _rows(self, kind: str) -> list[dict[str, Any]]:
        table = tables.VOUCHED[kind]
        found = self.transaction.execute(sa.select(table))
        return [dict(zip(table.c.keys(), row, strict=True)) for row in found]

    def _is_in(self, known: tables.Known, kind: str, row: _Row) -> bool:
        signed = self.transaction.register.sign_row(kind, row.values())
        # Without the letter behind it, which one of a former version lacks.
        return any(mac[:32] == signed[:32] for mac in known.get((kind, row["id"]), ()))

    def _is_newest(self, row: _Row) -> bool:
        """Say whether a person's row is the newest one."""
        if self.before is None:
            return self.trusted and (self.copied is None or self._is_in(self.copied, "person", row))
        return self._is_in(self.before, "person", row)

    def _is_changed(self, kind: str, row: _Row) -> bool:
        """Say whether no register vouches for a row of a study or an import, although there is one."""
        known = [one for one in (self.before, self.copied) if one is not None]
        return bool(known) and not any(self._is_in(one, kind, row) for one in known)

    def _ended(self, kind: str, row: str) -> str | None:
        """Return how a study or person ended, if the register in use knows that they did."""
        letters = [mac[32:] for mac in (self.before or {}).get((kind, row), ())]
        return next((how for how, one in tables.ENDED.items() if one in letters), None)

    # --- Waves that were read since, or may have been

    def _lost(self, study: Study, people: list[_Row]) -> Lost:
        """Return the waves from the open one on that were read, or may have been, or have a result."""
        charged = self.books.waves(study)
        if self.before is not None:
            over = {wave for wave in charged if self.books.has_result(study.id, wave)}
            found: Lost = {wave: (f"{study.id}-{wave}", charged[wave]) for wave in over}
            drawn = "SELECT wave, release FROM waves WHERE study = ? AND wave >= ? AND (done OR number IS NOT NULL)"
            used = "SELECT person, units FROM uses WHERE study = ? AND wave = ?"
            with self.transaction.register.connected(writes=False) as file:
                for wave, release in file.exec_driver_sql(drawn, (study.id, study.wave)).all():
                    rows = file.exec_driver_sql(used, (study.id, wave)).all()
                    found[wave] = (release, {row.person: row.units for row in rows})
            return found
        if self.books.complete:
            return {wave: (f"{study.id}-{wave}", uses) for wave, uses in charged.items()}
        found = {}
        for wave in self._possible(study):
            share, uses = Rule.given(share=study.waves[wave].share), {}
            for row in people:
                is_known = self.trusted and row["epsilon"] is not None
                units = budget_units(row["epsilon"] if is_known else _largest(study))
                if is_known or not self.trusted:
                    uses[row["id"]] = share.allowed(units, units)
            found[wave] = (None, uses)
            self.told.exact = False
        return found

    def _possible(self, study: Study) -> list[int]:
        """Return the waves that may have been published since the backup, by the dates that bind."""
        found, earliest, now = [], self.backup.made, max(access.now(), self.backup.made)
        if study.status in {"published", "deleted"}:
            return []
        for wave in range(study.wave, len(study.waves)):
            earliest = min(study.waves[wave].closes, earliest + self.shortest)
            if now < earliest:
                break
            found.append(wave)
        return found

    def _write_down(self, study: str, wave: int, uses: dict[str, int]) -> None:
        """Let the register know that a wave is over, and what it used of whom."""
        with self.transaction.register.connected(writes=True) as file:
            file.exec_driver_sql(
                "INSERT INTO waves (study, wave, release, done) VALUES (?, ?, 'lost', 1) "
                "ON CONFLICT (study, wave) DO UPDATE SET done = 1",
                (study, wave),
            )
            cells = [(study, wave, person, units) for person, units in uses.items()]
            if cells:
                query = "INSERT OR REPLACE INTO uses (study, wave, person, units) VALUES (?, ?, ?, ?)"
                file.exec_driver_sql(query, cells)

    def _move_on(self, study: Study, row: _Row, lost: list[int]) -> None:
        """Go on behind the last wave that is over; its result is lost, unless it stands elsewhere."""
        if not lost:
            if study.status == "open" and study.wave in self.books.waves(study):  # charged, and given up unread
                self.transaction.change("study", {**row, "status": "stopped", "version": new_version()})
            return
        last = study.model_copy(update={"wave": lost[-1]})
        following, over = publish.following(last, self.notice)
        moved = {"wave": last.wave + 1, "waves": following, "version": new_version()}
        status = "published" if over else "open"
        self.transaction.change("study", {**row, **moved, "status": status})
        if status == "published" or study.each_wave == "ask":
            mine = [one for one in self._rows("person") if one["study"] == study.id and one["answer"] is not None]
            publish.used_up(self.transaction, study.id, mine)
            self.told.kept, self.told.emptied = self.told.kept - len(mine), self.told.emptied + len(mine)
        numbers = ", ".join(str(wave + 1) for wave in lost)
        certain = self.before is not None or self.books.complete
        why = f"{'was' if certain else 'may have been'} drawn or published after the backup"
        self.told.waves.append(f"publication {numbers} of study {study.id} {why}; its result is not in this copy")
        self.transaction.note("waves lost with a backup", study.id, waves=numbers, certain=certain)

    # --- Answers

    def _delete(self, study: _Row, people: list[_Row]) -> None:
        """Delete a study again that was deleted after the backup, with all links."""
        self.transaction.change("study", {**study, "status": "deleted", "version": new_version()})
        publish.emptied(self.transaction, study["id"])
        self.told.deleted += 1
        self.told.emptied += sum(row["answer"] is not None for row in people)

    def _empty(self, study: _Row, people: list[_Row], files: list[_Row], newest: set[str]) -> None:
        """Delete every answer of a study that is not known to be the newest of its person, and links that ended."""
        for row in people:
            ended = self._ended("person", row["id"])
            if row["id"] in newest:
                self.told.kept += row["answer"] is not None
                continue
            self.told.sent_later += row["answer"] is None and not ended and ("person", row["id"]) in (self.before or {})
            if ended or row["answer"] is not None or row["epsilon"] is not None:
                self.told.emptied += row["answer"] is not None
                gone = {"epsilon": None, "answer": None, "version": new_version()}
                if ended:
                    number = row["number"] if ended == "revoked" else None
                    gone |= {"invitation": None, "again": None, "gone": ended, "number": number}
                self.transaction.change("person", {**row, **gone})
        lost = {row["id"] for row in people} - newest
        for row in files:
            mine = row["study"] == study["id"]
            if mine and any(person.startswith(row["id"][: tables.MARK]) for person in lost):  # it can come again
                self.transaction.change("import", {**row, "people": 0})
                publish.forget_salts(self.transaction, study["id"], row["id"])

    def _vouch(self, changed: set[tuple[str, str]]) -> None:
        """Let the register vouch for the rows as they are now, and for no others; not for those that were changed."""
        register = self.transaction.register
        with register.connected(writes=True) as file:
            file.exec_driver_sql("DELETE FROM vouched")
            for kind in tables.VOUCHED:
                cells = []
                for row in self._rows(kind):
                    known = (kind, row["id"]) not in changed
                    mac = register.sign_row(kind, row.values()) if known else secrets.token_bytes(32)
                    cells.append((kind, row["id"], row["id" if kind == "study" else "study"], mac))
                if cells:
                    file.exec_driver_sql("INSERT INTO vouched (kind, id, study, mac) VALUES (?, ?, ?, ?)", cells)


def _largest(study: Study) -> float:
    """Return the largest ε that a study offers."""
    return study.free.most if study.free is not None else max(tier.level for tier in study.tiers)


# ---------------------------------------------------------------------------------------------------------
# At last, the files outside of the database: the register, then the ledger with its head


def _finish(settings: Settings, register: Register, staged: Path, aside: Path) -> None:
    register.close()
    rotate.one_file(staged)
    rotate.forget(settings.register_file)
    set_aside(settings.register_file, aside)
    staged.replace(settings.register_file)
    tables.private(settings.register_file)


def _write_off(settings: Settings, backup: Backup, owed: dict[str, int] | None, aside: Path, *, newest: bool) -> None:
    """Charge what the ledger does not know, then let its head be the head."""
    if owed is not None:
        head = settings.ledger_head if newest else _temporary(settings)
        with Ledger(settings.ledger, head_file=head, expect_head=backup.head) as again:
            again.write_off(owed, f"restored from a backup of {access.date(backup.made)}, {backup.mac[:16]}")
    if not newest:
        set_aside(settings.ledger_head, aside)
        _temporary(settings).replace(settings.ledger_head)
        Path(f"{_temporary(settings)}.lock").unlink(missing_ok=True)
        folder = os.open(settings.ledger_head.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
