"""The central server: people answer questions and choose their privacy, curators publish, no page shows an answer.

::

    app        all of it put together: the HTTP API
    pages      the pages for people, which show what the API answers
    texts      the words of the pages, a catalogue for each language
    access     who may ask: Host, Origin, size, rate, strict JSON; tokens, sessions, curators; the vault for answers
    fields     which field of a request is wrong, and why
    studies    questions, tiers, waves; what people send
    people     curators, invitations, links, people from a file; what is withdrawn and erased
    publish    close, charge, release once, show
    results    what was published, as a list and as CSV
    store      what stands in the database, and the register by which we know that nobody changed it
    tables     the tables and their versions; what is done first at every start
    dashboard  what is public while people join; the interactive page of the paper
    settings   what the operator chose
    run        serve, also with a sample study, replace the curator's key
    check      what is wrong, before anything starts; /health and the status page
    importing  people from a file, in short steps
    backup     copy everything but the key, check a copy, put it back
    restore    what of a backup may be used, and what must be lost
    rotate     a new key for the vault; what is left of deleted answers

Handlers parse, call one verb, answer. Every number comes from the library.
"""

from .app import create_app
from .settings import Settings

__all__ = ["Settings", "create_app"]
