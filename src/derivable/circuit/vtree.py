"""Variable trees: the full binary trees over variables that SDDs respect."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import numpy as np

from derivable.circuit.read_error import fail, fail_code, fail_empty, fail_header
from derivable.core.diagnostics import LayoutError
from derivable.core.files import read_bytes
from derivable.device.cpu import text

_HINTS = {
    text.UNKNOWN_LINE: "lines of a vtree file start with L, I or c",
    text.UNDEFINED_ID: "children come before parents",
    text.ZERO_LITERAL: "a leaf names a variable, counted from 1",
}


@dataclass(frozen=True, eq=False)
class Vtree:
    """A variable tree; printed form: the file format of the SDD package.

        vtree 3
        L 0 1
        L 2 2
        I 1 0 2

    left, right  [node] int32 children, -1 for a leaf
    variable     [node] int32 variable of a leaf (1-based), 0 for an inner node
    root         the node that is no child
    """

    left: np.ndarray
    right: np.ndarray
    variable: np.ndarray
    root: int

    @property
    def num_nodes(self) -> int:
        return len(self.variable)

    @property
    def num_variables(self) -> int:
        """The greatest variable."""
        return int(self.variable.max(initial=0))

    @property
    def variable_order(self) -> np.ndarray:
        """[variable] int32: the variables from left to right."""
        order, stack = [], [self.root]
        while stack:
            node = stack.pop()
            if self.variable[node]:
                order.append(int(self.variable[node]))
            else:
                stack += [int(self.right[node]), int(self.left[node])]
        return np.array(order, np.int32)

    def __repr__(self) -> str:
        return f"Vtree({self.num_nodes} nodes, {int((self.variable > 0).sum())} variables)"

    def text(self) -> str:
        """The file format, children before parents."""
        rows, stack = [], [(self.root, False)]
        while stack:
            node, ready = stack.pop()
            if self.variable[node]:
                rows.append(f"L {node} {self.variable[node]}")
            elif ready:
                rows.append(f"I {node} {self.left[node]} {self.right[node]}")
            else:
                stack += [(node, True), (int(self.right[node]), False), (int(self.left[node]), False)]
        return "\n".join([f"vtree {len(rows)}", *rows, ""])

    @staticmethod
    def right_linear(order) -> Vtree:
        """The vtree of an OBDD with this variable order: every left child is a leaf. Raises LayoutError if empty."""
        order = [int(variable) for variable in order]
        if not order:
            raise LayoutError("a vtree needs at least one variable")
        count = len(order)
        left = np.full(2 * count - 1, -1, np.int32)
        right = np.full(2 * count - 1, -1, np.int32)
        variable = np.zeros(2 * count - 1, np.int32)
        variable[::2] = order
        left[1::2] = np.arange(0, 2 * count - 2, 2)
        right[1::2] = np.minimum(np.arange(3, 2 * count + 1, 2), 2 * count - 2)
        return Vtree(left, right, variable, 1 if count > 1 else 0)


def parse_vtree(data: bytes, source: str | None = None) -> Vtree:
    """Parse the content of a vtree file; the root is its last node. Raises ParseError with line and column."""
    array = np.frombuffer(data, np.uint8)
    numbers = np.zeros(1, np.int64)
    code, position, value = text.parse_header(array, b"vtree", numbers)
    if code == text.MISSING_HEADER:
        if position >= len(data):
            fail_empty(data, source, "a vtree file starts with `vtree <number of nodes>`")
        fail(data, source, position, "expected the header `vtree <number of nodes>`")
    if code != text.OK:
        fail_code(data, source, code, position, value)
    count = int(numbers[0])
    if count > text.count_tokens(array) or count == 0:
        fail_header(data, source, b"vtree", f"the header announces {count} nodes, the file has fewer or none")
    left, right = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    variable = np.full(count, -1, np.int32)
    code, position, value, lines, last = text.parse_vtree(array, position, left, right, variable)
    if code != text.OK:
        fail_code(data, source, code, position, value, count=count, hints=_HINTS)
    if lines != count:
        fail_header(data, source, b"vtree", f"the header announces {count} nodes, the file has {lines}")
    uses = np.bincount(np.concatenate([left[variable == 0], right[variable == 0]]), minlength=count)
    uses[last] += 1
    for node in np.flatnonzero(uses != 1)[:1]:
        problem = "is no child and not the last node" if uses[node] == 0 else f"has {uses[node]} parents"
        _fail_at_node(data, source, int(node), f"vtree node {node} {problem}; a vtree is a tree with the root last")
    values, repeats = np.unique(variable[variable > 0], return_counts=True)
    for number in values[repeats > 1][:1]:
        node = int(np.flatnonzero(variable == number)[1])
        _fail_at_node(data, source, node, f"variable {number} has two leaves")
    return Vtree(left, right, variable, int(last))


def _fail_at_node(data: bytes, source: str | None, node: int, message: str):
    match = re.search(rb"^[ \t]*[LI][ \t]+(%d)\b" % node, data.replace(b"\r", b"\n"), re.MULTILINE)
    fail(data, source, match.start(1) if match else 0, message)


def load_vtree(path: str | os.PathLike) -> Vtree:
    """Read a vtree file, gzip transparently. Raises ParseError."""
    return parse_vtree(read_bytes(path), os.fspath(path))
