"""Every name that a package lists can be had from it, whatever was imported before."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import derivable as dv
from derivable.core.lazy import ABOVE

PACKAGE = Path(__file__).parents[1] / "src" / "derivable"
FOLDERS = (
    "accelerator",
    "algebra",
    "circuit",
    "compat.scallopy",
    "datalog",
    "device",
    "nn",
    "parallel",
    "tensor",
    "vsa",
)
PACKAGES = ["derivable", *(f"derivable.{name}" for name in FOLDERS)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_resolves(package):
    loaded = importlib.import_module(package)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
        assert name in dir(loaded)


@pytest.mark.parametrize("package", PACKAGES)
def test_completion_shows_public_names_alone(package):
    loaded = importlib.import_module(package)
    shown = {name for name in dir(loaded) if not name.startswith("__")}
    # Folds stand in a package of a higher floor.
    assert shown == {name for name in {*loaded.__all__, *ABOVE.get(package, ())} if not name.startswith("__")}


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = importlib.import_module(package).no_such_name


def test_no_public_function_is_hidden_by_a_module():
    """Importing a submodule makes it an attribute of its package, where it would hide a function of that name."""
    hidden = []
    for package in PACKAGES:
        folder, loaded = PACKAGE.joinpath(*package.split(".")[1:]), importlib.import_module(package)
        for name in loaded.__all__:
            is_module = (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
            # What is meant by the name, whatever has been imported before.
            if is_module and not isinstance(vars(loaded).get("__getattr__", loaded.__getattribute__)(name), ModuleType):
                hidden.append(f"{package}.{name}")
    assert hidden == []


def test_loading_a_formula_leaves_compile_callable(tmp_path):
    (tmp_path / "a.cnf").write_text("p cnf 2 1\n1 2 0\n")
    code = (
        "import derivable as dv; dv.circuit.load('a.cnf'); import derivable.nn.semantic;"
        "print(dv.circuit.compile([[1, 2]]).model_count())"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False, env=environment
    )
    assert done.stdout.strip() == "3", done.stderr


def objects():
    program = dv.Program("rel edge = {(0, 1)}  rel path(x, y) = edge(x, y)  query path")
    database = program.run()
    tensors = dv.tensor.parse("sum(<i, x> in X) x", {"X": 1})
    layer = dv.nn.Logic(
        "rel path(x, y) = edge(x, y)", inputs={"edge": dv.independent([(0, 1)])}, outputs={"path": [(0, 1)]}
    )
    circuit = dv.circuit.compile([[1, 2]])
    return program, database, database["path"], tensors, dv.tensor.compile(tensors), layer, circuit


@pytest.mark.parametrize("of", objects(), ids=lambda of: f"{type(of).__module__}.{type(of).__name__}")
def test_what_completion_shows_of_an_object_is_documented(of):
    """In the class's docstring, or by its own one."""
    text = " ".join(base.__doc__ or "" for base in type(of).__mro__[:-1])
    of_torch = dir(torch.nn.Module) if isinstance(of, torch.nn.Module) else []
    for name in set(dir(of)).difference(of_torch):
        if name.startswith("_"):
            continue
        own = inspect.getattr_static(type(of), name, None)
        is_method = own is not None and (callable(own) or hasattr(own, "__get__"))
        documented = is_method and inspect.getdoc(own)
        assert documented or re.search(rf"\b{name}\b", text), name
