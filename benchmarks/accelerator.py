"""Designs of accelerators against a plain systolic array and processors, by the models (figures 5 and 6, table III).

    python benchmarks/accelerator.py [--section NAME] [--fast]

Everything is counted, nothing is timed but the exploration itself: the numbers are the same on every machine. The
workloads are below, in full; none was chosen for its numbers. "simulated" builds the generated hardware of each design
with Verilator, a minute each.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
from comparison_models import ROOFLINES, Dpu, SystolicArray
from exact_schedule import exact

from derivable.accelerator.explore import schedule, sizing
from derivable.accelerator.explore.exploration import Exploration, explore, phase_two
from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.hardware import resources
from derivable.accelerator.numbers.precision import PRECISIONS, bytes_of
from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors

LENGTH, BLOCKS = 256, 4
PES = 32 * 32 * 8
CLOCK = 272e6
EXAMPLES = str(Path(__file__).parents[1] / "examples")
SHARES = (0.0, 0.005, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def resnet18(panels: int = 16, size: int = 160, *, strided: bool = True) -> list[Layer]:
    """The layers of ResNet18 on pictures of one channel.

    strided  whether the first convolution and the pooling halve the picture, as usual; in the paper's listing 1 they
             do not, and every layer has sixteen times the pixels
    """
    layers: list[Layer] = []

    def convolution(inputs: int, outputs: int, taps: int, size: int, stride: int = 1) -> int:
        size //= stride
        layers.append(Layer(panels * size * size, inputs * taps * taps, outputs))
        return size

    size = convolution(1, 64, 7, size, 2 if strided else 1)
    size = size // 2 if strided else size
    before = 64
    for channels in (64, 128, 256, 512):
        stride = 1 if channels == 64 else 2
        inner = convolution(before, channels, 3, size, stride)
        convolution(channels, channels, 3, inner)
        if stride == 2:
            convolution(before, channels, 1, size, 2)
        size, before = inner, channels
        convolution(channels, channels, 3, size)
        convolution(channels, channels, 3, size)
    layers.append(Layer(panels, 512, 512))
    return layers


def weights(layers: list[Layer]) -> int:
    return sum(layer.k * layer.n * layer.repeats for layer in layers)


def phases(pairs: int, uneven: bool) -> list[Vectors]:
    """Vector nodes with so many pairs in all: sixteen alike, or a tenth of the pairs in nodes of one block code each,
    as listing 1 has them, between four large ones."""
    if not pairs:
        return []
    if not uneven:
        return [Vectors(pairs // 16, LENGTH)] * 16
    small = max(1, pairs // 10 // BLOCKS // 4)
    large = pairs // 4 - small * BLOCKS
    return ([Vectors(large, LENGTH)] + [Vectors(BLOCKS, LENGTH)] * small) * 4


def sweep(share: float, uneven: bool, strided: bool) -> Workload:
    """ResNet18, and vectors that take this share of the bytes of weights and vectors, all INT8."""
    layers = resnet18(strided=strided)
    pairs = share / (1 - share) * weights(layers) / (2 * LENGTH)
    return Workload(layers, phases(round(pairs / 16) * 16, uneven))


@dataclass(frozen=True)
class Ablation:
    """Cycles of one workload: on plain arrays of 128 x 128 and of as many elements as ours, and on 32 x 32 x 8.

    turns, halves  only the array folds: nodes take turns on all sub-arrays, or half of them are for each chain
    explored       where phase I chooses the array too
    """

    large: int
    plain: int
    turns: int
    halves: int
    phase_one: int
    phase_two: int
    refined: int
    explored: Exploration


def ablation(workload: Workload) -> Ablation:
    fixed = explore(workload, PES, heights=[32], widths=[32])
    cost = schedule.costs(workload, 32, 32, 8)
    return Ablation(
        large=SystolicArray(128, 128).cycles(workload),
        plain=SystolicArray(64, 128).cycles(workload),
        turns=fixed.sequential.cycles,
        halves=max(int(cost.layers[:, 4].sum()), int(cost.vectors[:, 4].sum())),
        phase_one=fixed.phase_one,
        phase_two=fixed.phase_one if fixed.tuned is None else min(fixed.tuned, fixed.phase_one),
        refined=fixed.cycles,
        explored=explore(workload, PES),
    )


def section_ablation(fast: bool, uneven: bool = False) -> Iterator[str]:
    kind = "uneven" if uneven else "even"
    header = ["share", "pairs", "128 x 128", "64 x 128", "turns", "halves", "phase I", "phase II", "refined"]
    header += ["speed-up", "of turns", "II over I", "refined over I", "refined over halves", "best array", "speed-up"]
    for strided in (True, False):
        rows = []
        for share in SHARES[::4] if fast else SHARES:
            workload = sweep(share, uneven, strided)
            found = ablation(workload)
            cycles = (found.large, found.plain, found.turns, found.halves)
            cycles += (found.phase_one, found.phase_two, found.refined)
            best = found.explored
            rows.append(
                [
                    f"{share:.1%}",
                    sum(node.n for node in workload.vectors),
                    *(f"{count / 1e6:.2f}" for count in cycles),
                    f"{found.plain / found.refined:.2f}",
                    f"{found.plain / found.turns:.2f}",
                    f"{found.phase_one / found.phase_two - 1:.1%}",
                    f"{found.phase_one / found.refined - 1:.1%}",
                    f"{found.halves / found.refined - 1:.1%}",
                    f"{best.height} x {best.width} x {best.sub_arrays}",
                    f"{found.plain / best.cycles:.2f}",
                ]
            )
        strides = "usual strides" if strided else "the strides of listing 1"
        yield f"### ResNet18 with {strides}, {kind} vector nodes\n"
        yield harness.table(header, rows)


def nvsa(batched: bool = True) -> Workload:
    """Sixteen panels; for each of five attributes, rules are abduced by row and executed for eight candidates.

    batched  whether the block codes of a step are one node; in listing 1 each is a node of its own
    """
    vectors = []
    for values in (5, 6, 10, 9, 9):
        # Terms of two rows of three panels for each value, of two rows for four rules, of candidates for four rules.
        for codes in (2 * 3 * values, 2 * 4, 8 * 4):
            count, each = (1, codes) if batched else (codes, 1)
            vectors += [Vectors(each * BLOCKS, LENGTH, products=2)] * count
    return Workload(resnet18(), vectors)


def mimonet() -> Workload:
    """Sixty-four pictures of 32 x 32 in superposition by fours: bound at the input, unbound at the features."""
    layers = resnet18(16, 32, strided=False)
    return Workload(layers, [Vectors(64 * 3 * 1024 // LENGTH, LENGTH), Vectors(64 * 2 * BLOCKS, LENGTH)])


def lvrf() -> Workload:
    """Sixteen panels; rules are learned as weighted sums of bound terms, of which each has twelve, by attribute."""
    return Workload(resnet18(), [Vectors(5 * 12 * BLOCKS, LENGTH, products=2)] * 5)


def prae() -> Workload:
    """Sixteen panels, and abduction on probabilities: circular convolutions are sums of independent attributes."""
    return Workload(resnet18(), [Vectors(3 * values, 2 * values) for values in (5, 6, 10, 9)])


WORKLOADS: dict[str, tuple[Callable[[], Workload], str, str]] = {
    "NVSA-like": (nvsa, "int8", "int4"),
    "NVSA-like, code by code": (lambda: nvsa(batched=False), "int8", "int4"),
    "MIMONet-like": (mimonet, "int8", "int8"),
    "LVRF-like": (lvrf, "int8", "int4"),
    "PrAE-like": (prae, "int8", "int8"),
}
# Array, partition, SIMD, MB of MemA1, MemA2, MemB, MemC and the cache, and per cent of DSP, BRAM and URAM.
PAPER = {
    "NVSA-like": ("32 x 16 x 16", "14 : 2", 64, (2.7, 1.1, 2.7, 1.6, 16.2), (89, 34, 8)),
    "MIMONet-like": ("32 x 32 x 8", "6 : 2", 64, (3.4, 1.2, 3.4, 2.1, 20.1), (89, 43, 10)),
    "LVRF-like": ("32 x 16 x 16", "14 : 2", 64, (2.7, 0.96, 2.7, 1.4, 15.5), (89, 31, 7)),
}


def elementwise(found: Exploration) -> Iterator[tuple[int, list[Elementwise]]]:
    """Behind each node, normalisation and activation of what it gave, or a similarity of its vectors."""
    for placed in (*found.schedule.layers, *found.schedule.vectors):
        node = placed.node
        count = node.m * node.n * node.repeats if isinstance(node, Layer) else node.n * node.d
        yield placed.end - placed.start, [Elementwise(count)]


def section_designs(fast: bool) -> Iterator[str]:
    device = resources.DEVICES["u250"]
    rows = []
    for name, (make, neural, symbolic) in WORKLOADS.items():
        start = time.process_time()
        found = explore(make(), PES)
        seconds = time.process_time() - start
        array = found.height, found.width, found.sub_arrays
        memories = resources.fit_memories(found.workload, array, device, neural=neural, symbolic=symbolic)
        simd = sizing.simd_width(elementwise(found))
        sizes = (memories.a1, memories.a2, memories.b, memories.c, memories.cache)
        needed = resources.estimate(array, simd=simd.width, stores=memories, neural=neural, symbolic=symbolic)
        shares = needed.shares(device)
        rows.append(
            [
                f"{name}, {neural} and {symbolic}",
                f"{found.height} x {found.width} x {found.sub_arrays}",
                "{} : {}".format(*found.partition) if found.mode == "parallel" else "in turns",
                simd.width,
                " / ".join(f"{memory.bytes / 1e6:.2f}" for memory in sizes),
                " / ".join(f"{shares[kind]:.0%}" for kind in ("dsp", "bram", "uram")),
                f"{found.cycles / 1e6:.3f}",
                f"{seconds:.2f}",
            ]
        )
        if name in PAPER:
            array, partition, lanes, megabytes, percent = PAPER[name]
            rows.append(
                [
                    "the paper's",
                    array,
                    partition,
                    lanes,
                    " / ".join(f"{size}" for size in megabytes),
                    " / ".join(f"{share}%" for share in percent),
                    "",
                    "",
                ]
            )
    header = [
        "workload",
        "array",
        "partition",
        "SIMD",
        "A1 / A2 / B / C / cache, MB",
        "DSP / BRAM / URAM",
        "Mcycles",
        "s",
    ]
    yield harness.table(header, rows)


def off_chip(workload: Workload, neural: str, symbolic: str) -> int:
    """Bytes that cross to memory outside in a loop: weights once, vectors and outputs of layers once each way."""
    total = 0
    for nodes, name in ((workload.layers, neural), (workload.vectors, symbolic)):
        for node in nodes:
            if isinstance(node, Layer):
                numbers = node.repeats * (node.k * node.n + 2 * node.m * node.n)
            else:
                numbers = 3 * node.n * node.d
            total += bytes_of(numbers, PRECISIONS[name].bits)
    return total


def section_devices(fast: bool) -> Iterator[str]:
    """Milliseconds of a loop, and how many times longer than ours."""
    device = resources.DEVICES["u250"]
    rows = []
    for name, (make, neural, symbolic) in WORKLOADS.items():
        workload = make()
        found = explore(workload, PES)
        ours = max(found.cycles / CLOCK, off_chip(workload, neural, symbolic) / device.bandwidth)
        plain = Workload(workload.layers, [dataclasses.replace(node, products=1) for node in workload.vectors])
        others = {
            "TPU-like": SystolicArray().seconds(plain),
            "with 128 lanes": SystolicArray(lanes=128).seconds(plain),
            "DPU-like": Dpu().seconds(plain),
            **{roofline.title: roofline.seconds(plain) for roofline in (ROOFLINES[key] for key in ROOFLINES)},
        }
        rows.append([name, f"{ours * 1e3:.2f}", *(f"{seconds / ours:.2f}" for seconds in others.values())])
    paper = {"TPU-like": "up to 8", "DPU-like": "> 3", "Jetson TX2": "31", "Jetson Xavier NX": "18"}
    paper |= {"GeForce RTX 2080": "> 2"}
    rows.append(["the paper's", "", *(paper.get(key, "") for key in others)])
    yield harness.table(["workload", "ours, ms", *others], rows)


def section_exact(fast: bool) -> Iterator[str]:
    """How much longer than the best there is, on random workloads of up to five layers and five vector nodes."""
    generator = np.random.default_rng(0)
    steps = ("phase I", "phase II", "refined")
    gaps = []
    for _ in range(10 if fast else 200):
        layers = [
            Layer(*(int(generator.choice(of)) for of in ((16, 64, 256, 1024), (9, 27, 64, 144, 288), (8, 16, 32, 64))))
            for _ in range(generator.integers(1, 6))
        ]
        vectors = [
            Vectors(int(generator.choice((4, 16, 64, 256))), int(generator.choice((32, 64, 128, 256))))
            for _ in range(generator.integers(1, 6))
        ]
        pes = 64 * int(generator.choice((2, 3, 4, 6, 8)))
        found = explore(Workload(layers, vectors), pes, heights=[8], widths=[8])
        best = exact(found.costs)
        assert best is not None
        assert best.cycles <= found.cycles <= found.phase_one
        tuned = schedule.beside(found.costs, phase_two(found.costs, found.parallel.neural)) if found.parallel else None
        printed = min(found.phase_one, tuned.cycles if tuned else found.phase_one)
        gaps.append([cycles / best.cycles for cycles in (found.phase_one, printed, found.cycles)])
    table = np.array(gaps)
    rows = [
        [step, *(f"{gap - 1:.2%}" for gap in (of.mean(), np.quantile(of, 0.9), of.max())), f"{np.mean(of == 1):.0%}"]
        for step, of in zip(steps, table.T, strict=True)
    ]
    yield f"{len(table)} workloads on 2 to 8 sub-arrays of 8 x 8\n"
    yield harness.table(["after", "mean", "nine in ten below", "worst", "optimal"], rows)


def traced() -> Iterator[tuple[str, Workload]]:
    """The models of the examples, block codes of 4 x 256 but for MIMONet's of 4 x 64, for one problem of 16 panels."""
    import torch

    sys.path.append(EXAMPLES)
    from derivable.accelerator.explore.dataflow import dataflow
    from derivable.accelerator.trace.trace import trace
    from reasoning.abduction import nvsa, prae
    from reasoning.learned_rules import lvrf
    from reasoning.superposition import mimonet

    precision = {"neural": "int8", "symbolic": "int8"}
    problem, pair = torch.zeros(1, 16, 1, 80, 80), torch.zeros(8, 2, 1, 80, 80)
    models = {"nvsa": nvsa, "lvrf": lvrf, "prae": prae, "mimonet": lambda: mimonet(length=64)}
    for name, make in models.items():
        torch.manual_seed(0)
        # Abduction on probabilities is products of matrices, of which only the name says that they are no layers.
        symbolic = ["abductions"] if name == "prae" else []
        graph = trace(make().eval(), pair if name == "mimonet" else problem, symbolic=symbolic)
        yield name, dataflow(graph, precision=precision).workload()


