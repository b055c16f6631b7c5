"""Other libraries for private means: a bounded mean at one ε for everybody, each in an environment of its own.

They pin versions that do not fit together, so each is installed in a folder under `build/peers`, which stays for the
next run until `make clean`. One that does not install or does not finish has a row that says so.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from table import Bar, Row

FOLDER = Path("build/peers").absolute()
PATIENCE = 200
"""Seconds that a library gets for one size, and for its installation three times that."""

SIZES = {10**6: "10⁶", 10**7: "10⁷"}

_FRAME = """
import json, sys, time
from importlib.metadata import version
import numpy as np

n = int(sys.argv[1])
x = np.random.default_rng(0).random(n)
{setup}

def memory(name):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(name))

before, times = memory("VmRSS:"), []
while len(times) < 2 or (sum(times[1:]) < 3 and len(times) < 30):
    start = time.perf_counter()
    answer = {call}
    times.append(time.perf_counter() - start)
print(json.dumps(dict(seconds=min(times[1:]), memory=memory("VmHWM:") - before, off=abs(float(answer) - x.mean()),
                      version=version("{package}"))))
"""
"""What every library runs: data, its own preparation, a first call that loads what it needs, then calls for three
seconds, of which the quickest counts."""


@dataclass(frozen=True)
class Peer:
    """A library: its package, what is done before the clock starts, what is timed, and what else is installed."""

    name: str
    package: str
    setup: str
    call: str
    needs: tuple[str, ...] = ("numpy",)

    def run(self, interpreter: Path, n: int) -> dict[str, Any]:
        """Return seconds, MB above the data, and how far the answer was off."""
        code = _FRAME.format(setup=self.setup, call=self.call, package=self.package)
        command = [str(interpreter), "-c", code, str(n)]
        with tempfile.TemporaryDirectory() as scratch:  # some of them leave files where they run
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=scratch)
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def install(self) -> Path:
        """Return the interpreter of an environment with this library; made once."""
        home = FOLDER / self.package
        interpreter, ready = home / "bin" / "python", home / "ready"
        if not ready.exists():
            home.mkdir(parents=True, exist_ok=True)
            pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            for command in ([sys.executable, "-m", "venv", str(home)], [*pip, self.package, *self.needs]):
                subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE, check=True)
            ready.touch()
        return interpreter


OURS = Peer("hetdp", "hetdp", "import hetdp", "hetdp.mean(x, epsilon=1.0, bounds=(0, 1)).estimate")

PEERS = (
    Peer(
        "OpenDP",
        "opendp",
        """
import opendp.prelude as dp
dp.enable_features("contrib")
space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=n), dp.symmetric_distance()
bounded = space >> dp.t.then_clamp((0.0, 1.0)) >> dp.t.then_mean()
private = bounded >> dp.m.then_laplace(scale=bounded.map(2))
""",
        "private(x)",
    ),
    Peer(
        "diffprivlib",
        "diffprivlib",
        "import diffprivlib",
        "diffprivlib.tools.mean(x, epsilon=1.0, bounds=(0, 1))",
        needs=("scikit-learn<1.6",),  # it does not import with newer ones
    ),
    Peer(
        "Tumult Analytics",
        "tmlt.analytics",
        """
import os, pandas
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, PureDPBudget, QueryBuilder, Session
spark = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "8g").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
frame = spark.createDataFrame(pandas.DataFrame({"x": x})).cache()
frame.count()
query = QueryBuilder("data").average("x", 0.0, 1.0, name="mean")
def answer_of():
    session = Session.from_dataframe(PureDPBudget(1), "data", frame, protected_change=AddOneRow())
    return session.evaluate(query, PureDPBudget(1)).first()["mean"]
""",
        "answer_of()",
    ),
    Peer(
        "PipelineDP",
        "pipeline-dp",
        """
import pipeline_dp
rows = list(enumerate(x.tolist()))
def answer_of():
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-9)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN], noise_kind=pipeline_dp.NoiseKind.LAPLACE, max_partitions_contributed=1,
        max_contributions_per_partition=1, min_value=0, max_value=1)
    columns = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: 0, value_extractor=lambda row: row[1])
    result = engine.aggregate(rows, params, columns, public_partitions=[0])
    budget.compute_budgets()
    return list(result)[0][1].mean
""",
        "answer_of()",
    ),
)


def one_epsilon(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release a bounded mean at ε = 1 by every library, ours first; each time ours runs once more beside it."""
    if quick:
        yield Row("other libraries, one ε", "hetdp", math.nan, note="left out of a quick run")
        return
    for n, shown in SIZES.items():
        ours = OURS.run(Path(sys.executable), n)
        yield Row(f"hetdp, mean of {shown} values, one ε", "", 1e3 * ours["seconds"], "ms", note=_said(ours))
        for peer in PEERS:
            yield _beside(peer, n, shown)


def _beside(peer: Peer, n: int, shown: str) -> Row:
    what = f"{peer.name}, mean of {shown} values, one ε"
    try:
        theirs = peer.run(peer.install(), n)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return Row(what, "hetdp", math.nan, note=_why(error))
    ours = OURS.run(Path(sys.executable), n)
    note = f"{1e3 * theirs['seconds']:.3g} ms against {1e3 * ours['seconds']:.3g} ms; {_said(theirs)}"
    return Row(what, "hetdp", theirs["seconds"] / ours["seconds"], "×", Bar("at least", 1), note=note)


def _said(run: dict[str, Any]) -> str:
    return f"{run['memory']:.0f} MB above the data, off by {run['off']:.1g}, version {run['version']}"


def _why(error: subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"did not finish in {error.timeout:.0f} s"
    last = next(
        (line for line in reversed(str(getattr(error, "stderr", "")).splitlines()) if line.strip()), "no reason"
    )
    return f"failed on Python {sys.version_info.major}.{sys.version_info.minor}: {last.strip()[:120]}"


CASES = (one_epsilon,)
