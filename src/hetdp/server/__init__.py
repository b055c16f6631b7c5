"""The central server: people send a value and a privacy choice, the curator publishes, nobody sees a value.

::

    settings   what the operator chose
    run        serve, replace the key, back up; demo: a sample study
    app        all of it put together, and the pages
    api        the HTTP API
    guard      what every request passes: Host, Origin, size, rate, strict JSON; headers, errors, log
    access     who is asking: tokens, sessions, the curator; the vault that seals answers
    studies    questions, tiers, waves, invitations
    answers    what people send, change, withdraw; people from a file
    dashboard  what is public while people join
    publish    close, charge, release once, show
    store      the tables, their versions, the one server that writes
    register   what the database must say, kept outside of it
    explore    the interactive page of the paper

Handlers parse, call one verb, answer. Every number comes from the library.
"""

from .app import create_app
from .settings import Settings

__all__ = ["Settings", "create_app"]
