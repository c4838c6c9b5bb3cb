"""Memory that freed arrays leave to the next ones."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import derivable as dv
from derivable.core.diagnostics import ShapeError
from derivable.device.cpu import memory
from derivable.parallel import layout

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _only_garbage_of_these_tests():
    """The collector looks at no object that was there before, and there are millions in a process of many tests.

    They stay out of its sight: later tests are as quick as those before.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_kept(_only_garbage_of_these_tests):
    gc.collect()
    dv.device.empty_cache()


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.float64])
@pytest.mark.parametrize("shape", [(), 0, 5, (0, 7), (1 << 15) - 1, (300, 7, 5), (3, 1 << 20)])
def test_arrays_are_like_those_of_numpy(shape, dtype):
    for _ in range(2):  # the second time on memory that the first left
        array, zeros = memory.empty(shape, dtype), memory.zeros(shape, dtype)
        expected = np.empty(shape, dtype)
        for found in (array, zeros, memory.empty_like(expected)):
            assert (found.shape, found.dtype, found.strides) == (expected.shape, expected.dtype, expected.strides)
            assert found.flags.writeable
            assert found.nbytes < memory.SMALLEST or found.ctypes.data % 64 == 0
        assert not zeros.any()
        assert (memory.full(shape, 1, dtype) == 1).all()
        array.fill(1)
        del array, zeros, found


def test_freed_memory_is_used_again_and_other_memory_is_not():
    first = memory.empty(MIB, np.float64)
    address = first.ctypes.data
    view = first.reshape(1024, -1)[3:, ::2].T
    view[...] = 7.0
    del first
    # A view of a view is still there, so this memory is not free.
    other = memory.empty(MIB, np.float64)
    other.fill(3.0)
    assert (view == 7.0).all()
    del view
    again = memory.empty(MIB, np.float64)
    assert again.ctypes.data == address
    assert (other == 3.0).all()


def test_tensors_keep_their_memory():
    torch = pytest.importorskip("torch")
    array = memory.full(MIB, 5.0, np.float32)
    tensor = torch.from_numpy(array)[10:].view(-1, 2)
    back = tensor.detach().numpy()
    del array, tensor
    others = [memory.full(MIB, 1.0, np.float32) for _ in range(3)]
    assert (back == 5.0).all()
    assert all((other == 1.0).all() for other in others)


def test_contiguous_copies_only_what_is_not():
    array = np.arange(100_000.0).reshape(100, 1000)
    assert memory.contiguous(array) is array
    assert memory.contiguous(array, np.float64) is array
    for other in (array.T, array[:, ::3], np.broadcast_to(array[0], (90, 1000))):
        np.testing.assert_array_equal(memory.contiguous(other), other)
        assert memory.contiguous(other).flags.c_contiguous
    np.testing.assert_array_equal(memory.contiguous(array, np.float32), array.astype(np.float32))


def test_read_only_arrays_are_read_where_they_are_and_unaligned_ones_are_copied():
    array = np.arange(12.0).reshape(3, 4)
    array.flags.writeable = False
    assert memory.contiguous(array) is array
    unaligned = np.arange(33, dtype=np.int8)[1:].view(np.float64)
    copied = memory.contiguous(unaligned)
    assert copied.flags.aligned
    np.testing.assert_array_equal(copied, unaligned)


def test_results_are_checked():
    out = np.empty((3, 2))
    assert layout.result(out, (3, 2), np.float64) is out
    with pytest.raises(ShapeError):
        layout.result(out, (2, 3), np.float64)


def test_the_cache_can_be_emptied():
    array = memory.empty(4 * MIB, np.uint8)
    assert dv.device.empty_cache() == 0
    del array
    assert memory.kept_bytes() == 4 * MIB
    assert dv.device.empty_cache() == 4 * MIB
    assert memory.kept_bytes() == 0


