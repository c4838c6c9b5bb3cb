"""Memories, blocks and the width of the SIMD unit, against what can be counted by hand."""

import math
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derivable.accelerator.explore import sizing
from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.explore.sizing import Memory, simd_width
from derivable.accelerator.hardware import resources
from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors
from derivable.core.diagnostics import DomainError

LAYERS = [Layer(100, 27, 64), Layer(25, 576, 64)]
VECTORS = [Vectors(12, 64), Vectors(3, 256)]


def test_memories_hold_the_largest_node():
    found = sizing.memories(Workload(LAYERS, VECTORS), (8, 4, 3), symbolic="int4")
    assert (found.a1.bytes, found.a2.bytes) == (576 * 64, 12 * 64)  # two vectors of half a byte a number
    assert found.b.bytes == 25 * 576
    assert found.c.bytes == max(100 * 64, 100 * 4 * 4, 12 * 64 * 4)
    assert found.cache.bytes == 2 * (found.a1.bytes + found.a2.bytes + found.b.bytes + found.c.bytes)
    assert (found.a1.ports, found.a2.ports, found.b.ports, found.c.ports) == (3 * 4 * 8, 3 * 4 * 8, 3 * 8 * 8, 12 * 32)
    assert [memory.copies for memory in (found.a1, found.a2, found.b, found.c, found.cache)] == [2, 2, 2, 2, 1]
    assert found.tiles == (1, 1)


def test_the_cache_of_table_three():
    """MB of MemA1, MemA2, MemB, MemC and the cache of the paper's three designs."""
    for *parts, cache in ((2.7, 1.1, 2.7, 1.6, 16.2), (3.4, 1.2, 3.4, 2.1, 20.1), (2.7, 0.96, 2.7, 1.4, 15.5)):
        assert 2 * sum(parts) == pytest.approx(cache, abs=0.11)


def test_what_is_too_large_runs_in_parts():
    found = sizing.memories(Workload(LAYERS, VECTORS), (8, 4, 3), inputs=[300, None], limit=4000)
    assert found.tiles == (2, 4)  # 6,400 bytes of outputs; 14,400 bytes of inputs
    assert (found.a1.bytes, found.a2.bytes) == (4000, 1536)
    assert (found.b.bytes, found.c.bytes) == (3600, 3200)
    least = sizing.memories(Workload(LAYERS, VECTORS), (8, 4, 3), limit=1)
    assert least.tiles == (100, 25)
    assert (least.a1.bytes, least.a2.bytes) == (8 * 12, 1536)  # a fold of weights; all pairs have columns


def test_printed_forms_are_those_of_the_documentation():
    workload = Workload([Layer(64, 27, 64), Layer(64, 36, 64)], [Vectors(6, 64)])
    found = sizing.memories(workload, (8, 8, 4))
    table = resources.estimate((8, 8, 8), stores=found).table(resources.DEVICES["u250"])
    for module, text in ((sizing, str(found)), (resources, table)):
        assert textwrap.indent(text, "    ") in module.__doc__


def test_one_kind_of_nodes_alone():
    alone = sizing.memories(Workload(LAYERS), (8, 4, 3))
    assert (alone.a2.bytes, alone.a2.bram) == (0, 0)
    other = sizing.memories(Workload([], VECTORS), (8, 4, 3))
    assert (other.a1.bytes, other.b.bytes, other.tiles) == (0, 0, ())


@given(st.integers(1, 200_000), st.integers(1, 600))
def test_blocks_hold_all_words(size, ports):
    count = sizing.blocks(size, ports, sizing.BRAM_SHAPES)
    assert count * 18 * 1024 >= size * 8
    words = math.ceil(size * 8 / ports)
    by_shape = {(w, d): math.ceil(ports / w) * math.ceil(words / d) for w, d in sizing.BRAM_SHAPES}
    assert count == min(by_shape.values())


def test_blocks_by_hand():
    assert sizing.blocks(2304, 36, sizing.BRAM_SHAPES) == 1
    assert sizing.blocks(2305, 36, sizing.BRAM_SHAPES) == 2
    assert sizing.blocks(2048, 1, sizing.BRAM_SHAPES) == 1
    assert sizing.blocks(64, 256, sizing.BRAM_SHAPES) == 8  # few words, but many bits at a time
    assert Memory("cache", 36864, 72).uram == 2
    assert Memory("cache", 36865, 72, copies=1).uram == 2


@pytest.mark.parametrize(
    ("groups", "width", "exposed"),
    [
        ([], 1, 0),
        ([(100, [Elementwise(640)])], 8, 0),
        ([(100, [Elementwise(640), Elementwise(64)])], 8, 0),
        ([(100, [Elementwise(640)]), (100, [Elementwise(1601)])], 32, 0),
        ([(10, [Elementwise(4, 12)])], 4, 2),  # twelve passes do not fit into ten cycles
        ([(0, [Elementwise(10**6)])], 1, 0),  # nothing to hide behind
    ],
)
def test_the_width_hides_what_can_be_hidden(groups, width, exposed):
    assert simd_width(groups) == sizing.Simd(width, exposed)


works = st.lists(st.builds(Elementwise, st.integers(1, 500), st.integers(1, 3)), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 50), works), max_size=4))
def test_the_width_is_the_smallest(groups):
    def exposed(width):
        left = 0
        for cycles, work in groups:
            if cycles:
                left += max(0, sum(math.ceil(item.elements / width) * item.passes for item in work) - cycles)
        return left

    found = simd_width(groups, 64)
    by_width = {width: exposed(width) for width in (1, 2, 4, 8, 16, 32, 64)}
    assert found.exposed == by_width[64]
    assert found.width == min(width for width, left in by_width.items() if left == found.exposed)


def test_errors():
    with pytest.raises(DomainError, match="inputs has 1 sizes for 2 layers"):
        sizing.memories(Workload(LAYERS), (8, 4, 3), inputs=[3])
    with pytest.raises(DomainError, match="there is no precision 'int9'") as caught:
        sizing.memories(Workload(LAYERS), (8, 4, 3), neural="int9")
    assert caught.value.hint == "did you mean 'int8'?"
