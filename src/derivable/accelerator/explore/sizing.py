"""How large the memories are, and how wide the SIMD unit (NSFlow, sections IV-C and V-C).

MemA1 holds the weights of a layer, MemA2 both vectors of a vector node or the matrix of a product between vector nodes,
MemB the inputs of a layer, MemC what leaves the array or the SIMD unit, and the sums of a fold until the last is added.
Each has room for the largest node, so that no node waits for memory inside, and each exists twice, so that the next
node is loaded meanwhile. The cache has room for all of them, 2 * (A1 + A2 + B + C), which agrees with table III.

Printed form:

    MemA1        2304 bytes x 2      16 blocks of BRAM
    MemA2         768 bytes x 2      16 blocks of BRAM
    MemB         2304 bytes x 2      16 blocks of BRAM
    MemC         4096 bytes x 2      58 blocks of BRAM
    cache       18944 bytes           1 blocks of URAM
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.numbers.precision import PRECISIONS, bytes_of
from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors, ceil_div, elementwise_cycles
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError

# Widths and depths of a block of 18 Kb (AMD, UltraScale Architecture Memory Resources, UG573, table 1-7).
BRAM_SHAPES = ((1, 16384), (2, 8192), (4, 4096), (9, 2048), (18, 1024), (36, 512))
URAM_SHAPE = (72, 4096)


@dataclass(frozen=True)
class Footprint:
    """Bytes of a node in the memories: what is loaded into the array (weights, or both vectors of each pair), the
    inputs that stream through it, its outputs, and its sums as they are before they become outputs."""

    loaded: int
    streamed: int
    outputs: int
    sums: int


@dataclass(frozen=True)
class Memory:
    """A memory of `bytes`, of which `ports` bits are read or written in a cycle, `copies` times."""

    name: str
    bytes: int
    ports: int
    copies: int = 2

    @property
    def bram(self) -> int:
        """Blocks of 18 Kb of all copies."""
        return self.copies * blocks(self.bytes, self.ports, BRAM_SHAPES) if self.bytes else 0

    @property
    def uram(self) -> int:
        """Blocks of 288 Kb of all copies."""
        return self.copies * blocks(self.bytes, self.ports, [URAM_SHAPE]) if self.bytes else 0


@dataclass(frozen=True)
class Memories:
    """The memories of an array; `tiles` says in how many parts of its rows each layer runs, 1 where it fits whole."""

    a1: Memory
    a2: Memory
    b: Memory
    c: Memory
    cache: Memory
    tiles: tuple[int, ...] = ()

    @property
    def bram(self) -> int:
        return sum(memory.bram for memory in (self.a1, self.a2, self.b, self.c))

    @property
    def uram(self) -> int:
        return self.cache.uram

    def __str__(self) -> str:
        rows = [
            f"{memory.name:6} {memory.bytes:>10} bytes x {memory.copies}  {memory.bram:>6} blocks of BRAM"
            for memory in (self.a1, self.a2, self.b, self.c)
        ]
        return "\n".join(
            [*rows, f"{self.cache.name:6} {self.cache.bytes:>10} bytes      {self.uram:>6} blocks of URAM"]
        )


def blocks(size: int, ports: int, shapes: Iterable[tuple[int, int]]) -> int:
    """The fewest blocks that hold `size` bytes as words of `ports` bits.

    shapes  (width in bits, depth in words) that a block can have
    """
    depth = ceil_div(size * 8, ports)
    return min(ceil_div(ports, width) * ceil_div(depth, deep) for width, deep in shapes)


def layer_footprint(layer: Layer, width: int, precision: str, inputs: int | None = None) -> Footprint:
    """Bytes of a layer, whose sums are those of `width` output channels at a time.

    inputs  elements of its input; without, all m * k that the array reads, of which a convolution has fewer
    """
    of = PRECISIONS[precision]
    elements = layer.m * layer.k * layer.repeats if inputs is None else integer(inputs, "inputs", 1)
    return Footprint(
        bytes_of(layer.k * layer.n * layer.repeats, of.bits),
        bytes_of(elements, of.bits),
        bytes_of(layer.m * layer.n * layer.repeats, of.bits),
        bytes_of(layer.m * min(layer.n, width), of.sum_bits),
    )


def vectors_footprint(vectors: Vectors, columns: int, precision: str) -> Footprint:
    """Bytes of a vector node: both vectors of all pairs, their convolutions, and the sums of `columns` at a time."""
    of = PRECISIONS[precision]
    each = vectors.n * vectors.d
    sums = bytes_of(min(vectors.n, columns * of.products) * vectors.d, of.sum_bits)
    return Footprint(bytes_of(2 * each, of.bits), 0, bytes_of(each, of.bits), sums)


def memories(
    workload: Workload,
    array: tuple[int, int, int],
    *,
    neural: str = "int8",
    symbolic: str = "int8",
    inputs: Sequence[int | None] | None = None,
    limit: int | None = None,
) -> Memories:
    """The memories that hold the largest nodes of a workload.

    array   height, width and number of sub-arrays: in a cycle, they take a weight for each column, an input for each
            row, and give a sum for each column
    inputs  elements of the input of each layer, see `layer_footprint`
    limit   bytes that each memory may have. What needs more runs in parts: weights by output channels and vectors by
            pairs, which costs nothing, for the array loads them fold by fold anyway; inputs and outputs by rows, which
            loads weights again. MemA1 and MemA2 have at least what all sub-arrays load at a time.
    """
    height, width, sub_arrays = array
    given = [None] * len(workload.layers) if inputs is None else list(inputs)
    if len(given) != len(workload.layers):
        raise DomainError(f"inputs has {len(given)} sizes for {len(workload.layers)} layers", hint="give one for each")
    columns = sub_arrays * width
    left, right = PRECISIONS[neural], PRECISIONS[symbolic]
    of_layers = [layer_footprint(layer, width, neural, count) for layer, count in zip(workload.layers, given)]
    of_vectors = [
        layer_footprint(node, width, symbolic)
        if isinstance(node, Layer)
        else vectors_footprint(node, columns, symbolic)
        for node in workload.vectors
    ]
    most = integer(limit, "limit", 1) if limit is not None else None
    tiles = []
    for layer, item in zip(workload.layers, of_layers):
        parts = 1 if most is None else ceil_div(max(item.streamed, item.outputs, item.sums), most)
        tiles.append(min(parts, layer.m * layer.repeats))
    of_tiles = [
        (ceil_div(item.streamed, count), ceil_div(max(item.outputs, item.sums), count))
        for item, count in zip(of_layers, tiles)
    ]
    fold = height * columns * left.bits * left.products // 8
    lengths = [height if isinstance(node, Layer) else 2 * node.d for node in workload.vectors]
    pairs = columns * max(lengths, default=0) * right.bits * right.products // 8
    sums = max((item.sums for item in of_vectors), default=0)

    def limited(size: int, least: int) -> int:
        return size if most is None else min(size, max(most, least))

    a1 = limited(max((item.loaded for item in of_layers), default=0), fold)
    a2 = limited(max((item.loaded for item in of_vectors), default=0), pairs)
    b = max((streamed for streamed, _ in of_tiles), default=0)
    b = max(b, limited(max((item.streamed for item in of_vectors), default=0), sub_arrays * height))
    c = max((given for _, given in of_tiles), default=0)
    c = max(c, limited(max((max(item.outputs, item.sums) for item in of_vectors), default=0), sums))
    return Memories(
        Memory("MemA1", a1, columns * left.bits * left.products),
        Memory("MemA2", a2, columns * right.bits * right.products),
        Memory("MemB", b, sub_arrays * height * left.bits * left.products),
        Memory("MemC", c, columns * max(left.sum_bits, right.sum_bits)),
        Memory("cache", 2 * (a1 + a2 + b + c), URAM_SHAPE[0], copies=1),
        tuple(tiles),
    )


@dataclass(frozen=True)
class Simd:
    """The SIMD unit: `width` lanes. `exposed` cycles of its work are not hidden, and no width would hide them."""

    width: int
    exposed: int


def simd_width(groups: Iterable[tuple[int, Sequence[Elementwise]]], largest: int = 1024) -> Simd:
    """The smallest power of two of lanes that hides elementwise work behind the array's.

    groups   (cycles that the array takes, elementwise work beside them); work beside nothing has 0 cycles
    largest  lanes to try; what they leave exposed counts as what cannot be hidden
    """
    integer(largest, "largest", 1)
    listed = [(cycles, tuple(work)) for cycles, work in groups]

    def exposed(width: int) -> int:
        return sum(
            max(0, sum(elementwise_cycles(item, width) for item in work) - cycles) for cycles, work in listed if cycles
        )

    widths = [2**e for e in range(largest.bit_length())]
    least = exposed(widths[-1])
    width = next(width for width in widths if exposed(width) == least)
    return Simd(width, least)
