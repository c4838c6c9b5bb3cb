"""The check of an SDD file: primes are mutually exclusive and exhaustive, and nodes stand where the vtree lets them.

The lines are checked as they are read, one evaluation per element (see `kernels.partitions`). Only for a file that is
refused, an assignment is looked for that shows what is wrong.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from derivable.circuit.files.text_file import TextFile
from derivable.circuit.graph.vtree import Vtree
from derivable.circuit.kernels import parse_bytes as text
from derivable.circuit.kernels.partitions import (
    LANES,
    NO_PLACE,
    NOT_INNER,
    OTHER_LEAF,
    PRIME_ELSEWHERE,
    WELL_PLACED,
    first_misplaced,
    first_not_partition,
)
from derivable.core.and_or import FALSE, LITERAL, OR, TRUE
from derivable.device.cpu.pages import empty_pages

LINES = text.grammar(
    F=(FALSE, text.NEW_ID),
    T=(TRUE, text.NEW_ID),
    L=(LITERAL, text.NEW_ID, text.PLACE, text.SIGNED),
    D=(OR, text.NEW_ID, text.PLACE, text.PAIRS),
)
_SHOWN = 12  # literals of an assignment
_NO_SDD = "the primes of a decomposition are mutually exclusive and exhaustive; write the file again with its compiler"
_VTREE = "pass the vtree that the SDD was made with, vtree=path; or vtree=False to read without one"


class StructureCheck:
    """The values and places of the lines that have been checked.

    announced  the number of lines that the file may have
    """

    def __init__(self, file: TextFile, announced: int, vtree: Vtree | None):
        self.file = file
        self.vtree = vtree
        self.values = empty_pages(LANES * announced, np.int32)
        self.place_of = empty_pages(announced, np.int32)
        self.fixed = np.zeros(0, np.int8)
        self.spans = None if vtree is None else vtree.spans

    def check(self, letters, names, numbers, elements, places, line: int, first: int) -> None:
        """Check the lines from `line` on, whose elements begin at `first`. Raises ParseError at the first wrong one."""
        new = numbers[line:][letters[line:] == LITERAL]
        greatest = int(np.abs(new).max(initial=0))
        if greatest >= len(self.fixed):
            self.fixed = np.zeros(2 * greatest + 1, np.int8)
        rows = letters, names, numbers, elements
        if self.vtree is not None and self.spans is not None:
            tree = self.vtree.left, self.vtree.right, self.vtree.variable, *self.spans
            finding, wrong, part = first_misplaced(*rows, places, line, first, *tree, self.place_of)
            if finding != WELL_PLACED:
                self._fail_place(finding, int(names[wrong]), int(numbers[wrong]), int(places[wrong]), part, wrong)
        wrong, _ = first_not_partition(*rows, line, first, self.fixed, self.values)
        if wrong < len(letters):
            self._fail_partition(wrong)

    def _fail_place(self, finding: int, name: int, number: int, place: int, part: int, line: int) -> NoReturn:
        assert self.vtree is not None
        if number and abs(number) not in self.vtree.variable and finding != NOT_INNER:
            count = int((self.vtree.variable > 0).sum())
            message = f"variable {abs(number)} is not in the vtree, which has {count} variables"
        elif finding == NO_PLACE:
            message = f"node {name} stands at vtree node {place}, and the vtree has no such node"
        elif finding == OTHER_LEAF:
            held = int(self.vtree.variable[place])
            kind = f"the leaf of variable {held}" if held else "an inner node"
            message = f"node {name} is a literal of variable {abs(number)}, and its vtree node {place} is {kind}"
        elif finding == NOT_INNER:
            message = f"node {name} is a decomposition, and its vtree node {place} is a leaf"
        else:
            role, side = ("prime", "left") if finding == PRIME_ELSEWHERE else ("sub", "right")
            message = (
                f"node {name} has the {role} {part}, which does not stand below the {side} child of vtree node {place}"
            )
        self.file.fail_line(line, message, _VTREE)

    def _fail_partition(self, line: int) -> NoReturn:
        """Fix one variable after the other so that the primes still do not add up to one, then look which are true."""
        letters, names, numbers, elements, primes = self._lines_below(line)
        name = int(names[-1])
        used = sorted({abs(int(number)) for number in numbers[letters == LITERAL]})
        fixed = np.zeros(max(used, default=0) + 1, np.int8)
        values = np.empty(LANES * (int(names.max()) + 1), np.int32)
        rows = letters[:-1], names[:-1], numbers[:-1], elements

        def true_primes() -> np.ndarray:
            first_not_partition(*rows, 0, 0, fixed, values)
            return values.reshape(-1, LANES)[primes].astype(np.int64)

        for variable in used:
            fixed[variable] = 1
            if (true_primes().sum(axis=0) % (2**31 - 1) == 1).all():
                fixed[variable] = -1
        is_true = true_primes()[:, 0] == 1
        assignment = [variable * int(fixed[variable]) for variable in used]
        shown = " ".join(map(str, assignment[:_SHOWN])) + " ..." * (len(assignment) > _SHOWN)
        where = f"in the assignment {shown}" if assignment else "in every assignment"
        both = [int(prime) for prime in np.asarray(primes)[is_true]]
        if len(both) > 1:
            message = f"the primes of node {name} do not exclude each other: {both[0]} and {both[1]} are true {where}"
        elif not both:
            message = f"the primes of node {name} are not exhaustive: none of them is true {where}"
        else:
            message = f"below the primes of node {name}, a prime and its sub share a variable"
        self.file.fail_line(line, message, _NO_SDD)

    def _lines_below(self, line: int):
        """(letters, names, numbers, elements) of the lines below the primes of a line and of that line, and its primes.

        They are read once more: what has been inserted is no longer in the arrays.
        """
        (count,), position = self.file.header("sdd", "<number of nodes>", "an SDD file")
        letters, names, _, numbers, elements = self.file.lines(position, LINES, count, "sdd")
        starts = np.concatenate([[0], np.cumsum(2 * np.where(letters[: line + 1] == OR, numbers[: line + 1], 0))])
        line_of = {int(name): at for at, name in enumerate(names[: line + 1])}
        primes = elements[starts[line] : starts[line + 1] : 2].copy()
        stack, below = [line_of[int(prime)] for prime in primes], {line}
        while stack:
            at = stack.pop()
            if at not in below:
                below.add(at)
                stack += [line_of[int(part)] for part in elements[starts[at] : starts[at + 1]]]
        kept = np.array(sorted(below))
        rows = np.concatenate([elements[starts[at] : starts[at + 1]] for at in kept])
        return letters[kept], names[kept], numbers[kept], rows, primes
