"""The public folds: any associative operator, on NumPy arrays, torch tensors and JAX arrays, with derivatives.

Elements are scalars, small arrays, or nests of them in tuples, named tuples, dataclasses and dictionaries; arrays of
elements are structures of arrays, leaf by leaf [n, *batch, *element]. A scalar operator works elementwise over the
batch axes.
What goes in as one library's arrays comes out as that library's. Derivatives of any order, forwards and backwards,
are those of the operator's own code; where min and max tie, the smallest index takes the whole adjoint.

Source: Bruun, Larsen, Henriksen and Oancea, Reverse-mode AD of reduce-by-index and scan in Futhark, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derivable.algebra.element import rebuild
from derivable.algebra.monoid import Monoid
from derivable.algebra.monoids import MatrixProduct
from derivable.algebra.semiring import Semiring
from derivable.bridge import matrix_folds
from derivable.bridge.arrays import AnyOperator, checked_offsets, element_of, prepared
from derivable.core.diagnostics import OperatorError, ShapeError


def reduce(op: AnyOperator, values: Any, *, axis: int = 0) -> Any:
    """The fold of all elements: values [n, *batch, *element], leaf by leaf, to [*batch, *element].

    op    an operator, the name of one ("add", "mul", "min", "max", "logaddexp", "or", "and", "xor"), or a semiring, its
          record or name, for its plus
    axis  0: folds go along the first axis

    No element gives the neutral element. Raises a DerivableError for elements that do not fit the operator.
    """
    _check("reduce(op, values)", op, axis)
    if isinstance(op, MatrixProduct):
        return matrix_folds.reduce(op, values)
    library, fold, leaves = prepared("segment_reduce", op, ("values", values))
    offsets = library.as_integers([0, leaves[0].shape[0]], "offsets")
    return _rebuilt(op, values, [result[0] for result in library.run(fold, offsets, leaves)])


def reduce_by_index(destination: Any, op: AnyOperator, indices: Any, values: Any) -> Any:
    """A generalised histogram: `destination[k] op values[i] op values[j] op ...` for the i < j < ... with index k.

    destination  [bucket, *batch, *element], leaf by leaf; is not changed
    op           an operator, the name of one, or a semiring for its plus; it must commute
    indices      [n] integers; elements whose index is negative or too large are ignored
    values       [n, *batch, *element], leaf by leaf, of the destination's types

    Returns what the destination is nested like. Raises OperatorError for an operator that does not commute,
    and other DerivableErrors for arguments that do not fit each other.
    """
    _check("reduce_by_index(destination, op, indices, values)", op)
    if isinstance(op, Monoid) and op.commutative is False:
        raise OperatorError(
            f"the operator {op.name} does not commute, so the order of elements in a bucket would matter",
            hint="sort by index and use `segment_reduce`, which keeps their order",
        )
    arguments = ("destination", destination), ("values", values)
    library, fold, leaves = prepared("reduce_by_index", op, *arguments, structure=(("indices", indices),))
    where, rows = library.as_indices(indices), leaves[-1].shape[0]
    if where.shape[0] != rows:
        raise ShapeError(f"there are {where.shape[0]} indices for {rows} values", hint="each value needs one bucket")
    return _rebuilt(op, destination, library.run(fold, where, leaves))


def scan(op: AnyOperator, values: Any, *, exclusive: bool = False, reverse: bool = False, axis: int = 0) -> Any:
    """All prefixes: result[i] = values[0] op ... op values[i], of the shape of values [n, *batch, *element].

    op         an operator, the name of one, or a semiring for its plus
    exclusive  result[i] leaves values[i] out, so result[0] is the neutral element
    reverse    from the last element on: flips the axis, scans, and flips back
    axis       0: folds go along the first axis

    Raises a DerivableError for elements that do not fit the operator.
    """
    _check("scan(op, values)", op, axis)
    if isinstance(op, MatrixProduct):
        return matrix_folds.scan(op, values, None, bool(exclusive), bool(reverse))
    library, fold, leaves = prepared("scan", op, ("values", values), options=(bool(exclusive), bool(reverse)))
    return _rebuilt(op, values, library.run(fold, None, leaves))


def segmented_scan(
    op: AnyOperator, values: Any, offsets: Any, *, exclusive: bool = False, reverse: bool = False, axis: int = 0
) -> Any:
    """A scan of each segment by itself.

    offsets  [segment + 1] integers from 0 to n: segment s is values[offsets[s]:offsets[s + 1]]

    The rest is as in `scan`. Raises LayoutError, with the first bad place, for offsets that decrease or do not end
    at n.
    """
    _check("segmented_scan(op, values, offsets)", op, axis)
    if isinstance(op, MatrixProduct):
        return matrix_folds.scan(op, values, offsets, bool(exclusive), bool(reverse))
    options, structure = (bool(exclusive), bool(reverse)), (("offsets", offsets),)
    library, fold, leaves = prepared("scan", op, ("values", values), options=options, structure=structure)
    return _rebuilt(op, values, library.run(fold, checked_offsets(library, offsets, leaves[0].shape[0]), leaves))


def segment_reduce(op: AnyOperator, values: Any, offsets: Any, *, axis: int = 0) -> Any:
    """The fold of each segment: [n, *batch, *element] to [segment, *batch, *element], leaf by leaf.

    op       an operator, the name of one, or a semiring for its plus; it need not commute
    offsets  [segment + 1] integers from 0 to n: segment s is values[offsets[s]:offsets[s + 1]]
    axis     0: folds go along the first axis

    An empty segment gives the neutral element. Raises LayoutError, with the first bad place, for offsets that decrease
    or do not end at n.
    """
    _check("segment_reduce(op, values, offsets)", op, axis)
    if isinstance(op, MatrixProduct):
        return matrix_folds.segment_reduce(op, values, offsets)
    library, fold, leaves = prepared("segment_reduce", op, ("values", values), structure=(("offsets", offsets),))
    return _rebuilt(op, values, library.run(fold, checked_offsets(library, offsets, leaves[0].shape[0]), leaves))


def _check(form: str, operator: Any, axis: Any = 0) -> None:
    """Raise OperatorError unless something that may be an operator stands in its place, ShapeError for another axis.

    form  how the fold is called
    """
    if not (isinstance(operator, (str, Monoid, Semiring)) or callable(operator)):
        raise OperatorError(
            f"the operator of the fold is a {type(operator).__name__}",
            hint=f'the arguments are {form}, where op is a name such as "add", an operator or a semiring',
        )
    if axis != 0:
        raise ShapeError(
            f"folds go along the first axis, and axis is {axis!r}",
            hint=f"move it to the front, and back afterwards: np.moveaxis(values, {axis!r}, 0)",
        )


def _rebuilt(operator: AnyOperator, like: Any, leaves: Sequence[Any]) -> Any:
    if len(leaves) == 1 and type(like) is type(leaves[0]):
        return leaves[0]
    element = element_of(operator)
    return leaves[0] if element.shape is not None else rebuild(element, like, leaves)
