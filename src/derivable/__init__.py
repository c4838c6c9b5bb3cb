"""derivable: symbolic knowledge as fast, exactly differentiable array programs.

`import derivable as dv` is cheap: torch, JAX and Numba are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

__version__ = "0.1.0"

if TYPE_CHECKING:
    from derivable import algebra, circuit, datalog, device, nn, parallel
    from derivable.core.diagnostics import DerivableError
    from derivable.datalog.inputs import categorical, independent
    from derivable.datalog.program import Program

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "DerivableError": "derivable.core.diagnostics",
        "Program": "derivable.datalog.program",
        "categorical": "derivable.datalog.inputs",
        "independent": "derivable.datalog.inputs",
    },
    ("algebra", "circuit", "core", "datalog", "device", "nn", "parallel"),
)
