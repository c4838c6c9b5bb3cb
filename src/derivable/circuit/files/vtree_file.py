"""Vtree files of the SDD package."""

from __future__ import annotations

import os

import numpy as np

from derivable.circuit.files.text_file import TextFile
from derivable.circuit.graph.vtree import Vtree
from derivable.circuit.kernels import parse_bytes as text
from derivable.core.and_or import AND, LITERAL
from derivable.core.files import read_bytes

_LINES = text.grammar(L=(LITERAL, text.NEW_ID, text.VARIABLE), I=(AND, text.NEW_ID, text.ONE_PAIR))
_HINTS = {
    text.UNKNOWN_LINE: "lines of a vtree file start with L, I or c",
    text.UNDEFINED_ID: "children come before parents",
    text.ZERO_LITERAL: "a leaf names a variable, counted from 1",
}


def parse_vtree(data: bytes, source: str | None = None) -> Vtree:
    """Parse the content of a vtree file; the root is its last node. Raises ParseError with line and column."""
    file = TextFile(data, source, _HINTS)
    (count,), position = file.header("vtree", "<number of nodes>", "a vtree file")
    lines = file.lines(position, _LINES, count, "vtree")
    left, right, variable = np.full(count, -1, np.int32), np.full(count, -1, np.int32), np.zeros(count, np.int32)
    is_leaf = lines.kinds == LITERAL
    variable[lines.names[is_leaf]] = lines.numbers[is_leaf]
    left[lines.names[~is_leaf]], right[lines.names[~is_leaf]] = lines.elements[::2], lines.elements[1::2]
    uses = np.bincount(lines.elements, minlength=count)[lines.names]
    uses[-1] += 1
    for line in np.flatnonzero(uses != 1)[:1].tolist():
        problem = "is no child and not the last node" if uses[line] == 0 else f"has {uses[line]} parents"
        node = lines.names[line]
        file.fail_line(line, f"vtree node {node} {problem}; a vtree is a tree with the root last")
    values, repeats = np.unique(lines.numbers[is_leaf], return_counts=True)
    for number in values[repeats > 1][:1]:
        line = int(np.flatnonzero(is_leaf & (lines.numbers == number))[1])
        file.fail_line(line, f"variable {number} has two leaves")
    return Vtree(left, right, variable, int(lines.names[-1]))


def load_vtree(path: str | os.PathLike) -> Vtree:
    """Read a vtree file, gzip transparently. Raises ParseError."""
    return parse_vtree(read_bytes(path), os.fspath(path))
