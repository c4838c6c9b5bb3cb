"""Kernels that check the lines of an SDD file: primes that partition, and the places of nodes in the vtree.

Whether primes partition is decided by one evaluation. The value of a decomposable and deterministic node, where
variable v weighs r_v and its negation 1 - r_v, is a polynomial of degree one in each r_v that is the truth value of the
node at 0 and 1. The sum of such polynomials over the primes of a decomposition is the polynomial of the number of
primes that are true. So it is the constant one just where exactly one prime is true in every assignment: where the
primes exclude each other and exhaust all assignments. Values are computed at random points modulo a prime number;
nodes below have been found right before, so a sum other than one is a proof. By Schwartz and Zippel a sum that is one
by accident has a chance below (variables / 2^31)^4, 2^-80 for two thousand variables.
"""

from __future__ import annotations

import numpy as np

from derivable.circuit.kernels.hashcons import mix
from derivable.core.and_or import LITERAL, OR, TRUE
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import item, pointer, scratch

LANES = 4  # points
_MODULUS = 2**31 - 1

# What `first_misplaced` finds.
WELL_PLACED, NO_PLACE, OTHER_LEAF, NOT_INNER, PRIME_ELSEWHERE, SUB_ELSEWHERE = range(6)


@kernel(inline="always")
def _reduced(value):
    """A number below 2^62 modulo 2^31 - 1."""
    value = (value & _MODULUS) + (value >> 31)
    return value - _MODULUS if value >= _MODULUS else value


@kernel("uint8[] int32[] int32[] int32[] int64 int64 int8[] int32[]")
def first_not_partition(letters, names, numbers, elements, line, first, fixed, values):
    """Evaluate lines of an SDD file, as `parse_bytes.parse_lines` writes them, until primes do not add up to one.

    line, first  where to begin: a line, and the position in `elements` of its first element
    fixed        [variable + 1] int8: 1 and -1 where a variable is true and false, 0 where it has a random weight
    values       [LANES * file id] int32, the values of earlier lines; written
    returns      (line, first): the line where the primes do not add up, or len(letters), and its first element
    """
    out, parts = pointer(values), pointer(elements)
    total, value = scratch(np.int64, LANES), scratch(np.int64, LANES)
    while line < len(letters):
        this, number, name = item(letters, line), item(numbers, line), np.int64(item(names, line))
        if this == OR:
            for lane in range(LANES):
                total[lane] = 0
                value[lane] = 0
            for place in range(first, first + 2 * number, 2):
                prime, sub = LANES * np.int64(parts[place]), LANES * np.int64(parts[place + 1])
                for lane in range(LANES):
                    share = np.int64(out[prime + lane])
                    total[lane] = _reduced(total[lane] + share)
                    value[lane] = _reduced(value[lane] + share * np.int64(out[sub + lane]))
            for lane in range(LANES):
                if total[lane] != 1:
                    return line, first
                out[LANES * name + lane] = value[lane]
            first += 2 * number
        elif this == LITERAL:
            variable = abs(np.int64(number))
            known = np.int64(fixed[variable])
            for lane in range(LANES):
                weight = np.int64(mix(np.uint64(LANES * variable + lane)) >> np.uint64(33)) % _MODULUS
                if known != 0:
                    weight = np.int64(known > 0)
                out[LANES * name + lane] = weight if number > 0 else _reduced(1 + _MODULUS - weight)
        else:
            for lane in range(LANES):
                out[LANES * name + lane] = np.int64(this == TRUE)
        line += 1
    return line, first


@kernel("uint8[] int32[] int32[] int32[] int32[] int64 int64 int32[] int32[] int32[] int32[] int32[] int32[]")
def first_misplaced(
    letters, names, numbers, elements, places, line, first, left, right, variable, begin, end, place_of,
):  # fmt: skip
    """Look for a node that does not stand where the vtree lets it.

    places                 [line] int32: the vtree node that the line names
    line, first            as in `first_not_partition`
    left, right, variable  the vtree
    begin, end             [vtree node] int32: the leaves below it, as positions in the order of leaves
    place_of               [file id] int32, the vtree nodes of earlier lines, -1 for a constant; written
    returns                (finding, line, id of the part that is elsewhere)
    """
    while line < len(letters):
        this, number, place = item(letters, line), item(numbers, line), np.int64(item(places, line))
        if this <= TRUE:
            place_of[names[line]] = -1
            line += 1
            continue
        if place < 0 or place >= len(variable):
            return NO_PLACE, line, 0
        if this == LITERAL:
            if variable[place] != abs(np.int64(number)):
                return OTHER_LEAF, line, 0
        else:
            if variable[place] != 0:
                return NOT_INNER, line, 0
            for position in range(first, first + 2 * number):
                side = (position - first) & 1
                part = np.int64(elements[position])
                below = np.int64(place_of[part])
                above = np.int64(right[place] if side == 1 else left[place])
                if below >= 0 and (begin[below] < begin[above] or end[below] > end[above]):
                    return PRIME_ELSEWHERE + side, line, part
            first += 2 * number
        place_of[names[line]] = place
        line += 1
    return WELL_PLACED, line, 0
