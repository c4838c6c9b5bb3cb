"""Numba byte parsers of the circuit file formats: SDD, vtree, and the two d-DNNF dialects.

Each reads `data` [byte] uint8 once, front to back, and writes flat arrays that the caller allocated
(over-allocated from `count_tokens`: pages that are not written are never touched). Lines end with
LF, CRLF or CR; blank lines and lines that start with `c` are skipped anywhere; blanks and tabs separate.

All return (code, position, value, ...): code OK or one of the constants below, the byte position of the
offending token, and a number for the message. Nothing here builds a message or allocates.
"""

from __future__ import annotations

import numpy as np
from numba import njit

FALSE, TRUE, LITERAL, AND, OR = 0, 1, 2, 3, 4

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


@njit(cache=True, nogil=True)
def count_tokens(data):
    """How many separated words there are: an upper bound for everything a file can hold."""
    count = 0
    inside = False
    for byte in data:
        blank = byte <= SPACE
        count += not blank and not inside
        inside = not blank
    return count


@njit(cache=True, nogil=True)
def skip_blanks(data, position):
    """The next position that is not a blank within the line."""
    while position < len(data) and (data[position] == SPACE or data[position] == TAB):
        position += 1
    return position


@njit(cache=True, nogil=True)
def skip_line(data, position):
    """The start of the next line."""
    while position < len(data) and data[position] != NEWLINE and data[position] != RETURN:
        position += 1
    return position + 1


@njit(cache=True, nogil=True)
def next_line(data, position):
    """The first byte of the next line that is neither blank nor a comment; len(data) at the end of the file."""
    while position < len(data):
        byte = data[position]
        if byte in (NEWLINE, RETURN, SPACE, TAB):
            position += 1
        elif byte == 99 and (position + 1 >= len(data) or data[position + 1] <= SPACE):  # c
            position = skip_line(data, position)
        elif byte == 26 and position == len(data) - 1:  # a DOS end of file
            position += 1
        else:
            return position
    return len(data)


@njit(cache=True, nogil=True)
def at_end(data, position):
    return position >= len(data) or data[position] == NEWLINE or data[position] == RETURN


@njit(cache=True, nogil=True)
def read_number(data, position):
    """(code, position after it, value) of the integer at or after `position` on the same line.

    On failure the position is that of the token, or of the end of the line.
    """
    position = skip_blanks(data, position)
    start = position
    if at_end(data, position):
        return EXPECTED_MORE, position, 0
    negative = data[position] == MINUS
    if negative:
        position += 1
    first = position
    value = 0
    while position < len(data) and ZERO <= data[position] <= NINE:
        value = 10 * value + (data[position] - ZERO)
        if value > LIMIT:
            return NUMBER_RANGE, start, 0
        position += 1
    if position == first or (position < len(data) and data[position] > SPACE):
        return EXPECTED_NUMBER, start, 0
    return OK, position, -value if negative else value


@njit(cache=True, nogil=True)
def parse_header(data, word, numbers):
    """Find the line `word number number ...`: (code, position, 0); the position after it if OK."""
    position = next_line(data, 0)
    start = position
    for byte in word:
        if position >= len(data) or data[position] != byte:
            return MISSING_HEADER, start, 0
        position += 1
    if position < len(data) and data[position] > SPACE:
        return MISSING_HEADER, start, 0
    for i in range(len(numbers)):
        token = skip_blanks(data, position)
        code, position, value = read_number(data, token)
        if code != OK:
            return code, position, 0
        if value < 0:
            return BAD_COUNT, token, value
        numbers[i] = value
    position = skip_blanks(data, position)
    if not at_end(data, position):
        return EXPECTED_END, position, 0
    return OK, position, 0


