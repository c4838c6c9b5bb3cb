"""Nothing of the user's process is ours once a kernel has been compiled or run: other functions of Numba compile as
they do without this library.
"""

import json
import os
import subprocess
import sys

import pytest

# A kernel of this library is compiled, then a function of the user's that looks round while it compiles.
OURS_THEN_THEIRS = """
import gc, json, os, signal, sys
import numba
import numpy as np
from numba.core import event
from numba.extending import intrinsic, typeof_impl

def handler(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handler)
before = typeof_impl.dispatch(np.ndarray), dict(os.environ), list(sys.flags), dict(vars(numba.config))
found = {}
if "ours" in sys.argv:
    from derivable.circuit.kernels.and_or import heights
    from derivable.device.cpu.tiers import kernel

    found["heights"] = heights.dispatcher(np.array([0, 0, 1]), np.zeros(1, np.int16), np.zeros(2, np.int16))
    assert heights.dispatcher.signatures

@intrinsic
def look(typingctx):
    found["collects"], found["handles"] = gc.isenabled(), signal.getsignal(signal.SIGINT) is handler
    return numba.types.int64(), lambda context, *_: context.get_constant(numba.types.int64, 3)

@numba.njit
def theirs(array):
    return look() + array[0]

found["answer"] = int(theirs(np.array([4])))
try:
    theirs(np.ma.array([4]))
except numba.TypingError:
    found["masked"] = "refused"
found["listeners"] = sum(map(len, event._registered.values()))
after = typeof_impl.dispatch(np.ndarray), dict(os.environ), list(sys.flags), dict(vars(numba.config))
found["same"] = [first == second for first, second in zip(before, after)]
found["handler"], found["enabled"] = signal.getsignal(signal.SIGINT) is handler, gc.isenabled()
found.pop("heights", None)
print(json.dumps(found))
"""


def printed(program, *arguments, **environment):
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("cache", ["empty", "warm"])
def test_functions_of_the_user_compile_as_without_this_library(tmp_path, cache):
    settings = {"DERIVABLE_TIER": "compiled"}
    if cache == "empty":
        settings["DERIVABLE_CACHE_DIR"] = str(tmp_path)
    expected = printed(OURS_THEN_THEIRS)
    assert expected["collects"]
    assert expected["handles"]
    assert expected["answer"] == 7
    assert printed(OURS_THEN_THEIRS, "ours", **settings) == expected


# A function of the user's compiles while a program runs, which calls it, after kernels of this library have compiled.
CALLED_BY_A_RUN = """
import gc, json, signal, sys
import numba
import numpy as np
from numba.extending import intrinsic
import derivable as dv

def handler(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handler)
seen = []

@intrinsic
def look(typingctx):
    seen.append([gc.isenabled(), signal.getsignal(signal.SIGINT) is handler])
    return numba.types.int64(), lambda context, *_: context.get_constant(numba.types.int64, 3)

@numba.njit
def theirs(x):
    return x + look()

@dv.datalog.function
def three_more(x: np.int64) -> np.int64:
    return int(theirs(x))

program = dv.Program('''
    type number(x: i64)
    rel below(x, y) = number(x), number(y), x < y
    rel found($three_more(x)) = below(x, y)
    query found
''')
rows = program.run({"number": np.arange(5)[:, None]})["found"]
print(json.dumps([sorted(x for (x,) in rows), seen]))
"""


@pytest.mark.parametrize("tier", ["", "compiled"])
def test_functions_that_a_run_calls_compile_as_without_it(tier):
    rows, seen = printed(CALLED_BY_A_RUN, DERIVABLE_TIER=tier)
    assert rows == [3, 4, 5, 6]
    assert seen == [[True, True]]


# Ctrl-C comes while a kernel of this library compiles.
INTERRUPTED = """
import gc, json, os, signal
import numba
from numba.extending import intrinsic
from derivable.device.cpu.compiling import njit

seen = []

@intrinsic
def press(typingctx):
    os.kill(os.getpid(), signal.SIGINT)
    seen.append(gc.isenabled())
    return numba.types.int64(), lambda context, *_: context.get_constant(numba.types.int64, 3)

@njit()
def ours(x):
    return x + press()

try:
    ours(4)
except KeyboardInterrupt:
    seen.append("interrupted")
print(json.dumps([seen, len(ours.signatures), ours(4), gc.isenabled()]))
"""


def test_ctrl_c_comes_after_a_kernel_is_compiled():
    assert printed(INTERRUPTED) == [[False, "interrupted"], 1, 7, True]
