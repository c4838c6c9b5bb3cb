"""Instructions: bits, printed form, validator, the text for the hardware."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelerator.readers import decode, parse
from derivable.accelerator.hardware.elaboration import package
from derivable.accelerator.machine import hazards
from derivable.accelerator.machine.instructions import (
    BITS,
    FIELDS,
    KINDS,
    NUM_UNITS,
    OPERATIONS,
    UNITS,
    Convolve,
    End,
    Gemm,
    Machine,
    Move,
    Program,
    Transfer,
    Vector,
    encode,
    places,
)
from derivable.core.diagnostics import DerivableError, DomainError, LayoutError, LimitError

MACHINE = Machine(4, 4, 2, lanes=4, line=16, a=64, b=64, k=16, c=64, p=4, x=4096, program=64)


@st.composite
def instructions(draw):
    unit = draw(st.sampled_from(UNITS))
    values = {}
    for item in FIELDS[unit]:
        low, high = item.range
        values[item.name] = draw(st.sampled_from(item.names) if item.names else st.integers(low, high))
    needs = draw(st.tuples(*[st.integers(0, 65535)] * NUM_UNITS))
    return KINDS[unit](operation=draw(st.sampled_from(OPERATIONS[unit])), needs=needs, **values)


@given(instructions())
def test_bits_and_text_keep_all(instruction):
    words = encode(instruction)
    assert words.dtype == np.uint32
    assert words.shape == (16,)
    assert decode(words) == instruction
    assert parse(str(instruction)).instructions == (instruction,)


@pytest.mark.parametrize("unit", UNITS[:NUM_UNITS])
def test_fields_fit_without_overlap(unit):
    end = 96
    for first, bits in places(unit).values():
        assert first == end
        end += bits
    assert end <= 512


def test_a_field_is_where_the_package_says():
    """An independent reading: the text's numbers, and shifts of one large integer."""
    found = {
        name: (int(lsb), int(bits)) for name, lsb, bits in re.findall(r"(\w+)_LSB = (\d+), \w+_BITS = (\d+)", package())
    }
    instruction = Vector(operation="mul", y=77, b=-5, shift=13, a_type="i32", needs=(1, 2, 3, 4, 500))
    bits = sum(int(word) << (32 * k) for k, word in enumerate(encode(instruction)))

    def read(name):
        lsb, width = found[name]
        return bits >> lsb & ((1 << width) - 1)

    assert read("UNIT") == 4
    assert read("OPERATION") == 2
    assert read("NEED_VEC") == 500
    assert read("NEED_MOVE") == 2
    assert read("VEC_Y") == 77
    assert read("VEC_B") == 2**32 - 5
    assert read("VEC_SHIFT") == 13
    assert read("VEC_A_TYPE") == 3


LOAD = Transfer(operation="load", x=0, far=0, lines=4)
A = Move(operation="A", n3=8, x3=4, to3=1, valid=4, needs=(1, 0, 0, 0, 0))
B = Move(operation="B", n3=8, x3=4, to3=1, valid=4, needs=(1, 0, 0, 0, 0))
GEMM = Gemm(tiles=2, n2=4, b2=1, reach=8, needs=(0, 2, 0, 0, 0))


def _check(*listed):
    hazards.check(MACHINE, Program([*listed, End()]), 256)


def test_what_is_ordered_is_valid():
    _check(LOAD, A, B, GEMM)
    # Through others: the second load needs the product, which needed what was moved.
    _check(LOAD, A, B, GEMM, Transfer(operation="load", x=0, far=0, lines=4, needs=(0, 0, 1, 0, 0)))
    # Another half of B is filled while the product runs.
    _check(LOAD, A, B, GEMM, Move(operation="B", n3=8, x3=4, to=8, to3=1, valid=4))
    # The product and the convolution run beside each other on their own sub-arrays.
    _check(LOAD, A, B, GEMM, Convolve(first=1, length=4))


