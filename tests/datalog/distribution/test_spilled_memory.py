"""A result of ten times the memory limit, also after a kill: what processes say of their own memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datalog.distribution.spilled_closure import peak

# Where the peak of a process is known.
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
LIMIT, NODES = 300_000_000, 15_000


def reachable(edges, count):
    """How many pairs the closure has, by components and sets of bits."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(
        csr_array((np.ones(len(edges)), tuple(edges.T)), (count, count)), directed=True, connection="strong"
    )
    sizes = np.bincount(component)
    below: dict[int, set[int]] = {}
    for x, y in np.unique(component[edges], axis=0).tolist():
        below.setdefault(x, set()).add(y)
    # Components are numbered so that edges lead to smaller numbers.
    reached: dict[int, int] = {}
    nodes = [0] * len(sizes)
    for node, of in enumerate(component.tolist()):
        nodes[of] |= 1 << node
    for x in range(len(sizes)):
        bits = 0
        for y in below.get(x, ()):
            assert y <= x
            bits |= nodes[y] | (reached[y] if y != x else 0)
        reached[x] = bits
    return sum(int(sizes[x]) * bits.bit_count() for x, bits in reached.items())


@needs_proc
@pytest.mark.slow
def test_a_result_of_ten_times_the_limit(tmp_path):
    edges = np.random.default_rng(0).integers(0, NODES, (3 * NODES, 2))
    pq.write_table(pa.table({"x": edges[:, 0], "y": edges[:, 1]}), tmp_path / "edges.parquet")
    command = [sys.executable, "-m", "datalog.distribution.spilled_closure", tmp_path / "edges.parquet", tmp_path]
    command = [*map(str, command), str(LIMIT)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, env=environment)
    try:
        while process.poll() is None and len(parts(tmp_path)) < 10:
            time.sleep(0.01)
        assert process.poll() is None
        before = peak(process.pid)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    done = {path.name: path.stat().st_mtime_ns for path in parts(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    count, after = map(int, ended.stdout.split())
    assert count == reachable(edges, NODES)
    # Two columns of 64 bits.
    assert count * 16 >= 10 * LIMIT
    assert before <= 1.5 * LIMIT
    assert after <= 1.5 * LIMIT
    # What was done was not done again.
    [path] = tmp_path.glob("*/path")
    assert {name: (path / name).stat().st_mtime_ns for name in done} == done
    assert len(list(path.iterdir())) > len(done)


def parts(folder):
    return list(folder.glob("*/path.unfinished/*.parquet"))


def test_pairs_are_counted_as_by_hand():
    edges = np.array([(0, 1), (1, 0), (1, 2), (3, 3)])
    assert reachable(edges, 5) == 7
