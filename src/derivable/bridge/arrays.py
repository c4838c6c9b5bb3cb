"""Elements as users give them: leaves in one array library, checked, with the operator for their types.

Each library has a module with the functions `dtype_name(array)`, `as_leaf(array, what)`, `as_integers(array, what)`,
`as_indices(array)`, `check_offsets(offsets, rows)` and `run(engine, structure, operands)`, and those that differentiate
`repeated(number, dtype, shape, like)`.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from derivable.algebra.element import Element, flatten
from derivable.algebra.monoid import SCALAR, Monoid
from derivable.algebra.monoids import NAMED, resolve, semiring_of
from derivable.algebra.semiring import Semiring
from derivable.algebra.typed import TypedMonoid
from derivable.bridge.fold import KERNEL_DTYPES, Fold
from derivable.core.arrays import check_plain, refuse_emptied
from derivable.core.diagnostics import OperatorError, ShapeError, TypeMismatchError, UnsupportedError

AnyOperator = str | Monoid | Semiring
# The name of an argument, and its leaves, each with its name for messages.
Group = tuple[str, Sequence[tuple[str, Any]]]

_MODULES = {
    "NumPy": "derivable.bridge.numpy",
    "torch": "derivable.bridge.torch",
    "JAX": "derivable.bridge.jax",
}


# By the types of arrays that most calls have.
_NAMES: dict[type, str] = {np.ndarray: "NumPy"}


def library_name(array: Any) -> str:
    """ "NumPy", "torch" or "JAX"; whatever is no array counts as NumPy's."""
    name = _NAMES.get(type(array))
    if name is not None:
        return name
    # An array of a library that was never imported cannot exist, so asking imports nothing.
    # The same holds for a library that another thread is importing, whose module may still lack these names.
    if isinstance(array, getattr(sys.modules.get("torch"), "Tensor", ())):
        if type(array).__module__ == "torch":
            _NAMES[type(array)] = "torch"
        return "torch"
    # Not by its type: what JAX traces is an instance of its arrays, but its class is no subclass.
    if isinstance(array, getattr(sys.modules.get("jax"), "Array", ())):
        return "JAX"
    refuse_unreadable(array)
    return "NumPy"


def refuse_unreadable(value: Any) -> None:
    """Raise UnsupportedError for stand-ins of `torch.fx.symbolic_trace`, for tensors whose rows have different lengths,
    and for arrays of JAX that are keys of random numbers, were donated to another call or were deleted."""
    # Dynamo traces this: of a tuple or a number it knows the name of the type, and not its module.
    if type(value).__name__ == "Proxy" and type(value).__module__.startswith("torch.fx"):
        raise UnsupportedError(
            "torch.fx.symbolic_trace has stand-ins for tensors, which have no shapes and no types",
            hint='use torch.export or make_fx, or have the function that calls this recorded: `torch.fx.wrap("name")`',
        )
    if hasattr(value, "is_nested"):
        check_plain(value, "an operand")
        if type(value).__name__ == "FakeTensor":
            # Not before, as this works without torch.
            from derivable.bridge.torch import check_has_numbers

            check_has_numbers(value, "an operand")
    refuse_emptied(value, "an operand")
    # The class says it first: Dynamo does not trace the property of a matrix of SciPy.
    has_dtype = hasattr(type(value), "dtype")
    if has_dtype and type(value).__module__.startswith("jax") and not hasattr(value.dtype, "kind"):
        raise UnsupportedError(
            f"an operand is an array of {value.dtype}, and no numbers", hint="`jax.random.key_data(x)` has numbers"
        )


def prepared(
    kind: Any,
    operator: AnyOperator,
    *arguments: tuple[str, Any],
    options: tuple[bool, ...] = (),
    structure: tuple[tuple[str, Any], ...] = (),
) -> tuple[ModuleType, Fold | int, list[Any]]:
    """(the module of the library that all arrays belong to, the fold, or its number in graphs, its operands) of
    arguments with their names for messages.

    options    whether the fold is exclusive, and whether it is reverse
    structure  arrays that must belong to that library too, with their names

    Raises as `groups_of`, `check_shapes` and `fold_of` do, and TypeMismatchError for arrays of several libraries.
    """
    torch: Any = sys.modules.get("torch")
    # Another thread may be importing torch.
    if hasattr(torch, "compiler") and torch.compiler.is_compiling():
        from derivable.bridge import compiled

        in_graph = compiled.prepared(kind, operator, arguments, options, structure)
        return in_graph or torch.compiler.disable(_prepared)(kind, operator, arguments, options, structure)
    return _prepared(kind, operator, arguments, options, structure)


