"""The central server: people send a value and a privacy choice, the curator publishes, nobody sees a value.

::

    settings   what the operator chose
    store      the tables; one writer, whose transactions carry many requests
    keys       tokens, their hashes, the vault for grid codes
    strict     JSON without surprises
    guard      what every request passes: Host, Origin, size, rate, headers, log
    access     who is asking: curator, participant, nobody
    studies    questions, tiers, waves, invitations
    answers    what one person sends, changes, withdraws
    rows       people from a file
    insight    what is public while people join
    publish    close, charge, release once, show
    api        the HTTP API; errors: its fixed texts
    explore    the interactive page of the paper
    pages      the same data as HTML
    app        all of it put together; start: what happens first
    operate    run, replace the key, back up; demo: a sample study

Handlers parse, call one verb, answer. Every number comes from the library.
"""

from .app import create_app
from .settings import Settings

__all__ = ["Settings", "create_app"]
