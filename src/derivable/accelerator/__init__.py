"""Floor 8: from a neural and vector-symbolic model to an accelerator (NSFlow, Yang et al., 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.accelerator.dataflow import DataflowGraph
    from derivable.accelerator.design_file import load
    from derivable.accelerator.designs import CalibrationWarning, Design, design
    from derivable.accelerator.evaluation import evaluate
    from derivable.accelerator.operators import Operator, OperatorGraph

__all__ = [
    "CalibrationWarning",
    "DataflowGraph",
    "Design",
    "Operator",
    "OperatorGraph",
    "design",
    "evaluate",
    "load",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CalibrationWarning": "derivable.accelerator.designs",
        "DataflowGraph": "derivable.accelerator.dataflow",
        "Design": "derivable.accelerator.designs",
        "Operator": "derivable.accelerator.operators",
        "OperatorGraph": "derivable.accelerator.operators",
        "design": "derivable.accelerator.designs",
        "evaluate": "derivable.accelerator.evaluation",
        "load": "derivable.accelerator.design_file",
    },
)
