"""The central server: people send a value and a privacy choice, the curator publishes, no page shows a value.

::

    app        all of it put together: the HTTP API
    pages      the pages for people, which show what the API answers
    access     who may ask: Host, Origin, size, rate, strict JSON; tokens, sessions, the curator; the vault for answers
    studies    questions, tiers, waves, invitations; what people send, change, withdraw; people from a file
    publish    close, charge, release once, show
    store      what stands in the database, and the register by which we know that nobody changed it
    tables     the tables and their versions; what is done first at every start
    dashboard  what is public while people join; the interactive page of the paper
    settings   what the operator chose
    run        serve, also with a sample study, replace the key, back up

Handlers parse, call one verb, answer. Every number comes from the library.
"""

from .app import create_app
from .settings import Settings

__all__ = ["Settings", "create_app"]
