"""The registry of semirings and the built-in ones.

>>> from derivable.algebra import semirings
>>> semirings.get("log").one
0.0
>>> semirings.names()
('addmultprob', 'bool', 'boolean', 'counting', 'godel', 'log', ..., 'nandmultprob', 'real')
"""

from __future__ import annotations

import dataclasses
import math
import operator
import weakref
from typing import Any

import numpy as np

from derivable.algebra.element import components, element_of
from derivable.algebra.expr.functions import (
    exp,
    log1mexp,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
)
from derivable.algebra.expr.functions import log as _log
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError
from derivable.core.registry import Registry

REGISTRY: Registry[Semiring] = Registry(
    "semiring",
    aliases={
        "tropical": "min_plus",
        "realtropical": "min_plus",
        "max_min": "godel",
        "minmaxprob": "godel",
        "unit": "boolean",
        "natural": "counting",
        "mpe": "max_product",
    },
    more="`semirings.register` adds one",
)
# Records that have been found well formed, by identity: every call on a circuit asks.
_checked: weakref.WeakValueDictionary[int, Semiring] = weakref.WeakValueDictionary()


def get(semiring: str | Semiring) -> Semiring:
    """The semiring of that name (or alias); a `Semiring` record is checked for its form and returned.

    Raises DomainError for an unknown name (with the nearest known one) or anything else.
    """
    if isinstance(semiring, Semiring):
        if _checked.get(id(semiring)) is not semiring:
            check_record(semiring)
            _checked[id(semiring)] = semiring
        return semiring
    if not isinstance(semiring, str):
        raise DomainError(
            f"a semiring is a name or a Semiring record, not {type(semiring).__name__}",
            hint=f"names: {', '.join(REGISTRY.known())}",
        )
    return REGISTRY[semiring]


def names() -> tuple[str, ...]:
    """The registered names without aliases, sorted."""
    return REGISTRY.names()


def aliases() -> dict[str, str]:
    """Other names of registered semirings."""
    return REGISTRY.aliases()


def register(semiring: Semiring, *, check: bool = True) -> Semiring:
    """Make a semiring known by its name; returns it.

    check  test the laws and the declared properties on a few values of the carrier

    Raises DomainError if the record is malformed, if a law fails (with the law, the values and both
    sides), or if the name is taken by another semiring. Registering an equal record again changes nothing.
    """
    check_record(semiring)
    if check and semiring.name not in REGISTRY:
        from derivable.algebra.laws import first_violation

        violation = first_violation(semiring)
        if violation is not None:
            raise DomainError(
                f"{semiring.name!r} is not what it declares: {violation}",
                hint="correct the function, or withdraw the declared property",
            )
    return REGISTRY.add(semiring.name, semiring)


def unregister(name: str) -> None:
    """Forget a semiring that `register` added. Raises DomainError for a built-in or unknown name."""
    if name in _BUILT_IN or name not in REGISTRY:
        raise DomainError(f"{name!r} is not a semiring that was registered here")
    REGISTRY.remove(name)


def check_record(semiring: Semiring) -> None:
    """Raise DomainError if a record's fields are not of the form that `Semiring` describes."""
    name = semiring.name
    if not isinstance(name, str) or not name.isidentifier():
        raise DomainError(f"the semiring name {name!r} is not an identifier", hint="use letters, digits and _")
    for field in ("plus", "times"):
        if not callable(getattr(semiring, field)):
            raise DomainError(f"{field} of semiring {name!r} is not a function of two scalars")
    optional = "complement inverse fact saturated discard show plus_rule weight from_probability"
    for field in optional.split():
        if getattr(semiring, field) is not None and not callable(getattr(semiring, field)):
            arity = {"fact": "two", "saturated": "two", "plus_rule": "three"}.get(field, "one")
            noun = "scalar" if arity == "one" else "scalars"
            raise DomainError(f"{field} of semiring {name!r} is neither None nor a function of {arity} {noun}")
    if semiring.carrier not in ("float", "bool", "integer"):
        raise DomainError(
            f"the carrier of semiring {name!r} is {semiring.carrier!r}", hint='use "float", "bool" or "integer"'
        )
    if not semiring.element.leaf_shapes or len(semiring.domains) != len(semiring.carriers):
        raise DomainError(
            f"zero of semiring {name!r} has {len(semiring.carriers)} scalars, its domain {len(semiring.domains)} pairs",
            hint="an element has at least one scalar; give one (low, high) for all of them, or one for each",
        )
    for field in ("zero", "one"):
        value = getattr(semiring, field)
        if element_of(value) != semiring.element:
            raise DomainError(f"one of semiring {name!r} is {element_of(value)}, zero is {semiring.element}")
        scalars = components(semiring.element, value, field)
        for scalar, carrier, (low, high) in zip(scalars, semiring.carriers, semiring.domains):
            if not _in_carrier(scalar, carrier, low, high) and (semiring.is_scalar or not _is_neutral(scalar, carrier)):
                raise DomainError(
                    f"{field} of semiring {name!r} is {value!r}, which is no value of its carrier "
                    f"({carrier}, from {low} to {high})"
                )
    for field in dataclasses.fields(semiring):
        if field.type == "bool" and not isinstance(getattr(semiring, field.name), bool):
            raise DomainError(f"{field.name} of semiring {name!r} is {getattr(semiring, field.name)!r}, not a bool")
    if semiring.invertible_times and semiring.carrier != "bool" and semiring.inverse is None:
        raise DomainError(
            f"semiring {name!r} declares invertible_times without an inverse",
            hint="give `inverse`, a function of one scalar",
        )


