"""Numba byte parsers of the circuit file formats: SDD, vtree, and the two d-DNNF dialects.

Each reads `data` [byte] uint8 once, front to back, and writes flat arrays that the caller allocated
(over-allocated from the length of the file: pages that are not written are never touched). Lines end with
LF, CRLF or CR; blank lines and lines that start with `c` are skipped anywhere; blanks and tabs separate.

All return (code, position, value, ...): code OK or one of the constants below, the byte position of the
offending token, and a number for the message. Nothing here builds a message or allocates.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.device.cpu.compiling import njit
from derivable.device.cpu.lanes import item
from derivable.device.cpu.pointers import pointer

# Numba passes the typing context itself; type checkers need not know.
_intrinsic: Any = intrinsic


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
DANGLING = 14  # a D4 edge to a node that no line declares
LEAF_EDGE = 15  # a D4 edge out of a constant
VARIABLE_RANGE = 16  # a literal whose variable the header does not announce

NEWLINE, RETURN, SPACE, TAB, MINUS, ZERO, NINE = 10, 13, 32, 9, 45, 48, 57
LIMIT = 2**31 - 1
_ZEROS = np.uint64(0x3030303030303030)
_BELOW_TOP = np.uint64(0x4646464646464646)  # takes bytes above the nine to 128 and more
_TOPS = np.uint64(0x8080808080808080)


@njit(cache=True, nogil=True)
def skip_blanks(data, stop, position):
    """The next position that is not a blank within the line."""
    while position < stop and (data[position] == SPACE or data[position] == TAB):
        position += 1
    return position


@njit(cache=True, nogil=True)
def skip_line(data, stop, position):
    """The start of the next line."""
    while position < stop and data[position] != NEWLINE and data[position] != RETURN:
        position += 1
    return position + 1


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def first_line(content):
    """The first byte of a file that belongs neither to a comment nor to a blank line; its length if there is none."""
    return next_line(pointer(content), len(content), 0)


@njit(cache=True, nogil=True)
def at_end(data, stop, position):
    return position >= stop or data[position] == NEWLINE or data[position] == RETURN


@njit(cache=True, nogil=True)
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


@_intrinsic
def _eight_bytes(typingctx, data, position):
    """data[position : position + 8] as a little-endian uint64."""

    def codegen(context, builder, signature, args):
        place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(64).as_pointer())
        word = builder.load(place, align=1)
        return word if sys.byteorder == "little" else builder.bswap(word)

    return types.uint64(data, types.int64), codegen


@_intrinsic
def _trailing_zeros(typingctx, word):
    """The number of zero bits below the lowest one; 64 for zero."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@njit(cache=True, nogil=True, inline="always")
def plain_number(data, stop, position) -> tuple[Any, Any]:
    """(position after it, value) of the number of one to seven digits that follows one space; (-1, 0) for all else.

    Eight bytes at a time and without a branch that depends on how many digits there are. What this does not
    take, `read_number` reads or explains.
    """
    if position + 10 > stop or data[position] != SPACE:
        return np.int64(-1), np.int64(0)
    negative = data[position + 1] == MINUS
    start = position + 1 + negative
    word = _eight_bytes(data, start)
    # The top bit of each byte that is no digit; a carry out of one reaches only bytes behind it.
    other = ((word + _BELOW_TOP) | (word - _ZEROS)) & _TOPS
    digits = np.int64(_trailing_zeros(other) >> np.uint64(3))
    if digits == 0 or digits == 8:
        return np.int64(-1), np.int64(0)
    shift = np.uint64(8 * digits)
    if (word >> shift) & np.uint64(255) > np.uint64(SPACE):
        return np.int64(-1), np.int64(0)
    # Digits to the end, zeros before them; then neighbours are joined: ones, pairs, fours.
    word = (word - _ZEROS) << (np.uint64(64) - shift)
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    word = word * np.uint64(10000) + (word >> np.uint64(32))
    value = np.int64(word & np.uint64(0xFFFFFFFF))
    return start + digits, -value if negative else value