def section_traced(fast: bool) -> Iterator[str]:
    rows = []
    for name, workload in traced():
        for pes in (PES,) if fast else (1024, PES):
            start = time.process_time()
            found = explore(workload, pes)
            seconds = time.process_time() - start
            rows.append(
                [
                    name,
                    len(workload.layers),
                    len(workload.vectors),
                    f"{sum(node.macs for node in workload.vectors) / workload.macs:.1%}",
                    pes,
                    f"{found.height} x {found.width} x {found.sub_arrays}",
                    found.sequential.cycles,
                    found.phase_one,
                    found.phase_one if found.tuned is None else min(found.phase_one, found.tuned),
                    found.cycles,
                    f"{SystolicArray(128, 128).cycles(workload) / found.cycles:.2f}",
                    f"{seconds:.2f}",
                ]
            )
    header = ["model", "layers", "vector nodes", "their part of products", "elements", "array"]
    yield harness.table([*header, "turns", "phase I", "phase II", "refined", "over 128 x 128", "s"], rows)


def small() -> Iterator[tuple[str, Any, Any]]:
    """Models of the examples and a CNN of three convolutions, with inputs: one problem of 16 panels, one pair of
    pictures, two pictures. Block codes are 4 x 64, MIMONet's 4 x 16."""
    import torch
    from torch import nn

    sys.path.append(EXAMPLES)
    from reasoning.abduction import nvsa, prae
    from reasoning.learned_rules import lvrf
    from reasoning.reader import Reader
    from reasoning.superposition import mimonet

    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 32, 3), nn.ReLU()]
    problem = (1, 16, 1, 80, 80)
    models: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "CNN": (lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10)), (2, 3, 16, 16)),
        "MIMONet-like": (mimonet, (1, 2, 1, 80, 80)),
        "PrAE-like": (prae, problem),
        "NVSA-like": (lambda: nvsa(Reader(8), length=64), problem),
        "LVRF-like": (lambda: lvrf(Reader(8), length=64), problem),
    }
    for name, (make, shape) in models.items():
        torch.manual_seed(0)
        yield name, make().eval(), torch.rand(shape)


