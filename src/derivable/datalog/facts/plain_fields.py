"""Files of text in columns whose fields are plain, decimal numbers and texts without quotes, read by a kernel.

What is not plain Arrow reads, or lines of Python do, which say what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.datalog.facts.inputs import Texts
from derivable.datalog.kernels import fields as kernels
from derivable.datalog.values.text_arena import Encoded
from derivable.datalog.values.values import ValueType
from derivable.device.cpu.decimals import are_rounded_once, powers_of_five
from derivable.device.cpu.memory import empty

_NUMBERS = ("signed", "unsigned", "float")
# The largest numbers of floats of these bits.
LARGEST = {bits: float(np.finfo(f"f{bits // 8}").max) for bits in (32, 64)}


def plain_columns(
    data: bytes,
    start: int,
    delimiter: str,
    types: Sequence[ValueType],
    num_lines: int,
    has_blanks: bool = True,
    rounds_once: bool = False,
) -> list[np.ndarray | Texts] | None:
    """The columns of a file in which nothing is quoted; None if some fields are not plain.

    start       the byte from which on there are facts
    types       of the columns in the order of the file
    num_lines   how often a line ends in `data`
    has_blanks  whether blank lines are left out
    rounds_once whether floats of 32 bits are the float32 next to their texts; else they are float64, as all others
    """
    has_numbers = [t.family in _NUMBERS for t in types]
    others = {t.family for t, is_number in zip(types, has_numbers) if not is_number}
    # The delimiter is one byte and in no number; whether other bytes are texts is looked at by others.
    is_plain = delimiter.isascii() and not delimiter.isdigit() and delimiter not in "-+.eE\r\n"
    if "bool" in others or not is_plain or (others and not data.isascii()):
        return None
    kinds = list(map(_kind, types))
    most = num_lines + 1
    # A column of texts has two planes: where they start, and where they stop.
    planes = np.cumsum([0, *(1 + (kind == kernels.TEXT) for kind in kinds)])
    words = empty(int(planes[-1]) * most, np.int64)
    halves = words.view(np.int32)
    starts = planes[:-1] * np.where(np.array(kinds) == kernels.SHORT, 2 * most, most)
    plane_starts = np.concatenate([starts, starts + most]).astype(np.int64)
    content = np.frombuffer(data, np.uint8)
    powers = powers_of_five() if kernels.FLOAT in kinds else np.empty(0, np.uint64)
    count = kernels.read_fields(
        content, start, ord(delimiter), has_blanks, most, np.array(kinds, np.int64), plane_starts, halves, words, powers
    )
    if count < 0:
        return None
    columns: list[np.ndarray | Texts] = []
    for t, kind, begin in zip(types, kinds, starts.tolist()):
        column = (halves if kind == kernels.SHORT else words)[begin : begin + count]
        if kind == kernels.TEXT:
            columns.append(Texts(Encoded(content, column, words[begin + most : begin + most + count])))
            continue
        if kind == kernels.FLOAT:
            column = column.view(np.float64)
        # What the kernel reads is a float64.
        if (kind, t.bits) != (kernels.FLOAT, 64) and not all_fit(column, t):
            return None
        if rounds_once and (kind, t.bits) == (kernels.FLOAT, 32):
            if not are_rounded_once(column):
                return None
            column = column.astype(np.float32)
        columns.append(column.view(f"u{column.itemsize}") if t.family == "unsigned" else column)
    return columns


def all_fit(numbers: np.ndarray, t: ValueType) -> bool:
    """Whether numbers are values of a type."""
    if t.family == "float":
        # Infinities may be written so, or be numbers that are too large: the lines say which.
        return bool((np.abs(numbers) <= LARGEST[t.bits]).all())
    if t.is_integer and len(numbers):
        low, high = t.limits
        return low <= int(numbers.min()) and int(numbers.max()) <= high
    return True


def _kind(t: ValueType) -> int:
    if t.family == "float":
        return kernels.FLOAT
    if t.family not in _NUMBERS:
        return kernels.TEXT
    return kernels.SHORT if t.bits <= 32 else kernels.LONG
