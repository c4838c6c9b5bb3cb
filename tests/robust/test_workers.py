"""Kernels in threads, in forked and spawned processes, and in the workers of a DataLoader."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from robust import workloads

BATCH = 64


@pytest.fixture(scope="module")
def expected() -> bytes:
    return workloads.numpy_digest(BATCH)


def test_same_bits_again(expected):
    assert workloads.numpy_digest(BATCH) == expected
    assert workloads.digest(BATCH) == workloads.digest(BATCH)


def test_threads(expected):
    barrier = threading.Barrier(4)

    def work(_):
        barrier.wait()
        return [workloads.numpy_digest(BATCH) for _ in range(3)]

    with ThreadPoolExecutor(4) as pool:
        for digests in pool.map(work, range(4)):
            assert digests == [expected] * 3


FIRST_FOLD = """
import importlib.machinery, threading, time
import numpy as np
import derivable

plain = importlib.machinery.SourceFileLoader.exec_module

def slow(loader, module):
    # Long enough for the other threads to meet the module as it is here: without a name.
    time.sleep(0.2 * module.__name__.startswith("derivable.bridge"))
    plain(loader, module)

importlib.machinery.SourceFileLoader.exec_module = slow
found = []
fold = derivable.parallel.scan
threads = [threading.Thread(target=lambda: found.append(fold("add", np.arange(5))[-1])) for _ in range(4)]
for thread in threads:
    thread.start()
    time.sleep(0.05)
for thread in threads:
    thread.join()
assert found == [10] * 4, found
"""


def test_first_fold_of_a_process_in_threads():
    done = subprocess.run([sys.executable, "-c", FIRST_FOLD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_backward_in_threads():
    expected = workloads.digest(BATCH)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(workloads.digest, [BATCH] * 8)) == {expected}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(method, expected):
    """A child made after the kernels have run in the parent."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.map_async(workloads.numpy_digest, [BATCH] * 4).get(timeout=300) == [expected] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_another_thread_computes(expected):
    """The child must not wait for a lock that a thread of the parent held."""
    context = multiprocessing.get_context("fork")
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            workloads.numpy_digest(BATCH)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        for _ in range(5):
            with context.Pool(1) as pool:
                assert pool.apply_async(workloads.numpy_digest, [BATCH]).get(timeout=120) == expected
    finally:
        stop.set()
        thread.join()


# Spawned workers import torch anew, for seconds each.
@pytest.mark.parametrize(
    ("method", "through_torch", "workers"),
    [
        ("fork", False, 2),
        ("fork", True, 2),
        ("spawn", True, 1),
        pytest.param("spawn", True, 2, marks=pytest.mark.slow),
        pytest.param("spawn", False, 2, marks=pytest.mark.slow),
    ],
)
def test_data_loader(method, through_torch, workers):
    from torch.utils.data import DataLoader

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    circuit = workloads.wide_circuit(copies=20)
    data = workloads.Weights(circuit, 12, through_torch)
    loader = DataLoader(data, batch_size=4, num_workers=workers, multiprocessing_context=method, timeout=300)  # type: ignore[arg-type]
    found = np.concatenate([batch.numpy() for batch in loader])
    np.testing.assert_array_equal(found, circuit.evaluate(data.rows))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_same_bits_for_the_same_thread_count(threads):
    from derivable.device.cpu.threads import get_num_threads, set_num_threads

    before = get_num_threads()
    try:
        set_num_threads(threads)
        digests = {workloads.digest(BATCH) for _ in range(3)}
    finally:
        set_num_threads(before)
    assert len(digests) == 1
