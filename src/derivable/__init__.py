"""derivable: symbolic knowledge as fast, exactly differentiable array programs.

`import derivable as dv` is cheap: torch, JAX and Numba are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from derivable import algebra, circuit, datalog, device, nn, parallel
    from derivable.core.diagnostics import DerivableError
    from derivable.datalog.inputs import categorical, independent
    from derivable.datalog.program import Program

_MODULES = ("algebra", "circuit", "core", "datalog", "device", "nn", "parallel")
_NAMES = {
    "DerivableError": "derivable.core.diagnostics",
    "Program": "derivable.datalog.program",
    "categorical": "derivable.datalog.inputs",
    "independent": "derivable.datalog.inputs",
}

__all__ = [
    "DerivableError",
    "Program",
    "__version__",
    "algebra",
    "categorical",
    "circuit",
    "datalog",
    "device",
    "independent",
    "nn",
    "parallel",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"derivable.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'derivable' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_NAMES})
