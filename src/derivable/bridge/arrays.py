"""Elements as users give them: leaves in one array library, checked, with the operator for their types.

Each library has a module with the functions `dtype_name(array)`, `as_leaf(array, what)`, `as_integers(array, what)`,
`as_indices(array)`, `check_offsets(offsets, rows)` and `run(engine, structure, operands)`.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

from derivable.algebra.element import Element, flatten
from derivable.algebra.monoid import SCALAR, Monoid, TypedMonoid
from derivable.algebra.monoids import NAMED, resolve
from derivable.algebra.semiring import Semiring
from derivable.bridge.fold import KERNEL_DTYPES, Fold
from derivable.core.diagnostics import ShapeError, TypeMismatchError

AnyOperator = str | Monoid | Semiring

_MODULES = {
    "NumPy": "derivable.bridge.numpy",
    "torch": "derivable.bridge.torch",
    "JAX": "derivable.bridge.jax",
}


def library_name(array: Any) -> str:
    """ "NumPy", "torch" or "JAX"; whatever is no array counts as NumPy's."""
    # An array of a library that was never imported cannot exist, so asking imports nothing.
    # The same holds for a library that another thread is importing, whose module may still lack these names.
    if isinstance(array, getattr(sys.modules.get("torch"), "Tensor", ())):
        return "torch"
    if isinstance(array, getattr(sys.modules.get("jax"), "Array", ())):
        return "JAX"
    return "NumPy"


class Elements:
    """Elements [row, *batch] as arrays [row, *batch, *element], one per leaf.

    like  the argument as it came, whose nesting the operator's is
    """

    __slots__ = ("batch", "element", "leaves", "like", "rows", "what")

    def __init__(self, what: str, like: Any, element: Element, leaves: tuple[Any, ...], shape: tuple[int, ...]):
        self.what, self.like, self.element, self.leaves = what, like, element, leaves
        self.rows, self.batch = shape[0], shape[1:]


def elements(
    operator: AnyOperator, *arguments: tuple[str, Any], structure: tuple[tuple[str, Any], ...] = ()
) -> tuple[ModuleType, list[Elements]]:
    """The module of the library that all arrays belong to, and the arguments, each with its name for messages, as
    elements of the operator.

    structure  arrays that must belong to that library too, with their names

    Raises ShapeError for another nesting than the operator's, for leaves whose rows or batch axes differ, and for
    leaves without the axes of the element.
    """
    element = operator.element if isinstance(operator, Monoid) else SCALAR
    named = [_named_leaves(element, what, value) for what, value in arguments]
    library = _common_library([*(pair for leaves in named for pair in leaves), *structure])
    return library, [_checked(library, element, what, value, leaves) for (what, value), leaves in zip(arguments, named)]


def _named_leaves(element: Element, what: str, value: Any) -> list[tuple[str, Any]]:
    if element.shape is not None and hasattr(value, "dtype"):
        return [(what, value)]
    leaves = flatten(element, value, what)
    if len(leaves) == 1:
        return [(what, leaves[0])]
    return [(f"leaf {k} of {what}", leaf) for k, leaf in enumerate(leaves)]


def _common_library(arrays: list[tuple[str, Any]]) -> ModuleType:
    """Raises TypeMismatchError for torch tensors beside other arrays. NumPy arrays beside JAX's become JAX's."""
    names = [library_name(array) for _, array in arrays]
    if len(names) > 1 and "torch" in names and set(names) != {"torch"}:
        ours, other = names.index("torch"), next(k for k, name in enumerate(names) if name != "torch")
        raise TypeMismatchError(
            f"{arrays[ours][0]} is a torch tensor, {arrays[other][0]} is not: {type(arrays[other][1]).__name__}",
            hint="give all arrays in one library: `torch.as_tensor(x)`, or `x.numpy()`",
        )
    return _module("JAX" if "JAX" in names else names[0])


