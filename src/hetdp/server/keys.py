"""Tokens, their hashes, and the vault in which a grid code is kept.

A token is 256 random bits, so its plain SHA-256 cannot be turned back by guessing. The database holds hashes only. A
lookup by hash followed by `same` does the same work for a good and a bad token, and what a timing could tell is a
prefix of the hash of a guess, which does not help to find a preimage.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from hetdp.errors import InputError

from .settings import Settings

NOBODY = "0" * 64
"""What a token is compared with when there is no record; no token hashes to it."""

_CODE_BYTES = 4
_NONCE_BYTES = 12


def fresh() -> str:
    """Return a new token, 43 characters that need no quoting in a URL."""
    return secrets.token_urlsafe(32)


def opaque_id() -> str:
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
            raise InputError("the key of the vault must be 64 hexadecimal digits; restore it from its backup") from None
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
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        _guarded(path)
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        raise InputError(f"the key file {path} cannot be made; is its folder there and writable?") from None
    text = secrets.token_hex(32)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    return text


def _guarded(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise InputError(f"others can read the key file {path}; run chmod 600 on it")
