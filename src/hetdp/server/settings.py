"""What the operator chose, in one frozen record, and which files follow from it; the key of the vault is one."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from hetdp.errors import InputError

from .access import Vault, host_of

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """How the server runs.

    Attributes
    ----------
    database
        A URL of SQLAlchemy: SQLite (the default) or PostgreSQL.
    key
        The key of the vault in hexadecimal (64 digits), usually from the environment; else `key_file` is used.
    key_file
        The file that holds the key of the vault, mode 600; made at the first start. None: beside the SQLite file.
    hosts
        The names under which the server may be asked. Anything else in the Host header is refused.
    origin
        The public address, as in https://survey.example.org; None: taken from the request.
    head_file, expect_head
        Where the ledger's head is kept outside of it, and a head that was written down: see `Ledger`.
    trust_database
        Take the answers as the database has them, after an older copy was put back on purpose: see `register`.
    body_limit, import_limit
        The most bytes of a request, and of a file of rows.
    per_address, per_person
        Requests a minute from one address, and changes a minute by one person.
    attempts, joins
        From one address a minute: keys of curators that are tried, and links of people, of whom a lecture hall may sit
        behind one address.
    tick
        Publication is answered after a whole number of these seconds, so that its duration tells nothing.
    notice_days
        How long people can still withdraw once a curator closes a wave early.
    """

    database: str = "sqlite:///hetdp-server.db"
    key: str | None = None
    key_file: Path | None = None
    hosts: tuple[str, ...] = LOOPBACK
    origin: str | None = None
    head_file: Path | None = None
    expect_head: str | None = None
    trust_database: bool = False
    body_limit: int = 2**16
    import_limit: int = 2**24
    per_address: int = 6000
    per_person: int = 30
    attempts: int = 30
    joins: int = 600
    tick: float = 1.0
    notice_days: int = 7
    secure: bool = field(init=False, default=False)  # browsers reach it by HTTPS, so that cookies may be bound to it

    def __post_init__(self) -> None:
        if self.origin is not None:
            parts = urlsplit(self.origin)
            if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path not in {"", "/"}:
                raise InputError(f"the origin is an address like https://survey.example.org (got {self.origin!r})")
            object.__setattr__(self, "origin", self.origin.rstrip("/"))
            object.__setattr__(self, "secure", parts.scheme == "https")
            object.__setattr__(self, "hosts", (*self.hosts, host_of(parts.netloc)))

    def vault(self) -> Vault:
        """Return the vault, by its key; a key file that does not exist yet is made."""
        text = self.key if self.key is not None else _key_text(self.vault_file)
        if not re.fullmatch("[0-9a-fA-F]{64}", text.strip()):
            raise InputError("the key of the vault must be 64 hexadecimal digits; restore it from its backup")
        return Vault(bytes.fromhex(text))

    @property
    def vault_file(self) -> Path:
        """The file that holds the key of the vault."""
        if self.key_file is not None:
            return self.key_file
        name = self.sqlite_file
        if name is None:
            raise InputError("a database that is not SQLite needs a place for its key: give a key file or HETDP_KEY")
        return name.with_name(name.name + ".key")

    @property
    def key_beside_database(self) -> bool:
        """Whether one folder holds both the key and the database, which together open every answer."""
        beside = self.sqlite_file
        return self.key is None and beside is not None and self.vault_file.resolve().parent == beside.parent

    @property
    def register_file(self) -> Path:
        """Where the register stands: beside the SQLite file, else beside the ledger's head or the key."""
        beside = self.sqlite_file or self.head_file or self.key_file
        if beside is None:
            raise InputError(
                "a database that is not SQLite needs a place outside of it, where an older answer that is put back is "
                "noticed: give --head-file FILE or --key-file FILE"
            )
        return beside.with_name(f"{beside.name}.register")

    @property
    def ledger_head(self) -> Path:
        """Where the ledger's head is kept outside of it: beside the ledger's file, else beside the register."""
        if self.head_file is not None:
            return self.head_file
        beside = Path(self.ledger) if self.sqlite_file is not None else self.register_file
        return beside.with_name(f"{beside.name}.head")

    @property
    def ledger(self) -> str:
        """Where the budgets are kept: a file beside the SQLite file, or tables of their own in the same PostgreSQL."""
        name = self.sqlite_file
        return self.database if name is None else str(name.with_name(name.name + ".ledger"))

    @property
    def sqlite_file(self) -> Path | None:
        """The file of a SQLite database, links followed: what stands beside it is the same by any name; else None."""
        url = make_url(self.database)
        return Path(url.database).resolve() if url.get_backend_name() == "sqlite" and url.database else None


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
