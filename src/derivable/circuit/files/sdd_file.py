"""Sentential decision diagrams: the file format of the SDD package, and live PySDD nodes.

    sdd 5                     nodes in all; comments start with c
    L 0 0 1                   literal: id, vtree node, signed variable
    L 1 2 2
    L 2 0 -1
    F 3                       false (T is true)
    D 4 1 2 0 1 2 3           decomposition: id, vtree node, number of elements, {prime sub}

A decomposition is the disjunction of its elements, an element the conjunction of its prime and sub; the
last node is the root. Hash-consing then merges the elements that SDDs do not share.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from derivable.circuit.files.sdd_objects import export, manager_of
from derivable.circuit.files.sdd_structure import LINES, StructureCheck
from derivable.circuit.files.text_file import TextFile
from derivable.circuit.files.vtree_file import load_vtree, parse_vtree
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.vtree import Vtree
from derivable.circuit.kernels import parse_bytes as text
from derivable.core.and_or import AND, LITERAL, OR
from derivable.core.diagnostics import DomainError, MissingDependencyError, ParseError, UnsupportedError
from derivable.core.files import atomic_write, read_bytes
from derivable.device.cpu.pages import empty_pages, zero_pages
from derivable.device.cpu.threads import run_chunks

_HINTS = {
    text.UNKNOWN_LINE: "lines of an SDD file start with F, T, L, D or c",
    text.UNDEFINED_ID: "primes and subs come before the decompositions that use them",
    text.ZERO_LITERAL: "literals are signed variables, counted from 1",
}
_FEW_ROOTS = 4
_STEP = 1 << 22  # at most so many bytes are read while those before them are inserted


def parse_sdd(
    data: bytes | memoryview,
    source: str | None = None,
    vtree: Vtree | None = None,
    num_variables: int | None = None,
    *,
    check: bool = True,
) -> Circuit:
    """The circuit of an SDD file's content.

    num_variables  None: the vtree's, or the greatest variable in the file
    check          whether to check that the primes of every decomposition exclude each other and exhaust all
                   assignments, and that nodes stand where `vtree` lets them; without it nothing is known of the
                   circuit's determinism

    One pass over the bytes, one insertion into the hash table per element and node. Raises ParseError with
    line and column, for a file whose nodes are no SDD too, and if it mentions a variable that `vtree` does not have.
    """
    builder = CircuitBuilder()
    root = _insert(builder, data, source, vtree, check)
    if vtree is not None and num_variables is None:
        num_variables = vtree.num_variables
    circuit = replace(builder.build([root], num_variables, None, "sdd" if check else ""), vtree=vtree)
    if check and vtree is None and not circuit.is_decomposable:
        hint = "write the file again with its compiler; vtree=path says where each node stands"
        raise ParseError("this is no SDD: a prime and its sub share a variable", source=source, hint=hint)
    return circuit


def _insert(
    builder: CircuitBuilder, data: bytes | memoryview, source: str | None, vtree: Vtree | None, check: bool
) -> int:
    """Insert the nodes of a file; the id of its root."""
    file = TextFile(data, source, _HINTS)
    (count,), position = file.header("sdd", "<number of nodes>", "an SDD file")
    words = file.most_words
    announced = min(count, words // 2)  # a line has two words
    letters = empty_pages(announced, np.uint8)
    names = empty_pages(announced, np.int32)
    numbers = empty_pages(announced, np.int32)
    places = empty_pages(announced, np.int32)
    elements = empty_pages(words, np.int32)
    defined = zero_pages(announced, np.uint8)
    ids = empty_pages(announced, np.int32)
    ids.fill(-1)
    # Decompositions are few and elements often equal: the table starts smaller than the file might need.
    builder._reserve(words // 2, 2 * words, len(data) // 24)
    checked = StructureCheck(file, announced, vtree) if check else None
    code, value = text.OK, 0
    lines, end, line, first = 0, 0, 0, 0

    def step(start: int, stop: int) -> None:
        nonlocal code, position, value, lines, end, line, first
        if start == 0:
            rows = letters[:ready], names[:ready], numbers[:ready]
            line, first = builder._add_decompositions(*rows, elements[:filled], ids, line, first)
        if stop == 2:
            # Steps grow from a small one, which nothing can hide behind.
            until = min(position + min(_STEP, max(_STEP >> 5, position)), len(data))
            rows = letters, names, places, numbers, elements
            code, position, value, lines, end = text.parse_lines(
                file.array, position, until, text.LIMIT, LINES, lines, end, defined, *rows
            )
            if checked is not None:
                checked.check(letters[:lines], names[:lines], numbers[:lines], elements[:end], places, ready, filled)

    while code == text.OK and (position < len(data) or line < lines):
        ready, filled = lines, end
        if line < lines and position < len(data):
            # One thread inserts what has been read, another one reads on.
            run_chunks(step, 2, 1)
        else:
            step(0, 2)
    file.check_lines((code, position, value, lines, end), announced, count, "sdd")
    if check and letters[lines - 1] == OR:
        file.check_last_number(count)
    return int(ids[names[lines - 1]])


def load_sdd(
    path: str | os.PathLike,
    vtree: str | os.PathLike | Vtree | bool | None = None,
    num_variables: int | None = None,
    data: bytes | memoryview | None = None,
) -> Circuit:
    """Read an SDD file (gzip transparently) and its vtree.

    vtree  a path or a Vtree; None looks for `name.vtree` beside `name.sdd`; False reads without one.
           It is kept as `circuit.vtree` and says how many variables there are.
    data   the content, if it has been read already
    """
    if data is None:
        data = read_bytes(path)
    if vtree is None or vtree is True:
        stem = Path(os.fspath(path).removesuffix(".gz"))
        beside = [stem.with_suffix(".vtree"), stem.with_suffix(".vtree.gz")]
        vtree = next((candidate for candidate in beside if candidate.exists()), None)
    if vtree is False:
        vtree = None
    elif not isinstance(vtree, Vtree | None):
        vtree = load_vtree(vtree)
    return parse_sdd(data, os.fspath(path), vtree, num_variables)


def from_sdd(nodes: Any, num_variables: int | None = None) -> Circuit:
    """The circuit of a live PySDD node, or of several; equal parts of several roots are shared.

    num_variables  None: the variables of the manager

    The nodes are only read. Up to four roots are handed over one by one through PySDD's own writer (under a
    microsecond per element), more are walked together, iteratively, each shared node once (about three).
    """
    roots = list(nodes) if isinstance(nodes, Iterable) else [nodes]
    for root in roots:
        if not hasattr(root, "manager"):
            raise DomainError(f"{root!r} is not a PySDD node")
    if not roots:
        return CircuitBuilder().build([], num_variables or 0, None, "sdd")
    manager = roots[0].manager
    if num_variables is None:
        num_variables = manager.var_count()
    builder = CircuitBuilder()
    if len(roots) <= _FEW_ROOTS:
        ids = [_insert(builder, saved(node), "<live SDD>", None, False) for node in roots]
    else:
        graph = export(roots)
        ids = builder.add_nodes(*graph.arrays[:4])[graph.roots]
    vtree = parse_vtree(saved(manager.vtree()), "<live vtree>")
    return replace(builder.build(ids, num_variables, None, "sdd"), vtree=vtree)


def saved(part: Any) -> bytes:
    """What PySDD writes of a live node or vtree."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "part.txt")
        part.save(bytes(path))
        return path.read_bytes()