def section_simulated(fast: bool) -> Iterator[str]:
    from derivable.accelerator import design

    rows = []
    for name, model, inputs in small():
        for pes in (1024,) if fast else (256, 1024, 2048):
            made = design(model, inputs, pes=pes, device="u250", precision="int8")
            golden, found = (made.simulate(inputs, backend=backend) for backend in ("python", "verilator"))
            four = made.simulate(inputs.repeat(4, *(1 for _ in inputs.shape[1:])), backend="python")
            rows.append(
                [
                    name,
                    f"{made.height} x {made.width} x {made.sub_arrays}",
                    made.lowered.machine.lanes,
                    len(made.lowered.program),
                    made.cycles,
                    found.modelled,
                    found.cycles,
                    f"{found.cycles / found.modelled:.3f}",
                    round(four.cycles_of_a_pass),
                    "equal" if all(map(np.array_equal, golden.outputs, found.outputs)) else "DIFFERENT",
                ]
            )
    yield "One pass on the accelerator of each design, modelled and in Verilator, and a pass of four, modelled."
    yield "`memory` is every bit that is off the chip after the pass, beside the golden machine's.\n"
    header = ["model", "array", "lanes", "instructions", "design.cycles", "modelled", "simulated", "ratio", "of four"]
    yield harness.table([*header, "memory"], rows)


