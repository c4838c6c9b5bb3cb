"""The library without extras: what runs on NumPy runs without torch and JAX, and what needs them says so."""

import json
import subprocess
import sys

# An environment in which neither is installed: no import of them succeeds.
BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jax", "jaxlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
RUNS = """
import json

import numpy as np

import derivable as dv

seen = {}
closure = dv.Program("rel path(x, y) = edge(x, y)\\nrel path(x, z) = path(x, y), edge(y, z)\\nquery path")
seen["unit"] = len(closure.run({"edge": [(0, 1), (1, 2), (2, 0)]})["path"])
# The edge from 0 to 2, or both of the way by 1.
edges = [(0.5, (0, 1)), (0.25, (1, 2)), (0.5, (0, 2))]
for name in ("exact", "topkproofs", "minmaxprob", "addmultprob"):
    seen[name] = float(closure.run({"edge": edges}, provenance=name)["path"][0, 2])
seen["evidence"] = float(closure.run({"edge": edges}, "exact", evidence={"edge": {(0, 2): False}})["path"][0, 2])
a, b, c = dv.circuit.variables("a b c")
circuit = dv.circuit.compile(a & (b | c))
weights = np.array([0.5, 0.4, 0.2])
value, gradient, _ = circuit.value_and_gradient(weights)
seen["circuit"] = [float(value[0]), *map(float, gradient)]
seen["models"] = int(circuit.model_count())
seen["scan"] = dv.parallel.scan("mul", np.array([1.0, 2.0, 3.0])).tolist()
histogram = dv.parallel.reduce_by_index(np.zeros(2), "add", np.array([0, 1, 0]), np.array([1.0, 2.0, 4.0]))
seen["histogram"] = histogram.tolist()
seen["einsum"] = dv.tensor.einsum("ij,j->i", np.eye(2), np.array([3.0, 5.0])).tolist()
print(json.dumps(seen))
"""
DOORS = """
import derivable as dv

a, b = dv.circuit.variables("a b")
circuit = dv.circuit.compile(a & b)
program = dv.Program("rel p(x) = q(x)\\nquery p")
doors = {
    "layer": lambda: dv.nn.Logic(program, {}, {}),
    "loss": lambda: dv.nn.SemanticLoss,
    "vectors": lambda: dv.vsa.bind,
    "no such vectors": lambda: dv.vsa.no_such_name,
    "design": lambda: dv.accelerator.design(None, None),
    "module": lambda: circuit.to_torch(),
    "device": lambda: program.run({"q": [(1,)]}, device="cuda"),
    "JAX": lambda: circuit.to_jax(),
}
for name, door in doors.items():
    try:
        door()
    except dv.DerivableError as error:
        print(name, type(error).__name__, error.hint.partition(";")[0])
"""


def run(code: str, blocked: str = BLOCKED) -> str:
    done = subprocess.run(
        [sys.executable, "-c", blocked + code],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rules_circuits_folds_and_tensors_run():
    seen = json.loads(run(RUNS))
    either = 1 - (1 - 0.5) * (1 - 0.5 * 0.25)
    assert seen["unit"] == 9
    assert abs(seen["exact"] - either) < 1e-12
    assert abs(seen["topkproofs"] - either) < 1e-12
    assert abs(seen["minmaxprob"] - 0.5) < 1e-12
    assert abs(seen["addmultprob"] - (0.5 + 0.125)) < 1e-12
    assert abs(seen["evidence"] - 0.125) < 1e-12
    # a (1 - (1 - b) (1 - c)) at (0.5, 0.4, 0.2)
    expected = [0.5 * 0.52, 0.52, 0.5 * 0.8, 0.5 * 0.6]
    assert all(abs(one - other) < 1e-12 for one, other in zip(seen["circuit"], expected, strict=True))
    assert seen["models"] == 3
    assert seen["scan"] == [1, 2, 6]
    assert seen["histogram"] == [5, 2]
    assert seen["einsum"] == [3, 5]


def test_what_needs_an_extra_names_it():
    torch = "MissingDependencyError pip install 'derivable[torch]'"
    assert run(DOORS).splitlines() == [
        f"layer {torch}",
        f"loss {torch}",
        f"vectors {torch}",
        f"no such vectors {torch}",
        f"design {torch}",
        f"module {torch}",
        f"device {torch}",
        "JAX MissingDependencyError pip install 'derivable[jax]'",
    ]


def test_torch_is_absent_there():
    assert run("try:\n    import torch\nexcept ModuleNotFoundError:\n    print('absent')").strip() == "absent"