@pytest.mark.parametrize(
    ("listed", "error", "message"),
    [
        ([LOAD, Move(operation="A", n3=8, x3=4, to3=1, valid=4)], LayoutError, "has to need dma:1"),
        ([LOAD, A, B, Gemm(tiles=2, n2=4, b2=1, reach=8, needs=(0, 1, 0, 0, 0))], LayoutError, "has to need move:2"),
        ([LOAD, A, B, GEMM, Move(operation="B", to=7, valid=4)], LayoutError, "B[0] 7 to 7 while instruction 3 of nn"),
        (
            [LOAD, Move(operation="A", spread=5, valid=4)],
            DomainError,
            "5 words of 4 bytes are dealt out of a line of 16",
        ),
        ([LOAD, Move(operation="B", spread=2, valid=9)], DomainError, "9 bytes are valid of 2 words of 4 bytes"),
        ([LOAD, Move(operation="A", banks=2, spread=2, bank_loop=3, n3=2, valid=8)], LayoutError, "no bank 2"),
        ([GEMM], LayoutError, "it needs 2 instructions of move, and 0 come before it"),
        ([Gemm(arrays=2), Convolve(first=1, length=4)], LayoutError, "touches sub-array[1] 1 to 1"),
        ([Gemm(arrays=3)], LayoutError, "no bank 2"),
        ([Transfer(operation="load", x=0, far=16, lines=16)], LayoutError, "off-chip 16 to 271, and there are 256"),
        ([Transfer(operation="load", x=0, far=8, lines=1)], LayoutError, "multiple of the line"),
        ([Vector(operation="add", n2=2, a2=4, y=4, y2=4)], LayoutError, "it writes X 4 to 11 and reads X 0 to 7"),
        ([Vector(operation="drain")], DomainError, "read from C"),
        ([Vector(operation="add", turned=1, y_type="i16", y=64)], DomainError, "what is turned is int8"),
        ([Vector(operation="add", turned=1, n2=5, y=64)], DomainError, "a pass of 5 steps is turned"),
        ([Vector(operation="add", turned=1, n2=4, y2=4)], LayoutError, "it writes X 0 to 15 and reads X 0 to 3"),
        ([Convolve(length=512, split=1)], DomainError, "at most 511"),
        ([Vector(operation="add", shift=64)], DomainError, "shift is 64, expected 0 to 63"),
        ([LOAD] * 64, LimitError, "65 instructions, and 64 fit"),
        ([End()], LayoutError, "one end"),
    ],
)
def test_what_is_not_valid_is_told(listed, error, message):
    with pytest.raises(error, match=re.escape(message)):
        _check(*listed)


def test_a_machine_is_checked():
    for wrong in ({"height": 6}, {"lanes": 6}, {"line": 16, "lanes": 8}, {"sub_arrays": 0}, {"x": 100}):
        with pytest.raises(DerivableError):
            Machine(**wrong)


def _steps(start, counts, strides):
    """Where each step of some loops begins."""
    for place in itertools.product(*map(range, counts)):
        yield place, start + sum(i * stride for i, stride in zip(place, strides))


def _bytes_of_lanes(of, name):
    """Bytes of X that an operand or the result of lanes is in, one by one."""
    counts = [of.n0, of.n1, of.n2]
    strides = [getattr(of, f"{name}{loop}") for loop in range(3)]
    bits = BITS[getattr(of, f"{name}_type")]
    found = set()
    for place, at in _steps(getattr(of, name), counts, strides):
        is_last = place[2] == counts[2] - 1 if of.tail_inner else place[1] == counts[1] - 1
        for lane in range(of.tail if of.tail and is_last else MACHINE.lanes):
            if name == "y" and of.turned:
                found.add(at - place[2] * strides[2] + lane * strides[2] + place[2])
            else:
                found.update(range(at + lane * bits // 8, at + (lane * bits + bits + 7) // 8))
    return found


def _random_lanes(rng):
    stride = [int(rng.choice([0, 4, 8, -16, 40, 80, 120, 240])) for _ in range(9)]
    names = [f"{name}{loop}" for name in "aby" for loop in range(3)]
    turned = int(rng.integers(2))
    counts = {f"n{loop}": int(rng.integers(1, 5)) for loop in range(3)}
    return Vector(
        operation="add", b_from="X", **counts, **dict(zip(names, stride)), turned=turned,
        a=int(rng.integers(2000, 2100)), b=int(rng.integers(2000, 2100)), y=int(rng.integers(2000, 2100)),
        a_type=str(rng.choice(["i8", "i16"])), b_type="i8", y_type="i8" if turned else str(rng.choice(["i8", "i16"])),
        tail=int(rng.integers(0, 4)), tail_inner=0 if turned else int(rng.integers(2)),
    )  # fmt: skip


def test_instructions_that_share_a_byte_meet_and_those_in_other_parts_of_rows_do_not():
    rng = np.random.default_rng(0)
    met, apart = 0, 0
    for _ in range(400):
        pair = [_random_lanes(rng) for _ in range(2)]
        listed = [list(hazards.regions(MACHINE, of)) for of in pair]
        touched = [[_bytes_of_lanes(of, name) for name in "aby"] for of in pair]
        for (one, bytes_one), (other, bytes_other) in itertools.product(*(zip(*each) for each in zip(listed, touched))):
            assert one.start == min(bytes_one)
            assert one.stop == max(bytes_one) + 1
            if bytes_one & bytes_other:
                assert one.meets(other) == (one.is_written or other.is_written)
                met += 1
            elif one.start < other.stop and other.start < one.stop and not one.meets(other):
                apart += one.is_written or other.is_written
    assert met > 1000
    assert apart > 100


def test_rows_of_which_each_instruction_has_a_part():
    """Two write parts of rows, a third reads one of them, a fourth writes all: only what meets has to wait."""
    memory = hazards.Memory()

    def touch(number, start, is_written, width=8):
        return memory.touch(number, hazards.Region("X", 0, hazards._extent(start, (4,), (32,), width), is_written))

    assert touch(0, 0, True) == set()
    assert touch(1, 8, True) == set()
    assert touch(2, 8, False) == {1}
    assert touch(3, 0, True) == {0}
    assert touch(4, 4, False) == {1, 3}
    assert touch(5, 8, True) == {1, 2, 4}
    assert touch(6, 0, True, width=32) == {3, 4, 5}
    assert touch(7, 16, False) == {6}
