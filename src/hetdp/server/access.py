"""Who is asking, and with which secret: tokens and their hashes, the vault for grid codes, sessions, the curator.

A token is 256 random bits, so its plain SHA-256 cannot be turned back by guessing. The database holds hashes only. A
lookup by hash followed by `same` does the same work for a good and a bad token, and what a timing could tell is a
prefix of the hash of a guess, which does not help to find a preimage.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fastapi import Request

from hetdp.errors import InputError

from . import store
from .guard import SAFE, RefusedError, pace
from .settings import Settings

CURATOR, PARTICIPANT = "hetdp_curator", "hetdp_person"
CURATOR_SECONDS = 12 * 3600
PERSON_SECONDS = 90 * 86_400
# What a token is compared with when there is no record; no token hashes to it.
NOBODY = "0" * 64

_CODE_BYTES = 4
_NONCE_BYTES = 12


def new_token() -> str:
    """Return a new token, 43 characters that need no quoting in a URL."""
    return secrets.token_urlsafe(32)


def new_id() -> str:
    """Return a new identifier that says nothing and is no secret."""
    return secrets.token_hex(8)


def digest(kind: str, token: str) -> str:
    """Return what is stored instead of a token; tokens of different kinds never collide."""
    return hashlib.sha256(f"hetdp {kind} {token}".encode("utf-8", "replace")).hexdigest()


def same(stored: str | None, found: str) -> bool:
    """Say whether two digests are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(stored or NOBODY, found) and stored is not None


def csrf_of(session: str) -> str:
    """Return the token that must accompany a change made by a cookie; only pages of this server can know it."""
    return hmac.new(session.encode("utf-8", "replace"), b"hetdp csrf", hashlib.sha256).hexdigest()


# ---------------------------------------------------------------------------------------------------------
# The vault


class Vault:
    """Seals grid codes with AES-256-GCM, bound to the person, the study and the ε that they were given for.

    Claim: without the key the database tells nothing about a value but that it exists.

    Argument: every sealed answer has the same length, a fresh nonce of 96 random bits, and is authenticated together
    with the person's id, the study's and the ε, so it can neither be read, altered nor moved to another row. Who can
    write to the database, but has no key, cannot have it published at another ε or in a study of their own: then it
    does not open. That a sealed answer is the newest one of its person is the business of the register.
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._key = AESGCM(key), key
        self.fingerprint = hmac.new(key, b"hetdp vault", hashlib.sha256).hexdigest()

    @classmethod
    def of(cls, settings: Settings) -> Vault:
        """Return the vault of these settings; a key file that does not exist yet is made."""
        text = settings.key if settings.key is not None else _key_text(settings.vault_file)
        try:
            key = bytes.fromhex(text.strip())
        except ValueError:
            key = b""
        if len(key) != 32:
            raise InputError("the key of the vault must be 64 hexadecimal digits; restore it from its backup")
        return cls(key)

    def derived(self, purpose: bytes) -> bytes:
        """Return a key for another purpose, from which that of the vault cannot be found."""
        return hmac.digest(self._key, purpose, "sha256")

    def seal(self, code: int, person: str, study: str, epsilon: float) -> bytes:
        """Return a code as bytes that only this vault can open, for this person, study and ε alone."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, code.to_bytes(_CODE_BYTES), _bound(person, study, epsilon))

    def open(self, sealed: bytes, person: str, study: str, epsilon: float) -> int:
        """Return the code again; raise if it was sealed for anything else."""
        from cryptography.exceptions import InvalidTag

        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return int.from_bytes(self._cipher.decrypt(nonce, body, _bound(person, study, epsilon)))
        except (InvalidTag, ValueError):
            raise InputError("an answer does not open: its row was changed outside of the server") from None


def _bound(person: str, study: str, epsilon: float) -> bytes:
    return f"{person} {study} {epsilon.hex()}".encode()


