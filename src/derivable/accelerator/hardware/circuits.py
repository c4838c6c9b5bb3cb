"""Circuits as hardware (`Circuit.to_rtl`) on devices that open tools know."""

from __future__ import annotations

from pathlib import Path

from derivable.accelerator.hardware import placement
from derivable.accelerator.hardware.elaboration import Hardware
from derivable.accelerator.hardware.placement import Placement
from derivable.accelerator.hardware.resources import device
from derivable.circuit.rtl.rtl import CircuitRtl
from derivable.core.diagnostics import DomainError

TOPS = ("circuit", "circuit_host")


def place(
    made: CircuitRtl,
    on: str | Path = "ecp5-85k",
    *,
    module: str = "circuit",
    seed: int = 1,
    time_limit: float = 7200,
) -> Placement:
    """Put a circuit's hardware through Yosys and nextpnr: the clock it reaches, the slowest path, what it takes.

    made        what `Circuit.to_rtl` returns
    on          the name of a device that open tools know, or the path of a TOML file
    module      "circuit", the pipeline, or "circuit_host", the pipeline behind registers
    seed        of the placer, whose results differ by some per cent
    time_limit  seconds for each of the tools

    Placed once, it is read from the cache afterwards. Raises DomainError for another module or device, LimitError where
    the device has no room, and MissingDependencyError without the tools.
    """
    if module not in TOPS:
        raise DomainError(f"there is no module {module!r}", hint=f"there are {' and '.join(TOPS)}")
    return placement.place(Hardware(module, {}, made.files), device(on), seed=seed, time_limit=time_limit)
