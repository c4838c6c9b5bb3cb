"""Floor 6: PyTorch modules and losses."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivable.nn.log_space import log1mexp, log_of_probability
    from derivable.nn.logic import Logic
    from derivable.nn.semantic import SemanticLoss, semantic_loss

_NAMES = {
    "Logic": "logic",
    "SemanticLoss": "semantic",
    "log1mexp": "log_space",
    "log_of_probability": "log_space",
    "semantic_loss": "semantic",
}

__all__ = ["Logic", "SemanticLoss", "log1mexp", "log_of_probability", "semantic_loss"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(f"derivable.nn.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'derivable.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
