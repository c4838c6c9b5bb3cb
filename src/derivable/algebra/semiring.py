"""A semiring: two monoids on one element, with declared properties. A provenance of Datalog is a semiring too.

`typed` gives its form for one precision, a `TypedSemiring`: every operation as expressions, from which circuits, folds,
Datalog's tag columns, `nn.Logic` and generated kernels are made. So a record is all that a semiring of one's own needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from derivable.algebra.element import Element, components, compose, element_of, records
from derivable.algebra.expr.functions import equal, logical_and, where
from derivable.algebra.expr.nodes import Constant
from derivable.algebra.expr.types import FLOATS, Dtype, check_dtype
from derivable.algebra.monoid import SCALAR, Monoid, frozen, trace_elements
from derivable.algebra.typed import TypedFunction, TypedMonoid
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError

Carrier = Literal["float", "bool", "integer"]


@dataclass(frozen=True, eq=False)
class Semiring:
    """(carrier, plus, times, zero, one) with plus commutative and associative, times associative,
    zero neutral for plus and absorbing for times, one neutral for times, times distributing over plus.

    plus, times  Python functions of two elements, written so that they can be traced to `algebra.expr`
    zero, one    elements: Python scalars, or nests of them such as (0.0, 0), a tuple, named tuple or dataclass
    carrier      of scalars: "float" (float32 and float64 arrays), "bool", or "integer" (exact Python integers). The
                 scalars of a nest have the types that they have in `zero`: float, bool, int (64 bits)
    domain       the smallest and the largest value of a float or integer carrier, for a nest one pair for all scalars
                 or a tuple of pairs; the laws hold between them (an infinite end belongs to the domain only if it is
                 `zero` or `one`)
    complement   the weight of a negative literal from that of its positive one, as a traceable
                 function; None means that negative weights must be given, and a negated tuple has no tag

    What makes it a provenance, each a traceable function:

    fact         (tag, variable) -> the value of the random fact of that number (from 0, int64), whose tag a user has
                 written; None: the tag itself for floats and integers (a fraction between 0 and 1, a probability,
                 counts 1 as an integer), whether it is above 0 for bool. A nest must say it
    from_probability  probability -> the value of a fact that a soft comparison or an aggregate makes with that
                 probability, where tags are no probabilities; with `fact`, or None: as `fact`
    saturated    (old, new) -> whether a tuple whose value went from old to new tells nothing new, so is not
                 propagated again; None: if they are equal
    discard      value -> whether a tuple with that value is not there; None: if it is zero
    show         value -> what the user sees, a scalar or a nest of them; None: the value itself
    weight       value -> how much it counts, a number from 0 on, by which `top`, `rank`, `categorical`, `normalize` and
                 other aggregates go; None: what the user sees, if that is one number

    The properties below are declarations; `tests/laws` tests them for every registered semiring.

    commutative        times is commutative
    idempotent_plus    plus(a, a) = a
    idempotent_times   times(a, a) = a
    selective_plus     plus(a, b) is a or b (so there is a best term: arg max, Viterbi)
    absorptive         plus(one, a) = one (so recursion converges)
    invertible_times   every nonzero a has b with times(a, b) = one; `inverse` computes it
    distributive       times distributes over plus; not so for sums that are cut
    complement_negates the complement exchanges zero and one, so it is what a negated tuple means
    differentiable     plus and times have derivatives almost everywhere; `plus_rule`, (a, b, adjoint) -> (adjoint of a,
                       adjoint of b), replaces that of plus
    """

    name: str
    plus: Callable[[Any, Any], Any]
    times: Callable[[Any, Any], Any]
    zero: Any
    one: Any
    carrier: Carrier = "float"
    complement: Callable[[Any], Any] | None = None
    commutative: bool = True
    idempotent_plus: bool = False
    selective_plus: bool = False
    absorptive: bool = False
    invertible_times: bool = False
    differentiable: bool = True
    description: str = ""
    domain: tuple = (-math.inf, math.inf)
    idempotent_times: bool = False
    inverse: Callable[[Any], Any] | None = None
    distributive: bool = True
    complement_negates: bool = True
    fact: Callable[[Any, Any], Any] | None = None
    saturated: Callable[[Any, Any], Any] | None = None
    discard: Callable[[Any], Any] | None = None
    show: Callable[[Any], Any] | None = None
    plus_rule: Callable[[Any, Any, Any], Any] | None = None
    weight: Callable[[Any], Any] | None = None
    from_probability: Callable[[Any], Any] | None = None

    @cached_property
    def _key(self) -> tuple:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return tuple(frozen(value) if name in ("zero", "one") else value for name, value in values.items())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Semiring) and self._key == other._key)

    def __hash__(self) -> int:
        return hash((self.name, self.plus, self.times))

    @cached_property
    def element(self) -> Element:
        """How its values are nested."""
        return element_of(self.zero)

    @property
    def is_scalar(self) -> bool:
        return self.element.shape == ()

    @property
    def is_exact(self) -> bool:
        """Whether its values are Python integers of any size, which have no compiled form."""
        return self.is_scalar and self.carrier == "integer"

    @cached_property
    def carriers(self) -> tuple[Carrier, ...]:
        """[component]"""
        if self.is_scalar:
            return (self.carrier,)
        return tuple(_carrier_of(scalar) for scalar in components(self.element, self.zero, "zero"))

    @cached_property
    def domains(self) -> tuple[tuple[float, float], ...]:
        """[component] (smallest, largest)"""
        is_one_pair = len(self.domain) == 2 and not isinstance(self.domain[0], (tuple, list))
        return (tuple(self.domain),) * len(self.carriers) if is_one_pair else tuple(map(tuple, self.domain))

    @cached_property
    def addition(self) -> Monoid:
        """plus as a monoid; an empty fold gives zero."""
        return Monoid(f"{self.name}.plus", self.plus, self._kinds, self.zero, self.element, True, self.plus_rule)

    @cached_property
    def multiplication(self) -> Monoid:
        """times as a monoid; an empty fold gives one."""
        return Monoid(f"{self.name}.times", self.times, self._kinds, self.one, self.element, self.commutative)

    @property
    def _kinds(self) -> str:
        return {"float": "f", "bool": "b", "integer": "iO"}[self.carrier] if self.is_scalar else "bif"

    def dtypes(self, precision: str = "float64") -> tuple[Dtype, ...]:
        """[leaf] the types of columns of values whose floats are of that precision.

        Raises UnsupportedError for exact Python integers, which have none.
        """
        if self.is_exact:
            raise UnsupportedError(
                f"the semiring {self.name!r} has exact Python integers, which have no compiled form",
                hint="evaluate it with the NumPy reference, on arrays of dtype object",
            )
        kinds = {"float": check_dtype(precision), "bool": "bool", "integer": "int64"}
        found, position = [], 0
        for size in self.element.leaf_sizes:
            found.append(kinds[self.carriers[position]])
            position += size
        return tuple(found)  # type: ignore[return-value]

    def typed(self, precision: str = "float64") -> TypedSemiring:
        """All operations as expressions. precision: "float32" or "float64", the type of its floats.

        Raises UnsupportedError for the integer carrier and for functions that cannot be traced, and TypeMismatchError
        if a function does not give an element of these types.
        """
        name = check_dtype(precision)
        if name not in FLOATS:
            if "float" in self.carriers or name not in self.dtypes():
                raise TypeMismatchError(
                    f"the semiring {self.name!r} has the carrier {self.carrier!r}, which has no dtype {name}"
                )
            name = "float64"
        return _typed(self, name)

    def nest(self, parts: Any) -> Any:
        """A value, or a nest of columns, from its components."""
        return compose(self.element, self.zero, parts)


@dataclass(frozen=True, eq=False)
class TypedSemiring:
    """A semiring's operations on components of known types, as expressions.

    dtypes                [component]
    precision             the type of its floats
    plus, times           typed monoids: values, adjoints, dual, zero and one as their neutral elements
    complement            of (a); None if the semiring has none
    negation              of (a), what a negated tuple has: the complement if that exchanges zero and one, else one
                          where a is discarded and zero elsewhere, which is set difference
    saturated, discard    of (old, new) and (a): one bool
    fact                  of (tag, variable); None for a nest that does not say it
    from_probability      of (probability); None if that is `fact`
    show                  of (a)
    weight                of (a): one number; None if what is shown is a nest and the record does not say it
    """

    semiring: Semiring
    precision: Dtype
    dtypes: tuple[Dtype, ...]
    plus: TypedMonoid
    times: TypedMonoid
    complement: TypedFunction | None
    negation: TypedFunction
    saturated: TypedFunction
    discard: TypedFunction
    fact: TypedFunction | None
    show: TypedFunction
    shown: Element
    weight: TypedFunction | None
    from_probability: TypedFunction | None

    def require_weight(self) -> TypedFunction:
        """`weight`. Raises UnsupportedError for a nest that does not say it."""
        if self.weight is None:
            raise UnsupportedError(
                f"the semiring {self.semiring.name!r} does not say how much a value weighs",
                hint="give its record `weight`, a function of a value to one number",
            )
        return self.weight

    def require_fact(self) -> TypedFunction:
        """`fact`. Raises UnsupportedError for a nest that does not say it."""
        if self.fact is None:
            raise UnsupportedError(
                f"the semiring {self.semiring.name!r} does not say what the value of a random fact is",
                hint="give its record `fact`, a function of (tag, variable)",
            )
        return self.fact

    def rows_of_shown(self, *parts: Any) -> np.ndarray:
        """What values show as, an array [row], with fields for a nest; parts are the components of the values."""
        return records(self.shown, self.show.apply(parts))

    @property
    def always_saturated(self) -> bool:
        """Whether no tuple is ever propagated again: it passes on the value that it had when it was new."""
        (value,) = self.saturated.values
        return isinstance(value, Constant) and bool(value.value)

    @property
    def zero(self) -> tuple[Any, ...]:
        """[component] NumPy scalars."""
        return self.plus.neutral

    @property
    def one(self) -> tuple[Any, ...]:
        return self.times.neutral


@lru_cache(256)
def _typed(record: Semiring, precision: str) -> TypedSemiring:
    element, leaf_types = record.element, record.dtypes(precision)
    operand = (element, record.zero, leaf_types)
    plus, times = record.addition.typed(leaf_types), record.multiplication.typed(leaf_types)

    def traced(field: str, function: Callable, names: str, result: Element | None, dtypes: Any) -> TypedFunction:
        operands = dict.fromkeys(names.split(), operand)
        return trace_elements(f"{field} of semiring {record.name!r}", function, operands, result, dtypes)

    def same(a: Any, b: Any) -> Any:
        return _all(equal(x, y) for x, y in zip(components(element, a, "a value"), components(element, b, "a value")))

    complement = fact = from_probability = None
    if record.complement is not None:
        complement = traced("complement", record.complement, "a", element, plus.dtypes)
    function = fact_of(record)
    if function is not None:
        given = {"tag": (SCALAR, 0.0, (precision,)), "variable": (SCALAR, 0, ("int64",))}
        fact = trace_elements(f"fact of semiring {record.name!r}", function, given, element, plus.dtypes)
    if record.from_probability is not None and record.fact is None:
        name, given = f"from_probability of semiring {record.name!r}", {"probability": (SCALAR, 0.0, (precision,))}
        from_probability = trace_elements(name, record.from_probability, given, element, plus.dtypes)
    zero, one = record.nest(plus.neutral), record.nest(times.neutral)
    discard = record.discard or (lambda a: same(a, zero))

    def absent(a: Any) -> Any:
        gone = discard(a)
        pairs = zip(components(element, one, "one"), components(element, zero, "zero"), plus.dtypes)
        return record.nest([where(gone, Constant(x, dtype), Constant(y, dtype)) for x, y, dtype in pairs])

    show = traced("show", record.show or (lambda a: a), "a", None, None)
    shown = element_of(record.show(record.one)) if record.show else element
    weight = show if shown == SCALAR else None
    if record.weight is not None:
        weight = traced("weight", record.weight, "a", None, None)
    return TypedSemiring(
        record,
        precision,  # type: ignore[arg-type]
        plus.dtypes,
        plus,
        times,
        complement,
        complement
        if complement is not None and record.complement_negates
        else traced("negation", absent, "a", element, plus.dtypes),
        traced("saturated", record.saturated or same, "old new", SCALAR, ("bool",)),
        traced("discard", discard, "a", SCALAR, ("bool",)),
        fact,
        show,
        shown,
        weight,
        from_probability,
    )


def _tag(tag: Any, variable: Any) -> Any:
    return tag


def _is_positive(tag: Any, variable: Any) -> Any:
    return tag > 0


_FACTS: dict[str, Callable[[Any, Any], Any]] = {"float": _tag, "bool": _is_positive}


def fact_of(record: Semiring) -> Callable[[Any, Any], Any] | None:
    """(tag, variable) -> the value of a random fact, None of a nest that does not say it."""
    return record.fact or (_FACTS.get(record.carrier) if record.is_scalar else None)


def _all(conditions: Any) -> Any:
    first, *others = conditions
    for other in others:
        first = logical_and(first, other)
    return first


def _carrier_of(scalar: Any) -> Carrier:
    if isinstance(scalar, (bool, np.bool_)):
        return "bool"
    return "integer" if isinstance(scalar, (int, np.integer)) else "float"
