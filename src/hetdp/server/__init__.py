"""The central server: people send a value and a privacy choice, the curator publishes, nobody sees a value.

::

    settings   what the operator chose
    run        serve, also with a sample study, replace the key, back up
    app        all of it put together: the HTTP API and the pages
    guard      what every request passes: Host, Origin, size, rate, strict JSON; headers, errors, log
    access     who is asking: tokens, sessions, the curator; the vault that seals answers
    studies    questions, tiers, waves, invitations; what people send, change, withdraw; people from a file
    dashboard  what is public while people join; the interactive page of the paper
    publish    close, charge, release once, show
    store      the tables, their versions, the one server that writes
    register   what the database must say, kept outside of it

Handlers parse, call one verb, answer. Every number comes from the library.
"""

from .app import create_app
from .settings import Settings

__all__ = ["Settings", "create_app"]
