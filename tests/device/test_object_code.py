"""Kernels that one process has compiled are called by the next one without Numba, to the same results."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from derivable.device.cpu import places
from derivable.device.cpu.python_lanes import meaning_of

CALLED = """
import numpy as np
from derivable.device.cpu.places import hash_word
from derivable.device.cpu.tiers import kernel

@kernel
def twice(x):
    return 2 * x

@kernel
def hashed(x):
    return hash_word(x)
"""
KERNELS = """
import math
import numpy as np
from derivable.device.cpu.tiers import kernel
from called import hashed, twice

@kernel
def numbers(a, b, c, d, e, f):
    return a + twice(b), c, d * 0.5, e, f + np.float32(0.25)

@kernel
def fill(counts, grid, flags, pair, offset):
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            grid[i, j] = np.float32(math.exp(np.float64(counts[i] + j)))
    for i in range(len(flags)):
        flags[i] = counts[i] > 1
    pair[0][0] += pair[1] + offset

@kernel
def is_found(values, number):
    for value in values:
        if value == number:
            return True
    return False

@kernel
def largest(values):
    found = values[0]
    for value in values:
        found = max(found, value)
    return found

@kernel
def middle(values):
    return hashed(np.int64(values[len(values) // 2])) & np.int64(255)

@kernel
def ordered(values):
    found = np.empty(len(values))
    for i in range(len(values)):
        found[i] = values[len(values) - 1 - i]
    return found, found.sum() > 1.0

@kernel
def room(size):
    return np.zeros(size).sum()

@kernel
def raising(size):
    if size > 3:
        raise ValueError("too many")
    return size
"""
# Prints what kernels return and write, and whether Numba has been imported by then.
PROGRAM = """
import json, sys
import numpy as np
import kernels

if "numba" in sys.argv:
    import derivable.device.cpu.compiling

def call(name, *arguments):
    try:
        found = getattr(kernels, name).compiled(*arguments)
    except (TypeError, ValueError) as error:
        found = [type(error).__name__, *error.args]
    if isinstance(found, tuple):
        found = [part.tolist() if isinstance(part, np.ndarray) else part for part in found]
    written = [part.tolist() for part in arguments if isinstance(part, np.ndarray)]
    print(json.dumps([name, found, written, "numba" in sys.modules]))

counts, pair = np.arange(3, dtype=np.int8), (np.ones(2, np.int64), 4)
call("numbers", np.int32(-3), 4, np.uint64(2**64 - 1), 2.5, np.uint8(200), np.float32(1.5))
call("fill", counts, np.zeros((3, 2), np.float32), np.zeros(3, bool), pair, -2)
print(json.dumps(pair[0].tolist()))
call("is_found", np.array([1.0, 2.0]), 2.0)
call("largest", np.array([3, 2**63 + 5], np.uint64))
call("largest", np.array([0.5, 0.75], np.float32))
call("middle", np.array([[7, 8], [9, 10]])[1])
call("ordered", np.arange(3.0))
call("room", 3)
call("room", -3)
call("raising", np.int64(5))
if len(sys.argv) > 1:
    call(*{
        "numba": ("raising", 2),
        "reversed": ("largest", np.arange(6)[::-2]),
        "constant": ("largest", np.broadcast_to(np.arange(3), 3)),
        "unaligned": ("largest", np.arange(33, dtype=np.int8)[1:].view(np.float64)),
        "in columns": ("fill", counts, np.zeros((2, 3), np.float32).T, np.zeros(3, bool), pair, -2),
    }[sys.argv[1]])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs the program in a new process, on kernels that an earlier one has compiled; gives what it prints."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "called.py").write_text(CALLED)
    (folder / "kernels.py").write_text(KERNELS)
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    caches = {"DERIVABLE_CACHE_DIR": str(folder / "ours")}
    environment = {**os.environ, **caches, "PYTHONPATH": paths, "DERIVABLE_TIER": "compiled"}

    def printed(*arguments, **more):
        command = [sys.executable, "-c", printed.program, *arguments]
        done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    printed.program, printed.folder = PROGRAM, folder
    printed.first = printed("numba")
    return printed


def without(numba, rows):
    return [row[:-1] if isinstance(row, list) and row[-1] is numba else row for row in rows]


def test_another_process_calls_them_without_numba(run):
    hashed = meaning_of(places.hash_word)
    assert hashed is not None
    expected = [
        ["numbers", [5, 2**64 - 1, 1.25, 200, 1.75], []],
        ["fill", None, [[0, 1, 2], np.exp([[0, 1], [1, 2], [2, 3]]).astype(np.float32).tolist(), [False, False, True]]],
        [3, 1],
        ["is_found", True, [[1.0, 2.0]]],
        ["largest", 2**63 + 5, [[3, 2**63 + 5]]],
        ["largest", 0.75, [[0.5, 0.75]]],
        ["middle", hashed(10) & 255, [[9, 10]]],
        ["ordered", [[2.0, 1.0, 0.0], True], [[0.0, 1.0, 2.0]]],
        ["room", 0.0, []],
        ["room", ["ValueError", "negative dimensions not allowed"], []],
        ["raising", ["ValueError", "too many"], []],
    ]
    assert without(True, run.first) == [*expected, ["raising", 2, []]]
    assert without(False, run()) == expected


def test_entries_free_what_they_make_and_take(run):
    """Objects and memory stay as many, whether arguments fit or not."""
    run.program = """
import gc, json, resource, sys
import numpy as np
import kernels
a, missing, pair = np.arange(1000.0), (np.ones(2, np.int64), "four"), (np.ones(2, np.int64), 4)
counts, grid, flags = np.arange(3, dtype=np.int8), np.zeros((3, 2), np.float32), np.zeros(3, bool)
kernels.ordered.compiled(a)
kernels.fill.compiled(counts, grid, flags, pair, 1)
ordered, fill = kernels.ordered._run, kernels.fill._run
def look():
    for _ in range(20_000):
        ordered(a), ordered(7), fill(counts, grid, flags, pair, 1)
        assert fill(counts, grid, flags, missing, 1) is fill(counts, grid, flags, pair, 1 << 70) is NotImplemented
    objects = a, 7, counts, grid, flags, pair, missing, None, NotImplemented, a.dtype, (1000,), True
    return [sys.getrefcount(x) for x in objects], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(before, size), (after, later) = look(), look()
print(json.dumps([[abs(y - x) for x, y in zip(before, after)], later - size]))
"""
    (found,) = run()
    run.program = PROGRAM
    assert max(found[0]) < 100
    assert found[1] < 4000  # kilobytes, of 160,000 if each array stayed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reversed", 5),
        ("constant", 2),
        ("unaligned", np.arange(33, dtype=np.int8)[1:].view(np.float64).max()),
        ("in columns", None),
    ],
)
def test_other_layouts_need_numba(run, name, expected):
    *others, last = run(name)
    assert last[1] == expected
    assert last[-1] is True
    assert without(False, others) == without(True, run.first[:-1])


def test_other_texts_settings_and_damaged_files_are_not_linked(run):
    """The text is that of the kernel's module, and that of one whose kernels it calls."""

    def is_linkable(**more):
        types = ["int32", "int64", "uint64", "float64", "uint8", "float32"]
        run.program = f"import kernels; print(int(kernels.numbers.is_linkable({types})))"
        return bool(*run(**more))

    assert is_linkable()
    assert not is_linkable(NUMBA_BOUNDSCHECK="1")
    for name, text in (("called", CALLED), ("kernels", KERNELS)):
        path = run.folder / f"{name}.py"
        path.write_text(text + "\n")
        assert not is_linkable()
        path.write_text(text)
    assert is_linkable()
    (file,) = (run.folder / "ours" / "objects").glob("numbers-*.o")
    file.write_bytes(file.read_bytes()[:-1])
    assert not is_linkable()
