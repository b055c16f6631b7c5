"""The four main walks through the package, and which of its modules each one passes through.

python tests/walks.py array      print the modules of one walk, one a line

A newcomer who follows a walk with a finger reads these modules. A module counts if one of its functions is entered;
what runs because a module is imported does not, and neither does `report/`, which only words what was found. What a
report asks of others counts.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


def is_import(frame):
    """Say whether a frame is the body of a module that is being imported."""
    return frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__"


class Walk:
    """Notes the files of a package whose functions are entered in a block, in any thread."""

    def __init__(self, package: Path):
        self.package, self.files, self.counting = str(package.resolve()) + "/", set(), False
        sys.setprofile(self._look)
        threading.setprofile(self._look)  # before any thread is started: others cannot be watched

    def _look(self, frame, event, _):
        code = frame.f_code
        # The body of a class or module is no function: it runs once, when it is imported.
        if not self.counting or event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        if not code.co_filename.startswith(self.package) or code.co_filename in self.files:
            return
        caller = frame.f_back
        while caller is not None and not is_import(caller):
            caller = caller.f_back
        if caller is None:
            self.files.add(code.co_filename)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is entered in this block."""
        self.counting = True
        try:
            yield
        finally:
            self.counting = False

    def modules(self) -> list[str]:
        """Return the modules by their paths in the package, `report/` aside."""
        names = sorted(name.removeprefix(self.package) for name in self.files)
        return [name for name in names if not name.startswith("report/")]


def from_file(walk, _):
    """A file to a number."""
    import hetdp

    people = ROOT / "examples" / "people.csv"
    with walk.counted():
        hetdp.mean(people, value="income", missing="midpoint", epsilon="eps", bounds=(0, 250_000))


def from_array(walk, _):
    """An array to a number."""
    import numpy as np

    import hetdp

    values, epsilon = np.linspace(0, 1, 999), np.array([0.1, 1.0, np.inf] * 333)
    with walk.counted():
        hetdp.mean(values, epsilon=epsilon, bounds=(0, 1))


def from_answer(walk, folder):
    """A person's answer on the server to a result that everybody can read."""
    with warnings.catch_warnings(action="ignore"):  # it would rather have another version of httpx
        from starlette.testclient import TestClient

    from hetdp.server import Settings, access, create_app

    settings = Settings(database=f"sqlite:///{folder}/server.db", key_file=folder / "server.key", tick=0.0)
    app = create_app(settings)
    now = int(time.time())
    tiers = [{"name": "open", "epsilon": 2, "sentence": "more"}]
    asked = {"name": "hours", "kind": "number", "text": "How many?", "unit": "h", "bounds": [0, 10]}
    study = {"title": "Hours", "questions": [asked], "tiers": tiers, "opens": now - 5}
    with TestClient(app, base_url="http://127.0.0.1") as client:
        curator = {"Authorization": f"Bearer {app.state.first_key}"}
        waves = [{"closes": now + 3600, "share": 1.0}]
        made = client.post("/api/studies", json={**study, "waves": waves}, headers=curator)
        address = f"/api/studies/{made.json()['id']}"
        others = "value,tier\n" + "5,open\n" * 200  # so many that an answer is worth its noise
        rows = {**curator, "Content-Type": "text/csv"}
        client.post(f"{address}/rows", content=others, headers=rows)
        (link,) = client.post(f"{address}/invitations", json={"count": 1}, headers=curator).json()["links"]
        entered = client.post("/api/session/participant", json={"token": link.partition("#")[2]})
        person = {"X-CSRF-Token": entered.json()["csrf"]}
        with walk.counted():
            said = [client.put("/api/answer", json={"answers": {"hours": 3}, "tier": "open"}, headers=person)]
            access.now = lambda: now + 7200  # the date has passed
            said.append(client.post(f"{address}/publish", json={"wave": 0}, headers=curator))
            said.append(client.get(f"/api/results/{made.json()['id']}"))
    assert [answer.status_code for answer in said] == [200] * 3, [answer.text for answer in said]


def from_charge(walk, folder):
    """A release that a ledger charges."""
    from hetdp import Ledger

    people = [f"p{i}" for i in range(200)]
    with Ledger.create(folder / "budgets.db") as ledger:
        ledger.enroll(dict.fromkeys(people, 1))
    with walk.counted(), Ledger(folder / "budgets.db") as ledger:
        ledger.mean([0.25, 0.75] * 100, person=people, bounds=(0, 1), spend=0.1, release_id="may", missing="midpoint")


WALKS = {"file": from_file, "array": from_array, "answer": from_answer, "charge": from_charge}


def main() -> None:
    """Take one walk and print its modules."""
    import hetdp

    walk = Walk(Path(hetdp.__file__).parent)
    with tempfile.TemporaryDirectory() as folder:
        WALKS[sys.argv[1]](walk, Path(folder))
    sys.setprofile(None)
    print(*walk.modules(), sep="\n")


if __name__ == "__main__":
    main()