def _in_carrier(value: Any, carrier: str, low: float, high: float) -> bool:
    if carrier == "bool":
        return isinstance(value, (bool, np.bool_))
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return False
    if carrier == "integer" and not isinstance(value, (int, np.integer)):
        return False
    return bool(not math.isnan(value) and low <= value <= high)


def _is_neutral(value: Any, carrier: str) -> bool:
    # The neutral elements of a nest may lie outside the intervals of its scalars, which are those of ordinary values.
    return _in_carrier(value, carrier, -math.inf, math.inf)


def _one_minus(a):
    return 1 - a


def _reciprocal(a):
    return 1 / a


def _unit(a):
    return 1


def _log_probability(probability, variable):
    return _log(probability)


def _surprise(probability):
    return -_log(probability)


def _of_surprise(value):
    return exp(-value)


def _add_to_one(a, b):
    return minimum(a + b, 1.0)


def _to_both(a, b, adjoint):
    return adjoint, adjoint


def _noisy_or(a, b):
    # 1 - (1 - a)(1 - b), in the form in which 0 is neutral without rounding.
    return a + b * (1 - a)


def always(old, new):
    """`saturated` of a semiring whose tuples pass on the value that they had when they were new."""
    return True


# What is true of every sum that takes one of its operands.
_SELECTS: dict[str, Any] = {"idempotent_plus": True, "selective_plus": True}
# The inverses of sums and of products.
_BY_NEGATION: dict[str, Any] = {"invertible_times": True, "inverse": operator.neg}
_BY_DIVISION: dict[str, Any] = {"invertible_times": True, "inverse": _reciprocal}

real = Semiring(
    "real",
    operator.add,
    operator.mul,
    zero=0.0,
    one=1.0,
    complement=_one_minus,
    **_BY_DIVISION,
    description="sums of products: probabilities, weighted counts, ordinary arrays",
)
log = Semiring(
    "log",
    logaddexp,
    operator.add,
    zero=-math.inf,
    one=0.0,
    complement=log1mexp,
    fact=_log_probability,
    weight=exp,
    **_BY_NEGATION,
    description="the real semiring for numbers given as natural logarithms (nats)",
)
boolean = Semiring(
    "boolean",
    logical_or,
    logical_and,
    zero=False,
    one=True,
    carrier="bool",
    complement=logical_not,
    **_SELECTS,
    idempotent_times=True,
    absorptive=True,
    invertible_times=True,
    differentiable=False,
    description="truth: satisfiability, reachability",
)
truth = dataclasses.replace(
    boolean,
    name="bool",
    description="truth, where a fact has a tag: one whose tag is 0 or false is not there, which unit does not look at",
)
max_product = Semiring(
    "max_product",
    maximum,
    operator.mul,
    zero=0.0,
    one=1.0,
    complement=_one_minus,
    **_SELECTS,
    **_BY_DIVISION,
    domain=(0.0, math.inf),
    description="the weight of the best term: most probable explanation, Viterbi",
)
maxmultprob = dataclasses.replace(
    max_product,
    name="maxmultprob",
    domain=(0.0, 1.0),
    absorptive=True,
    invertible_times=False,
    inverse=None,
    description="the probability of the most probable derivation, of independent facts; max_product on [0, 1]",
)
max_plus = Semiring(
    "max_plus",
    maximum,
    operator.add,
    zero=-math.inf,
    one=0.0,
    from_probability=_log,
    weight=exp,
    **_SELECTS,
    **_BY_NEGATION,
    description="longest paths; max_product for logarithms",
)
min_plus = Semiring(
    "min_plus",
    minimum,
    operator.add,
    zero=math.inf,
    one=0.0,
    from_probability=_surprise,
    weight=_of_surprise,
    **_SELECTS,
    **_BY_NEGATION,
    description="shortest paths; also called tropical",
)
godel = Semiring(
    "godel",
    maximum,
    minimum,
    zero=0.0,
    one=1.0,
    complement=_one_minus,
    **_SELECTS,
    idempotent_times=True,
    absorptive=True,
    domain=(0.0, 1.0),
    description="fuzzy truth by the weakest link of the best proof; also called max_min and minmaxprob",
)
counting = Semiring(
    "counting",
    operator.add,
    operator.mul,
    zero=0,
    one=1,
    carrier="integer",
    complement=_unit,
    complement_negates=False,
    differentiable=False,
    domain=(0, math.inf),
    description="exact numbers of models, proofs or paths, as Python integers",
)
addmultprob = Semiring(
    "addmultprob",
    _add_to_one,
    operator.mul,
    zero=0.0,
    one=1.0,
    complement=_one_minus,
    absorptive=True,
    distributive=False,
    domain=(0.0, 1.0),
    saturated=always,
    plus_rule=_to_both,
    description="sums of products, cut at 1, as if derivations excluded each other; the cut lets gradients pass. "
    "In recursion a tuple passes on the value that it had when it was new, as in Scallop",
)
nandmultprob = dataclasses.replace(
    addmultprob,
    name="nandmultprob",
    plus=_noisy_or,
    plus_rule=None,
    description="sums as if derivations were independent, 1 - (1 - a)(1 - b). In recursion as addmultprob",
)
nandminprob = dataclasses.replace(
    nandmultprob,
    name="nandminprob",
    times=minimum,
    idempotent_times=True,
    description="sums as if derivations were independent, each the probability of its weakest fact. In recursion as "
    "addmultprob",
)
_ALL = real, log, boolean, truth, max_product, maxmultprob, max_plus, min_plus, godel, counting
for _semiring in (*_ALL, addmultprob, nandmultprob, nandminprob):
    register(_semiring, check=False)
_BUILT_IN = frozenset(REGISTRY.names())
