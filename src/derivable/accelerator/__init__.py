"""From a neural and vector-symbolic model to an accelerator (NSFlow, Yang et al., 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.accelerator.designs.design_file import load
    from derivable.accelerator.designs.designs import CalibrationWarning, Design, design
    from derivable.accelerator.explore.dataflow import DataflowGraph
    from derivable.accelerator.hardware.circuits import place
    from derivable.accelerator.numbers.learned import LearnedSteps
    from derivable.accelerator.operators.evaluation import evaluate
    from derivable.accelerator.operators.operators import Operator, OperatorGraph

__all__ = [
    "CalibrationWarning",
    "DataflowGraph",
    "Design",
    "LearnedSteps",
    "Operator",
    "OperatorGraph",
    "design",
    "evaluate",
    "load",
    "place",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CalibrationWarning": "derivable.accelerator.designs.designs",
        "DataflowGraph": "derivable.accelerator.explore.dataflow",
        "Design": "derivable.accelerator.designs.designs",
        "LearnedSteps": "derivable.accelerator.numbers.learned",
        "Operator": "derivable.accelerator.operators.operators",
        "OperatorGraph": "derivable.accelerator.operators.operators",
        "design": "derivable.accelerator.designs.designs",
        "evaluate": "derivable.accelerator.operators.evaluation",
        "load": "derivable.accelerator.designs.design_file",
        "place": "derivable.accelerator.hardware.circuits",
    },
)
