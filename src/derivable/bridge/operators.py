"""Engines as operators of torch's dispatcher, for everything that does not call them at once with tensors of numbers.

    derivable::apply  the results of an engine; the adjoint is `pull`, the tangent `apply` of the engine of dual numbers
    derivable::pull   its vjp; the adjoint and the tangent are `apply` and `pull` of dual numbers (see `protocol`)
    derivable::product  a sum of products, of which all derivatives are such sums (see `torch_products`)

As the rules of both are these two again, torch.func's transformations nest to any depth, inside compiled graphs too.
Whatever makes graphs (`torch.compile`, `torch.export`, `torch.jit.trace`, `make_fx`) records one node. In eager mode
`bridge.torch` calls engines itself: the dispatcher of custom operators costs more than a small circuit.

Operators take tensors and numbers, so an engine is named by a number that follows from what it computes: a graph that
is read from a file runs where the same engine has been made.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from derivable.bridge import numpy as numpy_arrays
from derivable.bridge import torch as tensors
from derivable.bridge import torch_products as products
from derivable.bridge.products import AllAxes, shape_of
from derivable.bridge.protocol import Engine, live_engines
from derivable.bridge.torch_parts import below_autograd, each_legacy_copy, is_legacy_copies, one_level
from derivable.core.diagnostics import UnsupportedError

_Tensors = list[torch.Tensor]
_library = torch.library.Library("derivable", "FRAGMENT")
_register_fake: Any = torch.library.register_fake
_register_vmap: Any = torch.library.register_vmap
_TAGS = (torch.Tag.pt2_compliant_tag,)
_library.define("apply(Tensor[] operands, Tensor? structure, int number, bool keep=False) -> Tensor[]", tags=_TAGS)
_library.define(
    "pull(Tensor?[] adjoints, Tensor[] operands, Tensor[] made, Tensor? structure, int number) -> Tensor[]", tags=_TAGS
)
_library.define("product(Tensor[] operands, int[] axes, int[] orders) -> Tensor", tags=_TAGS)

# Those that are in graphs: nobody knows how long a graph lives.
_recorded: dict[int, Engine] = {}
_numbered: weakref.WeakValueDictionary[int, Engine] = weakref.WeakValueDictionary()


def apply(
    engine: Engine | int, structure: torch.Tensor | None, operands: Sequence[torch.Tensor], keep: bool = False
) -> _Tensors:
    """The results, and if `keep`, what they leave for `pull`: arrays that count as constants.

    engine  or the number that `recorded` gave: code that `torch.compile` reads has no objects that it has made itself
    """
    number = _number(engine)

    def called(*operands: torch.Tensor) -> _Tensors:
        return torch.ops.derivable.apply(list(operands), structure, number, keep)

    return _each_copy(called, operands)


def pull(
    engine: Engine,
    structure: torch.Tensor | None,
    seeds: Sequence[torch.Tensor | None],
    operands: Sequence[torch.Tensor],
    made: Sequence[torch.Tensor],
) -> _Tensors:
    """Adjoints [float operand] from those of the results [float result].

    made  the results, and what was kept beside them, to save computing them: the derivatives take them as functions of
          the operands
    """
    number, first, last = _number(engine), len(seeds), len(seeds) + len(operands)

    def called(*given: torch.Tensor | None) -> _Tensors:
        parts = map(list, (given[:first], given[first:last], given[last:]))
        return torch.ops.derivable.pull(*parts, structure, number)

    return _each_copy(called, (*seeds, *operands, *made))


def _number(engine: Engine | int) -> int:
    if isinstance(engine, int):
        return engine
    if tensors.is_captured():
        return recorded(engine)
    _numbered[engine.number] = engine
    return engine.number


@torch.compiler.assume_constant_result
def recorded(engine: Engine) -> int:
    """The number by which a graph calls an engine, which then lives as long as the process."""
    _recorded.setdefault(engine.number, engine)
    return engine.number


def engine_of(number: int) -> Engine:
    """The engine with a number. Raises UnsupportedError if this process has made none."""
    found = _recorded.get(number) or _numbered.get(number)
    if found is None:
        found = next((engine for engine in live_engines() if engine.number == number), None)
        if found is None:
            raise UnsupportedError(
                "a graph calls a fold, a circuit or a tensor program that this process has not made",
                hint="a file of a graph holds its name only: make the module that was exported or traced, call it "
                "once, and keep it, before the graph is called",
            )
        _numbered[number] = found
    return found


# The computations, and the shapes of what they give.


def _apply(operands: _Tensors, structure: torch.Tensor | None, number: int, keep: bool = False) -> _Tensors:
    found, kept = tensors.applied(engine_of(number), structure, operands, keep)
    return [tensor.contiguous() for tensor in (*found, *kept)]


def _pull(
    adjoints: list[torch.Tensor | None], operands: _Tensors, made: _Tensors, structure: Any, number: int
) -> _Tensors:
    return [x.contiguous() for x in tensors.pulled(engine_of(number), structure, adjoints, operands, made)]


_library.impl("apply", _apply, "CompositeExplicitAutograd")
_library.impl("pull", _pull, "CompositeExplicitAutograd")


@_register_fake("derivable::apply", lib=_library)
def _(operands, structure, number, keep=False):
    engine = engine_of(number)
    shapes = engine.result_shapes(
        None if structure is None else tuple(structure.shape), [tuple(x.shape) for x in operands]
    )
    dtypes = engine.result_dtypes([x.dtype for x in operands])
    return [operands[0].new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes)]


@_register_fake("derivable::pull", lib=_library)
def _(adjoints, operands, made, structure, number):
    return [operands[k].new_empty(operands[k].shape) for k in engine_of(number).float_operands]


# Reverse and forward mode: autograd functions below the dispatcher, of one level of torch.func's transformations each.


class _Level(torch.autograd.Function):
    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        # What torch does before it asks for a function of all levels at once, which the dispatcher has taken apart.
        with one_level():
            return super(torch.autograd.Function, cls).apply(*arguments)  # type: ignore[misc]


class _Apply(_Level):
    @staticmethod
    def forward(ctx, keyset, engine: Engine, keep: bool, structure, *operands):
        # How much is kept may depend on the numbers, which a graph does not have.
        keep = keep or (any(ctx.needs_input_grad[4:]) and not tensors.is_captured())
        made = below_autograd(torch.ops.derivable.apply, keyset, list(operands), structure, engine.number, keep)
        ctx.engine, ctx.outputs = engine, len(made)
        results, kept = made[: engine.num_results], made[engine.num_results :]
        tensors.prepare(ctx, engine, structure, operands, results, kept)
        ctx.save_for_forward(structure, *operands)
        return tuple(made)

    @staticmethod
    def backward(ctx, *adjoints):
        found = tensors.backward(ctx.engine, ctx.saved_tensors, adjoints, ctx.needs_input_grad[4:])
        return None, None, None, None, *found

    @staticmethod
    def jvp(ctx, _keyset, _engine, _keep, _structure, *tangents):
        engine = ctx.engine
        structure, operands, _ = tensors.saved(engine, ctx.saved_tensors)
        by_leaf: dict[int, torch.Tensor] = {}
        if engine.float_operands:
            floats = [operands[k] for k in engine.float_operands]
            along = _zeros_for_none([tangents[k] for k in engine.float_operands], floats)
            found = engine.tangents_of(apply(engine.dual, structure, engine.dual_operands(operands, along)))
            by_leaf = dict(zip(engine.float_results, found))
        return tuple(by_leaf.get(output) for output in range(ctx.outputs))


class _Pull(_Level):
    @staticmethod
    def forward(ctx, keyset, engine: Engine, structure, made: _Tensors, *given):
        seeds, operands = given[: len(engine.float_results)], given[len(engine.float_results) :]
        found = below_autograd(
            torch.ops.derivable.pull, keyset, list(seeds), list(operands), made, structure, engine.number
        )
        ctx.engine = engine
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(structure, *given)
        ctx.save_for_forward(structure, *given)
        return tuple(found)

    @staticmethod
    def backward(ctx, *cotangents):
        structure, seeds, operands = _seeds_and_operands(ctx)
        engine, dual = ctx.engine, ctx.engine.dual
        along = _zeros_for_none(cotangents, [operands[k] for k in engine.float_operands])
        duals = engine.dual_operands(operands, along)
        made = apply(dual, structure, duals, _keeps())
        adjoints = engine.dual_adjoints([None] * len(seeds), seeds)
        by_operand = engine.primal_adjoints(pull(dual, structure, adjoints, duals, made))
        by_seed = engine.tangents_of(made[: dual.num_results])
        gradients: list[torch.Tensor | None] = [None] * len(operands)
        for operand, adjoint in zip(engine.float_operands, by_operand):
            gradients[operand] = adjoint
        by_seed = [None if seed is None else adjoint for seed, adjoint in zip(seeds, by_seed)]
        return None, None, None, None, *by_seed, *gradients

    @staticmethod
    def jvp(ctx, _keyset, _engine, _structure, _made, *tangents):
        structure, seeds, operands = _seeds_and_operands(ctx)
        engine, dual = ctx.engine, ctx.engine.dual
        seed_tangents, operand_tangents = tangents[: len(seeds)], tangents[len(seeds) :]
        floats = engine.float_operands
        along = _zeros_for_none([operand_tangents[k] for k in floats], [operands[k] for k in floats])
        duals = engine.dual_operands(operands, along)
        made = apply(dual, structure, duals, _keeps())
        adjoints = engine.dual_adjoints(seed_tangents, seeds)
        return tuple(engine.primal_adjoints(pull(dual, structure, adjoints, duals, made)))


def _keeps() -> bool:
    return not tensors.is_captured()


def _seeds_and_operands(ctx) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    structure, *given = ctx.saved_tensors
    count = len(ctx.engine.float_results)
    return structure, given[:count], given[count:]


def _zeros_for_none(tangents: Sequence[torch.Tensor | None], like: Sequence[torch.Tensor]) -> _Tensors:
    return [torch.zeros_like(other) if t is None else t for t, other in zip(tangents, like, strict=True)]


def _differentiated_apply(keyset, operands, structure, number, keep=False):
    engine = engine_of(number)
    found = _Apply.apply(keyset, engine, keep, structure, *operands)
    return list(found if keep else found[: engine.num_results])


def _differentiated_pull(keyset, adjoints, operands, made, structure, number):
    return list(_Pull.apply(keyset, engine_of(number), structure, made, *adjoints, *operands))


_library.impl("apply", _differentiated_apply, "Autograd", with_keyset=True)
_library.impl("pull", _differentiated_pull, "Autograd", with_keyset=True)


class _Product(_Level):
    @staticmethod
    def forward(ctx, keyset, axes, *operands):
        ctx.axes = axes
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)
        return below_autograd(torch.ops.derivable.product, keyset, list(operands), *_flat(axes))

    @staticmethod
    def backward(ctx, *adjoints):
        return None, None, *products.adjoints_of(ctx.saved_tensors, ctx.axes, adjoints[0], ctx.needs_input_grad[2:])

    @staticmethod
    def jvp(ctx, _keyset, _axes, *tangents):
        return products.tangent_of(ctx.saved_tensors, ctx.axes, tangents)


def product(operands: Sequence[torch.Tensor], axes: AllAxes) -> torch.Tensor:
    """As `torch_products.product`."""

    def called(*operands: torch.Tensor) -> _Tensors:
        return [torch.ops.derivable.product(list(operands), *_flat(axes))]

    return _each_copy(called, operands)[0]


def _flat(axes: AllAxes) -> tuple[list[int], list[int]]:
    """(all axes, how many each operand and the result have)"""
    return [axis for of in axes for axis in of], [len(of) for of in axes]


def _axes(flat: Sequence[int], orders: Sequence[int]) -> AllAxes:
    left = iter(flat)
    return tuple([tuple(itertools.islice(left, order)) for order in orders])


def _computed_product(operands, flat, orders):
    return products.computed(operands, _axes(flat, orders)).contiguous()


def _differentiated_product(keyset, operands, flat, orders):
    return _Product.apply(keyset, _axes(flat, orders), *operands)


_library.impl("product", _computed_product, "CompositeExplicitAutograd")
_library.impl("product", _differentiated_product, "Autograd", with_keyset=True)


@_register_fake("derivable::product", lib=_library)
def _(operands, flat, orders):
    return operands[0].new_empty(shape_of([x.shape for x in operands], _axes(flat, orders)))


@_register_vmap("derivable::product", lib=_library)
def _(info, mapped, operands, flat, orders):
    return product(*products.mapped(mapped[0], _axes(flat, orders), operands)), 0


# vmap: that of torch.func, and the one that torch.autograd has for itself.


@_register_vmap("derivable::apply", lib=_library)
def _(info, axes, operands, structure, number, keep=False):
    def called(structure, operands):
        return torch.ops.derivable.apply(operands, structure, number, keep)

    return _mapped(info.batch_size, engine_of(number), called, (structure, axes[1]), (operands, axes[0]))


@_register_vmap("derivable::pull", lib=_library)
def _(info, axes, adjoints, operands, made, structure, number):
    def called(structure, operands, adjoints, made):
        return torch.ops.derivable.pull(adjoints, operands, made, structure, number)

    groups = (operands, axes[1]), (adjoints, axes[0]), (made, axes[2])
    return _mapped(info.batch_size, engine_of(number), called, (structure, axes[3]), *groups)


def _mapped(size: int, engine: Engine, function: Callable, structure: tuple, *groups: tuple) -> tuple[_Tensors, Any]:
    """Under vmap the mapped axis becomes the batch axis of the engine; under mapped indices or offsets, the rows of all
    copies one long array; without a batch axis, there is one call for each copy.

    structure, groups  each with its mapped axes, None if there is none; the operands come first
    """
    indices, indices_axis = structure
    groups = tuple((given, axes or [None] * len(given)) for given, axes in groups)
    at = engine.batch_axis
    if at is None:
        copies = [
            function(
                _at(indices, indices_axis, k),
                *([_at(x, axis, k) for x, axis in zip(given, axes)] for given, axes in groups),
            )
            for k in range(size)
        ]
        return [torch.stack(parts) for parts in zip(*copies)], [0] * len(copies[0])
    by_copy = indices_axis is not None

    def moved(tensor: torch.Tensor | None, axis: int | None) -> torch.Tensor | None:
        if tensor is None:
            return None
        copies = tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        return copies.flatten(0, 1) if by_copy else copies.movedim(0, at)

    whole: list[list[Any]] = [[moved(x, axis) for x, axis in zip(given, axes)] for given, axes in groups]
    if not by_copy:
        results = function(indices, *whole)
        return results, [at] * len(results)
    joined = _joined(engine, indices.movedim(indices_axis, 0), whole[0][0].shape[0] // size)
    results = function(joined, *whole)
    # Not -1 for the rows: there may be none.
    return [r.reshape(size, r.shape[0] // size, *r.shape[1:]) for r in results], [0] * len(results)


def _at(tensor: torch.Tensor | None, axis: int | None, copy: int) -> torch.Tensor | None:
    return tensor if tensor is None or axis is None else tensor.select(axis, copy)


def _joined(engine: Any, structures: torch.Tensor, rows: int) -> torch.Tensor:
    """Indices or offsets [copy, ...] of copies that are laid out one after the other.

    rows  of each copy: the buckets, or the elements that offsets cut
    """
    structures = structures.long()
    firsts = rows * torch.arange(structures.shape[0], device=structures.device)[:, None]
    if engine.kind == "reduce_by_index":
        inside = (structures >= 0) & (structures < rows)
        return torch.where(inside, structures + firsts, -1).flatten()
    try:
        copies = () if tensors.is_captured() else tensors.array_of(structures)
    except RuntimeError:
        copies = ()  # inside another transformation they hold no data yet
    for copy in copies:
        numpy_arrays.check_offsets(copy, rows)
    # What one copy leaves out at its ends would fall to its neighbours, so it is made to be refused.
    whole = (structures[:, :1] == 0) & (structures[:, -1:] == rows)
    starts = torch.where(whole, structures[:, :-1] + firsts, -1).flatten()
    return torch.cat([starts, starts.new_full((1,), rows * structures.shape[0])])


def _each_copy(function: Callable[..., _Tensors], given: Sequence[torch.Tensor | None]) -> _Tensors:
    """A function of tensors, also of those that stand for many by the vmap that torch.autograd has for itself, for
    which operators have no rules: by torch.vmap."""
    if tensors.is_captured() or not any(map(is_legacy_copies, given)):
        return function(*given)
    return each_legacy_copy(function, given)