@cache
def _module(name: str) -> ModuleType:
    # Not from `sys.modules`, which holds modules that other threads have not finished importing.
    return importlib.import_module(_MODULES[name])


def _checked(
    library: ModuleType, element: Element, what: str, value: Any, named: Sequence[tuple[str, Any]]
) -> Elements:
    leaves = tuple([library.as_leaf(leaf, name) for name, leaf in named])
    first: tuple[int, ...] | None = None
    for (name, _), leaf, shape in zip(named, leaves, element.leaf_shapes):
        found = tuple(leaf.shape)
        split = len(found) - len(shape)
        if found[split:] != shape or split < 1:
            wanted = f"[n, *batch, {', '.join(map(str, shape))}]" if shape else "[n, *batch]"
            raise ShapeError(
                f"{name} has shape {found}, not {wanted}",
                hint="the first axis counts elements"
                + (f", the last {len(shape)} are those of one element, as in the neutral element" * bool(shape)),
            )
        if first is None:
            first = found[:split]
        elif found[:split] != first:
            raise ShapeError(
                f"the leaves of {what} have different lengths or batch axes: {named[0][0]} is {first}, "
                f"{name} is {found[:split]}" + (f" before the axes of its element {shape}" if shape else ""),
                hint="every leaf has one entry per element; use `broadcast_to` for a leaf that they share",
            )
    assert first is not None
    return Elements(what, value, element, leaves, first)


def fold_of(library: ModuleType, kind: Any, operator: AnyOperator, groups: Sequence[Elements], *options: bool) -> Fold:
    """The fold of an operator for the types of the leaves of `groups`, which all have the same batch axes.

    options  whether it is exclusive, and whether it is reverse

    Raises as `_typed_operator` does.
    """
    first, *others = groups
    for other in others:
        if other.batch != first.batch:
            raise ShapeError(
                f"{first.what} has the batch axes {first.batch}, {other.what} {other.batch}",
                hint="all axes after the first must be the same",
            )
    known = _known(operator)
    key = kind, options, *[leaf.dtype for group in groups for leaf in group.leaves]
    found = known.get(key)
    if found is None:
        found = known[key] = Fold(kind, _typed_operator(library, operator, first, *others), *options)
    return found


# The folds of an operator that is alive, by its identity: the same call again has the same fold, which knows itself.
_folds: dict[int, tuple[weakref.ref, dict]] = {}


def _known(operator: Any) -> dict:
    entry = _folds.get(id(operator))
    if entry is not None and entry[0]() is operator:
        return entry[1]
    if isinstance(operator, str):
        return _known(NAMED[operator]) if operator in NAMED else {}
    if not isinstance(operator, Monoid | Semiring):
        return {}
    number = id(operator)
    known: dict = {}
    _folds[number] = weakref.ref(operator, lambda _: _folds.pop(number, None)), known
    return known


def _typed_operator(library: ModuleType, operator: AnyOperator, first: Elements, *others: Elements) -> TypedMonoid:
    """The operator for the types of the leaves.

    Raises TypeMismatchError for types that have no kernels or that differ between the elements, UnsupportedError
    for types that the operator does not take.
    """
    dtypes = []
    for k, leaf in enumerate(first.leaves):
        name = library.dtype_name(leaf)
        if name not in KERNEL_DTYPES:
            raise TypeMismatchError(
                f"{first.what} has dtype {name}", hint="folds take bool, integers, and floats of 16, 32 or 64 bits"
            )
        for other in others:
            theirs = library.dtype_name(other.leaves[k])
            if theirs != name:
                where = "" if len(first.leaves) == 1 else f"leaf {k} of "
                raise TypeMismatchError(
                    f"{where}{first.what} is {name}, {where}{other.what} {theirs}",
                    hint=f"convert one of them: the result has the type of {first.what}",
                )
        dtypes.append(KERNEL_DTYPES[name])
    for dtype in dtypes:
        resolved = resolve(operator, dtype)
    return resolved.typed(dtypes)
