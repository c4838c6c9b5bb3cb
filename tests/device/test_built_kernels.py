"""Kernels that are compiled when the package is built: for which types, and when their code is used."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from derivable.datalog.kernels import proofs
from derivable.datalog.machine import driver, proof_driver, words
from derivable.datalog.shortcuts import union_find
from derivable.device.cpu import build_kernels, object_code
from derivable.device.cpu.tiers import Kernel

UNITE = union_find.unite.py_func
KINDS = object_code.parsed(*union_find.unite.signatures)


def forget():
    """What is known of modules and files."""
    for known in (object_code.stamp, object_code._modules, object_code._package):
        known.cache_clear()


@pytest.fixture(autouse=True)
def remember():
    yield
    forget()


def test_signatures_are_parsed():
    assert object_code.parsed("int64 (int64[,] const uint8[]) bool") == ("int64", ("int64[,]", "const uint8[]"), "bool")


@pytest.mark.parametrize("module", build_kernels.modules())
def test_kernels_list_a_type_for_each_parameter(module):
    kernels = list(build_kernels.kernels_of(module))
    assert kernels
    for kernel, kinds in kernels:
        assert len(kinds) == kernel.py_func.__code__.co_argcount, kernel.__name__


def test_a_stamp_is_of_texts_and_constants(monkeypatch):
    function = proof_driver.run_proofs.py_func

    def stamp():
        forget()
        return object_code.stamp(function.__module__)

    digest, stamps = object_code._digest, [stamp()]
    assert stamp() == stamps[0]
    for module in (driver, proofs):
        changed = {module.__file__: "of another text"}
        monkeypatch.setattr(object_code, "_digest", lambda path, changed=changed: changed.get(path) or digest(path))
        stamps.append(stamp())
    monkeypatch.undo()
    for module, name in ((words, "MERGE"), (proof_driver, "LONG")):
        monkeypatch.setattr(module, name, 77)
        stamps.append(stamp())
        monkeypatch.undo()
    assert len(set(stamps)) == len(stamps) == 5
    assert stamp() == stamps[0]


@pytest.fixture(scope="module")
def codes():
    return build_kernels.compile_module(union_find.__name__, Path("nowhere"), [])


def united(function):
    a, b, parents = np.array([0, 2, 4]), np.array([1, 3, 1]), np.arange(6)
    link = object_code.linked(function, KINDS)
    if link is None:
        return None
    link(a, b, parents)
    roots = [parents[parents[parents[i]]] for i in range(6)]
    return [roots.index(root) for root in roots]


def test_code_of_the_package_is_used(tmp_path, monkeypatch, codes):
    monkeypatch.setattr(object_code, "package_folder", lambda: tmp_path)
    monkeypatch.setattr(object_code, "_from_cache", lambda function, kinds: None)

    def written(features=(), codes=codes):
        forget()
        path = tmp_path / "native.objects"
        object_code.write_package(path, features, codes)
        return path

    written()
    assert united(UNITE) == [0, 0, 2, 2, 0, 5]
    written(["no such feature"])
    assert united(UNITE) is None
    symbol = object_code.symbol(UNITE, KINDS)
    written(codes={symbol: ("another stamp", *codes[symbol][1:])})
    assert united(UNITE) is None
    for content in (b"", b"{}\n", written().read_bytes()[:-1]):
        (tmp_path / "native.objects").write_bytes(content)
        forget()
        assert not object_code.has_code(union_find.number_trees.py_func, KINDS[:2])


def test_of_several_files_that_for_most_features_is_used(tmp_path, monkeypatch, codes):
    monkeypatch.setattr(object_code, "package_folder", lambda: tmp_path)
    has = build_kernels._features()
    for name, features in (("a", []), ("b", has[:3]), ("c", [*has[:5], "no such feature"])):
        object_code.write_package(tmp_path / f"{name}.objects", features, codes)
    forget()
    assert object_code._package()[0] == tmp_path / "b.objects"


WORKLOAD = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
from derivable.device.cpu.tiers import Kernel
kernels = {
    f"{value.__module__}.{value.__name__}"
    for module in list(sys.modules.values()) if getattr(module, "__name__", "").startswith("derivable.")
    for value in vars(module).values()
    if isinstance(value, Kernel) and value._run is vars(value).get("dispatcher")
}
print("compiled:", *sorted(kernels))
"""


@pytest.mark.slow
def test_no_kernel_of_the_package_is_compiled_when_it_runs():
    """Where the package was built from these texts."""
    function = proof_driver.run_proofs.py_func
    if object_code._from_package(function, object_code.parsed(*proof_driver.run_proofs.signatures)) is None:
        pytest.skip("the package was not built from these texts")
    environment = {**os.environ, "DERIVABLE_TIER": "compiled"}
    command = [sys.executable, "-c", WORKLOAD, str(Path(__file__).parent / "tier_workload.py")]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    (names,) = re.findall(r"^compiled:(.*)$", printed, re.MULTILINE)
    assert names.split() == []


def test_the_workload_sees_what_is_compiled():
    made = Kernel(lambda x: x)
    made._run = made.dispatcher = lambda x: x
    assert made._run is vars(made).get("dispatcher")
