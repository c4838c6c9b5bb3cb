"""Numba byte parsers of the circuit file formats: one for SDD, vtree and c2d's d-DNNF, one for D4's.

Each reads `data` [byte] uint8 once, front to back, and writes flat arrays that the caller allocated
(over-allocated from the length of the file: pages that are not written are never touched). Lines end with
LF, CRLF or CR; blank lines and lines that start with `c` are skipped anywhere; blanks and tabs separate.

In all formats but D4's a letter says what a line is, and a grammar what numbers stand behind each letter.

All return (code, position, value, ...): code OK or one of the constants below, the byte position of the
offending token, and a number for the message. Nothing here builds a message or allocates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.digits import ZEROS, bits_of_digits, number_of_digits
from derivable.device.cpu.places import eight_bytes, item, pointer

OK = 0
EXPECTED_NUMBER = 1  # a token that is not an integer
EXPECTED_MORE = 2  # the line ends too early
EXPECTED_END = 3  # the line goes on too long
UNKNOWN_LINE = 4  # a line that starts with an unknown letter
MISSING_HEADER = 5
TOO_MANY_NODES = 6  # more node lines than the header announces
ID_RANGE = 7  # an id that is not in the announced range
DUPLICATE_ID = 8
UNDEFINED_ID = 9  # a reference to an id that no earlier line defines
ZERO_LITERAL = 10
NUMBER_RANGE = 11  # an integer that does not fit
BAD_COUNT = 12  # a negative count
NOT_TERMINATED = 13  # a D4 line without its closing 0
VARIABLE_RANGE = 14  # a literal whose variable the header does not announce

# The fields of a line: the id that it defines, a number that is only kept, a literal, a variable, and last the count
# of the ids (or id pairs) that follow, or a bare pair.
NEW_ID, PLACE, SIGNED, VARIABLE, COUNT, PAIRS, ONE_PAIR = range(1, 8)

NEWLINE, RETURN, SPACE, TAB, MINUS, ZERO, NINE = 10, 13, 32, 9, 45, 48, 57
LIMIT = 2**31 - 1


@kernel
def skip_blanks(data, stop, position):
    """The next position that is not a blank within the line."""
    while position < stop and (data[position] == SPACE or data[position] == TAB):
        position += 1
    return position


@kernel
def skip_line(data, stop, position):
    """The start of the next line."""
    while position < stop and data[position] != NEWLINE and data[position] != RETURN:
        position += 1
    return position + 1


@kernel
def next_line(data, stop, position):
    """The first byte of the next line that is neither blank nor a comment; stop at the end of the file."""
    while position < stop:
        byte = data[position]
        if byte in (NEWLINE, RETURN, SPACE, TAB):
            position += 1
        elif byte == 99 and (position + 1 >= stop or data[position + 1] <= SPACE):  # c
            position = skip_line(data, stop, position)
        elif byte == 26 and position == stop - 1:  # a DOS end of file
            position += 1
        else:
            return position
    return stop


@kernel("uint8[]")
def first_line(content):
    """The first byte of a file that belongs neither to a comment nor to a blank line; its length if there is none."""
    return next_line(pointer(content), len(content), 0)


@kernel
def at_end(data, stop, position):
    return position >= stop or data[position] == NEWLINE or data[position] == RETURN


@kernel
def read_number(data, stop, position):
    """(code, position after it, value) of the integer at or after `position` on the same line.

    On failure the position is that of the token, or of the end of the line.
    """
    position = skip_blanks(data, stop, position)
    start = position
    if at_end(data, stop, position):
        return EXPECTED_MORE, position, 0
    negative = data[position] == MINUS
    if negative:
        position += 1
    first = position
    value = 0
    while position < stop and ZERO <= data[position] <= NINE:
        value = 10 * value + (data[position] - ZERO)
        if value > LIMIT:
            return NUMBER_RANGE, start, 0
        position += 1
    if position == first or (position < stop and data[position] > SPACE):
        return EXPECTED_NUMBER, start, 0
    return OK, position, -value if negative else value


@kernel(inline="always")
def plain_number(data, stop, position) -> tuple[Any, Any]:
    """(position after it, value) of the number of one to seven digits that follows one space; (-1, 0) for all else.

    Eight bytes at a time and without a branch that depends on how many digits there are. What this does not
    take, `read_number` reads or explains.
    """
    if position + 10 > stop or data[position] != SPACE:
        return np.int64(-1), np.int64(0)
    negative = data[position + 1] == MINUS
    start = position + 1 + negative
    digits = eight_bytes(data, start) - ZEROS
    bits = bits_of_digits(digits)
    if bits < 8 or bits > 56 or ((digits >> np.uint64(bits)) + np.uint64(ZERO)) & np.uint64(255) > np.uint64(SPACE):
        return np.int64(-1), np.int64(0)
    value = number_of_digits(digits, bits)
    return start + (bits >> 3), -value if negative else value


@kernel
def number_at(data, stop, position):
    """(code, position, value, where it starts) of the integer at or after `position` on the same line."""
    after, value = plain_number(data, stop, position)
    if after >= 0:
        return OK, after, value, position + 1
    token = skip_blanks(data, stop, position)
    code, position, value = read_number(data, stop, token)
    return code, position, value, token


@kernel("uint8[] uint8[] int64[]")
def parse_header(content, word, numbers):
    """Find the line `word number number ...`: (code, position, 0); the position after it if OK."""
    data, stop = pointer(content), len(content)
    position = next_line(data, stop, 0)
    start = position
    for byte in word:
        if position >= stop or data[position] != byte:
            return MISSING_HEADER, start, 0
        position += 1
    if position < stop and data[position] > SPACE:
        return MISSING_HEADER, start, 0
    for i in range(len(numbers)):
        code, position, value, token = number_at(data, stop, position)
        if code != OK:
            return code, position, 0
        if value < 0:
            return BAD_COUNT, token, value
        numbers[i] = value
    position = skip_blanks(data, stop, position)
    if not at_end(data, stop, position):
        return EXPECTED_END, position, 0
    return OK, position, 0


def grammar(**lines: tuple[int, ...]) -> np.ndarray:
    """[byte, 4] uint8 of the letters of lines: the kind of node and the fields of the line."""
    table = np.zeros((256, 4), np.uint8)
    for letter, row in lines.items():
        table[ord(letter), : len(row)] = row
    return table


@kernel(
    "uint8[] int64 int64 int64 uint8[,] int64 int64 uint8[] uint8[] int32[] int32[] int32[] int32[]",
)
def parse_lines(
    content, position, until, num_variables, grammar, lines, end, defined, kinds, names, places, numbers, elements
):
    """The lines that start before the byte `until`, after `lines` lines with `end` ids in lists.

    num_variables  literals are of variables up to this one
    grammar        made by `grammar`
    defined        [announced node] uint8, 0 everywhere; written: 1 where a line has that id
    kinds          [line] uint8
    names          [line] int32: the id that the line defines; its number if the grammar has no `NEW_ID`
    places         [line] int32: the number that is only kept
    numbers        [line] int32: the literal or variable, or how many ids or pairs follow
    elements       [id] int32: the lists of all lines, in the order of the file
    returns        (code, position, value, lines, end); position is len(content) if all has been read
    """
    data, stop = pointer(content), len(content)
    count = len(defined)
    while True:
        position = next_line(data, stop, position)
        if position >= until:
            return OK, position, 0, lines, end
        letter = data[position]
        if grammar[letter, 1] == 0 or (position + 1 < stop and data[position + 1] > SPACE):
            return UNKNOWN_LINE, position, 0, lines, end
        if lines == count:
            return TOO_MANY_NODES, position, 0, lines, end
        position += 1
        this, place, number, listed = lines, 0, 0, 0
        for column in range(1, 4):
            field = grammar[letter, column]
            if field == 0:
                break
            if field == ONE_PAIR:
                number, listed = 1, 2
                break
            code, position, value, token = number_at(data, stop, position)
            if code != OK:
                return code, position, 0, lines, end
            if field == NEW_ID:
                this = value
                if value < 0 or value >= count:
                    code = ID_RANGE
                elif defined[value] != 0:
                    code = DUPLICATE_ID
            elif field == PLACE:
                place = value
            elif field in (SIGNED, VARIABLE):
                number = value
                if value == 0 or (value < 0 and field == VARIABLE):
                    code = ZERO_LITERAL
                elif abs(value) > num_variables:
                    code = VARIABLE_RANGE
            else:
                number = value
                listed = 2 * value if field == PAIRS else value
                if value < (1 if field == PAIRS else 0):
                    code = BAD_COUNT
            if code != OK:
                return code, token, value, lines, end
        for _ in range(listed):
            after, child = plain_number(data, stop, position)
            token = position + 1
            if after < 0:
                code, after, child, token = number_at(data, stop, position)
                if code != OK:
                    return code, after, 0, lines, end
            position = after
            if child < 0 or child >= count:
                return ID_RANGE, token, child, lines, end
            if item(defined, child) == 0:
                return UNDEFINED_ID, token, child, lines, end
            elements[end] = child
            end += 1
        position = skip_blanks(data, stop, position)
        if not at_end(data, stop, position):
            return EXPECTED_END, position, 0, lines, end
        kinds[lines] = grammar[letter, 0]
        names[lines] = this
        places[lines] = place
        numbers[lines] = number
        defined[this] = 1
        lines += 1


@kernel("uint8[] uint8[] int64[] int64[] int32[]")
def parse_d4(content, kinds, starts, places, numbers):
    """The lines of D4's dialect, in any order: `o|a|t|f id 0` declares, `source target literal* 0` is an edge.

    kinds    [line] uint8: of the node that a line declares, or LITERAL for an edge
    starts   [line + 1]; numbers [number] int32: those of a line but its closing 0
    places   [line] the byte position of the line
    returns  (code, position, value, lines)
    """
    data, stop = pointer(content), len(content)
    position, lines, end = 0, 0, 0
    starts[0] = 0
    while True:
        position = next_line(data, stop, position)
        if position >= stop:
            return OK, position, 0, lines
        start = position
        letter = data[position]
        this = LITERAL
        if letter != MINUS and (letter < ZERO or letter > NINE):
            if letter == 111:
                this = OR
            elif letter == 97:
                this = AND
            elif letter == 116:
                this = TRUE
            elif letter == 102:
                this = FALSE
            position += 1
            if this == LITERAL or (position < stop and data[position] > SPACE):
                return UNKNOWN_LINE, start, 0, lines
        ids = end + (2 if this == LITERAL else 1)
        while True:
            token = skip_blanks(data, stop, position)
            if end >= ids and at_end(data, stop, token):
                return NOT_TERMINATED, token, 0, lines
            code, position, value, token = number_at(data, stop, position)
            if code != OK:
                return code, position, 0, lines
            if end < ids and value < 1:
                return ID_RANGE, token, value, lines
            if value == 0:
                break
            if end == ids and this != LITERAL:
                return EXPECTED_END, token, value, lines
            numbers[end] = value
            end += 1
        kinds[lines] = this
        places[lines] = start
        lines += 1
        starts[lines] = end
        position = skip_blanks(data, stop, position)
        if not at_end(data, stop, position):
            return EXPECTED_END, position, 0, lines
