"""PyTorch modules and losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.nn.function import Function
    from derivable.nn.jax_function import logic_function
    from derivable.nn.log_space import log1mexp, log_of_probability
    from derivable.nn.logic import Logic
    from derivable.nn.samples import Padded, Ragged
    from derivable.nn.semantic import SemanticLoss, semantic_loss

__all__ = [
    "Function",
    "Logic",
    "Padded",
    "Ragged",
    "SemanticLoss",
    "log1mexp",
    "log_of_probability",
    "logic_function",
    "semantic_loss",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Function": "derivable.nn.function",
        "Logic": "derivable.nn.logic",
        "Padded": "derivable.nn.samples",
        "Ragged": "derivable.nn.samples",
        "SemanticLoss": "derivable.nn.semantic",
        "log1mexp": "derivable.nn.log_space",
        "log_of_probability": "derivable.nn.log_space",
        "logic_function": "derivable.nn.jax_function",
        "semantic_loss": "derivable.nn.semantic",
    },
)
