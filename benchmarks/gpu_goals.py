"""Goals of the cases of `gpu.py`, and the bounds that say which of them a device can meet.

A bound is counted and not fitted: launches that wait for one another, steps that wait for one another within a program,
and bytes, each times what the device was measured to need for one. Where a goal is missed, the page says how the figure
would be at the bound; a goal that is missed there too is forbidden by it.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import harness

ROUNDS = 3
# A round repeats calls that are shorter than that.
ROUND_SECONDS = 0.03
# A call that is longer is timed once.
LONG_SECONDS = 0.4
# Launches and steps that are timed together, and the lanes of a program that takes steps.
MANY, LANES = 200, 128
# What a time is compared with that is not another program's: the bytes of the bound, moved as a copy moves them.
BYTES = "bytes"
DEVICE = "device"


def synchronise(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def seconds(call: Callable[[], Any], device: Any, rounds: int, inside: Callable[[], float] | None = None) -> float:
    """Per call, the median of rounds; `inside` is what does not count."""

    def timed(calls: int) -> float:
        synchronise(device)
        if inside is not None:
            inside()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        synchronise(device)
        spent = time.perf_counter() - began
        return (spent - (inside() if inside is not None else 0.0)) / calls

    gc.collect()
    once = timed(1)
    if rounds == 1 or once > LONG_SECONDS:
        return once
    calls = max(1, min(300, math.ceil(ROUND_SECONDS / max(once, 1e-9))))
    first = [once] if calls == 1 else [timed(calls)]
    return statistics.median(first + [timed(calls) for _ in range(rounds - 1)])


def copied_bytes_per_second(device: Any, is_small: bool) -> float:
    import torch

    source = torch.ones(1 << (20 if is_small else 30), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.nbytes / seconds(lambda: target.copy_(source), device, ROUNDS)


@dataclass(frozen=True)
class Costs:
    """Seconds that a device needs for one: measured before the cases of a table.

    call      a kernel that Python launches through torch, after another one
    launch    a kernel of a CUDA graph that waits for the one before
    step      a number that one lane of a program writes and another reads behind a barrier
    byte      that a copy reads or writes
    """

    call: float
    launch: float
    step: float
    byte: float

    @staticmethod
    def of(device: Any, is_small: bool) -> Costs:
        import torch

        many = 4 if is_small else MANY
        rounds = 1 if is_small else ROUNDS
        number, step = torch.zeros(1, device=device), steps(device)

        def calls() -> None:
            for _ in range(many):
                number.add_(1)

        def after_launches(count: int) -> float:
            return seconds(lambda: step(count), device, rounds)

        if not bool((step(3) == 3).all()):
            raise RuntimeError("steps of a program were not computed one after the other")
        call = seconds(calls, device, rounds) / many
        launch = call if device.type != "cuda" else seconds(replayed(calls), device, rounds) / many
        # What is launched once does not count.
        one = (after_launches(many + 1) - after_launches(1)) / many
        return Costs(call, launch, max(one, 0.0), 1 / copied_bytes_per_second(device, is_small))


def steps(device: Any) -> Callable[[int], Any]:
    """Of one program, (their number) -> the numbers of all lanes, which is the number of steps."""
    import torch

    from derivable.algebra.expr.functions import truncate_divide
    from derivable.device.cuda.compiler import current
    from derivable.kernel.build import Builder
    from derivable.kernel.emit_triton import compile_triton

    k = Builder("wait_for_steps", LANES)
    numbers, count = k.array("numbers", "float32"), k.scalar("count")
    lane = k.lane_numbers()
    other = k.let("other", LANES - 1 - lane)
    with k.loop("step", 0, count) as step:
        found = k.register("found", "float32")
        # Two lines, so that nobody writes what others may still have to read.
        half = k.let("half", (step - 2 * truncate_divide(step, 2)) * LANES)
        k.gather(found, numbers, half + other)
        k.scatter(numbers, LANES - half + lane, found + 1.0)
        k.barrier()
    launch = compile_triton(k.kernel(), LANES // 32, ["count"])
    line = torch.zeros(2 * LANES, device=device)

    def run(number: int) -> Any:
        line.zero_()
        with current(device):
            launch(1, line, number)
        return line[LANES * (number % 2) :][:LANES]

    return run


def replayed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a CUDA graph: what it computes with, and its results, stay where they are."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@dataclass(frozen=True)
class Bound:
    """What a case has to do at least.

    bytes     read or written: operands once, results once, and what does not fit anywhere between
    steps     that wait for one another: levels of a circuit, up and down
    launches  that wait for one another; None for as many as were counted
    host      seconds of the host that no device takes from it, such as reading lists of Python
    """

    bytes: int = 0
    steps: int = 0
    launches: int | None = 1
    host: float = 0.0

    def seconds(self, costs: Costs, counted: int, is_graph: bool) -> float:
        """Bytes can move while launches and steps wait, so the longer of both counts."""
        return max(self._waits(costs, counted, is_graph), self.bytes * costs.byte)

    def _waits(self, costs: Costs, counted: int, is_graph: bool) -> float:
        launches = counted if self.launches is None else self.launches
        return self.host + launches * (costs.launch if is_graph else costs.call) + self.steps * costs.step

    def shown(self, costs: Costs, counted: int, is_graph: bool) -> str:
        """The part that counts, as it was computed."""
        moving = self.bytes * costs.byte
        if moving >= self._waits(costs, counted, is_graph):
            return f"{self.bytes / 1e6:,.3g} MB: {harness.duration(max(moving, 1e-9))}"
        launches = counted if self.launches is None else self.launches
        of_launch = costs.launch if is_graph else costs.call
        parts = [f"{launches} launches x {harness.duration(max(of_launch, 1e-9))}"] if launches else []
        parts += [f"{self.steps} steps x {harness.duration(max(costs.step, 1e-9))}"] if self.steps else []
        parts += [f"{harness.duration(self.host)} of the host"] if self.host else []
        return " + ".join(parts)


@dataclass(frozen=True)
class Goal:
    """A time is at most a number of times another one.

    text    what was promised
    theirs  the name of the other time: "CPU", a column of another program, or `BYTES`
    most    below one: as fast as that many times
    ours    the name of the time: the device's, or that of a column
    """

    text: str
    theirs: str
    most: float
    ours: str = DEVICE

    def figure(self, ours: float, theirs: float) -> float:
        """As people say it: times as fast below one, and times as long."""
        return theirs / ours if self.most < 1 or self.theirs == BYTES else ours / theirs

    def wanted(self) -> str:
        if self.theirs == BYTES:
            return f"at least {1 / self.most:g} of the bandwidth"
        than = self.theirs.removesuffix(", CUDA graph")
        return f"{1 / self.most:g} times as fast as {than}" if self.most < 1 else f"at most {self.most:g} of {than}"


@dataclass(frozen=True)
class Found:
    """What was measured of a case that has goals.

    seconds   by the name of the time
    launches  kernels and copies of one call on the device, and `busy` the seconds that they took together
    """

    goals: Sequence[Goal]
    seconds: Mapping[str, float]
    bound: Bound = field(default_factory=Bound)
    launches: int = 0
    busy: float = math.nan

    def message(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(message: Mapping[str, Any]) -> Found:
        goals = [Goal(**goal) for goal in message["goals"]]
        rest = {key: message[key] for key in ("seconds", "launches", "busy")}
        return Found(goals, bound=Bound(**message["bound"]), **rest)

    def rows(self, case: str, costs: Costs) -> list[list[str]]:
        """Of the table of goals: those whose two times were measured."""
        return [row for goal in self.goals if (row := self._row(case, goal, costs)) is not None]

    def _row(self, case: str, goal: Goal, costs: Costs) -> list[str] | None:
        is_graph = goal.ours.endswith("graph")
        ours = self.seconds.get(goal.ours, math.nan)
        theirs = self.bound.bytes * costs.byte if goal.theirs == BYTES else self.seconds.get(goal.theirs, math.nan)
        if math.isnan(ours + theirs) or theirs <= 0:
            return None
        least = self.bound.seconds(costs, self.launches, is_graph)
        at_bound = goal.figure(least, theirs) if least > 0 else math.inf
        if ours <= goal.most * theirs:
            verdict = "met"
        elif least > goal.most * theirs:
            verdict = "forbidden by the bound"
        else:
            verdict = "missed, though the bound allows it"
        work = "" if is_graph or math.isnan(self.busy) else f"{self.launches}, {harness.duration(self.busy)}"
        bound = f"{self.bound.shown(costs, self.launches, is_graph)}; {at_bound:.3g}"
        return [goal.text, case, goal.wanted(), f"{goal.figure(ours, theirs):.3g}", verdict, bound, work]


HEADER = ["goal", "case", "wanted", "found", "verdict", "the bound; the figure there", "launches, busy"]
TEXT = """\
"Found" is the figure that was measured. The bound is computed from counts and from what one of each took on this
device: launches and steps that wait for one another, seconds of the host that no device takes from it, or bytes; with
the figure of a program that reaches it. The last column are the kernels and copies of a call and the time for which
they kept the device busy: the rest of a call is the host's."""


