"""What runs kernels leaves the process that it runs in as it was: its signals, its hooks, Numba and its children."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

PROGRAM = """
import gc, json, os, signal, sys, threading

def state():
    return {
        "signals": [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "hooks": [id(sys.excepthook), id(threading.excepthook), id(sys.getprofile()), id(sys.gettrace())],
        "environment": dict(os.environ),
        "gc": [gc.isenabled(), gc.get_threshold()],
    }

before, finders = state(), list(sys.meta_path)
import numba, numpy as np
from numba.core import compiler, event
from numba.core.typing.typeof import typeof_impl

def of_numba():
    return id(typeof_impl.dispatch(np.ndarray)), {kind: len(all) for kind, all in event._registered.items()}

numba.njit(lambda x: x)(1.0)
numba_before = of_numba()
import derivable as dv

edges = np.random.default_rng(0).integers(0, 200, (1500, 2)).astype(np.uint32)
path = "type edge(u32, u32) rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z) query path"
program = dv.Program(path)
sizes = [len(program.run({"edge": edges[:many]}, provenance)["path"]) for many, provenance in (
    (1500, "unit"), (100, "minmaxprob"), (20, "topkproofs"), (20, "exact"))]
a, b = dv.circuit.variables("a b")
dv.circuit.compile(a | b).evaluate([0.5, 0.5])
dv.parallel.scan("add", np.arange(1000.0))
dv.tensor.einsum("ij,j->i", np.eye(3), np.ones(3))

compiling, compile_extra = [], compiler.compile_extra
def seen(*arguments, **options):
    compiling.append([gc.isenabled(), str(signal.getsignal(signal.SIGINT))])
    return compile_extra(*arguments, **options)
compiler.compile_extra = seen
assert numba.njit(lambda x: x + 1)(3) == 4
added = [one for one in sys.meta_path if one not in finders]
print(json.dumps({
    "sizes": sizes,
    "same": before == state(),
    "numba": numba_before == of_numba(),
    "compiling": compiling == [[True, before["signals"][0]]],
    # Of ours are generated functions alone.
    "finders": all(one.find_spec(name, None) is None for one in added for name in ("json", "numpy.linalg", "user")),
    "threads": threading.active_count(),
}))
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")


def test_nothing_of_the_process_is_ours_after_kernels_ran(tmp_path):
    pytest.importorskip("numba")
    # As users have it: in no tier that tests choose.
    environment = {name: value for name, value in os.environ.items() if name != "DERIVABLE_TIER"}
    said, left = ended([sys.executable, "-c", PROGRAM], environment)
    state = json.loads(said)
    assert all(state.pop("sizes"))
    assert state == {"same": True, "numba": True, "compiling": True, "finders": True, "threads": 1}
    assert left == []


def ended(command, environment):
    """(what a process printed, the numbers of the processes that it left behind, in whatever session)"""
    mark = str(uuid.uuid4())
    environment = {**environment, "MARK_OF_TEST": mark}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    left = []
    for variables in Path("/proc").glob("[0-9]*/environ"):
        try:
            has_mark = mark.encode() in variables.read_bytes()
        except OSError:
            continue
        if has_mark:
            left.append(int(variables.parent.name))
    return done.stdout, left


def test_a_process_that_outlives_its_parent_is_seen():
    start = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=-3, start_new_session=True).pid)"
    said, left = ended([sys.executable, "-c", start], os.environ)
    try:
        assert left == [int(said)]
    finally:
        os.kill(int(said), 9)
