"""Cycles of each operator in a lowered program beside equations (1) and (4), and what the difference is made of.

Printed form of a node:

    conv2d_1      0 to    8763  nn    5360 of    5208: cuts +102, constants +50; move 3414, vec 3701, dma 47
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from derivable.accelerator.lower.lower import Lowered
from derivable.accelerator.machine import machine as golden
from derivable.accelerator.machine.instructions import Convolve, Gemm, Instruction
from derivable.accelerator.machine.machine import Latencies
from derivable.accelerator.operators.operators import Operator
from derivable.accelerator.operators.runtime import Layer, Vectors, ceil_div, layer_cycles, temporal_cycles, tree_depth


@dataclass(frozen=True)
class Node:
    """Cycles of an operator.

    begin, end  of its first and its last instruction
    busy        of each unit: cycles of work for it
    unit        "nn" or "vsa" for what the array does, else ""
    equation    cycles of equation (1) or (4) with the sub-arrays that it has, of a binding that is done as a layer
                those of that layer; 0 for what other units do
    blocks      more than that since taps and blocks of channels are whole tiles
    cuts        more, since rows, the reduction or vectors go in pieces that fit the memories and overlap with moves
    constants   more: pipelines, and the tree of adders, of each instruction

    Law: busy[unit] = equation + blocks + cuts + constants.
    """

    name: str
    kind: str
    begin: int
    end: int
    busy: Mapping[str, int]
    unit: str = ""
    equation: int = 0
    blocks: int = 0
    cuts: int = 0
    constants: int = 0

    def __str__(self) -> str:
        head = f"{self.name:<20} {self.begin:>8} to {self.end:>8}"
        rest = ", ".join(f"{unit} {count}" for unit, count in self.busy.items() if unit != self.unit)
        if not self.unit:
            return f"{head}  {rest}"
        parts = [(name, getattr(self, name)) for name in ("blocks", "cuts", "constants")]
        more = ", ".join(f"{name} {count:+}" for name, count in parts if count) or "as the equation"
        return f"{head}  {self.unit} {self.busy[self.unit]} of {self.equation}: {more}; {rest}"


def nodes(
    lowered: Lowered, latencies: Latencies | None = None, times: tuple[np.ndarray, np.ndarray] | None = None
) -> list[Node]:
    """The nodes of a program, in the order of the graph.

    times  when each instruction begins and ends, of a simulation; None for the model's. `cuts` then has what the
           simulation adds, too
    """
    latencies = latencies or Latencies()
    begin, end = times or golden.timing(lowered.machine, lowered.program, latencies)
    listed: dict[str, list[tuple[Instruction, int, int]]] = {}
    for instruction, first, last in zip(lowered.program.executed, begin.tolist(), end.tolist()):
        listed.setdefault(instruction.node, []).append((instruction, first, last))
    found = []
    for operator in lowered.graph:
        busy: dict[str, int] = {}
        for instruction, first, last in listed.get(operator.name, ()):
            busy[instruction.unit] = busy.get(instruction.unit, 0) + last - first
        if busy:
            instructions, starts, ends = zip(*listed[operator.name])
            explained = _explained(lowered, operator, instructions, busy, latencies)
            found.append(Node(operator.name, operator.kind, min(starts), max(ends), busy, *explained))
    return found


def _explained(
    lowered: Lowered,
    operator: Operator,
    instructions: Sequence[Instruction],
    busy: Mapping[str, int],
    latencies: Latencies,
) -> tuple[Any, ...]:
    """The unit and the equation of what the array does, and what the busy cycles are beyond it."""
    machine, work = lowered.machine, lowered.as_layers.get(operator.name) or lowered.graph.work(operator)
    shape = machine.height, machine.width
    gemms = [of for of in instructions if isinstance(of, Gemm)]
    if gemms and isinstance(work, Layer):
        if operator.name in lowered.swapped:
            work = replace(work, m=work.n, n=work.m)
        arrays = max(of.arrays for of in gemms)
        work = replace(work, products=1 + gemms[0].nibbles)
        equation = layer_cycles(work, *shape, arrays)
        # As many tiles as there are, each with all rows: what every row and column takes of the first ones.
        rows = [of.n0 * of.n1 * of.n2 for of in gemms]
        steps = sum(of.tiles * of.columns * count for of, count in zip(gemms, rows))
        tiles = ceil_div(steps, work.m)
        whole = tiles * (2 * machine.height + machine.width - 2) + steps
        constants = len(gemms) * (int(tree_depth(machine.sub_arrays)) + latencies.nn)
        return "nn", equation, whole - equation, busy["nn"] - constants - whole, constants
    convolutions = [of for of in instructions if isinstance(of, Convolve)]
    if convolutions and isinstance(work, Vectors):
        products = 1 + convolutions[0].split
        arrays = max(of.arrays for of in convolutions)
        equation = temporal_cycles(Vectors(work.n, work.d, products), *shape, arrays)
        constants = latencies.vsa * len(convolutions)
        return "vsa", equation, 0, busy["vsa"] - constants - equation, constants
    return ()
