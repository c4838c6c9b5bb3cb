"""What the operations of `derivable.vsa` are in the operator graph, for models that are made of real numbers.

Block codes and HRR bind by circular convolution, MAP by multiplication. Phases are complex and bits are no numbers:
no operator has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from derivable import vsa
from derivable.accelerator.operators.kinds import broadcast, size
from derivable.accelerator.trace import translate_views as views
from derivable.accelerator.trace.translate import Ref, Refused, Translation, divide
from derivable.vsa import models

ROWS: dict[Callable, Callable[..., Any]] = {}
_CONVOLVED, _MULTIPLIED = ("block", "hrr"), ("map",)


def _rank(model: Any) -> int:
    """How many axes a vector has. Raises Refused for models that no operator has."""
    record = models.get(model)
    if record.name not in (*_CONVOLVED, *_MULTIPLIED):
        raise Refused(
            f"the vector-symbolic model {record.name!r} has no operators",
            hint=f"models with operators: {', '.join((*_CONVOLVED, *_MULTIPLIED))}",
        )
    return record.rank


def _is_convolved(model: Any) -> bool:
    _rank(model)
    return models.get(model).name in _CONVOLVED


def row(operation: Callable) -> Callable:
    """Enter a function for an operation of `derivable.vsa`."""

    def enter(function: Callable) -> Callable:
        ROWS[operation] = function
        return function

    return enter


@row(vsa.bind)
def _bind(g: Translation, a: Ref, b: Ref, *, model: Any = "block") -> Ref:
    return g.add("bind" if _is_convolved(model) else "mul", a, b)


@row(vsa.unbind)
def _unbind(g: Translation, c: Ref, a: Ref, *, model: Any = "block") -> Ref:
    return g.add("unbind" if _is_convolved(model) else "mul", c, a)


@row(vsa.convolve)
def _convolve(g: Translation, a: Ref, b: Ref, *, path: str | None = None) -> Ref:
    return g.add("bind", a, b)


@row(vsa.correlate)
def _correlate(g: Translation, c: Ref, a: Ref, *, path: str | None = None) -> Ref:
    return g.add("unbind", c, a)


def _reordered(g: Translation, a: Ref, function: Any) -> Ref:
    """The entries of the last axis in the order that a function of torch gives them."""
    axis = g.rank(a) - 1
    places = tuple(function(torch.arange(g.shape(a)[axis])).tolist())
    return a if list(places) == sorted(places) else g.add("index", a, axis=axis, places=places)


@row(vsa.inverse)
def _inverse(g: Translation, a: Ref, *, model: Any = "block") -> Ref:
    return _reordered(g, a, models.get(model).inverse) if _is_convolved(model) else a


@row(vsa.permute)
def _permute(g: Translation, a: Ref, shift: int = 1, *, model: Any = "block") -> Ref:
    _rank(model)
    return _reordered(g, a, lambda places: models.get(model).permute(places, shift))


@row(vsa.bundle)
def _bundle(g: Translation, *items: Ref, weights: Any = None, model: Any = "block") -> Ref:
    rank = _rank(model)
    stacked = items[0]
    if len(items) > 1:
        shape = broadcast(*(g.shape(item) for item in items))
        stacked = views.stack(g, [views.expand(g, item, shape) for item in items], -rank - 1)
    if weights is not None:
        return g.add("bundle", stacked, weights, rank=rank)
    return g.add("sum", stacked, axes=(g.rank(stacked) - rank - 1,))


@row(vsa.normalise)
def _normalise(g: Translation, a: Ref, *, model: Any = "block") -> Ref:
    if not _is_convolved(model):
        raise Refused("normalise takes signs, which no operator does", hint="take block codes or HRR")
    return g.add("normalise", a, rank=1)


@row(vsa.similarity)
def _similarity(g: Translation, a: Ref, b: Ref, *, model: Any = "block") -> Ref:
    rank = _rank(model)
    product = g.add("mul", g.add("normalise", a, rank=rank), g.add("normalise", b, rank=rank))
    axes = range(g.rank(product) - rank, g.rank(product))
    return g.add("sum", product, axes=tuple(axes))


@row(vsa.similarities)
def _similarities(g: Translation, queries: Ref, codebook: Ref, *, model: Any = "block") -> Ref:
    rank = _rank(model)

    def direction(x: Ref) -> Ref:
        shape = g.shape(x)
        return g.reshape(g.add("normalise", x, rank=rank), (*shape[:-rank], 1, size(shape[-rank:])))

    return g.add("match_probabilities", direction(queries), direction(codebook))


@row(vsa.cleanup)
def _cleanup(g: Translation, queries: Ref, codebook: Ref, *, temperature: Any = None, model: Any = "block") -> Ref:
    found = _similarities(g, queries, codebook, model=model)
    if temperature is None:
        return g.add("take", codebook, g.add("argmax", found, axis=g.rank(found) - 1))
    return g.add("bundle", codebook, _chosen(g, found, temperature), rank=_rank(model))


def _chosen(g: Translation, found: Ref, temperature: Any) -> Ref:
    return g.add("softmax", divide(g, found, temperature), axis=g.rank(found) - 1)


@row(vsa.match_probability)
def _match_probability(g: Translation, a: Ref, b: Ref) -> Ref:
    return g.add("match_probability", a, b)


@row(vsa.match_probabilities)
def _match_probabilities(g: Translation, queries: Ref, codebook: Ref) -> Ref:
    return g.add("match_probabilities", queries, codebook)


@row(vsa.mass_to_vector)
def _mass_to_vector(g: Translation, mass: Ref, codebook: Ref) -> Ref:
    return g.add("bundle", codebook, mass, rank=2)


@row(vsa.vector_to_mass)
def _vector_to_mass(g: Translation, vector: Ref, codebook: Ref, *, temperature: Any = None) -> Ref:
    found = g.add("match_probabilities", vector, codebook)
    return g.add("to_mass", found) if temperature is None else _chosen(g, found, temperature)


def _total(g: Translation, terms: Sequence[Ref]) -> Ref:
    found = terms[0]
    for term in terms[1:]:
        found = g.add("add", found, term)
    return found


def _items(g: Translation, items: Ref, rank: int) -> Sequence[Ref]:
    return views.unbind(g, items, g.rank(items) - rank - 1)


@row(vsa.sequence)
def _sequence(g: Translation, items: Ref, *, model: Any = "block") -> Ref:
    parts = _items(g, items, _rank(model))
    return _total(g, [_permute(g, item, place, model=model) for place, item in enumerate(parts)])


@row(vsa.element)
def _element(g: Translation, sequence: Ref, place: int, *, model: Any = "block") -> Ref:
    return _permute(g, sequence, -place, model=model)


@row(vsa.ngrams)
def _ngrams(g: Translation, items: Ref, n: int = 3, *, model: Any = "block") -> Ref:
    axis = g.rank(items) - _rank(model) - 1
    count = g.shape(items)[axis] - n + 1
    run = g.cut(items, axis, n - 1, count)
    for back in range(1, n):
        earlier = g.cut(items, axis, n - 1 - back, count)
        run = _bind(g, _permute(g, earlier, back, model=model), run, model=model)
    return _bundle(g, run, model=model)


@row(vsa.record)
def _record(g: Translation, roles: Ref, fillers: Ref, *, model: Any = "block") -> Ref:
    return _bundle(g, _bind(g, roles, fillers, model=model), model=model)


@row(vsa.push)
def _push(g: Translation, stack: Ref, item: Ref, *, model: Any = "block") -> Ref:
    return g.add("add", _permute(g, stack, 1, model=model), item)


@row(vsa.pop)
def _pop(g: Translation, stack: Ref, top: Ref, *, model: Any = "block") -> Ref:
    return _permute(g, g.add("sub", stack, top), -1, model=model)


@row(vsa.power)
def _power(g: Translation, a: Ref, exponent: Any, *, model: Any = "block") -> Ref:
    raise Refused(
        "power takes every frequency to a power, which no operator does",
        hint="take powers of constants when the model is made, and read them as a codebook; or bind repeatedly",
    )