@njit(cache=True, nogil=True)
def number_at(data, stop, position):
    """(code, position, value, where it starts) of the integer at or after `position` on the same line."""
    after, value = plain_number(data, stop, position)
    if after >= 0:
        return OK, after, value, position + 1
    token = skip_blanks(data, stop, position)
    code, position, value = read_number(data, stop, token)
    return code, position, value, token


@njit(cache=True, nogil=True)
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
        token = skip_blanks(data, stop, position)
        code, position, value = read_number(data, stop, token)
        if code != OK:
            return code, position, 0
        if value < 0:
            return BAD_COUNT, token, value
        numbers[i] = value
    position = skip_blanks(data, stop, position)
    if not at_end(data, stop, position):
        return EXPECTED_END, position, 0
    return OK, position, 0


@njit(cache=True, nogil=True)
def parse_sdd(content, position, until, lines, end, defined, letters, names, numbers, places, elements):
    """The lines of an SDD file that start before the byte `until`, after `lines` lines with `end` ids of elements.

    defined   [announced node] uint8, 0 everywhere; written: 1 where a line has that id
    letters   [line] uint8: FALSE, TRUE, LITERAL, or OR for a decomposition
    names     [line] int32: ids of the file
    numbers   [line] int32: the literal, or the number of elements of a decomposition
    places    [line] int32: the vtree node of a literal or decomposition
    elements  [2 * element] int32: ids, prime and sub after each other, in the order of the file
    returns   (code, position, value, lines, end); position is len(content) if all has been read
    """
    data, stop = pointer(content), len(content)
    count = len(defined)
    while True:
        position = next_line(data, stop, position)
        if position >= until:
            return OK, position, 0, lines, end
        start = position
        letter = data[position]
        if letter not in (70, 84, 76, 68) or (position + 1 < stop and data[position + 1] > SPACE):  # F, T, L, D
            return UNKNOWN_LINE, start, 0, lines, end
        if lines == count:
            return TOO_MANY_NODES, start, 0, lines, end
        code, position, this, token = number_at(data, stop, position + 1)
        if code != OK:
            return code, position, 0, lines, end
        if this < 0 or this >= count:
            return ID_RANGE, token, this, lines, end
        if defined[this] != 0:
            return DUPLICATE_ID, token, this, lines, end
        number, place = 0, 0
        kind = TRUE if letter == 84 else FALSE
        if letter == 76 or letter == 68:  # L id vtree literal; D id vtree size {prime sub}*
            code, position, place, token = number_at(data, stop, position)
            if code != OK:
                return code, position, 0, lines, end
            code, position, number, token = number_at(data, stop, position)
            if code != OK:
                return code, position, 0, lines, end
            if letter == 76:
                if number == 0:
                    return ZERO_LITERAL, token, 0, lines, end
                kind = LITERAL
            else:
                if number < 1:
                    return BAD_COUNT, token, number, lines, end
                kind = OR
                for _ in range(2 * number):
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
        letters[lines] = kind
        names[lines] = this
        numbers[lines] = number
        places[lines] = place
        defined[this] = 1
        lines += 1


