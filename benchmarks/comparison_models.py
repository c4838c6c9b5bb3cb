"""Comparison models: a plain systolic array, an engine like AMD's DPU, and rooflines of processors (NSFlow, figure 5).

All are optimistic: arrays never wait for memory outside, and rooflines reach their peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.operators.runtime import Layer, Vectors, ceil_div, layer_cycles
from derivable.core.registry import Registry


@dataclass(frozen=True)
class SystolicArray:
    """A weight-stationary array of INT8 as in a TPU: it neither folds nor convolves, and nodes take turns on it.

    lanes  of a vector unit beside it, on which a convolution takes d * d / lanes cycles; 0 without one
    clock  Hz; that of the paper's design, so that cycles compare
    """

    height: int = 128
    width: int = 128
    lanes: int = 0
    clock: float = 272e6

    def layer(self, layer: Layer) -> int:
        """Cycles of a layer, equation (1) on one sub-array."""
        return layer_cycles(replace(layer, products=1), self.height, self.width, 1)

    def convolutions(self, node: Vectors) -> dict[str, int]:
        """Cycles of the circular convolutions of a vector node in each way that there is.

        circulant  each is a vector times the circulant matrix [d, d] of the other vector, which is loaded for it
        products   one vector is stationary in one column, and the d rotations of the other stream by
        lanes      on the vector unit
        """
        one = {
            "circulant": Layer(1, node.d, node.d, repeats=node.n),
            "products": Layer(node.d, node.d, 1, repeats=node.n),
        }
        cycles = {way: self.layer(layer) for way, layer in one.items()}
        return cycles | ({"lanes": ceil_div(node.n * node.d * node.d, self.lanes)} if self.lanes else {})

    def cycles(self, workload: Workload) -> int:
        """Cycles of a loop: all layers, and each vector node in its best way."""
        symbolic = sum(
            self.layer(node) if isinstance(node, Layer) else min(self.convolutions(node).values())
            for node in workload.vectors
        )
        return sum(map(self.layer, workload.layers)) + symbolic

    def seconds(self, workload: Workload) -> float:
        return self.cycles(workload) / self.clock


@dataclass(frozen=True)
class Dpu:
    """An engine that multiplies `inputs` x `outputs` channels of `pixels` pixels a cycle, on each of its cores.

    The default is four cores B4096 (AMD, DPUCZDX8G product guide, PG338: 8 x 16 x 16 multipliers each), as many
    multipliers as 32 x 32 x 8 elements. A circular convolution is a product with a circulant matrix, one pixel at a
    time, for its weights differ from vector to vector.
    """

    pixels: int = 8
    inputs: int = 16
    outputs: int = 16
    cores: int = 4
    clock: float = 300e6

    def layer(self, layer: Layer) -> int:
        """Cycles of a layer, whose pixels the cores share."""
        steps = ceil_div(layer.k, self.inputs) * ceil_div(layer.n, self.outputs)
        return layer.repeats * ceil_div(layer.m, self.pixels * self.cores) * steps

    def vectors(self, node: Vectors) -> int:
        """Cycles of a vector node, whose vectors the cores share."""
        return ceil_div(node.n, self.cores) * ceil_div(node.d, self.inputs) * ceil_div(node.d, self.outputs)

    def cycles(self, workload: Workload) -> int:
        nodes = (*workload.layers, *workload.vectors)
        return sum(self.layer(node) if isinstance(node, Layer) else self.vectors(node) for node in nodes)

    def seconds(self, workload: Workload) -> float:
        return self.cycles(workload) / self.clock


@dataclass(frozen=True)
class Roofline:
    """A processor: FLOP/s, bytes a second, and seconds that each kernel costs at least.

    `launch` stands in no data sheet: it is an assumption about what a framework spends on a kernel that does nothing.
    """

    title: str
    peak: float
    bandwidth: float
    launch: float

    def seconds(self, workload: Workload, width: int = 4) -> float:
        """Seconds of a loop of numbers of `width` bytes."""
        return sum(
            launches * self.launch + max(flops / self.peak, numbers * width / self.bandwidth)
            for launches, flops, numbers in kernels(workload)
        )


def kernels(workload: Workload) -> Iterator[tuple[int, float, float]]:
    """(kernels, FLOP, numbers moved) of each node as a framework runs it.

    A layer is three kernels (product, normalisation, activation), of which the last two read and write its outputs. A
    circular convolution is four: two transforms, a product of spectra, the transform back; a transform of d real
    numbers is 2.5 d log2(d) FLOP, and spectra are written and read again.
    """
    for layer in workload.layers:
        moved = layer.m * layer.k + layer.k * layer.n + 5 * layer.m * layer.n
        yield 3, 2.0 * layer.macs, float(layer.repeats * moved)
    for node in workload.vectors:
        if isinstance(node, Layer):  # a product of matrices between vectors, which nothing follows
            moved = node.m * node.k + node.k * node.n + node.m * node.n
            yield 1, 2.0 * node.macs, float(node.repeats * moved)
            continue
        each = float(node.n * node.d)
        yield 4, 3 * 2.5 * each * math.log2(node.d) + 3 * each, 10 * each


ROOFLINES = Registry(
    "processor",
    {
        # NVIDIA, "Jetson TX2 Series Module Data Sheet" (DS-10662): 256 cores of Pascal at 1.30 GHz, 59.7 GB/s.
        "tx2": Roofline("Jetson TX2", 2 * 256 * 1.30e9, 59.7e9, 40e-6),
        # NVIDIA, "Jetson Xavier NX Series Module Data Sheet" (DS-10184): 384 cores of Volta at 1.10 GHz, 59.7 GB/s.
        "nx": Roofline("Jetson Xavier NX", 2 * 384 * 1.10e9, 59.7e9, 30e-6),
        # Intel, product page of Xeon Gold 6248: 20 cores at 2.5 GHz, two AVX-512 units, 6 x DDR4-2933. The paper
        # does not say which Xeon it had.
        "xeon": Roofline("Xeon Gold 6248", 2 * 2 * 16 * 20 * 2.5e9, 140.8e9, 5e-6),
        # NVIDIA, "Turing GPU Architecture" (WP-09183), GeForce RTX 2080: 2,944 cores at 1.71 GHz, 448 GB/s.
        "rtx2080": Roofline("GeForce RTX 2080", 2 * 2944 * 1.71e9, 448e9, 10e-6),
    },
)
