"""Kernels that LLVM compiles: how Python calls them, and their files."""

import copy
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from derivable.core import cache
from derivable.device.cpu import linking, llvm_code
from derivable.kernel.build import Builder

NUMBERS = {
    "int64": -(2**63),
    "int32": -(2**31),
    "uint64": 2**64 - 1,
    "uint8": 255,
    "float64": -0.1,
    "float32": 1.5,
    "bool": True,
}


# Code goes with the engine that has linked it.
engines = []


def forget(monkeypatch):
    """Nothing is linked, as in another process."""
    engines.append(linking._engine())
    linking._engine.cache_clear()
    monkeypatch.setattr(llvm_code, "_addresses", {})
    monkeypatch.setattr(llvm_code, "_functions", {})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, and nothing linked."""
    monkeypatch.setattr(llvm_code, "cache_directory", lambda: tmp_path)
    forget(monkeypatch)
    return tmp_path / "objects"


def doubling():
    k = Builder("doubling")
    x, out, n = k.array("x", "float64"), k.array("out", "float64"), k.scalar("n")
    with k.loop("i", 0, n) as i:
        k.store(out, i, 2.0 * k.load(x, i, "value"))
    return k.kernel()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_go_in_and_come_out(dtype):
    k = Builder("same")
    given = k.scalar("given", dtype)
    k.return_(given)
    found = llvm_code.compile_kernel(k.kernel())(NUMBERS[dtype])
    assert found == NUMBERS[dtype]
    assert type(found) is type(NUMBERS[dtype])
    assert llvm_code.compile_kernel(k.kernel())(np.dtype(dtype).type(NUMBERS[dtype])) == found


def test_several_results_are_a_tuple_and_none_are_none():
    k = Builder("both")
    given = [k.scalar(dtype, dtype) for dtype in NUMBERS]
    k.return_(*given)
    assert llvm_code.compile_kernel(k.kernel())(*NUMBERS.values()) == tuple(NUMBERS.values())
    assert llvm_code.compile_kernel(Builder("nothing").kernel())() is None


def test_arrays_of_any_shape_that_are_read_only_where_nothing_writes():
    x = np.arange(6.0).reshape(2, 3)
    x.flags.writeable = False
    out = np.zeros((3, 2))
    run = llvm_code.compile_kernel(doubling())
    assert run(x, out, 6) is None
    assert out.ravel().tolist() == [0, 2, 4, 6, 8, 10]
    with pytest.raises(TypeError, match="argument 1 of a kernel is no aligned array"):
        run(x, x, 6)

    class Subclass(np.ndarray):
        pass

    run(np.ones(2).view(Subclass), out, 2)
    assert out[0].tolist() == [2, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones(4, np.float32),
        np.ones(4, np.int64),
        np.ones(8)[::2],
        np.ones((2, 2)).T,
        np.ones(4).astype(">f8"),
        np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64),
        [1.0, 2.0],
        None,
    ],
    ids=["narrow", "integers", "strided", "transposed", "swapped", "unaligned", "list", "none"],
)
def test_other_arguments_are_refused(wrong):
    run, out = llvm_code.compile_kernel(doubling()), np.zeros(4)
    with pytest.raises(TypeError, match="argument 0 of a kernel is no aligned array in C order of its dtype"):
        run(wrong, out, 4)
    assert not out.any()


def test_numbers_that_are_none_are_refused():
    run, x = llvm_code.compile_kernel(doubling()), np.ones(2)
    with pytest.raises(TypeError, match="a kernel takes 3 arguments, and 2 are passed"):
        run(x, x)
    with pytest.raises(TypeError):
        run(x, x, "2")
    with pytest.raises(OverflowError):
        run(x, x, 2**63)


def test_code_is_compiled_once_and_read_from_its_file(folder, monkeypatch):
    compiled = []
    original = llvm_code._compiled
    monkeypatch.setattr(llvm_code, "_compiled", lambda text: compiled.append(text) or original(text))
    kernel = doubling()
    for _ in range(2):
        llvm_code.compile_kernel(kernel)
    # The kernel, and what Python calls kernels by.
    assert len(compiled) == 2
    forget(monkeypatch)
    out = np.zeros(3)
    llvm_code.compile_kernel(kernel)(np.ones(3), out, 3)
    assert len(compiled) == 2
    assert out.tolist() == [2, 2, 2]
    files = list(folder.rglob("*.o"))
    assert len(files) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[:-1])
    forget(monkeypatch)
    llvm_code.compile_kernel(kernel)(np.ones(3), out, 2)
    assert len(compiled) == 4


def test_no_file_of_a_kernel_waits_for_the_disk(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    llvm_code.compile_kernel(doubling())
    assert list(folder.rglob("*.o"))
    assert synced == []


def test_where_nothing_can_be_written_kernels_run(folder):
    folder.write_text("a file where the folder should be")
    out = np.zeros(3)
    llvm_code.compile_kernel(doubling())(np.ones(3), out, 3)
    assert out.tolist() == [2, 2, 2]


def test_threads_ask_for_one_kernel(folder):
    kernel, out = doubling(), [np.zeros(2) for _ in range(8)]
    runs = [lambda one=one: llvm_code.compile_kernel(kernel)(np.ones(2), one, 2) for one in out]
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.all(np.array(out) == 2)


def test_folds_need_no_numba():
    program = """
import sys
import numpy as np
from derivable.algebra import monoids
from derivable.parallel import element_folds
op = monoids.NAMED["add"].typed(["float64"])
found = element_folds.scan(op, (np.arange(5000.0).reshape(-1, 1, 1),))
assert found[0].ravel()[-1] == 4999 * 2500
assert "numba" not in sys.modules
"""
    environment = os.environ | {"DERIVABLE_CACHE_DIR": str(cache.cache_directory())}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_a_function_is_pickled_as_its_kernel():
    build = Builder("twice")
    x = build.array("x", "float64")
    value = build.load(x, 0, "value")
    build.store(x, 0, value + value)
    function, array = llvm_code.compile_kernel(build.kernel()), np.array([1.5])
    code = "import pickle, sys, numpy\nf = pickle.load(sys.stdin.buffer)\na = numpy.array([1.5])\nf(a)\nprint(a[0])"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(function), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "3.0"
    copy.deepcopy(function)(array)
    assert array.tolist() == [3.0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="freed memory is overwritten by glibc")
def test_functions_may_outlive_the_modules_that_made_them():
    program = """
import builtins, gc
import numpy as np
from derivable.algebra import monoids
from derivable.parallel import element_folds
element_folds.scan(monoids.NAMED["add"].typed(["float64"]), (np.arange(5000.0).reshape(-1, 1, 1),))
functions = [one for one in gc.get_objects() if type(one) is type(len) and type(one.__self__).__name__ == "_Form"]
assert functions
builtins.last = [functions]
builtins.last.append(builtins.last)
"""
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "255"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
