"""Kernels that are compiled when the package is built: for which types, when their code is used, and what they take."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from derivable.core.diagnostics import DerivableError
from derivable.datalog.kernels import proofs, trees
from derivable.datalog.machine import driver, proof_driver, words
from derivable.device.cpu import built_kernels, object_code
from derivable.device.cpu.building import build_kernels
from derivable.device.cpu.built_kernels import Kernel

UNITE, KINDS = trees.unite.py_func, object_code.parsed(*trees.unite.signatures)


def forget():
    """What is known of modules and files."""
    for known in (object_code.stamp, object_code._modules, object_code.package):
        known.cache_clear()


@pytest.fixture(autouse=True)
def remember():
    yield
    forget()


def test_signatures_are_parsed():
    assert object_code.parsed("int64 (int64[,] uint8[]) bool") == ("int64", ("int64[,]", "uint8[]"), "bool")


@pytest.mark.parametrize("module", build_kernels.modules())
def test_kernels_list_a_type_for_each_parameter(module):
    kernels = list(build_kernels.kernels_of(module))
    assert kernels
    for kernel, kinds in kernels:
        assert len(kinds) == kernel.py_func.__code__.co_argcount, kernel.__name__


def test_a_stamp_is_of_texts_and_constants(monkeypatch):
    def stamp():
        forget()
        return object_code.stamp(proof_driver.__name__)

    digest, stamps = object_code._digest, [stamp()]
    assert stamp() == stamps[0]
    for path in (driver.__file__, proofs.__file__, build_kernels.__file__):
        changed = {path: "of another text"}
        monkeypatch.setattr(
            object_code, "_digest", lambda path, changed=changed: changed.get(str(path)) or digest(path)
        )
        stamps.append(stamp())
    monkeypatch.undo()
    for module, name in ((words, "MERGE"), (proof_driver, "MOST")):
        monkeypatch.setattr(module, name, 77)
        stamps.append(stamp())
        monkeypatch.undo()
    assert len(set(stamps)) == len(stamps) == 6
    assert stamp() == stamps[0]


@pytest.fixture(scope="module")
def codes():
    return build_kernels.compile_module(trees.__name__, build_kernels._features())


def united(function):
    a, b, parents = np.array([0, 2, 4]), np.array([1, 3, 1]), np.arange(6)
    function(a, b, parents)
    roots = [parents[parents[parents[i]]] for i in range(6)]
    return [roots.index(root) for root in roots]


@pytest.fixture
def written(tmp_path, monkeypatch, codes):
    """Has a file of kernels be the package's only one."""
    monkeypatch.setattr(object_code, "package_folder", lambda: tmp_path)

    def write(features=(), codes=codes, name="native"):
        forget()
        object_code.write_package(tmp_path / f"{name}.objects", features, codes)
        return tmp_path / f"{name}.objects"

    return write


def test_code_of_the_package_is_used(codes, written):
    written()
    assert united(Kernel(UNITE, *trees.unite.signatures)) == [0, 0, 2, 2, 0, 5]
    written(["no such feature"])
    assert not object_code.has_code(UNITE, KINDS)
    symbol = object_code.symbol(UNITE, KINDS)
    written(codes={symbol: ("another stamp", codes[symbol][1])})
    assert not object_code.has_code(UNITE, KINDS)
    for content in (b"", b"{}\n", written().read_bytes()[:-1]):
        path = written()
        path.write_bytes(content)
        forget()
        assert not object_code.has_code(UNITE, KINDS)


def test_of_several_files_that_for_most_features_is_used(codes, written):
    has = build_kernels._features()
    for name, features in (("a", []), ("b", has[:3]), ("c", [*has[:5], "no such feature"])):
        written(features, {name: ("", b"")}, name)
    assert list(object_code.package()) == ["b"]


def test_what_is_not_compiled_is_compiled_by_another_process(written, monkeypatch, capsys):
    path = written().rename(written().with_suffix(".elsewhere"))
    forget()
    made = Kernel(UNITE, *trees.unite.signatures)
    monkeypatch.setattr(built_kernels, "COMMAND", (sys.executable, "-c", "import no_such_compiler"))
    with pytest.raises(
        DerivableError, match=r"the kernel unite is not .* No module named 'no_such_compiler'"
    ) as caught:
        united(made)
    assert "reinstall derivable" in caught.value.hint
    rename = f"import os; os.rename({str(path)!r}, {str(path.with_suffix('.objects'))!r})"
    monkeypatch.setattr(built_kernels, "COMMAND", (sys.executable, "-c", rename))
    capsys.readouterr()
    assert united(made) == [0, 0, 2, 2, 0, 5]
    assert capsys.readouterr().err.startswith("derivable: compiling kernels")


def test_arrays_that_are_read_may_be_read_only():
    left, right, parent = np.array([0, 2]), np.array([1, 3]), np.arange(4)
    for array in (left, right):
        array.flags.writeable = False
    trees.unite(left, right, parent)
    assert [parent[0] == parent[1], parent[2] == parent[3], parent[0] == parent[2]] == [True, True, False]


