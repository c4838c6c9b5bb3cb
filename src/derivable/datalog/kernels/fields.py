"""The fields of a text in columns, read at once into columns: numbers as they are, texts as where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.decimals import LEAST, MOST, nearest_double
from derivable.device.cpu.digits import TOPS, ZEROS, bits_of_digits, number_of_digits
from derivable.device.cpu.places import eight_bytes, pointer, trailing_zeros

# What a column holds.
SHORT, LONG, FLOAT, TEXT = range(4)

NEWLINE, RETURN, PLUS, MINUS, POINT, ZERO, NINE, EXPONENT = 10, 13, 43, 45, 46, 48, 57, 101
# All integers of this many digits are in 64 bits.
_DIGITS = 18
# All of this many digits are in 64 bits without a sign.
_DIGITS_OF_FLOAT = 19
_EACH = np.uint64(0x0101010101010101)
_SPACES = np.uint64(0x2020202020202020)


@kernel(inline="always")
def _more_digits(data, stop, position, number) -> tuple[Any, Any]:
    """(position after them, number) with the digits from `position` on behind those of `number`, a uint64."""
    while position + 8 <= stop:
        digits = eight_bytes(data, position) - ZEROS
        if bits_of_digits(digits) < 57:
            break
        number = number * np.uint64(100_000_000) + np.uint64(number_of_digits(digits, 64))
        position += 8
    while position < stop and ZERO <= data[position] <= NINE:
        number = number * np.uint64(10) + np.uint64(data[position] - ZERO)
        position += 1
    return position, number


@kernel
def _integer(data, stop, position) -> tuple[Any, Any]:
    """(position after it, value) of the integer at `position`; (-1, 0) if there is none, or one of many digits."""
    negative = position < stop and data[position] == MINUS
    start = position + negative
    position, digits = _more_digits(data, stop, start, np.uint64(0))
    if position == start or position - start > _DIGITS:
        return np.int64(-1), np.int64(0)
    value = np.int64(digits)
    return position, -value if negative else value


@kernel
def _float(data, stop, position, powers) -> tuple[Any, Any]:
    """(position after it, bits) of the float64 next to the decimal number at `position`; (-1, 0) if there is none, or
    one of more digits than are in 64 bits, or one that is not normal."""
    negative = position < stop and data[position] == MINUS
    start = position + negative
    position, digits = _more_digits(data, stop, start, np.uint64(0))
    count, exponent = position - start, np.int64(0)
    if position < stop and data[position] == POINT:
        position, digits = _more_digits(data, stop, position + 1, digits)
        exponent = count - (position - start - 1)
        count -= exponent
    if count == 0:
        return np.int64(-1), np.int64(0)
    if count > _DIGITS_OF_FLOAT:
        while start < position and (data[start] == ZERO or data[start] == POINT):
            count -= data[start] == ZERO
            start += 1
        if count > _DIGITS_OF_FLOAT:
            return np.int64(-1), np.int64(0)
    if position < stop and data[position] | 32 == EXPONENT:
        position += 1
        if position + 1 < stop and data[position] == PLUS and data[position + 1] != MINUS:
            position += 1
        position, power = _integer(data, stop, position)
        if position < 0:
            return np.int64(-1), np.int64(0)
        exponent += power
    bits = np.int64(0)
    if digits != np.uint64(0):
        if exponent < LEAST or exponent > MOST:
            return np.int64(-1), np.int64(0)
        bits = nearest_double(digits, exponent, powers)
        if bits < 0:
            return np.int64(-1), np.int64(0)
    return position, bits | np.int64(-(2**63)) if negative else bits


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
def _line(data, stop, position, row, width, delimiter, delimiters, kinds, starts, halves, words, powers):
    """Read a line that is not blank; the start of the next one, -1 where something is not of the form."""
    for c in range(width):
        at, kind = row + starts[c], kinds[c]
        end = NEWLINE if c + 1 == width else delimiter
        if kind == TEXT:
            words[at] = position
            position = _end_of_text(data, stop, position, delimiter, delimiters)
            words[row + starts[width + c]] = position
        elif kind == FLOAT:
            position, bits = _float(data, stop, position, powers)
            if position < 0:
                return np.int64(-1)
            words[at] = bits
        else:
            if position + 8 <= stop:
                # Mostly it has one to seven digits: no branch depends on how many.
                digits = eight_bytes(data, position) - ZEROS
                bits = bits_of_digits(digits)
                after = (digits >> np.uint64(bits)) & np.uint64(255)
                if 8 <= bits < 57 and after == np.uint64((end - ZERO) & 255):
                    value = number_of_digits(digits, bits)
                    if kind == LONG:
                        words[at] = value
                    else:
                        halves[at] = value
                    position += (bits >> 3) + 1
                    continue
            position, value = _integer(data, stop, position)
            if position < 0:
                return np.int64(-1)
            if kind == LONG:
                words[at] = value
            else:
                halves[at] = value
                if value != np.int64(np.int32(value)):
                    return np.int64(-1)
        if position < stop and data[position] == end:
            position += 1
        elif c + 1 == width and (position == stop or _ends_with_return(data, stop, position)):
            position = min(stop, position + 2)
        else:
            return np.int64(-1)
    return position


@kernel("uint8[] int64 int64 bool int64 int64[] int64[] int32[] int64[] uint64[]")
def read_fields(content, position, delimiter, has_blanks, most, kinds, starts, halves, words, powers):
    """The lines from byte `position` on, of which each has a field for each column.

    delimiter  a byte that is in no number
    has_blanks whether blank lines are left out
    most       how many rows there is room for
    kinds      [column] SHORT, LONG, FLOAT or TEXT
    starts     [2 * column] where a column begins in `halves` or `words`; of texts the second half says where the
               ends of the texts begin
    halves     int32, on the memory of `words`: SHORT columns, integers of 32 bits
    words      int64: LONG columns, the bits of FLOAT columns, and of TEXT columns where each text starts and stops
    powers     `powers_of_five` if there are FLOAT columns
    returns    the number of rows, -1 where something is not of this form: integers have at most 18 digits, and floats
               are decimal and normal
    """
    data, stop, width, row = pointer(content), len(content), len(kinds), 0
    of_columns, to_halves, to_words = pointer(kinds), pointer(halves), pointer(words)
    firsts, of_powers, delimiters = pointer(starts), pointer(powers), np.uint64(delimiter) * _EACH
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
            data,
            stop,
            position,
            row,
            width,
            delimiter,
            delimiters,
            of_columns,
            firsts,
            to_halves,
            to_words,
            of_powers,
        )
        if position < 0:
            return -1
        row += 1