def write_sdd(circuit: Circuit, path: str | os.PathLike, vtree: str | os.PathLike | Vtree | None = None) -> None:
    """Write a single-rooted circuit as an SDD file, and its vtree beside it as `name.vtree`.

    vtree  None takes the one the circuit was read with, else one that is right-linear in variable order; variables
           of the circuit that it lacks are put above it, so that the files keep their number

    The circuit is compiled bottom-up in PySDD under that vtree, so this is linear for a circuit that came
    from the same vtree and can blow up for another one. Both files are written whole or not at all.
    Raises UnsupportedError for several roots or no variables, MissingDependencyError without PySDD.
    """
    if importlib.util.find_spec("pysdd") is None:
        raise MissingDependencyError("writing SDD files needs PySDD", hint="pip install pysdd")
    if circuit.num_roots != 1:
        raise UnsupportedError(
            f"an SDD file has one root, this circuit has {circuit.num_roots}",
            hint="save it in this library's own format, circuit.save(path), or write one root at a time",
        )
    if vtree is None:
        vtree = circuit.vtree
    if vtree is None:
        if circuit.num_variables == 0:
            raise UnsupportedError("an SDD needs at least one variable", hint="circuit.save(path) has no such limit")
        vtree = Vtree.right_linear(range(1, circuit.num_variables + 1))
    elif not isinstance(vtree, Vtree):
        vtree = load_vtree(vtree)
    manager = manager_of(vtree.with_variables(circuit.num_variables))
    text = saved(_apply(circuit, manager))
    with atomic_write(Path(path).with_suffix(".vtree"), "wb") as file:
        file.write(saved(manager.vtree()))
    with atomic_write(path, "wb") as file:
        file.write(text)


def _apply(circuit: Circuit, manager: Any) -> Any:
    values: list[Any] = []
    offsets, children = circuit.offsets.tolist(), circuit.children.tolist()
    for node, kind in enumerate(circuit.kind.tolist()):
        if kind < LITERAL:
            values.append(manager.true() if kind else manager.false())
        elif kind == LITERAL:
            values.append(manager.literal(int(circuit.literal[node])))
        else:
            combine = manager.conjoin if kind == AND else manager.disjoin
            row = children[offsets[node] : offsets[node + 1]]
            value = values[row[0]]
            for child in row[1:]:
                value = combine(value, values[child])
            values.append(value)
    return values[circuit.roots[0]]
