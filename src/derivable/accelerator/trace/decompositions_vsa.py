"""Operations of `derivable.vsa` by what the records of their models do; `decompositions` says how rows are called.

Block codes, HRR and MAP have operators, which `translate_vsa` names. Phases are complex, and no operator has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from derivable import vsa
from derivable.accelerator.trace.decompositions import DECOMPOSITIONS, Refused
from derivable.vsa import models
from derivable.vsa.operations import products

_CONVOLVED = ("block", "hrr")
_WITH_OPERATORS = (*_CONVOLVED, "map")


def _row(operation: Callable) -> Callable:
    """Enter a function of the record of a model and the other arguments of an operation."""

    def enter(function: Callable) -> Callable:
        def decomposed(*args: Any, model: Any = "block", **kwargs: Any) -> Any:
            return function(models.get(model), *args, **kwargs)

        DECOMPOSITIONS[operation] = decomposed
        return function

    return enter


def _reordered(a: Any, function: Callable) -> Any:
    """The entries of the last axis in the order that a function of torch gives them."""
    places = torch.arange(a.shape[-1])
    order = function(places)
    return a if torch.equal(order, places) else a.index_select(-1, order)


@_row(vsa.bind)
def _bind(record: Any, a: Any, b: Any) -> Any:
    return record.bind(a, b)


@_row(vsa.unbind)
def _unbind(record: Any, c: Any, a: Any) -> Any:
    return record.bind(c, record.inverse(a)) if record.unbind is None else record.unbind(c, a)


@_row(vsa.inverse)
def _inverse(record: Any, a: Any) -> Any:
    return _reordered(a, record.inverse) if record.name in _CONVOLVED else record.inverse(a)


@_row(vsa.permute)
def _permute(record: Any, a: Any, shift: int = 1) -> Any:
    if record.name in _WITH_OPERATORS:
        return _reordered(a, lambda places: record.permute(places, shift))
    return record.permute(a, shift)


@_row(vsa.bundle)
def _bundle(record: Any, *items: Any, weights: Any = None) -> Any:
    if len(items) > 1:
        stacked = torch.stack(torch.broadcast_tensors(*items), -record.rank - 1)
        return vsa.bundle(stacked, weights=weights, model=record.name)
    is_operator = weights is not None and record.name in _WITH_OPERATORS
    return NotImplemented if is_operator else record.bundle(*items, weights)


@_row(vsa.normalise)
def _normalise(record: Any, a: Any) -> Any:
    return NotImplemented if record.name in _CONVOLVED else record.normalise(a)


@_row(vsa.similarity)
def _similarity(record: Any, a: Any, b: Any) -> Any:
    if record.name in _WITH_OPERATORS:
        return NotImplemented
    return (record.features(a) * record.features(b)).sum(-1)


@_row(vsa.similarities)
def _similarities(record: Any, queries: Any, codebook: Any) -> Any:
    if record.name in _WITH_OPERATORS:
        return NotImplemented
    return products(record.features(queries), record.features(codebook))


@_row(vsa.cleanup)
def _cleanup(record: Any, queries: Any, codebook: Any, *, temperature: Any = None) -> Any:
    found = vsa.similarities(queries, codebook, model=record.name)
    if temperature is None:
        places = found.argmax(-1)
        # `codebook[places]` would take a tensor of the trace for a sequence.
        return type(places).__torch_function__(Tensor.__getitem__, (), (codebook, places))
    return vsa.bundle(codebook, weights=torch.softmax(found / temperature, -1), model=record.name)


@_row(vsa.sequence)
def _sequence(record: Any, items: Any) -> Any:
    axis = -record.rank - 1
    permuted = [vsa.permute(item, place, model=record.name) for place, item in enumerate(items.unbind(axis))]
    if record.name in _WITH_OPERATORS:
        return functools.reduce(torch.add, permuted)
    return record.bundle(torch.stack(permuted, axis), None)


@_row(vsa.ngrams)
def _ngrams(record: Any, items: Any, n: int = 3) -> Any:
    axis = -record.rank - 1
    count = items.shape[axis] - n + 1
    run = items.narrow(axis, n - 1, count)
    for back in range(1, n):
        earlier = vsa.permute(items.narrow(axis, n - 1 - back, count), back, model=record.name)
        run = vsa.bind(earlier, run, model=record.name)
    return record.bundle(run, None)


@_row(vsa.power)
def _power(record: Any, a: Any, exponent: Any) -> Any:
    raise Refused(
        "power takes every frequency to a power, which no operator does",
        hint="take powers of constants when the model is made, and read them as a codebook; or bind repeatedly",
    )


def _vector_to_mass(vector: Any, codebook: Any, *, temperature: Any = None) -> Any:
    if temperature is None:
        return NotImplemented
    return torch.softmax(vsa.match_probabilities(vector, codebook) / temperature, -1)


DECOMPOSITIONS |= {
    vsa.record: lambda roles, fillers, *, model="block": vsa.bundle(vsa.bind(roles, fillers, model=model), model=model),
    vsa.element: lambda sequence, place, *, model="block": vsa.permute(sequence, -place, model=model),
    vsa.push: lambda stack, item, *, model="block": vsa.permute(stack, 1, model=model) + item,
    vsa.pop: lambda stack, top, *, model="block": vsa.permute(stack - top, -1, model=model),
    vsa.mass_to_vector: lambda mass, codebook: vsa.bundle(codebook, weights=mass),
    vsa.vector_to_mass: _vector_to_mass,
}
