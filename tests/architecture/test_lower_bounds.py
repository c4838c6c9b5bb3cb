"""The library runs on the oldest versions that the package allows, and says what it does without there."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Torch is gigabytes, and nothing of these checks needs it.
LEFT_OUT = ("torch", "sparse")
CHECKS = """
import itertools
import json

import numpy as np
import pyarrow
import scipy.sparse

import derivable as dv

rng = np.random.default_rng(0)
closure = dv.Program("rel path(x, y) = edge(x, y)\\nrel path(x, z) = path(x, y), edge(y, z)\\nquery path")
edges = rng.integers(0, 60, (150, 2))
matrix = np.zeros((60, 60), bool)
matrix[edges[:, 0], edges[:, 1]] = True
for _ in range(6):
    matrix |= matrix @ matrix
reached = set(zip(*(part.tolist() for part in np.nonzero(matrix))))
table = pyarrow.table({"x": edges[:, 0], "y": edges[:, 1]})
found = {
    "columns": {tuple(row) for row in closure.run({"edge": edges})["path"]} == reached,
    "table": {tuple(row) for row in closure.run({"edge": table})["path"]} == reached,
}
# The edge from 0 to 2, or both of the way by 1.
uncertain = closure.run({"edge": [(0.5, (0, 1)), (0.25, (1, 2)), (0.5, (0, 2))]}, provenance="exact")
found["exact"] = bool(np.isclose(uncertain["path"][0, 2], 1 - (1 - 0.5) * (1 - 0.125)))

a, b, c = dv.circuit.variables("a b c")
weights = rng.uniform(0.1, 0.9, (4, 3))
worlds = [world for world in itertools.product((0, 1), repeat=3) if (world[1] if world[0] else world[2])]
sums = sum(np.prod(np.where(world, weights, 1 - weights), axis=1) for world in worlds)
circuit = dv.circuit.compile((a & b) | (~a & c))
found["circuit"] = bool(np.allclose(circuit.evaluate(weights)[:, 0], sums))
found["models"] = circuit.model_count() == len(worlds)
found["scan"] = bool(np.allclose(dv.parallel.scan("mul", weights[0]), np.cumprod(weights[0])))
sparse = scipy.sparse.random(20, 30, 0.2, "csr", random_state=0)
found["einsum"] = bool(np.allclose(dv.tensor.einsum("ij,j->i", sparse, np.arange(30.0)), sparse @ np.arange(30.0)))
print(json.dumps(found))
"""
PROGRAM = "rel edge = {(0, 1), (1, 2)}\nrel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))\nquery path\n"


def lowest():
    """`numpy==2.0` and the others, of what the package and its sparse matrices need."""
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["sparse"]]
    bounds = [requirement.replace(">=", "==") for requirement in needed]
    return [bound for bound in bounds if bound.partition("==")[0] not in LEFT_OUT]


def test_every_bound_is_a_version():
    assert all(re.fullmatch(r"[\w-]+==\d+(\.\d+)*", bound) for bound in lowest())
    assert {"numpy", "llvmlite", "pyarrow", "click", "scipy"} <= {bound.partition("==")[0] for bound in lowest()}


def test_numba_is_needed_to_build_and_not_to_run():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert any(requirement.startswith("numba>=") for requirement in built)
    assert not any(requirement.startswith("numba") for requirement in PROJECT["dependencies"])


@pytest.mark.slow
def test_the_oldest_versions_run(tmp_path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    reached = subprocess.run([*pip, "download", "--no-deps", "-d", tmp_path, "lark"], capture_output=True, check=False)
    if reached.returncode:
        pytest.skip("no package index can be reached")
    # As in a wheel: what runs needs no Numba, which compiles kernels.
    subprocess.run(
        [sys.executable, "-m", "derivable.device.cpu.building.build_kernels"], capture_output=True, check=True
    )
    try:
        subprocess.run([*pip, "install", "--only-binary", ":all:", *lowest()], check=True)
        settings = {name: value for name, value in os.environ.items() if not name.startswith("DERIVABLE_")}
        settings |= {"PYTHONPATH": str(ROOT / "src"), "DERIVABLE_CACHE_DIR": str(tmp_path / "cache")}

        def output(*arguments):
            command = [python, *arguments]
            return subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout

        found = json.loads(output("-c", CHECKS))
        assert found == dict.fromkeys(found, True)
        (tmp_path / "path.scl").write_text(PROGRAM)
        assert output("-m", "derivable", "run", str(tmp_path / "path.scl")).split("\n")[:3] == [
            "path(0, 1)",
            "path(0, 2)",
            "path(1, 2)",
        ]
    finally:
        subprocess.run(["rm", "-rf", environment], check=True)