def _prepared(
    kind: Any, operator: AnyOperator, arguments: Sequence[tuple[str, Any]], options: Any, structure: Any
) -> tuple[ModuleType, Fold, list[Any]]:
    known = _known(operator)
    calls, groups = known.calls, None
    for _, value in arguments:
        if known.element.shape is None or not hasattr(value, "dtype"):
            groups = groups_of(operator, arguments)
            break
    named = arguments if groups is None else [leaf for _, group in groups for leaf in group]
    library = common_library((*named, *structure) if structure else named)
    # The steps of a loop have the same types and shapes, which are checked once.
    leaves, call = [], [kind, options]
    for name, leaf in named:
        leaf = library.as_leaf(leaf, name)
        leaves.append(leaf)
        call += leaf.dtype, leaf.shape
    call = tuple(call)
    fold = calls.get(call)
    if fold is None:
        if len(calls) >= _CALLS:
            calls.clear()
        remaining = iter(leaves)
        groups = groups_of(operator, arguments) if groups is None else groups
        groups = [(what, [(name, next(remaining)) for name, _ in group]) for what, group in groups]
        check_shapes(operator, groups)
        fold, parameters = fold_of(library, kind, operator, groups, options, known.folds)
        if parameters:
            held = [("what the operator holds", tensor) for tensor in parameters]
            if common_library([*named, *structure, *held]) is not library:
                return _prepared(kind, operator, arguments, options, (*structure, *held))
            return library, fold, _with_parameters(library, fold, operator, groups, parameters)
        calls[call] = fold
    return library, fold, leaves


def _with_parameters(
    library: ModuleType, fold: Fold, operator: AnyOperator, groups: Sequence[Group], parameters: Sequence[Any]
) -> list[Any]:
    """The operands of a fold whose operator holds tensors of one number: each is a leaf, the same in all elements."""
    operands, (first, *_) = [], element_of(operator).leaf_shapes
    for _, leaves in groups:
        like = leaves[0][1]
        shape = like.shape[: like.ndim - len(first)]
        operands += [leaf for _, leaf in leaves]
        for parameter, dtype in zip(parameters, fold.operator.leaf_dtypes[len(leaves) :]):
            number = library.as_leaf(parameter, "what the operator holds")
            operands.append(library.repeated(number.reshape(()), dtype, shape, like))
    return operands


def element_of(operator: AnyOperator) -> Element:
    """How the elements are nested that an operator, or the plus of a semiring, takes."""
    return _known(operator).element


def _element_of(operator: AnyOperator) -> Element:
    if isinstance(operator, Monoid):
        return operator.element
    ring = semiring_of(operator)
    return SCALAR if ring is None else ring.element


def groups_of(operator: AnyOperator, arguments: Sequence[tuple[str, Any]]) -> list[Group]:
    """The leaves of arguments. Raises ShapeError for another nesting than the operator's."""
    element = element_of(operator)
    return [(what, _named_leaves(element, what, value)) for what, value in arguments]


def _named_leaves(element: Element, what: str, value: Any) -> list[tuple[str, Any]]:
    if element.shape is not None and hasattr(value, "dtype"):
        return [(what, value)]
    if isinstance(value, str | Monoid | Semiring):
        raise OperatorError(
            f"{what} is {value if isinstance(value, str) else value.name!r}, and no array",
            hint="the operator stands before the values: scan(op, values)",
        )
    refuse_unreadable(value)
    leaves = flatten(element, value, what)
    if len(leaves) == 1:
        return [(what, leaves[0])]
    return [(f"leaf {k} of {what}", leaf) for k, leaf in enumerate(leaves)]


def common_library(arrays: Sequence[tuple[str, Any]]) -> ModuleType:
    """Raises TypeMismatchError for torch tensors beside other arrays. NumPy arrays beside JAX's become JAX's."""
    kind, first = type(arrays[0][1]), library_name(arrays[0][1])
    for _, array in arrays[1:]:
        if type(array) is not kind and library_name(array) != first:
            break
    else:
        return _module(first)
    names = [library_name(array) for _, array in arrays]
    if "torch" in names and set(names) != {"torch"}:
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


def check_shapes(operator: AnyOperator, groups: Sequence[Group]) -> None:
    """Raise ShapeError unless leaves are arrays [row, *batch, *element], of one batch, and of one length in a group."""
    element = element_of(operator)
    (first, _), *_ = groups
    batches = [_checked_shape(element, what, leaves)[1:] for what, leaves in groups]
    for (what, _), batch in zip(groups, batches):
        if batch != batches[0]:
            raise ShapeError(
                f"{first} has the batch axes {batches[0]}, {what} {batch}",
                hint="all axes after the first must be the same",
            )