def _key_text(path: Path) -> str:
    """Return the text of the key file; of two processes that make it at the same time, one does."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            raise InputError(f"others can read the key file {path}; run chmod 600 on it") from None
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        raise InputError(f"the key file {path} cannot be made; is its folder there and writable?") from None
    text = secrets.token_hex(32)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    return text


# ---------------------------------------------------------------------------------------------------------
# Sessions


def cookie_name(kind: str, settings: Settings) -> str:
    """Return the name of a cookie; over HTTPS it is bound to this host."""
    return f"__Host-{kind}" if settings.secure else kind


def session_token(request: Request, kind: str) -> str:
    """Return the session of a request, or raise; with a change there must be the CSRF token that belongs to it."""
    token = request.cookies.get(cookie_name(kind, request.app.state.settings))
    if not token:
        raise RefusedError(401)
    if request.method not in SAFE and not same(csrf_of(token), request.headers.get("x-csrf-token", "")):
        raise RefusedError(403)
    return token


def open_session(transaction: store.Transaction, person: str | None, seconds: int) -> str:
    """Return the token of a new session."""
    token, now = new_token(), int(time.time())
    transaction.execute(sa.delete(store.sessions).where(store.sessions.c.expires < now))
    row: dict[str, Any] = {"hash": digest("session", token), "person": person, "expires": now + seconds}
    proof = _proof(transaction, **row, epoch=transaction.register.epoch(person))
    transaction.execute(sa.insert(store.sessions).values({**row, "proof": proof}))
    return token


def _proof(transaction: store.Transaction, hash: str, person: str | None, expires: int, epoch: int) -> str:  # noqa: A002
    """Return a MAC by which a session belongs to one person and epoch, whoever else can write to its table."""
    return transaction.register.sign("session", hash, person, expires, epoch).hex()


def session(transaction: store.Transaction, token: str) -> Any:
    """Return the row of a session, if there is one that this server made; its person is None for the curator."""
    hashed = digest("session", token)
    row = transaction.execute(sa.select(store.sessions).where(store.sessions.c.hash == hashed)).first()
    if not same(row.hash if row else None, hashed) or row is None or row.expires <= time.time():
        return None
    epoch = transaction.register.epoch(row.person)  # or the next one, if it is just beginning
    proofs = (_proof(transaction, row.hash, row.person, row.expires, epoch + more) for more in (0, 1))
    return row if any(same(row.proof, proof) for proof in proofs) else None


def only_session(transaction: store.Transaction, row: Any) -> None:
    """End all sessions of a person but this one; also for whoever puts the row of another one back."""
    table, epoch = store.sessions, transaction.register.epoch(row.person) + 1
    transaction.execute(sa.delete(table).where(table.c.person == row.person, table.c.hash != row.hash))
    proof = _proof(transaction, row.hash, row.person, row.expires, epoch)
    transaction.execute(sa.update(table).where(table.c.hash == row.hash).values(proof=proof))
    transaction.after.append(lambda: transaction.register.end_sessions(row.person, epoch))


def close_session(transaction: store.Transaction, token: str) -> None:
    """Forget a session. With a participant's all of theirs end, so that none can be put back."""
    found = session(transaction, token)
    transaction.execute(sa.delete(store.sessions).where(store.sessions.c.hash == digest("session", token)))
    if found is not None and found.person is not None:
        epoch = transaction.register.epoch(found.person) + 1
        transaction.after.append(lambda: transaction.register.end_sessions(found.person, epoch))


# ---------------------------------------------------------------------------------------------------------
# The curator


def sign_in(transaction: store.Transaction, key: str) -> str:
    """Return the token of a new session of the curator, who must know the key."""
    if not is_key(transaction, key):
        raise RefusedError(403, "key", "This key is not valid.")
    transaction.note("curator signed in")
    return open_session(transaction, None, CURATOR_SECONDS)


def curator(request: Request) -> None:
    """Raise unless the curator asks: by a session, or a program by `Authorization: Bearer KEY`."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    state = request.app.state
    if scheme.lower() == "bearer":
        allowed = state.store.read(is_key, key.strip())
        if not allowed:
            pace(request, "attempt", state.settings.attempts)
    else:
        found = state.store.read(session, session_token(request, CURATOR))
        allowed = found is not None and found.person is None
    if not allowed:
        raise RefusedError(401)


def is_key(transaction: store.Transaction, key: str) -> bool:
    """Say whether this is the curator's key."""
    return same(transaction.fact("curator"), digest("curator", key))


def new_key(transaction: store.Transaction) -> str:
    """Replace the curator's key and end the curator's sessions; return the key, which is stored nowhere."""
    key = new_token()
    transaction.execute(sa.delete(store.facts).where(store.facts.c.name == "curator"))
    transaction.execute(sa.insert(store.facts).values({"name": "curator", "text": digest("curator", key)}))
    transaction.execute(sa.delete(store.sessions).where(store.sessions.c.person.is_(None)))
    transaction.note("curator key made")
    return key


def first_key(transaction: store.Transaction) -> str | None:
    """Return the curator's key if there is none yet."""
    return new_key(transaction) if transaction.fact("curator") is None else None
