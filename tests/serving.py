"""A real server for the tests: uvicorn in a thread, asked over a socket."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import contextmanager

import httpx

TIERS = [
    {"name": "strict", "epsilon": 0.1, "sentence": "little"},
    {"name": "open", "epsilon": 2.0, "sentence": "more"},
    {"name": "public", "epsilon": "inf", "sentence": "all"},
]


# What most tests ask: one number.
NUMBER = {"name": "hours", "kind": "number", "text": "How many?", "unit": "h", "bounds": [0, 10]}
THREE = [
    NUMBER,
    {"name": "tired", "kind": "yes-no", "text": "Are you tired?"},
    {"name": "way", "kind": "choice", "text": "How did you come?", "choices": ["on foot", "by bike", "by bus"]},
]
DAY = 86_400
_TURN, _LATER = threading.Lock(), []


@contextmanager
def later(seconds):
    """Let the clock of every server of this process go ahead by so many seconds; of several, by the most."""
    from hetdp.server import access

    with _TURN:
        _LATER.append(seconds)
        access.now = lambda: time.time() + max(_LATER, default=0)
    try:
        yield
    finally:
        with _TURN:
            _LATER.remove(seconds)


class Lines(logging.Handler):
    """Keeps what would be written to the log."""

    def __init__(self):
        from hetdp.server.run import JsonLines

        super().__init__()
        self.setFormatter(JsonLines())
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


class Site:
    """A running server and its curator."""

    def __init__(self, app, address):
        self.app, self.address, self.key = app, address, app.state.first_key
        self.clients = []
        self.curator = self.client(Authorization=f"Bearer {self.key}")

    def client(self, **headers):
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        client = httpx.Client(base_url=self.address, headers=names, verify=False, timeout=120)  # noqa: S501  plain HTTP
        self.clients.append(client)
        return client

    def study(self, **changes):
        now = int(time.time())
        waves = [{"closes": now + 3600, "share": 1.0}]
        new = {"title": "Hours", "questions": [NUMBER], "tiers": TIERS, "opens": now - 5, "imports_count": True}
        made = self.curator.post("/api/studies", json={**new, "waves": waves, **changes})
        assert made.status_code == 201, made.text
        return made.json()["id"]

    def invite(self, study, count):
        made = self.curator.post(f"/api/studies/{study}/invitations", json={"count": count})
        assert made.status_code == 201, made.text
        return [link.partition("#")[2] for link in made.json()["links"]]

    def enter(self, token):
        person = self.client()
        said = person.post("/api/session/participant", json={"token": token})
        assert said.status_code == 200, said.text
        person.headers["X-CSRF-Token"] = said.json()["csrf"]
        return person

    def join(self, study, answers):
        """Let one person a pair (hours, or what is said to all questions; tier) answer; return them."""
        people = [self.enter(token) for token in self.invite(study, len(answers))]
        for person, (value, tier) in zip(people, answers, strict=True):
            said = person.put("/api/answer", json=saying(value, tier=tier))
            assert said.status_code == 200, said.text
        return people

    def rows(self, study, text):
        headers = {"Content-Type": "text/csv"}
        return self.curator.post(f"/api/studies/{study}/rows", content=text, headers=headers)

    def live(self, study):
        return self.curator.get(f"/api/studies/{study}").json()

    def publish(self, study, wave=0):
        """Publish a wave after its date: the clock goes ahead for this one request, further for every wave."""
        with later(30 * DAY * (wave + 1)):
            return self.publish_now(study, wave)

    def publish_now(self, study, wave=0):
        return self.curator.post(f"/api/studies/{study}/publish", json={"wave": wave})


def saying(value, **more):
    """Return the body of an answer: of one number, or of {question: what is said}."""
    return {"answers": value if isinstance(value, dict) else {"hours": value}, **more}


def settings_for(folder, database=None, **changes):
    from hetdp.server import Settings

    usual = {"tick": 0.0, "attempts": 10**6, "joins": 10**6, "per_address": 10**6, "per_person": 10**6}
    where = database or f"sqlite:///{folder}/server.db"
    return Settings(database=where, **{"key_file": folder / "server.key", **usual, **changes})


@contextmanager
def served(settings):
    """Serve these settings until the end of the block."""
    import uvicorn

    from hetdp.server import create_app

    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    site = Site(app, f"http://127.0.0.1:{port}")
    try:
        yield site
    finally:
        for client in site.clients:
            client.close()
        server.should_exit = True
        thread.join(30)


@contextmanager
def logged():
    """Yield the lines that the server logs meanwhile."""
    lines, log = Lines(), logging.getLogger("hetdp.server")
    log.addHandler(lines)
    before = log.level
    log.setLevel(logging.INFO)
    try:
        yield lines.lines
    finally:
        log.removeHandler(lines)
        log.setLevel(before)


def facts(lines):
    return [json.loads(line) for line in lines]


def line_about(lines, said):
    """The one line that the log has of the request with this answer. It is written after the answer is sent."""
    deadline = time.monotonic() + 60
    while not (about := [line for line in facts(lines) if line.get("id") == said.headers["X-Request-Id"]]):
        assert time.monotonic() < deadline, f"no line of this request: {lines}"
        time.sleep(0.001)
    (line,) = about
    return line
