"""Python and Numba run the same kernels to the same results; who runs when."""

import json
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from derivable.circuit.kernels import hashcons
from derivable.device.cpu import tiers
from derivable.device.cpu.tiers import Kernel, interpreted, kernel


def results(tier, *speed):
    environment = {**os.environ, "DERIVABLE_TIER": tier}
    command = [sys.executable, str(Path(__file__).parent / "tier_workload.py"), *speed]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def test_both_tiers_give_the_same_bits():
    """And a process whose clock is fast or slow, so that kernels change tiers at other calls."""
    wanted = results("compiled")
    assert wanted[0] == wanted[1]
    assert results("interpreted") == wanted
    for speed in ("0.01", "30"):
        assert results("", speed) == wanted


@kernel
def wrapped(values, shift):
    total = np.uint64(0)
    for value in values:
        total = (total ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(shift)
    return total


@kernel
def doubled(values):
    # In NumPy's own arithmetic 100 + 100 is no int8, and 2^30 * 4 no int32.
    for i in range(len(values)):
        values[i] = (values[i] + values[i]) // 2
    return np.int64(values[0]) * 4, wrapped(values, 31)


def test_floats_of_python_divide_by_zero():
    def quotients(number, out):
        out[0] = 1.0 / number
        out[1] = 1.0 / math.exp(-1000.0 - number)
        total = 0.0
        out[2] = number / total

    out = np.zeros(3)
    with np.errstate(all="ignore"):
        interpreted(Kernel(quotients))(*map(tiers._seen, (0.0, out)))
    np.testing.assert_array_equal(out, [np.inf, np.inf, np.nan])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32])
def test_integers_are_as_wide_as_compiled_ones(dtype):
    info = np.iinfo(dtype)
    values = np.array([info.max, info.min, 3, info.max - 1], dtype) if dtype != np.int64 else np.array([-5, 7, 2**40])
    ours, theirs = values.copy(), values.copy()
    with np.errstate(all="ignore"):
        found = interpreted(doubled)(ours.view(tiers._Array))
    assert tuple(map(int, found)) == tuple(map(int, doubled.dispatcher(theirs)))
    assert ours.tolist() == theirs.tolist()


def test_other_compiled_functions_call_kernels():
    @njit
    def caller(values):
        return wrapped(values, 7)

    values = np.arange(5)
    assert caller(values) == wrapped.dispatcher(values, 7)


def test_a_kernel_goes_through_pickle():
    assert pickle.loads(pickle.dumps(hashcons.mark_reachable)) is hashcons.mark_reachable


def new_kernel(monkeypatch, built=False):
    monkeypatch.delenv("DERIVABLE_TIER", raising=False)
    ran = []
    made = Kernel(wrapped.py_func)
    monkeypatch.setattr(made, "is_linkable", lambda types: built)
    made.dispatcher = lambda *arguments: ran.append("compiled")
    monkeypatch.setattr(tiers, "interpreted", lambda compiled: lambda *arguments: ran.append("Python"))
    return made, ran


def test_python_runs_small_inputs_until_that_took_long(monkeypatch):
    made, ran = new_kernel(monkeypatch)
    made(np.zeros(3), 1)
    made._spent = tiers.PATIENCE + 1
    made(np.zeros(3), 1)
    made(np.zeros(3), 1)
    assert ran == ["Python", "compiled", "compiled"]


def test_kernels_in_the_cache_on_disk_are_taken_from_there(tmp_path):
    """Written by one process, found by the next one, which imports nothing that compiles."""
    program = """
import sys
import numpy as np
from derivable.circuit.kernels.layering import layer_bounds
from derivable.device.cpu import object_code, tiers
# As where the package has none for this processor.
object_code._from_package = lambda function, kinds: None
for seconds in (0.0, 2 * tiers.LINKING):
    tiers._spent_in_all = seconds
    none = np.zeros(0, np.int32)
    layer_bounds(np.zeros(0, np.uint8), np.zeros(1, np.int64), none, np.zeros(0, np.int64), none, none)
    print(layer_bounds.is_compiled, "numba" in sys.modules, end=" ")
"""
    environment = {**os.environ, "DERIVABLE_CACHE_DIR": str(tmp_path)}

    def run(tier):
        own = {**environment, "DERIVABLE_TIER": tier}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout.split()

    assert run("") == ["False", "False", "False", "False"]
    assert run("compiled") == ["True", "True", "True", "True"]
    assert run("") == ["False", "False", "True", "False"]


def test_what_links_is_imported_when_python_has_run_kernels_as_long(monkeypatch):
    made, _ = new_kernel(monkeypatch, built=True)
    assert made._is_there(())
    monkeypatch.delitem(sys.modules, "llvmlite", raising=False)
    monkeypatch.setattr(tiers, "_spent_in_all", tiers.LINKING / 2)
    assert not made._is_there(())
    monkeypatch.setattr(tiers, "_spent_in_all", 2 * tiers.LINKING)
    assert made._is_there(())


@pytest.mark.parametrize(
    ("built", "size", "tier", "expected"),
    [
        (False, 3, "", "Python"),
        (True, 3, "", "compiled"),
        (False, tiers.SMALL + 1, "", "compiled"),
        (False, 3, "compiled", "compiled"),
        (True, tiers.SMALL + 1, "interpreted", "Python"),
    ],
)
def test_who_runs(monkeypatch, built, size, tier, expected):
    made, ran = new_kernel(monkeypatch, built)
    monkeypatch.setenv("DERIVABLE_TIER", tier)
    made((np.zeros(size), np.zeros(2)), 1)
    assert ran == [expected]


def test_without_numba_a_kernel_that_is_not_compiled_is_an_error_of_ours():
    """A small input is Python's; what the package brings compiled needs no Numba."""
    program = """
import sys
sys.modules["numba"] = None
import numpy as np
from derivable.core.diagnostics import MissingDependencyError
from derivable.device.cpu.tiers import Kernel

def total(values):
    found = 0
    for value in values:
        found += value
    return found

kernel = Kernel(total)
print(kernel(np.arange(5)))
try:
    kernel(np.arange(10_000))
except MissingDependencyError as error:
    print(error, error.hint)
"""
    environment = {**os.environ, "DERIVABLE_TIER": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    small, large = done.stdout.splitlines()[:2]
    assert small == "10"
    assert large.startswith(
        "kernel total is not compiled for these arguments, and Numba, which compiles it, is missing"
    )
    assert "pip install numba" in done.stdout
