"""The functions of `lanes`, `lane_rows` and `lane_exp`, and those of pointers, by name: see `intrinsics`."""

from __future__ import annotations

from typing import Any

from derivable.device.cpu.intrinsics import Intrinsic

_MODULES = {
    "lane_rows": """backwards first_lane last_lane load_line load_rows moved_up num_lanes store_line store_rows
        zero_line""",
    "lane_exp": "exp_and_complement logarithm maximum minimum power_of_two reduce_exp",
    "pointers": "eight_bytes fence pointer scratch stream",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return Intrinsic(f"derivable.device.cpu.{_MODULE_OF.get(name, 'lanes')}", name)