def fold_of(
    library: ModuleType, kind: Any, operator: AnyOperator, groups: Sequence[Group], options: Any, folds: dict
) -> tuple[Fold, list[Any]]:
    """The fold of an operator for the types of the leaves of `groups`, and the tensors that the operator holds, which
    are further leaves.

    folds  those that are known

    Raises as `_typed_operator` does.
    """
    key = kind, options, *[leaf.dtype for _, leaves in groups for _, leaf in leaves]
    fold = folds.get(key)
    if fold is not None and fold.leaves == len(groups[0][1]):
        return fold, []
    typed, parameters = _typed_operator(library, operator, *groups)
    if fold is None or fold.operator is not typed:
        fold = folds[key] = Fold(kind, typed, *options).registered()
    return fold, parameters


def _checked_shape(element: Element, what: str, leaves: Sequence[tuple[str, Any]]) -> tuple[int, ...]:
    """[row, *batch]"""
    first: tuple[int, ...] | None = None
    for (name, leaf), shape in zip(leaves, element.leaf_shapes):
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
                f"the leaves of {what} have different lengths or batch axes: {leaves[0][0]} is {first}, "
                f"{name} is {found[:split]}" + (f" before the axes of its element {shape}" if shape else ""),
                hint="every leaf has one entry per element; use `broadcast_to` for a leaf that they share",
            )
    assert first is not None
    return first


def checked_dtype(library: ModuleType, what: str, leaf: Any) -> str:
    """The name of a leaf's type. Raises TypeMismatchError for one that folds do not take."""
    name = library.dtype_name(leaf)
    if name not in KERNEL_DTYPES:
        raise TypeMismatchError(
            f"{what} has dtype {name}", hint="folds take bool, integers, and floats of 16, 32 or 64 bits"
        )
    return name


def checked_offsets(library: ModuleType, offsets: Any, rows: int) -> Any:
    """Offsets as integers of a library. Raises LayoutError for those that do not fit this number of rows."""
    integers = library.as_integers(offsets, "offsets")
    library.check_offsets(integers, rows)
    return integers


class _Known:
    """What an operator that is alive has: the same call again has the same fold, which knows itself.

    element  how its elements are nested
    folds    by kind, options and types
    calls    by types and shapes too, of calls that are in order
    """

    __slots__ = ("calls", "element", "folds")

    def __init__(self, operator: AnyOperator):
        self.element = _element_of(operator)
        self.folds: dict[tuple, Fold] = {}
        self.calls: dict[tuple, Fold] = {}


# By the identity of operators, and by the names of those that have one.
_known_operators: dict[int, tuple[weakref.ref, _Known]] = {}
_known_names: dict[str, _Known] = {}
_CALLS = 64


def _known(operator: Any) -> _Known:
    if type(operator) is str:
        found = _known_names.get(operator)
        if found is None and operator in NAMED:
            found = _known_names[operator] = _known(NAMED[operator])
        ring = None if found is not None else semiring_of(operator)
        return found or (_Known(operator) if ring is None else _known(ring))
    entry = _known_operators.get(id(operator))
    if entry is not None and entry[0]() is operator:
        return entry[1]
    known = _Known(operator)
    if isinstance(operator, Monoid | Semiring):
        number = id(operator)
        _known_operators[number] = weakref.ref(operator, lambda _: _known_operators.pop(number, None)), known
    return known


def _typed_operator(
    library: ModuleType, operator: AnyOperator, first: Group, *others: Group
) -> tuple[TypedMonoid, list[Any]]:
    """The operator for the types of the leaves, and the tensors that it holds.

    Raises TypeMismatchError for types that have no kernels or that differ between the elements, UnsupportedError
    for types that the operator does not take.
    """
    dtypes, (what, leaves) = [], first
    for k, (_, leaf) in enumerate(leaves):
        name = checked_dtype(library, what, leaf)
        for other, theirs in others:
            found = library.dtype_name(theirs[k][1])
            if found != name:
                where = "" if len(leaves) == 1 else f"leaf {k} of "
                raise TypeMismatchError(
                    f"{where}{what} is {name}, {where}{other} {found}",
                    hint=f"convert one of them: the result has the type of {what}",
                )
        dtypes.append(KERNEL_DTYPES[name])
    for dtype in dtypes:
        resolved = resolve(operator, dtype)
    return resolved.with_parameters(dtypes)