@njit(cache=True, nogil=True)
def parse_vtree(content, position, left, right, variable):
    """The nodes of a vtree file; left = right = -1 for a leaf, variable = 0 for an inner node.

    left, right, variable  [announced node] int32, variable -1 everywhere beforehand
    returns                (code, position, value, lines, last id)
    """
    data, stop = pointer(content), len(content)
    lines = 0
    last = -1
    count = len(variable)
    while True:
        position = next_line(data, stop, position)
        if position >= stop:
            return OK, position, 0, lines, last
        letter = data[position]
        if letter not in (76, 73) or (position + 1 < stop and data[position + 1] > SPACE):  # L, I
            return UNKNOWN_LINE, position, 0, lines, last
        if lines == count:
            return TOO_MANY_NODES, position, 0, lines, last
        code, position, this, token = number_at(data, stop, position + 1)
        if code != OK:
            return code, position, 0, lines, last
        if this < 0 or this >= count:
            return ID_RANGE, token, this, lines, last
        if variable[this] >= 0:
            return DUPLICATE_ID, token, this, lines, last
        if letter == 76:
            code, position, number, token = number_at(data, stop, position)
            if code != OK:
                return code, position, 0, lines, last
            if number < 1:
                return ZERO_LITERAL, token, number, lines, last
            left[this] = right[this] = -1
            variable[this] = number
        else:
            for side in range(2):
                code, position, child, token = number_at(data, stop, position)
                if code != OK:
                    return code, position, 0, lines, last
                if child < 0 or child >= count:
                    return ID_RANGE, token, child, lines, last
                if variable[child] < 0:
                    return UNDEFINED_ID, token, child, lines, last
                if side == 0:
                    left[this] = child
                else:
                    right[this] = child
            variable[this] = 0
        position = skip_blanks(data, stop, position)
        if not at_end(data, stop, position):
            return EXPECTED_END, position, 0, lines, last
        last = this
        lines += 1


@njit(cache=True, nogil=True)
def parse_c2d(content, position, count, num_variables, kind, literal, offsets, children):
    """The nodes of c2d's dialect: `L literal`, `A size child*`, `O variable size child*`, numbered by line from 0.

    returns  (code, position, value, nodes, edges)
    """
    data, stop = pointer(content), len(content)
    nodes, edges = 0, 0
    while True:
        position = next_line(data, stop, position)
        if position >= stop:
            return OK, position, 0, nodes, edges
        letter = data[position]
        if (letter != 76 and letter != 65 and letter != 79) or (position + 1 < stop and data[position + 1] > SPACE):
            return UNKNOWN_LINE, position, 0, nodes, edges
        if nodes == count:
            return TOO_MANY_NODES, position, 0, nodes, edges
        code, position, number, token = number_at(data, stop, position + 1)
        if code != OK:
            return code, position, 0, nodes, edges
        if letter == 76:
            if number == 0:
                return ZERO_LITERAL, token, 0, nodes, edges
            if abs(number) > num_variables:
                return VARIABLE_RANGE, token, number, nodes, edges
            kind[nodes] = LITERAL
            literal[nodes] = number
        else:
            if letter == 79:
                code, position, number, token = number_at(data, stop, position)
                if code != OK:
                    return code, position, 0, nodes, edges
            if number < 0:
                return BAD_COUNT, token, number, nodes, edges
            for _ in range(number):
                code, position, child, token = number_at(data, stop, position)
                if code != OK:
                    return code, position, 0, nodes, edges
                if child < 0 or child >= count:
                    return ID_RANGE, token, child, nodes, edges
                if child >= nodes:
                    return UNDEFINED_ID, token, child, nodes, edges
                children[edges] = child
                edges += 1
            kind[nodes] = AND if letter == 65 else OR
            literal[nodes] = 0
        position = skip_blanks(data, stop, position)
        if not at_end(data, stop, position):
            return EXPECTED_END, position, 0, nodes, edges
        nodes += 1
        offsets[nodes] = edges