@njit(cache=True, nogil=True)
def parse_sdd(data, position, node_of, kind, literal, offsets, children):
    """The nodes of an SDD file as an NNF: a decomposition is an or of (prime and sub).

    node_of  [announced node], -1 everywhere; written: the NNF node of each id of the file
    returns  (code, position, value, NNF nodes, edges, lines, last id)
    """
    nodes, edges, lines = 0, 0, 0
    last = -1
    count = len(node_of)
    while True:
        position = next_line(data, position)
        if position >= len(data):
            return OK, position, 0, nodes, edges, lines, last
        start = position
        letter = data[position]
        if letter not in (70, 84, 76, 68) or (position + 1 < len(data) and data[position + 1] > SPACE):  # F, T, L, D
            return UNKNOWN_LINE, start, 0, nodes, edges, lines, last
        if lines == count:
            return TOO_MANY_NODES, start, 0, nodes, edges, lines, last
        position = skip_blanks(data, position + 1)
        token = position
        code, position, this = read_number(data, position)
        if code != OK:
            return code, position, 0, nodes, edges, lines, last
        if this < 0 or this >= count:
            return ID_RANGE, token, this, nodes, edges, lines, last
        if node_of[this] >= 0:
            return DUPLICATE_ID, token, this, nodes, edges, lines, last
        number = 0
        if letter == 76:  # L id vtree literal
            code, position, _ = read_number(data, position)
            if code != OK:
                return code, position, 0, nodes, edges, lines, last
            position = skip_blanks(data, position)
            token = position
            code, position, number = read_number(data, position)
            if code != OK:
                return code, position, 0, nodes, edges, lines, last
            if number == 0:
                return ZERO_LITERAL, token, 0, nodes, edges, lines, last
            kind[nodes] = LITERAL
        elif letter == 68:  # D id vtree size {prime sub}*
            code, position, _ = read_number(data, position)
            if code != OK:
                return code, position, 0, nodes, edges, lines, last
            position = skip_blanks(data, position)
            token = position
            code, position, size = read_number(data, position)
            if code != OK:
                return code, position, 0, nodes, edges, lines, last
            if size < 1:
                return BAD_COUNT, token, size, nodes, edges, lines, last
            first = nodes
            for _ in range(size):
                for _ in range(2):
                    position = skip_blanks(data, position)
                    token = position
                    code, position, child = read_number(data, position)
                    if code != OK:
                        return code, position, 0, nodes, edges, lines, last
                    if child < 0 or child >= count:
                        return ID_RANGE, token, child, nodes, edges, lines, last
                    if node_of[child] < 0:
                        return UNDEFINED_ID, token, child, nodes, edges, lines, last
                    children[edges] = node_of[child]
                    edges += 1
                kind[nodes] = AND
                literal[nodes] = 0
                nodes += 1
                offsets[nodes] = edges
            for element in range(first, nodes):
                children[edges] = element
                edges += 1
            kind[nodes] = OR
        else:
            kind[nodes] = TRUE if letter == 84 else FALSE
        position = skip_blanks(data, position)
        if not at_end(data, position):
            return EXPECTED_END, position, 0, nodes, edges, lines, last
        literal[nodes] = number
        node_of[this] = nodes
        last = this
        lines += 1
        nodes += 1
        offsets[nodes] = edges


@njit(cache=True, nogil=True)
def parse_vtree(data, position, left, right, variable):
    """The nodes of a vtree file; left = right = -1 for a leaf, variable = 0 for an inner node.

    left, right, variable  [announced node] int32, variable -1 everywhere beforehand
    returns                (code, position, value, lines, last id)
    """
    lines = 0
    last = -1
    count = len(variable)
    while True:
        position = next_line(data, position)
        if position >= len(data):
            return OK, position, 0, lines, last
        letter = data[position]
        if letter not in (76, 73) or (position + 1 < len(data) and data[position + 1] > SPACE):  # L, I
            return UNKNOWN_LINE, position, 0, lines, last
        if lines == count:
            return TOO_MANY_NODES, position, 0, lines, last
        position = skip_blanks(data, position + 1)
        token = position
        code, position, this = read_number(data, position)
        if code != OK:
            return code, position, 0, lines, last
        if this < 0 or this >= count:
            return ID_RANGE, token, this, lines, last
        if variable[this] >= 0:
            return DUPLICATE_ID, token, this, lines, last
        if letter == 76:
            position = skip_blanks(data, position)
            token = position
            code, position, number = read_number(data, position)
            if code != OK:
                return code, position, 0, lines, last
            if number < 1:
                return ZERO_LITERAL, token, number, lines, last
            left[this] = right[this] = -1
            variable[this] = number
        else:
            for side in range(2):
                position = skip_blanks(data, position)
                token = position
                code, position, child = read_number(data, position)
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
        position = skip_blanks(data, position)
        if not at_end(data, position):
            return EXPECTED_END, position, 0, lines, last
        last = this
        lines += 1


