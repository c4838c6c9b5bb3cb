"""Memory behind plain pointers lives for as long as the kernel uses it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

import derivable
from derivable.device.cpu.building.pointers import pointer, scratch

_CIRCUITS = """
import numpy as np
from derivable.circuit.graph.builder import circuit_from_arrays

rng = np.random.default_rng(0)
kind = np.r_[np.full(100, 2), rng.integers(3, 5, 250_000)].astype(np.uint8)
literal = np.zeros(len(kind), np.int32)
literal[:100] = np.r_[1:51, -50:0]
sizes = np.where(kind > 2, rng.integers(2, 6, len(kind)), 0)
children = (rng.random(sizes.sum()) * np.repeat(np.arange(len(kind)), sizes)).astype(np.int32)
offsets = np.r_[0, np.cumsum(sizes)]
for _ in range(3):
    circuit = circuit_from_arrays(kind, literal, offsets, children, np.arange(len(kind)), 50)
    parents = np.repeat(np.arange(circuit.num_nodes), np.diff(circuit.offsets))
    assert (circuit.children < parents).all(), "a child does not come before its parent"
    assert ((np.diff(circuit.children) > 0) | (np.diff(parents) > 0)).all(), "children do not ascend"
"""


@njit()
def filled(count):
    row = scratch(np.int32, 64)
    for i in range(64):
        row[i] = i
    # An array that is made later might get memory that was given back.
    later = np.full(count, -1, np.int32)
    total = 0
    for i in range(64):
        total += row[i]
    return total + later.sum()


def test_scratch_is_nobody_elses():
    assert filled(64) == 63 * 32 - 64


def test_scratch_has_a_constant_size():
    @njit()
    def made(count):
        return scratch(np.int32, count)[0]

    with pytest.raises(Exception, match="scratch"):
        made(3)


def _pointers_of_locals(source: str) -> list[str]:
    """Names that are given to `pointer` and are no parameters of the function that does."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            parameters = {argument.arg for argument in function.args.args}
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == pointer.__name__:
                    (given,) = call.args
                    if not isinstance(given, ast.Name) or given.id not in parameters:
                        found.append(f"{function.name}: {ast.unparse(given)}")
    return found


def test_pointers_are_those_of_parameters():
    assert _pointers_of_locals("def f(n):\n    row = empty(n)\n    return pointer(row)") == ["f: row"]
    sources = [path.read_text() for path in Path(derivable.__file__).parent.rglob("*.py")]
    users = [source for source in sources if re.search(r"places import .*\bpointer\b", source)]
    assert users
    assert [found for source in users for found in _pointers_of_locals(source)] == []


def test_threads_that_share_an_allocator_do_not_share_memory():
    # Threads have an allocator each, until there are too many of them; then what one gives back another gets.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1", "DERIVABLE_NUM_THREADS": "2"}
    run = [sys.executable, "-c", _CIRCUITS]
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
