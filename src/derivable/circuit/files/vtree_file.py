"""Vtree files of the SDD package."""

from __future__ import annotations

import os
import re

import numpy as np

from derivable.circuit.files.read_error import fail, fail_code, fail_header, most_words, read_header
from derivable.circuit.graph.vtree import Vtree
from derivable.circuit.kernels import parse_bytes as text
from derivable.core.files import read_bytes

_HINTS = {
    text.UNKNOWN_LINE: "lines of a vtree file start with L, I or c",
    text.UNDEFINED_ID: "children come before parents",
    text.ZERO_LITERAL: "a leaf names a variable, counted from 1",
}


def parse_vtree(data: bytes, source: str | None = None) -> Vtree:
    """Parse the content of a vtree file; the root is its last node. Raises ParseError with line and column."""
    array = np.frombuffer(data, np.uint8)
    (count,), position = read_header(data, array, "vtree", "<number of nodes>", source, "a vtree file")
    if count > most_words(data) or count == 0:
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
