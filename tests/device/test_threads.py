import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from derivable.core.diagnostics import DomainError
from derivable.device.cpu import threads


@pytest.fixture(autouse=True)
def _restore():
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def square(start, stop, values, out):
    out[start:stop] = values[start:stop] ** 2
    return stop - start


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 6, 7, 1000])
def test_chunks_cover_the_range_once(num_threads, n):
    threads.set_num_threads(num_threads)
    hits = np.zeros(n, int)

    def hit(start, stop):
        hits[start:stop] += 1
        return start, stop

    pieces = threads.run_chunks(hit, n, 1)
    assert (hits == 1).all()
    assert pieces == sorted(pieces)
    assert len(pieces) == min(n, num_threads)


def test_small_ranges_stay_in_the_calling_thread():
    threads.set_num_threads(4)
    names = threads.run_chunks(lambda start, stop: threading.current_thread().name, 99, 50)
    assert names == [threading.current_thread().name]
    names = threads.run_chunks(lambda start, stop: threading.current_thread().name, 200, 50)
    assert len(names) == 4
    assert names[0] == threading.current_thread().name != names[1]


def test_nested_calls_do_not_wait_for_the_pool():
    threads.set_num_threads(2)

    def outer(start, stop):
        return threads.run_chunks(lambda a, b: b - a, 10, 1)

    assert threads.run_chunks(outer, 2, 1) == [[5, 5], [5, 5]]


def test_all_chunks_end_before_the_first_exception_is_raised():
    threads.set_num_threads(3)
    ended = []

    def fail(start, stop):
        ended.append(start)
        if start:
            raise ValueError(start)

    with pytest.raises(ValueError, match="1"):
        threads.run_chunks(fail, 3, 1)
    assert sorted(ended) == [0, 1, 2]


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2"])
def test_the_number_of_threads_is_checked(bad):
    with pytest.raises(DomainError, match="positive integer"):
        threads.set_num_threads(bad)


def test_many_threads_share_the_pool_while_its_size_changes():
    wrong = []

    def work(seed):
        values = np.random.default_rng(seed).random(1000)
        out = np.empty_like(values)
        for _ in range(50):
            out[:] = 0
            threads.run_chunks(square, 1000, 10, values, out)
            if not np.array_equal(out, values**2):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for size in (1, 2, 3, 4) * 5:
        threads.set_num_threads(size)
    for worker in workers:
        worker.join()
    assert wrong == []


def in_child(queue):
    values = np.arange(1000.0)
    out = np.empty_like(values)
    threads.run_chunks(square, 1000, 10, values, out)
    queue.put(bool(np.array_equal(out, values**2)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_make_their_own_pool(method):
    threads.set_num_threads(3)
    out = np.empty(1000)
    threads.run_chunks(square, 1000, 10, np.arange(1000.0), out)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0


def test_the_environment_sets_the_default():
    code = "from derivable.device.cpu.threads import get_num_threads; print(get_num_threads())"
    environment = dict(os.environ, DERIVABLE_NUM_THREADS="5")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "5"
    environment["DERIVABLE_NUM_THREADS"] = "many"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "DomainError" in done.stderr
