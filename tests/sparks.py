"""A real Spark for the tests, local, started once a test process.

Spark needs Java 17 or newer. Where there is none its tests are skipped, and fail where `CI` is set.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest


def java():
    """The version of Java that Spark would find, or None."""
    home = os.environ.get("JAVA_HOME")
    command = Path(home) / "bin" / "java" if home else shutil.which("java")
    if command is None:
        return None
    with contextlib.suppress(OSError):
        said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
        found = re.search(r'version "(\d+)', said)
        return int(found[1]) if found else None


def session(master, **settings):
    from pyspark.sql import SparkSession

    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "768m",
        # Code that runs once is not worth being compiled twice: this halves what a session of small tables costs.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master(master).appName("hetdp tests")
    for name, value in {**plain, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    version = java()
    if version is None or version < 17:
        why = f"Spark needs Java 17 or newer (found {version}); set JAVA_HOME, or install openjdk-17-jre-headless"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Spark says about the version of pandas
        started = session("local[2,4]", **{"spark.sql.warehouse.dir": str(folder), "spark.local.dir": str(folder)})
    yield started
    started.stop()
