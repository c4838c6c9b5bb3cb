"""Provenances that are Python classes: tags are any objects, and a run calls the class's methods on them."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError, DomainError, UnsupportedError
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags

NEEDED = ("zero", "one", "add", "mult")
# The numbers of the tags of what does not hold, and of what is certain.
_GONE, _ONE = 0, 1


def _lacks(instance: Any, name: str) -> DomainError:
    """The error of a class that leaves out a method that it needs."""
    return DomainError(
        f"the provenance {type(instance).__name__} has no `{name}`", hint=f"it needs {', '.join(NEEDED)}"
    )


class Provenance:
    """A user-defined provenance, as Scallop's users write it: `provenance=Mine()` in a run or a layer.

    `zero`, `one`, `add` and `mult` are needed. A class need not derive from this one; a method that it lacks is the one
    here. Tags may be any objects, torch scalars with gradients among them. A semiring whose plus and times are formulas
    is rather a `Semiring`, which is compiled.

    columns  whether the methods take columns of tags, arrays or tensors [row], and return such: one call for all rows
             instead of one for each. `one` and `zero` return a scalar

    A class may define `aggregate_count`, `aggregate_exists` and `aggregate_unique` as well. They take the list of the
    pairs (tag, tuple) of a group, and return such a list: of (tag, count), of (tag, whether there is one), or of some
    of the pairs. Without them these aggregates go through the worlds of the rows, with `mult` and `negate`.
    `fact(tag, variable)` stands in for `tagging_fn` where the tag of a fact depends on its number, from 0.
    `collate`, if there is one, makes the result of a layer of the tags [batch][output], None where a tuple is not
    derived.
    """

    columns = False

    def zero(self) -> Any:
        """The tag of what does not hold, neutral for `add`."""
        raise _lacks(self, "zero")

    def one(self) -> Any:
        """The tag of what is certain, neutral for `mult`."""
        raise _lacks(self, "one")

    def add(self, a: Any, b: Any) -> Any:
        """The tag of a tuple with these two derivations."""
        raise _lacks(self, "add")

    def mult(self, a: Any, b: Any) -> Any:
        """The tag of a derivation from two tuples."""
        raise _lacks(self, "mult")

    def negate(self, tag: Any) -> Any:
        """The tag of a negated tuple; None drops what needs it. Raises UnsupportedError where a class does not say."""
        raise UnsupportedError(
            f"the provenance {type(self).__name__} does not say what the tag of a negated tuple is",
            hint="define `negate(self, tag)`; if it returns None, the negation of a tuple that is there does not hold",
        )

    def saturated(self, old: Any, new: Any) -> Any:
        """Whether a tuple whose tag has become another one is not propagated again: if the tags are equal."""
        return old == new

    def discard(self, tag: Any) -> Any:
        """Whether a tuple of this tag is dropped: none is."""
        return np.zeros(len(tag), bool) if _has_columns(self) else False

    def tagging_fn(self, tag: Any) -> Any:
        """The tag of a fact that is passed with this one: the same. Facts without a tag have `one`."""
        return tag

    def recover_fn(self, tag: Any) -> Any:
        """What users see of a tag: the tag."""
        return tag

    def weight(self, tag: Any) -> Any:
        """How much a tuple counts for aggregates such as `top`: each the same."""
        return np.ones(len(tag)) if _has_columns(self) else 1.0


class ShortestProof(Provenance):
    """realtropicalproofs: the length of the shortest derivation, and the set of the random facts that it uses."""

    def zero(self) -> Any:
        return math.inf, frozenset()

    def one(self) -> Any:
        return 0.0, frozenset()

    def add(self, a: Any, b: Any) -> Any:
        return a if a[0] < b[0] else b

    def mult(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] | b[1]

    def negate(self, tag: Any) -> Any:
        return None

    def saturated(self, old: Any, new: Any) -> bool:
        return old[0] == new[0]

    def discard(self, tag: Any) -> bool:
        return math.isinf(tag[0])

    def fact(self, tag: Any, variable: int) -> Any:
        return float(tag), frozenset([variable])

    def weight(self, tag: Any) -> float:
        return math.exp(-tag[0])


def _has_columns(instance: Any) -> bool:
    return bool(getattr(instance, "columns", False))


def has_methods(candidate: Any) -> bool:
    """Whether an object, or a class, has the methods of a provenance."""
    return all(callable(getattr(candidate, name, None)) for name in NEEDED)


def check_methods(candidate: Any) -> None:
    """Raise DomainError for a class that leaves out a method that it needs."""
    for name in NEEDED:
        if getattr(type(candidate), name, None) is getattr(Provenance, name):
            raise _lacks(candidate, name)


class _Objects:
    """Tags as a list of objects."""

    def __init__(self, one: Any):
        self.values = [one, one]

    def fork(self) -> _Objects:
        made = copy.copy(self)
        made.values = [*self.values]
        return made

    def called(self, function: Callable, *columns: np.ndarray) -> list[Any]:
        """What the function returns for each row of columns of numbers of tags."""
        values = self.values
        return [function(*[values[i] for i in row]) for row in zip(*[column.tolist() for column in columns])]

    def mapped(self, function: Callable, tags: list[Any]) -> list[Any]:
        return [function(tag) for tag in tags]

    def add(self, results: list[Any], count: int) -> np.ndarray:
        """The numbers of new tags; None is no tag."""
        numbers = np.full(count, _GONE)
        some = [i for i, tag in enumerate(results) if tag is not None]
        numbers[some] = np.arange(len(self.values), len(self.values) + len(some))
        self.values += [results[i] for i in some]
        return numbers

    def shown(self, results: list[Any], count: int) -> np.ndarray:
        values = np.empty(count, object)
        for row, tag in enumerate(results):
            values[row] = tag
        return values


class _Arrays:
    """Tags as one array or tensor."""

    def __init__(self, one: Any):
        self.values: Any = np.array([one, one]) if not _is_tensor(one) else one.expand(2)

    def fork(self) -> _Arrays:
        return copy.copy(self)

    def called(self, function: Callable, *columns: np.ndarray) -> Any:
        return function(*map(self._taken, columns))

    def mapped(self, function: Callable, tags: list[Any]) -> Any:
        return function(sys.modules["torch"].stack(tags) if tags and _is_tensor(tags[0]) else np.array(tags))

    def _taken(self, numbers: np.ndarray) -> Any:
        return self.values[sys.modules["torch"].as_tensor(numbers) if _is_tensor(self.values) else numbers]

    def add(self, results: Any, count: int) -> np.ndarray:
        if results is None:
            return np.full(count, _GONE)
        start = len(self.values)
        if _is_tensor(results) or _is_tensor(self.values):
            torch = sys.modules["torch"]
            results = torch.as_tensor(results)
            known = torch.as_tensor(self.values, dtype=None if _is_tensor(self.values) else results.dtype)
            self.values = torch.cat([known, results.expand(count, *known.shape[1:])])
        else:
            self.values = np.concatenate([self.values, np.broadcast_to(results, (count, *self.values.shape[1:]))])
        return np.arange(start, start + count)

    def shown(self, results: Any, count: int) -> np.ndarray:
        if isinstance(results, np.ndarray) and results.ndim == 1:
            return results
        return _Objects(None).shown(list(results), count)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class CustomTags(ColumnTags):
    """Tag columns of int64 numbers of tags of a class."""

    sums_distribute = False

    def __init__(self, instance: Any, facts: RandomFacts):
        super().__init__(np.int64, _GONE, _ONE)
        self.instance, self.facts = instance, facts
        self.tags: _Objects | _Arrays = (_Arrays if _has_columns(instance) else _Objects)(self.method("one")())
        self.of_facts: dict[int, int] = {}

    def copy(self, facts: RandomFacts) -> CustomTags:
        made = copy.copy(self)
        made.facts, made.tags, made.of_facts = facts, self.tags.fork(), dict(self.of_facts)
        return made

    def method(self, name: str) -> Callable:
        """A method of the class, or the one that it has for want of it; its errors say whose they are."""
        function = getattr(self.instance, name, None) or partial(getattr(Provenance, name), self.instance)

        def called(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except DerivableError:
                raise
            except Exception as error:
                shown = ", ".join(map(repr, arguments))
                what = f"`{name}` of the provenance {type(self.instance).__name__}"
                raise DomainError(f"{what} fails on ({shown[:200]}) with {type(error).__name__}: {error}") from error

        return called

    def _joined(self, name: str, neutral: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """`add` or `mult` where no operand is neutral, once for equal pairs."""
        joined = np.where(a == neutral, b, a)
        rows = np.flatnonzero((a != neutral) & (b != neutral))
        pairs, where = np.unique(np.stack([a[rows], b[rows]]), axis=1, return_inverse=True)
        if pairs.shape[1]:
            new = self.tags.add(self.tags.called(self.method(name), *pairs), pairs.shape[1])
            joined[rows] = new[where.reshape(-1)]
        return joined

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._joined("add", _GONE, a, b)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        gone = (a == _GONE) | (b == _GONE)
        return np.where(gone, _GONE, self._joined("mult", _ONE, np.where(gone, _ONE, a), np.where(gone, _ONE, b)))

    def negate(self, a: np.ndarray) -> np.ndarray:
        negated = np.full(len(a), _ONE)
        rows = np.flatnonzero(a != _GONE)
        numbers, where = np.unique(a[rows], return_inverse=True)
        if len(numbers):
            negated[rows] = self.tags.add(self.tags.called(self.method("negate"), numbers), len(numbers))[where]
        return negated

    def _mask(self, name: str, *columns: np.ndarray) -> np.ndarray:
        mask = self.tags.called(self.method(name), *columns) if len(columns[0]) else np.empty(0, bool)
        return np.asarray([bool(x) for x in mask] if isinstance(mask, list) else mask, bool)

    def saturated(self, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        is_saturated, rows = old == new, np.flatnonzero((old != new) & (old != _GONE) & (new != _GONE))
        is_saturated[rows] = self._mask("saturated", old[rows], new[rows])
        return is_saturated

    def is_zero(self, a: np.ndarray) -> np.ndarray:
        is_zero, rows = a == _GONE, np.flatnonzero(a != _GONE)
        is_zero[rows] = self._mask("discard", a[rows])
        return is_zero

    def fact_tags(self, variables: np.ndarray) -> np.ndarray:
        numbers, objects = self.facts.probabilities, self.facts.objects
        new = [v for v in dict.fromkeys(variables.tolist()) if v not in self.of_facts]
        if new:
            tags = [objects.get(v, numbers[v]) for v in new]
            if getattr(self.instance, "fact", None) is None:
                made = self.tags.mapped(self.method("tagging_fn"), tags)
            else:
                fact = self.method("fact")
                made = [fact(tag, variable) for tag, variable in zip(tags, new)]
            self.of_facts.update(zip(new, self.tags.add(made, len(new)).tolist()))
        return np.array([self.of_facts[v] for v in variables.tolist()], np.int64)

    def recovered(self, tags: np.ndarray) -> Any:
        """What users see of tags [row], in a list or an array."""
        return self.tags.called(self.method("recover_fn"), tags)

    def show(self, tags: np.ndarray) -> np.ndarray:
        return self.tags.shown(self.recovered(tags), len(tags))

    def weights(self, tags: np.ndarray) -> np.ndarray:
        return np.array([float(x) for x in self.tags.called(self.method("weight"), tags)], np.float64)

    def aggregate(self, operator: str) -> Callable[[Sequence[tuple[int, Any]]], list[tuple[int, Any]]] | None:
        """What the class does with the rows of a group, pairs (number of a tag, tuple), instead of an aggregate."""
        name = f"aggregate_{operator}"
        if getattr(self.instance, name, None) is None:
            return None

        def called(rows: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
            results = list(self.method(name)([(self.tags.values[tag], values) for tag, values in rows]))
            numbers = [self.tags.add([tag] if isinstance(self.tags, _Objects) else tag, 1) for tag, _ in results]
            return [(int(number[0]), values) for number, (_, values) in zip(numbers, results)]

        return called
