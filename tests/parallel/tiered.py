"""Operators of which the normal suite compiles some and has Python run the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def either_tier(operators: Sequence[Any], compiled: Sequence[Any]) -> list[Any]:
    """Parameters (operator, tier), the latter for the fixture; the long suite has both tiers of each."""
    return [
        pytest.param(
            operator,
            tier,
            id=f"{getattr(operator, 'name', operator)}-{tier}",
            marks=pytest.mark.slow if (tier == "compiled") != (operator in compiled) else (),
        )
        for operator in operators
        for tier in ("interpreted", "compiled")
    ]
