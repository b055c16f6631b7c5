"""Who comes and goes: curators and their keys, invitations, links; and everything that is erased.

What is erased. A row stays, empty: a random id, for which the register vouches. What was published stays, as do the
charges in the ledger: deleting an answer does not take back what a published number told about it. Withdrawing needs
nothing of the row that is there: it is written anew, so it works also when somebody has changed it.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from . import access, publish, studies, tables
from .access import RefusedError
from .store import SERVER, ChangedError, Transaction, new_version
from .studies import Study, new_id

_NOT_SOONER = (
    "This wave closes on {} anyway. Closing early leaves people time to withdraw, until {}, so it is no sooner."
)
_KEY_MADE = "curator key made"
_BEING_READ = "Answers are being read for a publication. Nothing was deleted; try again when it is done."
STAYS = "What was published stays; so does what you allowed and what it cost, once one that counts you was begun."
_LINK = (
    "This link is not valid, was used already, or was deleted. If you have answered, use the one from your receipt; if "
    "this server was put back from a backup, your invitation may work again."
)

_NO_LINK = "No person of this study has this link now. That does not mean that nothing is stored: whoever has answered "
_NO_LINK += "needs the newest link from their receipt."


# ---------------------------------------------------------------------------------------------------------
# Curators, and what they see of all studies


def new_key(transaction: Transaction, name: str = tables.FIRST) -> str:
    """Make or replace a curator's key and end the sessions of this curator; return it, which is stored nowhere."""
    key, table = access.new_token(), tables.curators
    transaction.execute(sa.delete(table).where(table.c.name == name))
    row = {"name": name, "key": access.digest("curator", key), "created": int(access.now())}
    transaction.execute(sa.insert(table).values(row))
    transaction.end_sessions(f"curator:{name}")
    transaction.note(_KEY_MADE, name=name)
    return key


def curators(transaction: Transaction) -> list[str]:
    """Return the names of all curators."""
    return list(transaction.execute(sa.select(tables.curators.c.name).order_by(tables.curators.c.name)).scalars())


def add_curator(transaction: Transaction, name: str) -> str:
    """Make a further curator and return the key."""
    made = [event.get("name") for event in events(transaction, None) if event["event"] == _KEY_MADE]
    was = transaction.register.kept(f"curator:{name}") is not None or name in made  # either may have been lost
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
    transaction.end_sessions(f"curator:{name}")
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


def events(transaction: Transaction, study: str | None) -> list[dict[str, Any]]:
    """Return the public events of a study, or of none, the newest first; old ones, without names, are by nobody."""
    table = tables.audit
    rows = transaction.execute(sa.select(table).where(table.c.study == study).order_by(table.c.number.desc()))
    return [{"at": row.at, "event": row.event, "by": "", **json.loads(row.detail)} for row in rows]


# ---------------------------------------------------------------------------------------------------------
# Invitations and links


def invite(transaction: Transaction, study: str, count: int) -> dict[str, Any]:
    """Make invitations and return their tokens, which are stored nowhere, and the number of the first."""
    found = studies.get(transaction, study)
    studies.not_ended(found)
    shut = found.wave + 1 >= len(found.waves) and found.phase() in {"closed", "publishing"}
    if shut or found.status in {"published", "deleted"}:
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
    mine = (about.study == study) & (sa.func.length(about.id) <= tables.MARK)
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
    transaction.end_sessions(*(row.id for row in rows))
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
        more["been"] = True
        return studies.shown(transaction, study_id), {**about, **more}
    study = studies.get(transaction, study_id)
    row = transaction.believed("person", transaction.row("person", person))
    joined, answered = row["epsilon"] is not None, row["answer"] is not None
    chosen = study.choice(row["epsilon"]) if joined else None
    may, over = study.phase() == "open" and (study.changeable or not answered), row["gone"] == "erased"
    about |= {"joined": joined, "choice": chosen, "may_send": may, "answered_this_wave": answered, "over": over}
    about["been"] = row["again"] is not None  # took part once, perhaps withdrew since
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
        raise RefusedError(404, "link", _NO_LINK, "link")
    done = _erased(transaction, transaction.believed("person", row)["id"], study, everything=True)
    transaction.note("a person's data erased", study)
    return done


def _erased(transaction: Transaction, person: str, study: str, *, everything: bool) -> dict[str, Any]:
    row = transaction.row("person", person)
    believed = row if row is not None and transaction.vouches("person", row) else {}
    done = {"withdrawn": True, "erased": everything, "stays": STAYS}
    if believed and believed["epsilon"] is None and not everything:
        return done
    answered = not believed or believed["answer"] is not None  # of a changed row it is not known
    if answered and _being_read(transaction, study):
        raise RefusedError(409, "being-read", _BEING_READ)
    if believed and not everything and _published(transaction, study):
        why = "This study is over and the answers are gone; a choice and a link can be deleted."
        raise RefusedError(409, "used-up", why)
    # Who made the invitations may know to whom each number was sent: it goes too.
    kept = () if everything else ("invitation", "again", "number", "gone")
    gone = dict.fromkeys(tables.people.c.keys()) | {name: believed.get(name) for name in kept}
    gone |= {"id": person, "study": study, "version": new_version()}
    if everything:
        gone["gone"] = "erased"
        transaction.end_sessions(person)
    if row is None:  # somebody has removed it; it comes back empty
        transaction.insert("person", [gone])
    else:
        transaction.change("person", gone)
    transaction.scrub = True
    return done


def _being_read(transaction: Transaction, study: str) -> bool:
    """Say whether the answers of a study are being published now, so that it is too late to withdraw one.

    The register knows, and so does this process while it publishes; that the study's row says so is not enough: it also
    does after a publication that was cut off. Who has no answer there can delete a choice and a link at any time.
    """
    try:
        found = studies.get(transaction, study)
    except RefusedError:
        return transaction.register.opened(study)
    publishing = found.status == "publishing" and study in transaction.register.at_work
    return publishing or transaction.register.opened(study, found.wave)


def _published(transaction: Transaction, study: str) -> bool:
    """Say whether the last wave is published; not of a study that was changed: then people can empty their rows."""
    with suppress(ChangedError):
        return studies.get(transaction, study).status == "published"
    return False


# ---------------------------------------------------------------------------------------------------------
# The end of a study


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
    publishing = row["status"] == "publishing" or not transaction.vouches("study", row)
    if publishing and study_id in transaction.register.at_work:
        raise RefusedError(409, "publishing", "This study is being published now; delete it when that is done.")
    transaction.change("study", {**row, "status": "deleted", "version": new_version()})
    publish.emptied(transaction, study_id)
    transaction.register.finish(study_id, studies.MOST_WAVES)  # numbers that could not be stored are given up
    transaction.note("study deleted", study_id)
    return {"deleted": True}
