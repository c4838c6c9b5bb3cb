"""Classic Spark, where it is: a folder SPARK_HOME with its jars, and Java."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(os.environ.get("SPARK_HOME", "/nowhere"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (HOME / "jars").is_dir() or shutil.which("java") is None,
        reason="there is no SPARK_HOME with jars, or no Java",
    ),
]


def spark(what, master):
    # That of pip has Python beside its jars, a release a folder.
    python = HOME.parent if (HOME / "sql").is_dir() else HOME / "python"
    path = [str(python), str(Path(__file__).parents[2]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": sys.executable}
    script = Path(__file__).with_name("classic_spark.py")
    done = subprocess.run(
        [sys.executable, script, what, master], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_executor_that_is_killed_changes_nothing():
    """In mid-run, on both plans."""
    found = spark("killed", "local-cluster[2,1,1024]")
    assert set(found) == {"partitions", "rounds"}
    for count, expected, gone in found.values():
        assert count == expected
        assert gone == 1


def test_moments_are_times_in_utc_whatever_the_zone_is():
    found = spark("zones", "local[2]")
    here = ["2026-01-02T03:04:05.500000", "2026-07-02T03:04:05"]
    there = ["2026-01-02T08:04:05.500000", "2026-07-02T07:04:05"]
    assert {name: sorted(times) for name, times in found.items()} == {
        **dict.fromkeys(("UTC partitions", "UTC rounds"), here),
        **dict.fromkeys(("America/New_York partitions", "America/New_York rounds"), there),
    }


def test_the_language_on_spark_connect():
    compared, refused = spark("language", "connect local[2]")
    assert compared > 15
    assert refused < 3
