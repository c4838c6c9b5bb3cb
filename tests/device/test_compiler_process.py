"""Kernels that another process compiles are on disk for this one; the process ends with this one."""

import json
import os
import subprocess
import sys
import time
from io import BytesIO, TextIOWrapper
from queue import PriorityQueue

import networkx as nx
import numpy as np
import pytest

from derivable.device.cpu import compiler_process

PROGRAM = """
import json, os, sys, time
import numpy as np
from derivable.datalog.kernels.relations import dense_offsets
from derivable.device.cpu import compiler_process, object_code

compiler_process.is_worth = lambda: True
# As where the package has none for this processor.
object_code._from_package = lambda function, kinds: None
types = ["int64[]", "int64", "int64[]"]
found = {"ready": [dense_offsets.is_ready(types)]}
found["process"] = compiler_process._compilers[0].process.pid
child = os.fork()
if not child:
    # It does not hear from the process, and compiles itself.
    os._exit(0 if dense_offsets.is_ready(types) else 1)
found["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
while not dense_offsets.is_ready(types):
    time.sleep(0.05)
offsets = np.zeros(4, np.int64)
found["ready"].append(bool(dense_offsets.dispatcher(np.array([7, 7, 9]), 7, offsets)))
found["offsets"] = offsets.tolist()
found["loaded"] = sum(dense_offsets.dispatcher.stats.cache_hits.values())
found["compiled"] = sum(dense_offsets.dispatcher.stats.cache_misses.values())
unknown = compiler_process.begun("derivable.no_such_module", "kernel", [])
while not unknown.is_done:
    time.sleep(0.05)
compiler_process.available_cores = lambda: 2
begun = [compiler_process.begun("json", "dumps", [], True) for _ in range(4)]
found["processes"] = len(compiler_process._compilers)
begun[0].wait(0.001)
for one in begun:
    one.wait()
found["done"] = [one.is_done for one in begun]
late = compiler_process.begun("time", "sleep", [])
for compiler in compiler_process._compilers:
    compiler.process.kill()
late.wait()
while compiler_process._compilers:
    time.sleep(0.05)
print(json.dumps(found))
"""


def run(program, tmp_path):
    caches = {"DERIVABLE_CACHE_DIR": str(tmp_path)}
    environment = {**os.environ, **caches, "DERIVABLE_TIER": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_kernel_is_on_disk_when_it_is_done(tmp_path):
    found = run(PROGRAM, tmp_path)
    assert found["ready"] == [False, True]
    assert found["offsets"] == np.searchsorted([7, 7, 9], [7, 8, 9, 10]).tolist()
    assert (found["loaded"], found["compiled"], found["child"]) == (1, 0, 0)
    # On a busy machine the first is done before there is a reason for the second.
    assert found["processes"] in (1, 2)
    assert found["done"] == [True] * 4


BEGUN = PROGRAM.partition("child =")[0] + "print(json.dumps(found), flush=True)\n"
ENDS = {
    "at its end": "",
    "by an error": "raise SystemExit(3)",
    "killed": "os.kill(os.getpid(), 9)",
    "at once": "os._exit(4)",
}


@pytest.mark.parametrize("how", ENDS)
def test_no_process_is_left_when_the_program_has_ended(tmp_path, how):
    """The program has begun with a kernel, which takes the other process a second or more."""
    process = started(BEGUN + ENDS[how], tmp_path)
    if how in ("killed", "at once"):
        # It sees that nobody writes to it any more.
        wait_until(lambda: has_ended(process), 10)
    assert has_ended(process)


def test_a_kernel_is_compiled_after_the_program_where_that_is_asked_for(tmp_path):
    more = "[compiler_process.begun('json', 'dumps', []) for _ in range(1000)]\n"
    process = started(BEGUN + more, tmp_path, DERIVABLE_COMPILE_AFTER_EXIT="1")
    wait_until(lambda: has_ended(process), 60)
    assert list(tmp_path.rglob("*dense_offsets*.nbc"))


def started(program, tmp_path, **more):
    """The number of the process that a program has started."""
    environment = {**os.environ, "DERIVABLE_CACHE_DIR": str(tmp_path), "DERIVABLE_TIER": "", **more}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["process"]


def has_ended(process):
    """Whether a process runs no more; one that nobody has waited for keeps its number."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def wait_until(holds, seconds):
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    assert holds()


def test_what_is_wanted_last_is_compiled_first_of_those_that_are_as_urgent():
    lines = [json.dumps([number, number < 2, "module", f"kernel{number}", []]).encode() for number in range(4)]
    wanted = PriorityQueue()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DERIVABLE_COMPILE_AFTER_EXIT", "1")
        patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"\n".join(lines))))
        compiler_process._read_all(wanted)
    order = [wanted.get()[2][3:4] for _ in range(5)]
    assert order == [["kernel1"], ["kernel0"], ["kernel3"], ["kernel2"], []]


DATALOG = """
import json, time
import numpy as np
import derivable as dv
from derivable.datalog.policy.costs import under
from derivable.device.cpu import compiler_process

compiler_process.is_worth = lambda: True
under(few_rows=0, many_rows=0, shortcuts=()).__enter__()
program = dv.Program('''
    type edge(x: i32, y: i32)
    rel path(x, y) = edge(x, y)
    rel path(x, z) = path(x, y), edge(y, z)
    query path
''')
edges = np.random.default_rng(0).integers(0, 40, (50, 2))
found, until = [], time.monotonic() + 120
while time.monotonic() < until and not (found and "driver" in found[-1][0]):
    database = program.run({"edge": edges})
    routes = [line.partition("; by ")[2] for line in database.explain("plan").splitlines() if "; by " in line]
    found.append([", ".join(routes), sorted(map(list, database["path"]))])
    time.sleep(0.1)
print(json.dumps([edges.tolist(), found]))
"""


def test_where_no_process_may_start_the_kernel_is_compiled_when_it_is_called(monkeypatch):
    def refused(*arguments, **options):
        raise PermissionError

    monkeypatch.setattr(compiler_process.subprocess, "Popen", refused)
    assert compiler_process.begun("derivable.datalog.kernels.relations", "dense_offsets", ["int64[]"]).is_done


@pytest.mark.slow
def test_a_recursion_runs_over_columns_until_its_kernel_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("DERIVABLE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("DERIVABLE_NUM_THREADS", "1")
    edges, found = run(DATALOG, tmp_path)
    graph = nx.DiGraph(edges)
    wanted = sorted([x, z] for x in graph for z in {y for s in graph[x] for y in {s, *nx.descendants(graph, s)}})
    assert [rows == wanted for _, rows in found] == [True] * len(found)
    assert "driver" not in found[0][0]
    assert "driver" in found[-1][0]
