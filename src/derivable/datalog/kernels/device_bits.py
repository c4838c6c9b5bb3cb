"""Matrices of bits on a device, as tensors [row, word] of int32: Triton's kernels, and the same on the CPU by NumPy.

Bit j of word w of a row is the value 32 w + j. A graph is `offsets` [row + 1] and `sources` [edge], both int64.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import torch

from derivable.device.cuda.compiler import KeptKernels, refusal

BITS = 32
# Words of a row, and rows that go into it, that a program reads together.
WORDS, ROWS = 128, 8
# Columns that a program transposes; words of a row whose pairs a program writes.
COLUMNS, PACKED = 128, 32


def fill(rows: torch.Tensor, columns: torch.Tensor, number: int, width: int) -> torch.Tensor:
    """A matrix of `number` rows of `width` words with the bits of these distinct pairs [pair] int64."""
    words = torch.zeros(number * width, dtype=torch.int32, device=rows.device)
    bits = torch.ones(len(rows), dtype=torch.int32, device=rows.device) << (columns & (BITS - 1)).to(torch.int32)
    # Distinct bits of a word add up without a carry.
    return words.index_add_(0, rows * width + (columns >> 5), bits).view(number, width)


def include(
    into: torch.Tensor, words: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, start: int, stop: int
) -> None:
    """Put into each of the rows `start` .. `stop` of `into` the rows of `words` that are its sources.

    The two may be one matrix: a row then gets what its sources have at some time, at least what they had before.
    """
    if stop <= start:
        return
    if has_kernels(into.device):
        _include(into, words, offsets, sources, start, stop, False)
        return
    ends = offsets[start : stop + 1].numpy()
    there = np.flatnonzero(np.diff(ends))
    if len(there):
        gathered = words.numpy()[sources.numpy()[ends[0] : ends[-1]]]
        into.numpy()[start + there] |= np.bitwise_or.reduceat(gathered, ends[there] - ends[0], 0)


def included(words: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
    """A matrix of rows that each include the rows of `words` that are their sources."""
    shape = len(offsets) - 1, words.shape[1]
    if has_kernels(words.device):
        matrix = torch.empty(shape, dtype=torch.int32, device=words.device)
        _include(matrix, words, offsets, sources, 0, shape[0], True)
        return matrix
    matrix = torch.zeros(shape, dtype=torch.int32)
    include(matrix, words, offsets, sources, 0, shape[0])
    return matrix


def _include(into: Any, words: Any, offsets: Any, sources: Any, start: int, stop: int, is_new: bool) -> None:
    width = into.shape[1]
    grid = (stop - start, -(-width // WORDS))
    _kernel("include_rows")(grid, into, words, offsets, sources, start, width, WORDS, ROWS, is_new)


def transposed(words: torch.Tensor, columns: int, width: int) -> torch.Tensor:
    """The matrix [column, width] whose rows are the first `columns` columns of this one."""
    number = len(words)
    if has_kernels(words.device):
        turned = torch.empty((columns, width), dtype=torch.int32, device=words.device)
        grid = (width, -(-columns // COLUMNS))
        _kernel("transpose_bits")(grid, turned, words, number, columns, words.shape[1], width, COLUMNS)
        return turned
    turned = np.zeros((columns, width * BITS), np.uint8)
    turned[:, :number] = _unpacked(words)[:, :columns].T
    return torch.from_numpy(np.packbits(turned, 1, bitorder="little").view(np.int32))


def counts(words: torch.Tensor) -> torch.Tensor:
    """[row, block] int64: the number of bits of each block of PACKED words."""
    x = words - ((words >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    x = (x + (x >> 8)) & 0x00FF00FF
    x = (x + (x >> 16)) & 0x3F
    missing = -words.shape[1] % PACKED
    if missing:
        x = torch.nn.functional.pad(x, (0, missing))
    return x.view(len(words), -1, PACKED).sum(2)


def pairs(words: torch.Tensor, ends: torch.Tensor, total: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, columns) [pair] int64 of all bits, in ascending order.

    ends  the running sum of `counts`, in the order of memory, whose last is `total`
    """
    if has_kernels(words.device):
        rows, columns = torch.empty((2, total), dtype=torch.int64, device=words.device)
        blocks = -(-words.shape[1] // PACKED)
        if total:
            grid = (len(words), blocks)
            _kernel("write_pairs")(grid, rows, columns, words, ends, words.shape[1], blocks, PACKED * BITS)
        return rows, columns
    rows, columns = np.nonzero(_unpacked(words))
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _unpacked(words: torch.Tensor) -> np.ndarray:
    """[row, column] uint8."""
    return np.unpackbits(np.ascontiguousarray(words.numpy()).view(np.uint8), axis=1, bitorder="little")


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether Triton's kernels run there."""
    return os.environ.get("TRITON_INTERPRET") == "1" or refusal(device) is None


@cache
def _kernel(name: str) -> KeptKernels:
    from derivable.datalog.kernels import triton_bits

    return KeptKernels(getattr(triton_bits, name))
