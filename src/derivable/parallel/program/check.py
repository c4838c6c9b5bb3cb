"""The validator of column programs, called between passes in tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from derivable.core.diagnostics import LayoutError, ShapeError, TypeMismatchError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.text import program_text


def check_program(results: Sequence[n.Column]) -> None:
    """Raise at the first node that is no valid one, with what is wrong and its printed form: ShapeError for numbers of
    rows or lanes that do not fit, TypeMismatchError for types, LayoutError for rows that are not there.
    """
    _check(n.nodes_of(results))


def _check(nodes: Iterable[n.Node]) -> None:
    for node in nodes:
        try:
            _node(node)
        except (ShapeError, TypeMismatchError, LayoutError) as error:
            line = program_text([n.Column(node)]).splitlines()[-1]
            raise type(error)(f"{error.message} in `{line}`") from None
        if isinstance(node, n.Otherwise):
            _check([inner for inner in n.nodes_of(node.others) if inner in node.inside])
        if isinstance(node, n.Pieces):
            _check([inner for inner in n.nodes_of((*node.body, *node.folded)) if inner in node.inside])
        if isinstance(node, n.Loop):
            _check([inner for inner in n.nodes_of(node.body) if inner in node.moving])


def _size(columns: Iterable[n.Column], wanted: n.Size | None) -> None:
    for column in columns:
        if column.size != wanted:
            raise ShapeError(f"a column has {_shown(column.size)} rows where {_shown(wanted)} are wanted")


def _shown(size: n.Size | None) -> str:
    match size:
        case n.Found(node=n.Given(name=name)):
            return f"rows({name})"
        case n.Found():
            return f"found({type(size.node).__name__.lower()})"
        case n.Sum():
            return " + ".join(map(_shown, size.parts))
    return str(size)


def _dtype(columns: Iterable[n.Column], wanted: str) -> None:
    for column in columns:
        if column.type.dtype != wanted:
            raise TypeMismatchError(f"a column is {column.type.dtype} where {wanted} is wanted")


def _rows(rows: n.Column, end: n.Size | None, first: int = 0) -> None:
    """Row numbers that are known when the program is made are in range."""
    _dtype([rows], "int64")
    if isinstance(rows.node, n.Constant) and np.ndim(rows.node.values) and isinstance(end, int):
        values = rows.node.values
        if len(values) and (values.min() < first or values.max() >= end):
            raise LayoutError(f"rows {values.min()} to {values.max()} of {end}")


def _keys(columns: Sequence[n.Column], others: Sequence[n.Column]) -> None:
    if len(columns) != len(others):
        raise ShapeError(f"{len(columns)} key columns meet {len(others)}")
    for column, other in zip(columns, others):
        _dtype([column], other.type.dtype)


def _node(node: n.Node) -> None:
    match node:
        case n.Constant():
            if np.ndim(node.values) and len(node.values) != node.type.size:
                raise ShapeError(f"{len(node.values)} numbers stand for {_shown(node.type.size)} rows")
        case n.Gather():
            _rows(node.rows, node.of.size, 0 if node.otherwise is None else -1)
            if node.of.size is None:
                raise ShapeError("one number has no rows")
            if node.otherwise is not None:
                _size([node.otherwise], node.rows.size)
                _dtype([node.otherwise], node.of.type.dtype)
        case n.Fold():
            _size(node.of, node.rows.size)
            _rows(node.rows, node.size)
            if node.monoid is not None and len(node.monoid.left) != len(node.of):
                raise ShapeError(f"the operator has {len(node.monoid.left)} components, and {len(node.of)} are given")
        case n.FoldLanes():
            if node.of.type.lanes is None:
                raise ShapeError("a column without lanes has none to fold")
        case n.Apply():
            if not isinstance(node.function, str) and len(node.function.arguments) != len(node.inputs):
                raise ShapeError(f"{len(node.inputs)} columns are given for {len(node.function.arguments)} arguments")
            _size([x for x in node.inputs if x.size is not None], node.size)
            if any(x.type.lanes not in (None, node.lanes) for x in node.inputs):
                raise ShapeError("lanes differ")
        case n.Bits():
            if node.of.type.dtype not in ("int64", "float64"):
                raise TypeMismatchError(f"{node.of.type.dtype} has no 64 bits")
        case n.Concatenate():
            _dtype(node.of, node.of[0].type.dtype)
        case n.Split():
            if sum(node.sizes) != node.of.size:
                raise ShapeError(f"parts of {sum(node.sizes)} rows are split from {_shown(node.of.size)}")
        case n.Reshape():
            sizes = [node.of.size, node.of.type.lanes, node.size, node.lanes]
            if all(size is None or isinstance(size, int) for size in sizes):
                before, after = (int(np.prod([x for x in pair if x is not None])) for pair in (sizes[:2], sizes[2:]))
                if before != after:
                    raise ShapeError(f"{before} numbers are not reshaped to {after}")
        case n.Compact():
            _dtype([node.mask], "bool")
        case n.Build() | n.Sort() | n.Unique():
            _size(node.columns, node.size)
        case n.Insert():
            _size(node.columns, node.size)
            _dtype(node.columns, "int64")
            if node.into is not None:
                _dtype([node.into], n.INDEX)
        case n.BuildOf():
            _dtype([node.of], n.INDEX)
        case n.Locate():
            _size(node.columns, node.size)
            _dtype([node.among], n.INDEX)
        case n.IsNew():
            _dtype([node.rows], "int64")
            _dtype([node.among], n.INDEX)
        case n.Put():
            _rows(node.rows, node.size)
            _size([node.values], node.rows.size)
            _dtype([node.values], node.into.type.dtype)
        case n.Elements():
            _dtype([node.of], n.INDEX)
        case n.Join() | n.Find():
            _size(node.probes, node.size)
            _dtype([node.index], n.INDEX)
            assert isinstance(node.index.node, n.Build | n.BuildOf)
            _keys(node.probes, node.index.node.columns)
        case n.Call():
            _size(() if node.finds else node.of, node.size)
        case n.Pieces():
            _size(node.of, node.of[0].size)
            _keys(node.of, node.rows)
            _keys(node.body, node.folded)
        case n.Loop():
            if not len(node.begin) == len(node.state) == len(node.body):
                raise ShapeError("the state of a loop has other columns before it, in it and after a round")
            for columns in (node.begin, node.body):
                _keys(columns, node.state)
            groups: dict[n.Node, list[int]] = {}
            for number, column in enumerate(node.state):
                groups.setdefault(column.node, []).append(number)
            for numbers in groups.values():
                for columns in (node.begin, node.body):
                    _size([columns[k] for k in numbers], columns[numbers[0]].size)
