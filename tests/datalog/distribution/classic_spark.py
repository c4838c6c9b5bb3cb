"""What classic Spark computes, in a process of its own: WHAT MASTER [HOST]. Java's Spark stands in SPARK_HOME."""

import datetime as dt
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


def session(master, host="127.0.0.1"):
    from pyspark.sql import SparkSession

    if master.startswith("connect "):
        return SparkSession.builder.remote(master.removeprefix("connect ")).getOrCreate()
    jars = Path(os.environ["SPARK_HOME"]) / "jars" / "*"
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.bindAddress": host,
        "spark.driver.host": host,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executor.extraClassPath": str(jars),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def executors():
    """The processes of executors of this process's Spark, the oldest first."""
    shown = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    parents, running = {}, []
    for line in shown.splitlines()[1:]:
        pid, parent, command = line.split(None, 2)
        parents[int(pid)] = int(parent)
        if "CoarseGrainedExecutorBackend" in command and command.split()[0].endswith("java"):
            running.append(int(pid))

    def is_here(pid):
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 1)
        return pid == os.getpid()

    return sorted(filter(is_here, running))


def killed(spark):
    """Plan -> the rows of a run in whose middle an executor is killed, their right number, and how many were killed."""
    import numpy as np

    import derivable as dv

    edges = np.random.default_rng(0).integers(0, 3000, (9000, 2))
    edge = "type edge(x: i32, y: i32) "
    programs = {
        "partitions": edge + "rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y)) query path",
        "rounds": edge + "rel s(x, y) = edge(p, x), edge(p, y) rel s(x, y) = edge(p, x), s(p, q), edge(q, y) query s",
    }
    outcomes = {}
    for name, text in programs.items():
        program = dv.Program(text)
        facts = edges[:300] if name == "rounds" else edges
        frame = spark.createDataFrame(facts.tolist(), "x int, y int")
        before = executors()
        gone = []

        def kill(before=before, gone=gone):
            time.sleep(1.0)
            os.kill(before[0], signal.SIGKILL)
            gone.append(before[0])

        thread = threading.Thread(target=kill)
        thread.start()
        database = program.run({"edge": frame}, engine=spark)
        count = len(database[next(iter(database))])
        thread.join()
        assert f": {name}" in database.explain()
        expected = program.run({"edge": facts})
        outcomes[name] = [count, len(expected[next(iter(expected))]), len(gone)]
        while len(executors()) < len(before):
            time.sleep(0.1)
    return outcomes


def zones(spark):
    """The times that both plans have of moments, in two time zones of the session."""
    import derivable as dv

    by_partitions = "type e(k: i64, t: DateTime) rel s(k, t) = e(k, t) query s"
    in_rounds = (
        "type e(k: i64, t: DateTime) rel s(k, t) = e(k, t) rel s(x, t) = e(p, t), s(q, t), e(x, t), p != q query s"
    )
    times = {}
    for zone in ("UTC", "America/New_York"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        for plan, text in (("partitions", by_partitions), ("rounds", in_rounds)):
            moments = "SELECT 1L AS k, timestamp'2026-01-02 03:04:05.5' AS t UNION ALL"
            frame = spark.sql(f"{moments} SELECT 2L, timestamp'2026-07-02 03:04:05'")
            database = dv.Program(text).run({"e": frame}, engine=spark)
            assert f"output s: {plan}" in database.explain()
            times[f"{zone} {plan}"] = [time.isoformat() for _, time in database["s"] if isinstance(time, dt.datetime)]
    return times


def rounds(spark):
    """What is computed in rounds -> how far tags, or whether rows, are from those of one machine."""
    import derivable as dv
    from datalog.distribution.test_round_tags import SAME, SEMIRINGS, acyclic, in_rounds

    spark.conf.set("spark.sql.shuffle.partitions", "2")
    # Of Spark Connect nobody knows where it writes.
    folder = os.environ["TMPDIR"]
    outcomes = {}
    for semiring in [*SEMIRINGS, "addmultprob", "minmaxprob", "min_plus"]:
        facts, program = acyclic(semiring), dv.Program(SAME)
        weighted = [(x, y, float(tag)) for (x, y), tag in facts.items()]
        frame = spark.createDataFrame(weighted, "x bigint, y bigint, tag double")
        [rows] = program.run({"edge": frame}, semiring, engine=spark, spill=folder).values()
        [expected] = program.run({"edge": facts}, semiring).values()
        assert set(rows) == set(expected), semiring
        name = getattr(semiring, "name", semiring)
        outcomes[name] = max(abs(rows[row] - expected[row]) if rows[row] != expected[row] else 0 for row in expected)
    for kind, values in {"i64": [3, -(2**63), 2**63 - 1], "u32": [7, 2**32 - 1], "u64": [0, 5, 2**31]}.items():
        for result in ("x * y", "x / y", "x % y"):
            program = dv.Program(f"type e(x: {kind}, y: {kind}) rel p({result}) = e(x, y) query p")
            pairs = [(x, y) for x in values for y in values]
            frame = spark.createDataFrame(pairs, "x bigint, y bigint")
            [rows] = in_rounds(program, {"e": frame}, "unit", engine=spark, spill=folder).values()
            outcomes[f"{kind} {result}"] = len(set(rows) ^ set(program.run({"e": pairs})["p"]))
    return outcomes


def language(spark):
    """How many outputs of cases of the language have the rows of one machine, and how many cases are refused."""
    import derivable as dv
    from datalog.distribution.test_sail import REFUSED
    from datalog.test_language import CASES

    spark.conf.set("spark.sql.shuffle.partitions", "2")
    compared = refused = 0
    for _, text, *_ in CASES:
        program = dv.Program(text)
        expected = program.run()
        try:
            database = program.run(engine=spark, partitions=2)
            for output in expected:
                assert dict(database[output].items()) == dict(expected[output].items()), (text, output)
                compared += 1
        except dv.DerivableError as error:
            if not re.search(REFUSED, str(error)):
                raise
            refused += 1
    return [compared, refused]


def workers(spark):
    """The addresses of machines that computed something, and the rows of both plans with their right numbers."""
    import tempfile

    import numpy as np

    import derivable as dv

    host = spark.conf.get("spark.driver.host")

    def address(_):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            time.sleep(0.5)
            return probe.getsockname()[0]

    addresses = set()
    while len(addresses) < 2:
        # A worker may have come later.
        addresses |= set(spark.sparkContext.parallelize(range(8), 8).map(address).collect())
    edges = np.random.default_rng(0).integers(0, 300, (450, 2))
    frame = spark.createDataFrame(edges.tolist(), "x int, y int")
    counts = []
    with tempfile.TemporaryDirectory() as folder:
        for rules in (
            "rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y)) query path",
            "rel s(x, y) = edge(p, x), edge(p, y) rel s(x, y) = edge(p, x), s(p, q), edge(q, y) query s",
        ):
            program = dv.Program("type edge(x: i32, y: i32) " + rules)
            [rows] = program.run({"edge": frame}, engine=spark, spill=folder).values()
            [expected] = program.run({"edge": edges}).values()
            counts.append([len(rows), len(expected)])
    return [sorted(addresses), counts]


if __name__ == "__main__":
    of_this = session(*sys.argv[2:])
    print(
        json.dumps(
            {"killed": killed, "zones": zones, "language": language, "rounds": rounds, "workers": workers}[sys.argv[1]](
                of_this
            )
        )
    )
    of_this.stop()