def test_no_more_is_kept_than_was_in_use_lately(monkeypatch):
    now = 1e6
    monkeypatch.setattr(memory.time, "monotonic", lambda: now)
    for _ in range(200):
        memory.empty(4 * MIB, np.uint8)
    assert memory.kept_bytes() == 4 * MIB
    together = [memory.empty(16 * MIB, np.uint8) for _ in range(10)]
    del together
    assert memory.kept_bytes() >= 160 * MIB
    # Another use: what it does not need goes after a while, though the system is never asked for more.
    for _ in range(3):
        now += 11
        memory.empty(MIB, np.uint8)
    assert memory.kept_bytes() <= 34 * MIB


def test_sizes_that_never_return_do_not_pile_up():
    for k in range(300):
        memory.empty((16 << 10) * (k + 100), np.uint8)
    assert memory.kept_bytes() <= 48 * MIB


def test_the_variable_limits_what_is_kept():
    code = """
from derivable.device.cpu import memory
a = [memory.empty(1 << 20, "uint8") for _ in range(9)]
del a
print(memory.kept_bytes())
"""
    for text, kept in (("0", "0"), ("3000000", str(2 << 20)), ("", str(9 << 20))):
        environment = {**os.environ, "DERIVABLE_MEMORY_CACHE": text}
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert run.stdout.strip() == kept
    environment["DERIVABLE_MEMORY_CACHE"] = "1G"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "the environment variable DERIVABLE_MEMORY_CACHE is '1G'" in run.stderr


def test_arrays_that_die_while_the_cache_is_at_work_wait():
    array = memory.empty(MIB, np.uint8)
    with memory._lock:
        del array  # as a garbage collection inside would do it
    assert memory.kept_bytes() == MIB


def test_threads_never_share_memory():
    wrong = []

    def work(number: int) -> None:
        mine = []
        for k in range(300):
            array = memory.empty(40_000 + 5_000 * (k % 7), np.uint8)
            array.fill(number)
            mine.append(array[100:])
            if len(mine) > 5:
                wrong.extend(a for a in mine if not (a == number).all())
                del mine[k % 5]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_children_have_memory_of_their_own():
    shared = memory.full(8 * MIB, 1, np.uint8)
    memory.empty(8 * MIB, np.uint8)
    assert memory.kept_bytes() == 8 * MIB
    with memory._lock:  # as another thread may have it
        child = os.fork()
        if child == 0:
            fine = memory.kept_bytes() == 0
            shared.fill(2)
            array = memory.full(8 * MIB, 3, np.uint8)
            fine = fine and bool((shared == 2).all()) and bool((array == 3).all())
            del array
            os._exit(0 if fine and memory.kept_bytes() == 8 * MIB else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (shared == 1).all()
    assert memory.kept_bytes() == 8 * MIB


@pytest.mark.parametrize("cleared", [False, True])
@pytest.mark.parametrize("width", [(), (3,)])
def test_arrays_get_longer(width, cleared):
    for _ in range(2):  # the second time on memory that the first left
        array = memory.zeros((100, *width), np.int32)
        expected = np.arange(100 * max(1, sum(width)), dtype=np.int32).reshape(array.shape)
        array[:] = expected
        while len(array) < 3 * MIB:
            count = len(array)
            array = memory.longer(array, memory.next_length(count, count + 7), count, cleared)
            assert (array[:100] == expected).all()
            assert not cleared or not array[count:].any()
            array[count:] = 9
        del array


def test_large_arrays_get_longer_where_they_are():
    if sys.platform != "linux":
        pytest.skip("addresses are reserved on Linux")
    array = memory.longer(memory.empty(10, np.float64), MIB, 10)
    used = memory._in_use
    longer = memory.longer(array, 4 * MIB, MIB)
    assert longer.ctypes.data == array.ctypes.data
    # What is reserved is no use of memory before it is lent.
    assert memory._in_use == used + 24 * MIB
    del array, longer
    assert memory.kept_bytes() == 32 * MIB


def test_without_addresses_arrays_are_copied(monkeypatch):
    monkeypatch.setattr(memory, "_RESERVES", ())
    array = memory.longer(memory.zeros(10, np.float64), MIB, 10, cleared=True)
    array[5] = 3.0
    longer = memory.longer(array, 4 * MIB, MIB, cleared=True)
    assert longer.ctypes.data != array.ctypes.data
    assert longer.sum() == 3.0