@njit(cache=True, nogil=True)
def parse_c2d(data, position, count, num_variables, kind, literal, offsets, children):
    """The nodes of c2d's dialect: `L literal`, `A size child*`, `O variable size child*`, numbered by line from 0.

    returns  (code, position, value, nodes, edges)
    """
    nodes, edges = 0, 0
    while True:
        position = next_line(data, position)
        if position >= len(data):
            return OK, position, 0, nodes, edges
        letter = data[position]
        if (letter != 76 and letter != 65 and letter != 79) or (
            position + 1 < len(data) and data[position + 1] > SPACE
        ):
            return UNKNOWN_LINE, position, 0, nodes, edges
        if nodes == count:
            return TOO_MANY_NODES, position, 0, nodes, edges
        position = skip_blanks(data, position + 1)
        token = position
        code, position, number = read_number(data, position)
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
                position = skip_blanks(data, position)
                token = position
                code, position, number = read_number(data, position)
                if code != OK:
                    return code, position, 0, nodes, edges
            if number < 0:
                return BAD_COUNT, token, number, nodes, edges
            for _ in range(number):
                position = skip_blanks(data, position)
                token = position
                code, position, child = read_number(data, position)
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
        position = skip_blanks(data, position)
        if not at_end(data, position):
            return EXPECTED_END, position, 0, nodes, edges
        nodes += 1
        offsets[nodes] = edges


@njit(cache=True, nogil=True)
def parse_d4(data, ids, kinds, sources, targets, places, literal_offsets, literals):
    """The lines of D4's dialect, in any order: `o|a|t|f id 0` declares, `source target literal* 0` is an edge.

    ids, kinds        [node] in order of declaration
    sources, targets  [edge] ids; places [edge] the byte position of the edge's line
    literal_offsets   [edge + 1]; literals [literal]
    returns           (code, position, value, nodes, edges)
    """
    position = 0
    nodes, edges, end = 0, 0, 0
    literal_offsets[0] = 0
    while True:
        position = next_line(data, position)
        if position >= len(data):
            return OK, position, 0, nodes, edges
        start = position
        letter = data[position]
        if letter == MINUS or ZERO <= letter <= NINE:
            for side in range(2):
                position = skip_blanks(data, position)
                token = position
                code, position, value = read_number(data, position)
                if code != OK:
                    return code, position, 0, nodes, edges
                if value < 1:
                    return ID_RANGE, token, value, nodes, edges
                if side == 0:
                    sources[edges] = value
                else:
                    targets[edges] = value
            while True:
                position = skip_blanks(data, position)
                if at_end(data, position):
                    return NOT_TERMINATED, position, 0, nodes, edges
                code, position, value = read_number(data, position)
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
            if position + 1 < len(data) and data[position + 1] > SPACE:
                return UNKNOWN_LINE, start, 0, nodes, edges
            position = skip_blanks(data, position + 1)
            token = position
            code, position, value = read_number(data, position)
            if code != OK:
                return code, position, 0, nodes, edges
            if value < 1:
                return ID_RANGE, token, value, nodes, edges
            ids[nodes] = value
            kinds[nodes] = this
            nodes += 1
            position = skip_blanks(data, position)
            if at_end(data, position):
                return NOT_TERMINATED, position, 0, nodes, edges
            token = position
            code, position, value = read_number(data, position)
            if code != OK:
                return code, position, 0, nodes, edges
            if value != 0:
                return EXPECTED_END, token, value, nodes, edges
        position = skip_blanks(data, position)
        if not at_end(data, position):
            return EXPECTED_END, position, 0, nodes, edges


@njit(cache=True, nogil=True)
def order_d4(kinds, sources, targets, starts, edge_order, rank, order):
    """Sort declared nodes so that children come before parents (Kahn's algorithm, linear).

    sources, targets  [edge] positions of declaration
    starts            [node + 1], edge_order [edge]: written, the edges by source
    rank              [node] scratch; order [node] written
    returns           how many nodes were ordered; fewer than all means a cycle among those with rank > 0
    """
    nodes, edges = len(kinds), len(sources)
    by_target = np.empty(edges, np.int32)
    target_starts = np.zeros(nodes + 1, np.int64)
    starts[:] = 0
    for edge in range(edges):
        starts[sources[edge] + 1] += 1
        target_starts[targets[edge] + 1] += 1
    for node in range(nodes):
        rank[node] = starts[node + 1]
        starts[node + 1] += starts[node]
        target_starts[node + 1] += target_starts[node]
    fill = starts.copy()
    target_fill = target_starts.copy()
    for edge in range(edges):
        edge_order[fill[sources[edge]]] = edge
        fill[sources[edge]] += 1
        by_target[target_fill[targets[edge]]] = edge
        target_fill[targets[edge]] += 1
    done = 0
    for node in range(nodes - 1, -1, -1):
        if rank[node] == 0:
            order[done] = node
            done += 1
    head = 0
    while head < done:
        node = order[head]
        head += 1
        for i in range(target_starts[node], target_starts[node + 1]):
            parent = sources[by_target[i]]
            rank[parent] -= 1
            if rank[parent] == 0:
                order[done] = parent
                done += 1
    return done


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