def section_phases(fast: bool) -> Iterator[str]:
    from derivable.accelerator import design
    from derivable.accelerator.designs import deployment
    from derivable.accelerator.lower.lower import lower
    from derivable.accelerator.machine import machine

    rows = []
    for name, model, inputs in small():
        made = design(model, inputs, pes=1024, device="u250", precision="int8")
        found, nodes = made.exploration, (made.flow.layers, made.flow.vectors)
        chosen = {node: place.sub_arrays for node, place in made.placed.items()}
        given = {"turns": dict.fromkeys(chosen, made.sub_arrays)}
        if found.parallel is not None and found.parallel.array == (made.height, made.width, made.sub_arrays):
            both = (found.parallel.neural, found.parallel.symbolic)
            given["phase I"] = {node.name: count for listed, count in zip(nodes, both) for node in listed}
            tuned = schedule.beside(found.costs, phase_two(found.costs, both[0], 20))
            given["phase II"] = {
                node.name: place.sub_arrays
                for listed, places in zip(nodes, (tuned.layers, tuned.vectors))
                for node, place in zip(listed, places)
            }
        given["refined"] = chosen
        # With memory for four passes, so that all have the same.
        of = dataclasses.replace(deployment.machine(made), x=1 << 22)
        for title, counts in given.items():
            operators = ((each.name, made.flow.lowered_in(each.name)) for each in made.quantised.graph)
            own = {operator: counts[node] for operator, node in operators if node in counts}
            cycles = []
            for passes in (1, 4) if fast else (1, 2, 4):
                lowered = lower(made.quantised, of, counts=own, passes=passes, in_flight=passes)
                cycles.append(round(machine.timing(of, lowered.program)[1][-1] / passes))
            rows.append([name, f"{made.height} x {made.width} x {made.sub_arrays}", title, *cycles])
    yield "Modelled cycles of a pass of the generated hardware, in programs of so many passes.\n"
    yield harness.table(["model", "array", "sub-arrays", "1", *([] if fast else ["2"]), "4"], rows)


