"""derivable: symbolic knowledge as fast, exactly differentiable array programs.

`import derivable as dv` is cheap: torch and JAX are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import ABOVE, lazy

if TYPE_CHECKING:
    from derivable import accelerator, algebra, circuit, datalog, device, nn, parallel, tensor, vsa
    from derivable.algebra.expr.functions import *
    from derivable.core.diagnostics import DerivableError, DerivableWarning
    from derivable.core.version import __version__
    from derivable.datalog.api.program import Program
    from derivable.datalog.api.python_program import rule
    from derivable.datalog.facts.inputs import categorical, independent, varying

__all__ = [
    "DerivableError",
    "DerivableWarning",
    "Program",
    "__version__",
    "abs",
    "accelerator",
    "algebra",
    "cast",
    "categorical",
    "ceil",
    "circuit",
    "cos",
    "datalog",
    "device",
    "equal",
    "exp",
    "expm1",
    "floor",
    "independent",
    "less",
    "less_equal",
    "log",
    "log1mexp",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "nn",
    "not_equal",
    "parallel",
    "power",
    "rule",
    "sigmoid",
    "sign",
    "sin",
    "sqrt",
    "tanh",
    "tensor",
    "varying",
    "vsa",
    "where",
]

# Names that users look for below the floor that they are on.
_FOLDS = ("reduce", "reduce_by_index", "scan", "segment_reduce", "segmented_scan")
ABOVE["derivable.parallel"] = dict.fromkeys(_FOLDS, "derivable.bridge.folds")
ABOVE["derivable.device"] = {"explain": "derivable.parallel.table"}

_MODULES = ("accelerator", "algebra", "circuit", "core", "datalog", "device", "nn", "parallel", "tensor", "vsa")
_NAMES = {
    "DerivableError": "derivable.core.diagnostics",
    "DerivableWarning": "derivable.core.diagnostics",
    "Program": "derivable.datalog.api.program",
    "__version__": "derivable.core.version",
    "categorical": "derivable.datalog.facts.inputs",
    "independent": "derivable.datalog.facts.inputs",
    "rule": "derivable.datalog.api.python_program",
    "varying": "derivable.datalog.facts.inputs",
}
# The rest is what the functions of operators are written with.
for _name in __all__:
    if _name not in _MODULES:
        _NAMES.setdefault(_name, "derivable.algebra.expr.functions")

__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)
