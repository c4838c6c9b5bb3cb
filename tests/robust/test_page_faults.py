"""In the steady state no large array is faulted in again: page faults of single steps, each kind in a fresh process."""

import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")
pytest.importorskip("torch")

# Pages of 4 KiB; a step of any of these touches thousands.
MOST = 100
STEADY = """
import resource, statistics
import numpy as np, torch
import derivable as dv

rng = np.random.default_rng(0)
{setup}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for threads in (1, 2):
    dv.device.set_num_threads(threads)
    for _ in range(8):
        step()
    found = []
    for _ in range(9):
        before = faults()
        step()
        found.append(faults() - before)
    print(int(statistics.median(found)))
"""
FOLD = """
from derivable.algebra import expr

op = dv.parallel.operator(lambda a, b: expr.minimum(a + b, 1e5), neutral=0.0)
destination, indices = torch.zeros(31), torch.from_numpy(rng.integers(0, 31, 1_000_000))
values = torch.from_numpy(rng.random(1_000_000, dtype=np.float32)).requires_grad_()

def step():
    values.grad = None
    dv.parallel.reduce_by_index(destination, op, indices, values).sum().backward()
"""
SCAN = """
values = torch.from_numpy(1 + 1e-4 * rng.random(3_000_000, dtype=np.float32)).requires_grad_()

def step():
    values.grad = None
    dv.parallel.scan("mul", values).sum().backward()
"""
LAYER = """
digits = dv.categorical(range(10))
text = "rel sum_2(a + b) = digit_1(a), digit_2(b)"
layer = dv.nn.Logic(text, inputs={"digit_1": digits, "digit_2": digits}, outputs={"sum_2": range(19)})
first, second = (torch.rand(100_000, 10).softmax(-1).requires_grad_() for _ in range(2))
"""
CIRCUIT = (
    LAYER
    + """
module = layer.circuit.to_torch("real")
weights, ones = torch.rand(100_000, 20).requires_grad_(), torch.ones(100_000, 20)

def step():
    weights.grad = None
    module(weights, ones).sum().backward()
"""
)
LAYER_STEP = (
    LAYER
    + """
def step():
    first.grad = second.grad = None
    layer(first, second).sum().backward()
"""
)
DATALOG = """
edges = rng.integers(0, 1000, (3000, 2))
program = dv.Program("type edge(i32, i32) rel path(a, b) = edge(a, b) or path(a, c), edge(c, b) query path")

def step():
    program.run({"edge": edges})
"""


@pytest.mark.parametrize(
    "setup", [FOLD, SCAN, CIRCUIT, LAYER_STEP, DATALOG], ids=["fold", "scan", "circuit", "layer", "datalog"]
)
def test_steps_touch_no_new_pages(setup):
    """In one of three processes: now and then glibc gives the top of torch's heap back in each step, by its address."""
    for _ in range(3):
        run = subprocess.run(
            [sys.executable, "-c", STEADY.replace("{setup}", setup)], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        if all(int(found) < MOST for found in run.stdout.split()):
            return
    raise AssertionError(run.stdout)
