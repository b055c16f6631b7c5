"""What the operator chose, in one frozen record, and which files follow from it; the key of the vault is one.

Every field but a few can be said in three ways: as an option, in the environment (`HETDP_` and its name in capitals),
or in one TOML file. An option counts before the environment, the environment before the file, the file before the
default. Whatever is said and not known is refused: a misspelt limit would otherwise be no limit.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from hetdp.errors import InputError

from .access import Vault, host_of

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# Between which numbers a setting must be, wherever it is said. At 0 a limit would refuse everybody.
_MOST = 10**12
RANGES = {
    "port": (0, 65_535),
    "notice_days": (1, 366),
    "tick": (0, 60),
    "body_limit": (1024, _MOST),
    "import_limit": (1024, _MOST),
    **dict.fromkeys(("per_address", "per_person", "attempts", "joins"), (1, _MOST)),
}

# A name or an address, and perhaps a port.
_AUTHORITY = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


@dataclass(frozen=True)
class Settings:
    """How the server runs.

    Attributes
    ----------
    database
        A URL of SQLAlchemy: SQLite (the default) or PostgreSQL.
    database_file
        The file from which the URL was read, if it was (`said`): a URL may hold a password.
    host, port
        Where to listen.
    proxies
        Addresses or networks of proxies that are trusted to say which address a client has.
    key
        The key of the vault in hexadecimal (64 digits), usually from the environment; else `key_file` is used.
    key_file
        The file that holds the key of the vault, mode 600; made at the first start. None: beside the SQLite file.
    hosts
        The names under which the server may be asked. Anything else in the Host header is refused.
    origin
        The public address, as in https://survey.example.org; with a path, as in https://example.org/survey, the server
        lives under that path. None: taken from the request.
    head_file, expect_head
        Where the ledger's head is kept outside of it, and a head that was written down: see `Ledger`.
    trust_database
        Take the answers as the database has them, after an older copy was put back on purpose: see `register`.
    trust_clock
        Start although the clock says an earlier time than the last event has.
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

    database: str = field(default="sqlite:///hetdp-server.db", repr=False)  # it may hold a password
    database_file: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    proxies: tuple[str, ...] = ()
    key: str | None = field(default=None, repr=False)
    key_file: Path | None = None
    hosts: tuple[str, ...] = LOOPBACK
    origin: str | None = None
    head_file: Path | None = None
    expect_head: str | None = None
    trust_database: bool = False
    trust_clock: bool = False
    body_limit: int = 2**16
    import_limit: int = 2**24
    per_address: int = 6000
    per_person: int = 30
    attempts: int = 30
    joins: int = 600
    tick: float = 1.0
    notice_days: int = 7
    secure: bool = field(init=False, default=False)  # browsers reach it by HTTPS, so that cookies may be bound to it
    root: str = field(init=False, default="")  # the path under which the server lives, without a slash at its end

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} must be from {low} to {high} (got {getattr(self, name)})")
        _check_address(self.database)
        for network in self.proxies:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                why = (
                    f"a proxy is named by its address or network, as 127.0.0.1 or 172.16.0.0/12 (got {network[:64]!r})"
                )
                raise InputError(why) from None
        if self.origin is not None:
            parts = urlsplit(self.origin)
            plain = re.fullmatch(r"(/[A-Za-z0-9_.~-]+)*/?", parts.path) and not parts.query and not parts.fragment
            place = _AUTHORITY.fullmatch(parts.netloc)
            known = place is not None and 0 < int(place[1] or 1) < 2**16
            if parts.scheme not in {"http", "https"} or not known or not plain:
                raise InputError(
                    f"the origin is an address like https://survey.example.org or https://example.org/survey "
                    f"(got {self.origin!r})"
                )
            object.__setattr__(self, "origin", self.origin.rstrip("/"))
            object.__setattr__(self, "root", parts.path.rstrip("/"))
            object.__setattr__(self, "secure", parts.scheme == "https")
            object.__setattr__(self, "hosts", (*self.hosts, host_of(parts.netloc)))

    @classmethod
    def said(cls, options: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None) -> Settings:
        """Return the settings that were said by options, in the environment and in a file, in this order."""
        found: dict[str, Any] = {}
        lines, variables = _from_file(file) if file is not None else {}, _from_environment(environment)
        for where, level in (
            (f"in {file}", {name: _fitting(name, value, f"{name} in {file}") for name, value in lines.items()}),
            ("as variables", {name: _fitting(name, text, f"HETDP_{name.upper()}") for name, text in variables.items()}),
            ("as options", {name: value for name, value in options.items() if value is not None}),
        ):
            addresses = {"database", "database_file"} & level.keys()
            if len(addresses) > 1:
                raise InputError(f"database and database_file are both given {where}; keep one of them")
            found = {name: value for name, value in found.items() if not (addresses and name.startswith("database"))}
            found |= level
        if "database_file" in found:
            found["database"] = _address_in(found["database_file"])
        found["hosts"] = (*LOOPBACK, *found.get("hosts", ()))
        return cls(**found)

    def vault(self) -> Vault:
        """Return the vault, by its key; a key file that does not exist yet is made."""
        return vault_of(self.key if self.key is not None else _key_text(self.vault_file))

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
        """Whether one folder holds the key and the database, also in a folder of it: they open every answer."""
        if self.key is not None or self.sqlite_file is None:
            return False
        one, other = self.vault_file.resolve().parent, self.sqlite_file.parent
        return one.is_relative_to(other) or other.is_relative_to(one)

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