def section_programs(fast: bool) -> Iterator[str]:
    """What the exploration by programs finds, what bounds it, and what a sweep takes."""
    from derivable.accelerator import design

    rows = []
    for name, model, inputs in small():
        start = time.process_time()
        made = design(model, inputs, pes=1024, device="u250", precision="int8")
        seconds = time.process_time() - start
        cells = []
        for passes in (1, 4):
            cycles, of = made.pass_cycles(passes), made.bounds(passes)
            cells += [round(cycles), f"{of.best[0]} {of.best[1] // passes}"]
            cells += [of.least // passes, f"{cycles * passes / of.least:.2f}"]
        start = time.process_time()
        swept = made.sweep(lanes=[16, 32] if fast else None)
        of_sweep = time.process_time() - start
        rows.append(
            [
                name,
                f"{made.height} x {made.width} x {made.sub_arrays}",
                made.lanes,
                made.cycles,
                *cells,
                f"{made.energy().total * 1e-6:.0f}",
                f"{seconds:.1f}",
                len(swept),
                round(swept.best.cycles),
                len(swept.pareto()),
                f"{of_sweep:.1f}",
            ]
        )
    counted = ["alone", "least", "times"]
    header = ["model", "array", "lanes", "equations", "one pass", *counted, "of four", *counted, "uJ"]
    yield harness.table([*header, "s", "designs", "fewest cycles", "not beaten", "s"], rows)


SECTIONS: dict[str, tuple[str, Callable[[bool], Iterator[str]]]] = {
    "ablation": ("Figure 6", section_ablation),
    "uneven": ("Figure 6 with uneven vector nodes", lambda fast: section_ablation(fast, uneven=True)),
    "designs": ("Table III", section_designs),
    "devices": ("Figure 5", section_devices),
    "traced": ("The models of the examples", section_traced),
    "exact": ("The exploration against the exact search", section_exact),
    "simulated": ("Whole designs, simulated", section_simulated),
    "programs": ("The exploration by programs", section_programs),
    "phases": ("What phases gain on the generated hardware", section_phases),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--section", choices=SECTIONS, action="append")
    parser.add_argument("--fast", action="store_true", help="fewer rows")
    options = parser.parse_args()
    for name in options.section or SECTIONS:
        title, run = SECTIONS[name]
        print(f"## {title}\n")
        for text in run(options.fast):
            print(text, end="\n\n" if text.startswith("|") else "\n")


if __name__ == "__main__":
    main()
