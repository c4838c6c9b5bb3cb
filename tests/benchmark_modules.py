"""Modules of the folder `benchmarks/` that tests use, too: comparison models, the exact search, yosys."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name: str) -> ModuleType:
    """A module of the folder, under a name that no package of tests has."""
    key = f"benchmark_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[key]
