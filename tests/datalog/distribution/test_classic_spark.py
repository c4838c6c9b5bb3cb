"""Classic Spark, where it is: a folder SPARK_HOME with its jars, and Java."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
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


def environment_of_spark():
    # That of pip has Python next to its jars, a release a folder.
    python = HOME.parent if (HOME / "sql").is_dir() else HOME / "python"
    path = [str(python), str(Path(__file__).parents[2]), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": sys.executable}


def spark(what, *master, **variables):
    environment = {**environment_of_spark(), **variables}
    script = Path(__file__).with_name("classic_spark.py")
    done = subprocess.run(
        [sys.executable, script, what, *master], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_executor_that_is_killed_changes_nothing():
    """In mid-run, on both plans."""
    outcomes = spark("killed", "local-cluster[2,1,1024]")
    assert set(outcomes) == {"partitions", "rounds"}
    for count, expected, gone in outcomes.values():
        assert count == expected
        assert gone == 1


def test_moments_are_times_in_utc_whatever_the_zone_is():
    by_plan = spark("zones", "local[2]")
    here = ["2026-01-02T03:04:05.500000", "2026-07-02T03:04:05"]
    there = ["2026-01-02T08:04:05.500000", "2026-07-02T07:04:05"]
    assert {name: sorted(times) for name, times in by_plan.items()} == {
        **dict.fromkeys(("UTC partitions", "UTC rounds"), here),
        **dict.fromkeys(("America/New_York partitions", "America/New_York rounds"), there),
    }


def test_the_language_on_spark_connect():
    compared, refused = spark("language", "connect local[2]")
    assert compared > 15
    assert refused < 3


@pytest.mark.parametrize("master", ["local[2]", "connect local[2]"])
def test_rounds_on_classic_spark_and_spark_connect(master, tmp_path):
    outcomes = spark("rounds", master, TMPDIR=str(tmp_path))
    assert len(outcomes) > 20
    assert max(outcomes.values()) <= 1e-12


@contextmanager
def machines(count):
    """(address, namespace) of this one and of some others on a network of their own; None where there may be none."""
    label = f"dv{os.getpid() % 100_000}"
    subnet = f"10.231.{os.getpid() % 200 + 1}"

    def ip(command, check=True):
        return subprocess.run(["ip", *command.split()], check=check, capture_output=True).returncode == 0

    if shutil.which("ip") is None or not ip(f"link add {label} type bridge", check=False):
        yield None
        return
    names = [f"{label}w{number}" for number in range(count)]
    try:
        ip(f"addr add {subnet}.1/24 dev {label}")
        ip(f"link set {label} up")
        for number, name in enumerate(names):
            ip(f"netns add {name}")
            ip(f"link add {name}v type veth peer name eth0 netns {name}")
            ip(f"link set {name}v master {label} up")
            ip(f"-n {name} addr add {subnet}.{number + 11}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")
            ip(f"-n {name} link set lo up")
        yield f"{subnet}.1", {name: f"{subnet}.{number + 11}" for number, name in enumerate(names)}
    finally:
        for name in names:
            ip(f"netns del {name}", check=False)
            ip(f"link del {name}v", check=False)
        ip(f"link del {label}", check=False)


def test_workers_on_a_network(tmp_path):
    """A master here and workers with a network to it: namespaces of Linux, for which one needs rights."""
    with machines(2) as there, ExitStack() as stack:
        if there is None:
            pytest.skip("networks of one's own are not permitted")
        host, others = there

        def start(*command):
            # Quiet, as nobody reads it.
            process = subprocess.Popen(
                command, env=environment_of_spark(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)

        kind, deploy = str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy"
        start(kind, f"{deploy}.master.Master", "--host", host, "--port", "7077", "--webui-port", "0")
        for name, address in others.items():
            options = ["--host", address, "--webui-port", "0", "--cores", "1", "--memory", "1g", "-d", tmp_path / name]
            command = [kind, f"{deploy}.worker.Worker", *map(str, options), f"spark://{host}:7077"]
            start("ip", "netns", "exec", name, *command)
        addresses, counts = spark("workers", f"spark://{host}:7077", host)
        assert addresses == sorted(others.values())
        for count, expected in counts:
            assert count == expected