@pytest.mark.parametrize(
    "other",
    [
        np.arange(8)[::2],
        np.arange(33, dtype=np.int8)[1:].view(np.int64),
        np.arange(4, dtype=np.int32),
        np.arange(4, dtype=">i8"),
        np.arange(4)[None],
        4,
    ],
    ids=["strided", "unaligned", "narrow", "foreign", "two axes", "number"],
)
def test_other_arrays_are_refused(other):
    arguments = [np.array([0, 2]), np.array([1, 3]), np.arange(4)]
    for place in range(3):
        with pytest.raises(TypeError, match=r"the kernel unite takes .*: int64\[\] int64\[\] int64\[\]; not "):
            trees.unite(*arguments[:place], other, *arguments[place + 1 :])
    assert arguments[2].tolist() == [0, 1, 2, 3]


def test_arrays_that_are_written_have_to_be_writeable():
    parent = np.arange(4)
    parent.flags.writeable = False
    with pytest.raises(TypeError, match="those that it writes to writeable"):
        trees.unite(np.array([0]), np.array([1]), parent)
    assert parent.tolist() == [0, 1, 2, 3]


SOURCES = object_code.SOURCES / "derivable"


def test_nothing_but_building_imports_numba():
    importing = re.compile(r"^\s*(?:import numba|from numba|from llvmlite import ir)\b", re.M)
    users = {
        path.relative_to(SOURCES).parent.as_posix()
        for path in SOURCES.rglob("*.py")
        if importing.search(path.read_text())
    }
    assert users == {"device/cpu/building"}


WITHOUT_NUMBA = """
import importlib.abc, json, sys

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "numba":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refused())
import numpy as np
import derivable as dv

found = {}
closure = dv.Program("rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))  query path")
chain = [(i, i + 1) for i in range(60)]
found["rows"] = [len(closure.run({"edge": chain})["path"]) for _ in range(3)]
found["columns"] = len(closure.run({"edge": np.array(chain)[::-1]})["path"])
for provenance in ("minmaxprob", "addmultprob", "topkproofs", "exact"):
    for _ in range(2):
        found[provenance] = closure.run({"edge": [(0.5, edge) for edge in chain[:4]]}, provenance)["path"][0, 4]
x = np.arange(8.0)[::2]
x.flags.writeable = False
found["scan"] = dv.parallel.scan("add", x).tolist()
found["max"] = dv.parallel.reduce_by_index(np.zeros(2), "max", np.array([0, 1, 1, 0]), x).tolist()
a, b, c = dv.circuit.variables("a b c")
circuit = dv.circuit.compile((a & b) | (~a & c))
found["circuit"] = circuit.value_and_gradient(np.array([0.5, 0.4, 0.2]))[1].ravel().tolist()
found["models"] = circuit.model_count()
found["einsum"] = dv.tensor.einsum("ij,j->i", np.eye(2), np.array([3.0, 4.0])).tolist()
if "torch" in sys.argv:
    import torch
    digits = dv.categorical(range(3))
    sums = "rel sum_2(a + b) = digit_1(a), digit_2(b)"
    for provenance, options in (("exact", {}), ("topkproofs", {"k": 9})):
        layer = dv.nn.Logic(sums, {"digit_1": digits, "digit_2": digits}, {"sum_2": range(5)}, provenance, **options)
        p = torch.full((2, 3), 1 / 3, requires_grad=True)
        layer(p, p)[0, 2].backward()
        found["layer " + provenance] = p.grad[0].tolist()
found["numba"] = "numba" in sys.modules
print(json.dumps(found))
"""


def test_no_engine_needs_numba():
    """Of a package whose kernels are compiled, as users install it."""
    pytest.importorskip("torch")
    command = [sys.executable, "-c", WITHOUT_NUMBA, "torch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == [61 * 60 // 2] * 3
    assert found["columns"] == 61 * 60 // 2
    assert found["minmaxprob"] == 0.5
    for name in ("addmultprob", "topkproofs", "exact"):
        assert abs(found[name] - 0.5**4) < 1e-12
    assert found["scan"] == [0, 2, 6, 12]
    assert found["max"] == [6, 4]
    # a b + (1 - a) c at (0.5, 0.4, 0.2)
    assert np.allclose(found["circuit"], [0.4 - 0.2, 0.5, 0.5])
    assert found["models"] == 4
    assert found["einsum"] == [3, 4]
    for name in ("exact", "topkproofs"):
        # d/dp_i of the sum over a + b = 2 of p_a p_b: both arguments are p.
        assert np.allclose(found[f"layer {name}"], [2 / 3] * 3)
    assert not found["numba"]
    assert "compiling kernels" not in done.stderr


def test_the_refusal_refuses():
    code = WITHOUT_NUMBA.partition("import numpy")[0] + "import numba"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith("No module named 'numba'")