def _check_address(database: str) -> None:
    """Raise unless this is a URL of SQLite or PostgreSQL that can be read; it is not quoted: it may hold a password."""
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):  # or its port is no number
        url = make_url("unknown://")
    kind = url.get_backend_name()
    if kind in {"postgresql", "postgres"} and database.count("@") > 1:  # wherever it was taken to be
        raise InputError("the database's URL has an @ too many; in a user or a password write %40 for @")
    if not (kind in {"postgresql", "postgres"} or (kind == "sqlite" and url.database)):
        raise InputError(
            "the database must be sqlite:////var/lib/hetdp/survey.db (four slashes before an absolute path, three "
            "before a relative one) or postgresql://USER:PASSWORD@HOST:PORT/NAME"
        )


# ---------------------------------------------------------------------------------------------------------
# The environment and the file

# What is said for one start alone, as an option, and never stands anywhere: left there it would be said every time.
ONCE = {"expect_head", "trust_database", "trust_clock"}
KNOWN = {one.name: str(one.type) for one in fields(Settings) if one.init and one.name not in ONCE}
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise InputError(f"the settings {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        place = re.search(r"line \d+", str(error))  # not the message, which may quote a secret
        raise InputError(f"the settings {path} are no TOML{f' at {place[0]}' if place else ''}") from None
    if "key" in found:
        raise InputError(f'{path} holds the key itself; name a file that holds it: key_file = "/etc/hetdp/survey.key"')
    for name in found.keys() - KNOWN.keys():
        raise InputError(_unknown(f"{name[:64]!r} in {path}", name))
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for variable, text in sorted(environment.items()):
        name = variable.removeprefix("HETDP_").lower()
        if not variable.startswith("HETDP_") or variable in {"HETDP_SCREENSHOTS", "HETDP_SETTINGS"}:
            continue
        if name in KNOWN:
            found[name] = text
        else:
            raise InputError(_unknown(variable, name))
    return found


def _address_in(path: Path) -> str:
    """Return the database's URL that a file holds, as container systems hand secrets over."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"the file {path}, which holds the database's URL, cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the file {path}, which holds the database's URL, cannot be read: it is no text") from None
    if not text:
        raise InputError(f"the file {path} holds no URL; write that of the database into it")
    return text


def _unknown(said: str, name: str) -> str:
    if name in ONCE:
        return f"{said} is for one start alone; say it as an option: --{name.replace('_', '-')}"
    known = sorted(KNOWN.keys() - {"key"})  # which stands in no file
    near = difflib.get_close_matches(name, known, 1)
    return (
        f"there is no setting {said}; {f'did you mean {near[0]}? T' if near else 't'}he settings are {', '.join(known)}"
    )


def _fitting(name: str, value: Any, where: str) -> Any:
    """Return a value in the type of its field; what is wrong is said without the value, which may be a secret."""
    kind, text = KNOWN[name], isinstance(value, str)
    try:
        if kind.startswith("tuple"):
            parts = [part.strip() for part in value.split(",")] if text else list(value)
            if all(isinstance(part, str) for part in parts):
                return tuple(part for part in parts if part)
        elif kind == "bool":
            if isinstance(value, bool) or (text and value.lower() in _YES | _NO):
                return value if isinstance(value, bool) else value.lower() in _YES
        elif kind in {"int", "float"}:
            number = {"int": int, "float": float}[kind](value)
            if not isinstance(value, bool) and (text or number == value):
                return number
        elif text:
            return Path(value) if kind.startswith("Path") else value
    except (TypeError, ValueError, OverflowError):
        pass
    wanted = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    raise InputError(f"{where} must be {wanted.get(kind, 'a list of names' if kind.startswith('tuple') else 'a text')}")


# ---------------------------------------------------------------------------------------------------------
# The key


def vault_of(text: str) -> Vault:
    """Return the vault of a key's text: 64 digits, and after a rotation 64 more by which older imports are known."""
    if not re.fullmatch("[0-9a-fA-F]{64}(:[0-9a-fA-F]{64})?", text.strip()):
        why = "the key that seals answers (the key file, or HETDP_KEY) must be 64 hexadecimal digits"
        raise InputError(f"{why}; bring a copy of it back: it is in no backup of the server")
    key, _, marks = text.strip().partition(":")
    return Vault(bytes.fromhex(key), bytes.fromhex(marks) or None)


def _key_text(path: Path) -> str:
    """Return the text of the key file; of two processes that make it at the same time, one does."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return key_text(path)
    except OSError:
        raise InputError(f"the key file {path} cannot be made; is its folder there and writable?") from None
    text = secrets.token_hex(32)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    return text


def key_text(path: Path) -> str:
    """Return the text of a key file that is there; raise if others can read it."""
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"others can read the key file {path}; run chmod 600 on it")
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise InputError(f"the key file {path} cannot be read: {error.strerror}") from None
