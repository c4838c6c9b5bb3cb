"""Many designs of one model compared: what the program of each takes, and which of them no other beats.

Each point is a whole design: its program is written and its cycles are counted as the golden machine counts them, which
are those of a simulation, so nothing here is an estimate but resources and energy. The paper's equations stay as a
column. Ports of the cache and the bandwidth of off-chip memory change no program, only its time.

Printed form:

    2 of 3 designs that no other beats in cycles and energy and share
    array        lanes  ports      bandwidth  mode           cycles  equations  bound by       of it      uJ    share
    4 x 4 x 4        8      2  a line/cycle  sequential         612        296  SIMD unit      1.31   0.412     4.1%
    8 x 8 x 1        8      2  a line/cycle  sequential         702        310  chain          1.12   0.380     4.0%
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from derivable.accelerator.designs.designs import (
    LARGEST_SIDE,
    MOST_SUB_ARRAYS,
    Design,
    checked_lanes,
    checked_sides,
    lane_counts,
    sized,
)
from derivable.accelerator.designs.texts import BOUND_NAMES, csv_text
from derivable.accelerator.explore.exploration import finalists
from derivable.accelerator.hardware.resources import KINDS, Resources, generated
from derivable.accelerator.lower.bounds import bounds
from derivable.accelerator.lower.energy import energy
from derivable.accelerator.lower.lower import Lowered
from derivable.accelerator.machine import machine as golden
from derivable.accelerator.machine.machine import PORTS, Latencies
from derivable.core.arguments import integer, several
from derivable.core.diagnostics import DomainError, LimitError
from derivable.core.files import atomic_write
from derivable.core.progress import progress
from derivable.core.registry import suggestion

MOST_PORTS = 4  # with which nothing that reads waits
PORT_BYTES = 64  # of the port of off-chip memory, in a cycle
OBJECTIVES = {
    "cycles": "cycles of a pass",
    "energy": "microjoules of a pass",
    "share": "largest share of a resource of the device",
    "dsp": "DSP slices",
    "lut": "look-up tables",
    "ff": "flip-flops",
    "bram": "blocks of memory of 18 Kb",
    "bandwidth": "bytes a second of off-chip memory",
}
DEFAULT_OBJECTIVES = ("cycles", "energy", "share")


@dataclass(frozen=True)
class Point:
    """A design of a sweep, and what its program takes.

    design      with the array, the sub-arrays of each node, and lanes
    ports       of the cache that are read; the generated hardware has 2
    bandwidth   of off-chip memory in bytes a second, at the clock of the device; None: a line in each cycle, as in
                simulations without `off_chip=`
    cycles      of a pass, the mean in a program of `Sweep.passes`
    equations   cycles of the array alone by equations (1) and (4)
    bound       cycles that no order of the program goes below, a pass, and `bound_by` what takes them, see `Bounds`
    energy      microjoules of a pass, see `derivable.accelerator.lower.energy`
    resources   of the hardware, by counting
    """

    design: Design = field(repr=False)
    ports: int
    bandwidth: float | None
    cycles: float
    equations: int
    bound: float
    bound_by: str
    energy: float
    resources: Resources

    @property
    def share(self) -> float:
        """The largest share that it takes of a resource of the device; above 1 it does not fit."""
        return max(self.resources.shares(self.design.device).values())

    def value(self, objective: str) -> float:
        """What is made small: a key of `OBJECTIVES`."""
        if objective == "bandwidth" and self.bandwidth is None:
            return math.inf
        return getattr(self.resources if objective in KINDS else self, objective)

    def record(self) -> dict[str, object]:
        """The columns of the CSV."""
        made = self.design
        return {
            "height": made.height,
            "width": made.width,
            "sub_arrays": made.sub_arrays,
            "lanes": made.lanes,
            "ports": self.ports,
            "bandwidth": self.bandwidth,
            "mode": made.exploration.mode,
            "neural": made.partition[0],
            "symbolic": made.partition[1],
            "cycles": self.cycles,
            "equation_cycles": self.equations,
            "bound_cycles": self.bound,
            "bound_by": self.bound_by,
            "microjoules": self.energy,
            "share": self.share,
            **{kind: getattr(self.resources, kind) for kind in KINDS},
            "fits": self.share <= 1,
        }


@dataclass(frozen=True)
class Sweep:
    """Designs of one model, in the order in which they were tried.

    points  each with what its program takes
    passes  of the model that the program of each does
    left    arrays that are not among them, and why: memory does not suffice, or the device has no room
    """

    points: tuple[Point, ...]
    passes: int
    left: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    @property
    def best(self) -> Point:
        """The point of the fewest cycles of those that fit the device, the one with the smallest share of these.

        Raises LimitError if none fits.
        """
        return min(self._fitting(), key=lambda point: (point.cycles, point.share))

    def pareto(self, *objectives: str) -> tuple[Point, ...]:
        """The points that fit the device and that no other beats by being nowhere larger and somewhere smaller.

        objectives  names from `OBJECTIVES`; by default cycles, energy and share

        They are in the order of the first objective; of equal ones the first is there. Raises DomainError for another
        name, and LimitError if no point fits.
        """
        names = checked_objectives(objectives or DEFAULT_OBJECTIVES)
        values = [(tuple(point.value(name) for name in names), point) for point in self._fitting()]
        front: list[tuple[tuple[float, ...], Point]] = []
        # Of points in this order none is beaten by a later one.
        for value, point in sorted(values, key=lambda each: each[0]):
            if not any(all(x <= y for x, y in zip(other, value)) for other, _ in front):
                front.append((value, point))
        return tuple(point for _, point in front)

    def _fitting(self) -> list[Point]:
        fitting = [point for point in self.points if point.share <= 1]
        if not fitting:
            raise LimitError(
                "the device has no room for any design of the sweep", hint="sweep a design with fewer pes="
            )
        return fitting

    def csv(self) -> str:
        """A line for each point, with a header; without a bandwidth the field is empty."""
        return csv_text([point.record() for point in self.points])

    def write_csv(self, path: str | os.PathLike) -> Path:
        """Write `csv`, whole or not at all. Raises DerivableError if it cannot be written."""
        return _written(path, self.csv())

    def plot(self, path: str | os.PathLike, x: str = "cycles", y: str = "energy") -> Path:
        """Write a picture (SVG) of two objectives, with a line through the points that no other beats in these two.

        Raises DomainError for an objective that there is not, LimitError if no point fits the device, and
        DerivableError if it cannot be written.
        """
        from derivable.accelerator.designs.sweep_picture import picture

        return _written(path, picture(self, *checked_objectives((x, y))))

    def explain(self, *objectives: str) -> str:
        """The points that no other beats, a line each, see `pareto`."""
        names = checked_objectives(objectives or DEFAULT_OBJECTIVES)
        front = self.pareto(*names)
        lines = [f"{len(front)} of {len(self.points)} designs that no other beats in {' and '.join(names)}"]
        lines.append(
            f"{'array':12} {'lanes':>5}  {'ports':>5}  {'bandwidth':>13}  {'mode':10} {'cycles':>11} "
            f"{'equations':>10}  {'bound by':12} {'of it':>7} {'uJ':>9} {'share':>8}"
            + "".join(f" {name:>9}" for name in names if name in KINDS)
        )
        for point in front:
            made = point.design
            memory = "a line/cycle" if point.bandwidth is None else f"{point.bandwidth / 1e9:g} GB/s"
            lines.append(
                f"{f'{made.height} x {made.width} x {made.sub_arrays}':12} {made.lanes:>5}  {point.ports:>5}  "
                f"{memory:>13}  {made.exploration.mode:10} {point.cycles:>11,.0f} {point.equations:>10,}  "
                f"{BOUND_NAMES[point.bound_by]:12} {point.cycles / point.bound:>7.2f} {point.energy:>9.4g} "
                f"{point.share:>8.1%}" + "".join(f" {point.value(name):>9,}" for name in names if name in KINDS)
            )
        return "\n".join([*lines, *(f"left out: {reason}" for reason in self.left)])

    def __str__(self) -> str:
        return self.explain()


def checked_objectives(names: Sequence[str]) -> tuple[str, ...]:
    """The names. Raises DomainError, with the nearest, for one that is no objective."""
    for name in names:
        if not isinstance(name, str) or name not in OBJECTIVES:
            raise DomainError(
                f"there is no objective {name!r}",
                hint=suggestion(str(name), OBJECTIVES, f"objectives are {', '.join(OBJECTIVES)}"),
            )
    return tuple(names)


def _written(path: str | os.PathLike, text: str) -> Path:
    with atomic_write(path) as file:
        file.write(text)
    return Path(path)


def sweep(
    made: Design,
    *,
    heights: Iterable[int] | None = None,
    widths: Iterable[int] | None = None,
    lanes: Iterable[int] | None = None,
    ports: Iterable[int] = (PORTS,),
    bandwidths: Iterable[float | None] = (None,),
    passes: int = 1,
) -> Sweep:
    """Designs on all arrays, with all lanes, ports and bandwidths; see `Design.sweep`."""
    tried_lanes = None if lanes is None else checked_lanes(lanes)
    tried_ports = [
        integer(count, "a number of ports", PORTS, MOST_PORTS) for count in several(ports, "ports", "[2, 3, 4]")
    ]
    tried_bandwidths = [_bandwidth(bandwidth) for bandwidth in several(bandwidths, "bandwidths", "[19e9, 77e9]")]
    for what, listed in (("ports", tried_ports), ("bandwidths", tried_bandwidths)):
        if not listed:
            raise DomainError(f"{what} has nothing to try", hint=f"leave {what} out, or give some")
    integer(passes, "passes", 1)
    explorations = finalists(
        made.flow.workload(),
        made.exploration.pes,
        heights=checked_sides(heights, "height"),
        widths=checked_sides(widths, "width"),
        most_sub_arrays=MOST_SUB_ARRAYS,
        largest_side=LARGEST_SIDE,
        in_turns=None,
    )
    points: list[Point] = []
    left: list[str] = []
    with progress("sweeping", len(explorations)) as advance:
        for each in explorations:
            try:
                base = replace(
                    sized(made.graph, made.flow, each, made.device, made.precision), quantised=made.quantised
                )
                for count in tried_lanes or lane_counts(base.width):
                    if count < base.width:
                        continue
                    one = replace(base, lanes=count)
                    # The program of several passes is not kept with the point.
                    lowered = replace(one).lower(passes)
                    points += _points(one, lowered, tried_ports, tried_bandwidths)
            except LimitError as error:
                left.append(f"{each.height} x {each.width} x {each.sub_arrays}, {each.mode}: {error.message}")
            advance()
    if not points:
        raise LimitError("no design of the sweep can be made", hint=left[0] if left else "give more lanes")
    return Sweep(tuple(points), passes, tuple(left))


def _bandwidth(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise DomainError(f"a bandwidth is {value!r}, expected bytes a second, or None for a line in each cycle")
    return float(value)


def _points(
    made: Design, lowered: Lowered, ports: Sequence[int], bandwidths: Sequence[float | None]
) -> Iterator[Point]:
    """The points of one program, of which only the time differs."""
    joules, passes, machine = energy(lowered).total * 1e-6, lowered.passes, lowered.machine
    for count in ports:
        resources = generated(machine, count)
        for bandwidth in bandwidths:
            interval = 1
            if bandwidth is not None:
                in_a_cycle = min(PORT_BYTES, bandwidth / made.device.clock)
                interval = max(1, math.ceil(machine.line / in_a_cycle))
            latencies = Latencies(interval=interval, ports=count)
            cycles = int(golden.timing(machine, lowered.program, latencies)[1][-1])
            reason, bound = bounds(lowered, latencies).best
            yield Point(
                made,
                count,
                bandwidth,
                cycles if passes == 1 else cycles / passes,
                made.exploration.cycles,
                bound if passes == 1 else bound / passes,
                reason,
                joules / passes,
                resources,
            )
