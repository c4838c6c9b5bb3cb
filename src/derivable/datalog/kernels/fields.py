"""The fields of a text in columns, read at once into columns: integers as they are, texts as where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.digits import TOPS, ZEROS, bits_of_digits, number_of_digits
from derivable.device.cpu.places import eight_bytes, pointer, trailing_zeros

# What a column holds.
SHORT, LONG, TEXT = range(3)

NEWLINE, RETURN, MINUS, ZERO, NINE = 10, 13, 45, 48, 57
# All integers of so many digits are in 64 bits.
_DIGITS = 18
_EACH = np.uint64(0x0101010101010101)
_SPACES = np.uint64(0x2020202020202020)


@kernel
def _integer(data, stop, position) -> tuple[Any, Any]:
    """(position after it, value) of the integer at `position`; (-1, 0) if there is none, or one of many digits."""
    negative = position < stop and data[position] == MINUS
    start = position + negative
    at, value = start, np.int64(0)
    while at < stop and ZERO <= data[at] <= NINE:
        value = 10 * value + (data[at] - ZERO)
        at += 1
        if at - start > _DIGITS:
            return np.int64(-1), np.int64(0)
    if at == start:
        return np.int64(-1), np.int64(0)
    return at, -value if negative else value


@kernel(inline="always")
def _end_of_text(data, stop, position, delimiter, delimiters):
    """The first delimiter or end of a line from `position` on; `delimiters` are eight of them."""
    while position + 8 <= stop:
        word = eight_bytes(data, position)
        other = word ^ delimiters
        # The lowest bit is right in both: what is borrowed from a byte reaches only those behind it.
        marks = (((word - _SPACES) & ~word) | ((other - _EACH) & ~other)) & TOPS
        if marks == 0:
            position += 8
            continue
        position += trailing_zeros(marks) >> 3
        byte = data[position]
        if byte in (delimiter, NEWLINE, RETURN):
            return position
        position += 1
    while position < stop and data[position] != delimiter and data[position] != NEWLINE and data[position] != RETURN:
        position += 1
    return position


@kernel
def _ends_with_return(data, stop, position):
    return position + 1 < stop and data[position] == RETURN and data[position + 1] == NEWLINE


@kernel(inline="always")
def _line(data, stop, position, row, width, delimiter, delimiters, kinds, places, halves, words):
    """Read a line that is not blank; the start of the next one, -1 where something is not of the form."""
    for c in range(width):
        place, kind = row + places[c], kinds[c]
        end = NEWLINE if c + 1 == width else delimiter
        if kind == TEXT:
            words[place] = position
            position = _end_of_text(data, stop, position, delimiter, delimiters)
            words[row + places[width + c]] = position
        else:
            if position + 8 <= stop:
                # Mostly it has one to seven digits: no branch depends on how many.
                digits = eight_bytes(data, position) - ZEROS
                bits = bits_of_digits(digits)
                after = (digits >> np.uint64(bits)) & np.uint64(255)
                if 8 <= bits < 57 and after == np.uint64((end - ZERO) & 255):
                    value = number_of_digits(digits, bits)
                    if kind == LONG:
                        words[place] = value
                    else:
                        halves[place] = value
                    position += (bits >> 3) + 1
                    continue
            position, value = _integer(data, stop, position)
            if position < 0:
                return np.int64(-1)
            if kind == LONG:
                words[place] = value
            else:
                halves[place] = value
                if value != np.int64(np.int32(value)):
                    return np.int64(-1)
        if position < stop and data[position] == end:
            position += 1
        elif c + 1 == width and (position == stop or _ends_with_return(data, stop, position)):
            position = min(stop, position + 2)
        else:
            return np.int64(-1)
    return position


@kernel("uint8[] int64 int64 bool int64 int64[] int64[] int32[] int64[]")
def read_fields(content, position, delimiter, has_blanks, most, kinds, places, halves, words):
    """The lines from byte `position` on, of which each has a field for each column.

    delimiter  a byte that is in no integer
    has_blanks whether blank lines are left out
    most       how many rows there is room for
    kinds      [column] SHORT, LONG or TEXT
    places     [2 * column] where a column begins in `halves` or `words`; of texts the second part says where the ends
               of the texts begin
    halves     int32, on the memory of `words`: SHORT columns, integers of 32 bits
    words      int64: LONG columns, and of TEXT columns where each text starts and stops
    returns    the number of rows, -1 where something is not of this form: integers have at most 18 digits
    """
    data, stop, width, row = pointer(content), len(content), len(kinds), 0
    of_columns, to_halves, to_words = pointer(kinds), pointer(halves), pointer(words)
    starts, delimiters = pointer(places), np.uint64(delimiter) * _EACH
    while True:
        while has_blanks and position < stop and data[position] <= RETURN:
            if data[position] == NEWLINE:
                position += 1
            elif _ends_with_return(data, stop, position):
                position += 2
            else:
                break
        if position >= stop:
            return row
        if row == most:
            return -1
        position = _line(
            data, stop, position, row, width, delimiter, delimiters, of_columns, starts, to_halves, to_words
        )
        if position < 0:
            return -1
        row += 1