@njit(cache=True, nogil=True)
def parse_d4(content, ids, kinds, sources, targets, places, literal_offsets, literals):
    """The lines of D4's dialect, in any order: `o|a|t|f id 0` declares, `source target literal* 0` is an edge.

    ids, kinds        [node] in order of declaration
    sources, targets  [edge] ids; places [edge] the byte position of the edge's line
    literal_offsets   [edge + 1]; literals [literal]
    returns           (code, position, value, nodes, edges)
    """
    data, stop = pointer(content), len(content)
    position = 0
    nodes, edges, end = 0, 0, 0
    literal_offsets[0] = 0
    while True:
        position = next_line(data, stop, position)
        if position >= stop:
            return OK, position, 0, nodes, edges
        start = position
        letter = data[position]
        if letter == MINUS or ZERO <= letter <= NINE:
            for side in range(2):
                code, position, value, token = number_at(data, stop, position)
                if code != OK:
                    return code, position, 0, nodes, edges
                if value < 1:
                    return ID_RANGE, token, value, nodes, edges
                if side == 0:
                    sources[edges] = value
                else:
                    targets[edges] = value
            while True:
                position = skip_blanks(data, stop, position)
                if at_end(data, stop, position):
                    return NOT_TERMINATED, position, 0, nodes, edges
                code, position, value = read_number(data, stop, position)
                if code != OK:
                    return code, position, 0, nodes, edges
                if value == 0:
                    break
                literals[end] = value
                end += 1
            places[edges] = start
            edges += 1
            literal_offsets[edges] = end
        else:
            if letter == 111:
                this = OR
            elif letter == 97:
                this = AND
            elif letter == 116:
                this = TRUE
            elif letter == 102:
                this = FALSE
            else:
                return UNKNOWN_LINE, start, 0, nodes, edges
            if position + 1 < stop and data[position + 1] > SPACE:
                return UNKNOWN_LINE, start, 0, nodes, edges
            code, position, value, token = number_at(data, stop, position + 1)
            if code != OK:
                return code, position, 0, nodes, edges
            if value < 1:
                return ID_RANGE, token, value, nodes, edges
            ids[nodes] = value
            kinds[nodes] = this
            nodes += 1
            position = skip_blanks(data, stop, position)
            if at_end(data, stop, position):
                return NOT_TERMINATED, position, 0, nodes, edges
            token = position
            code, position, value = read_number(data, stop, position)
            if code != OK:
                return code, position, 0, nodes, edges
            if value != 0:
                return EXPECTED_END, token, value, nodes, edges
        position = skip_blanks(data, stop, position)
        if not at_end(data, stop, position):
            return EXPECTED_END, position, 0, nodes, edges


@njit(cache=True, nogil=True)
def emit_d4(
    kinds, targets, starts, edge_order, order, literal_offsets, literals, literal_nodes,
    node_of, kind, offsets, children, node, edge,
):  # fmt: skip
    """Append the declared nodes to NNF arrays that already hold the leaves; literals move from edges to nodes.

    An edge out of an or-node with literals becomes an and-node; one out of an and-node adds its literals
    to the conjunction. `literal_nodes` [literal] is the NNF node of each edge literal, `node_of` [declared
    node] is written. Returns (nodes, edges).
    """
    for i in range(len(order)):
        this = order[i]
        if kinds[this] <= TRUE:
            node_of[this] = kinds[this]
            continue
        if kinds[this] == AND:
            for j in range(starts[this], starts[this + 1]):
                source = edge_order[j]
                children[edge] = node_of[targets[source]]
                edge += 1
                for k in range(literal_offsets[source], literal_offsets[source + 1]):
                    children[edge] = literal_nodes[k]
                    edge += 1
        else:
            first = node
            for j in range(starts[this], starts[this + 1]):
                source = edge_order[j]
                if literal_offsets[source] == literal_offsets[source + 1]:
                    continue
                children[edge] = node_of[targets[source]]
                edge += 1
                for k in range(literal_offsets[source], literal_offsets[source + 1]):
                    children[edge] = literal_nodes[k]
                    edge += 1
                kind[node] = AND
                node += 1
                offsets[node] = edge
            for j in range(starts[this], starts[this + 1]):
                source = edge_order[j]
                if literal_offsets[source] == literal_offsets[source + 1]:
                    children[edge] = node_of[targets[source]]
                else:
                    children[edge] = first
                    first += 1
                edge += 1
        kind[node] = kinds[this]
        node_of[this] = node
        node += 1
        offsets[node] = edge
    return node, edge
