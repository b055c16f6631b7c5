"""What the operator chose, in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from hetdp.errors import InputError

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
    per_address, per_person, attempts
        Requests a minute from one address, changes a minute by one person, tokens a minute tried from one address.
    tick
        Publication is answered after a whole number of these seconds, so that its duration tells nothing.
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
    per_address: int = 1200
    per_person: int = 30
    attempts: int = 30
    tick: float = 1.0

    def __post_init__(self) -> None:
        if self.origin is not None:
            parts = urlsplit(self.origin)
            if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path not in {"", "/"}:
                raise InputError(f"the origin is an address like https://survey.example.org (got {self.origin!r})")
            object.__setattr__(self, "origin", self.origin.rstrip("/"))
            object.__setattr__(self, "hosts", (*self.hosts, host_of(parts.netloc)))

    @property
    def secure(self) -> bool:
        """Whether browsers reach the server by HTTPS, so that cookies may be bound to it."""
        return (self.origin or "").startswith("https:")

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
        from sqlalchemy.engine import make_url

        url = make_url(self.database)
        return Path(url.database).resolve() if url.get_backend_name() == "sqlite" and url.database else None


def host_of(authority: str) -> str:
    """Return the host of `host:port`, in lower case.

    >>> host_of("Example.org:8000"), host_of("[::1]:8000")
    ('example.org', '[::1]')
    """
    host, _, port = authority.rpartition(":")
    return (host if host and port.isdigit() else authority).lower()