def section(costs: Costs, found: Sequence[tuple[str, Found]]) -> list[str]:
    """The paragraphs of the goals; none where no goal was measured."""
    rows = [row for case, of in found for row in of.rows(case, costs)]
    if not rows:
        return []
    each = [f"{name} {harness.duration(max(spent, 1e-12))}" for name, spent in asdict(costs).items() if name != "byte"]
    bandwidth = f"{1 / costs.byte / 1e9:,.0f} GB/s" if costs.byte else "no bandwidth"
    count = sum(row[4] == "met" for row in rows)
    summary = f"{count} of {len(rows)} goals are met. One of each takes: {', '.join(each)}; a copy moves {bandwidth}."
    return ["## Goals", TEXT, summary, harness.table(HEADER, rows)]


def work_of(call: Callable[[], Any], device: Any) -> tuple[int, float]:
    """Kernels and copies of a call on a device, and the seconds that they took together; (0, nan) where unknown."""
    if device.type != "cuda":
        return 0, math.nan
    import torch
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            call()
            torch.cuda.synchronize(device)
        events: Any = found.events()
        spent = [e.time_range.elapsed_us() for e in events if e.device_type.name == "CUDA"]
    except RuntimeError:
        return 0, math.nan
    return len(spent), 1e-6 * sum(spent)
