"""Triton's kernels on matrices of bits [row, word] int32; see `device_bits`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["start", "width"])
def include_rows(
    into, words, offsets, sources, start, width, WORDS: tl.constexpr, ROWS: tl.constexpr, IS_NEW: tl.constexpr
):
    """Rows of `words` go into a row of `into`: a program for WORDS words of one row, ROWS sources at a time.

    A row that is new has nothing before.
    """
    row = tl.program_id(0).to(tl.int64) + start
    at = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    inside = at < width
    first = tl.load(offsets + row)
    last = tl.load(offsets + row + 1)
    bits = tl.zeros((WORDS,), tl.int32)
    if not IS_NEW:
        bits = tl.load(into + row * width + at, mask=inside, other=0)
    for k in range((last - first + ROWS - 1) // ROWS):
        # Loads that do not wait for one another.
        for j in tl.static_range(ROWS):  # pyright: ignore
            edge = first + k * ROWS + j
            source = tl.load(sources + edge, mask=edge < last, other=0)
            bits = bits | tl.load(words + source * width + at, mask=inside & (edge + at * 0 < last), other=0)
    tl.store(into + row * width + at, bits, mask=inside)


@triton.jit(do_not_specialize=["number", "columns", "width", "turned_width"])
def transpose_bits(turned, words, number, columns, width, turned_width, COLUMNS: tl.constexpr):
    """Word `program_id(0)` of COLUMNS rows of the transpose: bits of 32 rows."""
    band = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    lane = tl.arange(0, 32)
    row = band * 32 + lane
    there = (column < columns)[:, None] & (row < number)[None, :]
    word = tl.load(words + row[None, :] * width + (column // 32)[:, None], mask=there, other=0)
    bit = (word >> (column % 32).to(tl.int32)[:, None]) & 1
    bits = tl.sum(bit << lane[None, :], 1)
    tl.store(turned + column * turned_width + band, bits, mask=column < columns)


@triton.jit(do_not_specialize=["width", "blocks"])
def write_pairs(rows, columns, words, ends, width, blocks, BITS: tl.constexpr):
    """The pairs of one block of BITS bits of a row, from where those before it end."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64)
    position = row * blocks + block
    end = tl.load(ends + position)
    bit = block * BITS + tl.arange(0, BITS)
    word = tl.load(words + row * width + bit // 32, mask=bit // 32 < width, other=0)
    is_there = (word >> (bit % 32).to(tl.int32)) & 1
    until = tl.cumsum(is_there, 0)
    total = tl.sum(is_there, 0)
    at = end - total + until - 1
    tl.store(rows + at, tl.zeros((BITS,), tl.int64) + row, mask=is_there != 0)
    tl.store(columns + at, bit, mask=is_there != 0)
