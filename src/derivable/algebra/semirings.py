"""The registry of semirings and the built-in ones.

>>> from derivable.algebra import semirings
>>> semirings.get("log").one
0.0
>>> semirings.names()
('boolean', 'counting', 'godel', 'log', 'max_plus', 'max_product', 'min_plus', 'real')
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from typing import Any

from derivable.algebra.expr.functions import log1mexp, logaddexp, logical_and, logical_not, logical_or, maximum, minimum
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError

_registry: dict[str, Semiring] = {}
_ALIASES = {"tropical": "min_plus", "max_min": "godel"}


def get(semiring: str | Semiring) -> Semiring:
    """The semiring of that name (or alias); a `Semiring` record is checked for its form and returned.

    Raises DomainError for an unknown name (with the nearest known one) or anything else.
    """
    if isinstance(semiring, Semiring):
        if _registry.get(semiring.name) is not semiring:
            check_record(semiring)
        return semiring
    if not isinstance(semiring, str):
        raise DomainError(
            f"a semiring is a name or a Semiring record, not {type(semiring).__name__}", hint=f"names: {_listed()}"
        )
    name = _ALIASES.get(semiring, semiring)
    if name in _registry:
        return _registry[name]
    near = difflib.get_close_matches(semiring, [*_registry, *_ALIASES], 1)
    raise DomainError(
        f"there is no semiring {semiring!r}",
        hint=f"did you mean {near[0]!r}?" if near else f"known are {_listed()}; `semirings.register` adds one",
    )


def names() -> tuple[str, ...]:
    """The registered names without aliases, sorted."""
    return tuple(sorted(_registry))


def aliases() -> dict[str, str]:
    """Other names of registered semirings."""
    return dict(_ALIASES)


def register(semiring: Semiring, *, check: bool = True) -> Semiring:
    """Make a semiring known by its name; returns it.

    check  test the laws and the declared properties on a few values of the carrier

    Raises DomainError if the record is malformed, if a law fails (with the law, the values and both
    sides), or if the name is taken by another semiring. Registering an equal record again changes nothing.
    """
    check_record(semiring)
    known = _registry.get(_ALIASES.get(semiring.name, semiring.name))
    if known is not None:
        if known == semiring:
            return known
        raise DomainError(f"the semiring name {semiring.name!r} is taken", hint="choose another name")
    if check:
        from derivable.algebra.laws import first_violation

        violation = first_violation(semiring)
        if violation is not None:
            raise DomainError(
                f"{semiring.name!r} is not what it declares: {violation}",
                hint="correct the function, or withdraw the declared property",
            )
    _registry[semiring.name] = semiring
    return semiring


def unregister(name: str) -> None:
    """Forget a semiring that `register` added. Raises DomainError for a built-in or unknown name."""
    if name in _BUILT_IN or name not in _registry:
        raise DomainError(f"{name!r} is not a semiring that was registered here")
    del _registry[name]


def check_record(semiring: Semiring) -> None:
    """Raise DomainError if a record's fields are not of the form that `Semiring` describes."""
    name = semiring.name
    if not isinstance(name, str) or not name.isidentifier():
        raise DomainError(f"the semiring name {name!r} is not an identifier", hint="use letters, digits and _")
    for field in ("plus", "times"):
        if not callable(getattr(semiring, field)):
            raise DomainError(f"{field} of semiring {name!r} is not a function of two scalars")
    for field in ("complement", "inverse"):
        if getattr(semiring, field) is not None and not callable(getattr(semiring, field)):
            raise DomainError(f"{field} of semiring {name!r} is neither None nor a function of one scalar")
    if semiring.carrier not in ("float", "bool", "integer"):
        raise DomainError(
            f"the carrier of semiring {name!r} is {semiring.carrier!r}", hint='use "float", "bool" or "integer"'
        )
    for field in ("zero", "one"):
        value = getattr(semiring, field)
        if not _in_carrier(value, semiring):
            low, high = semiring.domain
            raise DomainError(
                f"{field} of semiring {name!r} is {value!r}, which is no value of its carrier "
                f"({semiring.carrier}, from {low} to {high})"
            )
    for field in dataclasses.fields(semiring):
        if field.type == "bool" and not isinstance(getattr(semiring, field.name), bool):
            raise DomainError(f"{field.name} of semiring {name!r} is {getattr(semiring, field.name)!r}, not a bool")
    if semiring.invertible_times and semiring.carrier != "bool" and semiring.inverse is None:
        raise DomainError(
            f"semiring {name!r} declares invertible_times without an inverse",
            hint="give `inverse`, a function of one scalar",
        )


def _in_carrier(value: Any, semiring: Semiring) -> bool:
    if semiring.carrier == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if semiring.carrier == "integer" and not isinstance(value, int):
        return False
    return not math.isnan(value) and semiring.domain[0] <= value <= semiring.domain[1]


def _listed() -> str:
    return ", ".join([*sorted(_registry), *sorted(_ALIASES)])


def _add(a, b):
    return a + b


def _multiply(a, b):
    return a * b


def _one_minus(a):
    return 1 - a


def _negate(a):
    return -a


def _reciprocal(a):
    return 1 / a


def _unit(a):
    return 1


real = register(
    Semiring(
        "real",
        plus=_add,
        times=_multiply,
        zero=0.0,
        one=1.0,
        complement=_one_minus,
        invertible_times=True,
        inverse=_reciprocal,
        description="sums of products: probabilities, weighted counts, ordinary arrays",
    ),
    check=False,
)
log = register(
    Semiring(
        "log",
        plus=logaddexp,
        times=_add,
        zero=-math.inf,
        one=0.0,
        complement=log1mexp,
        invertible_times=True,
        inverse=_negate,
        description="the real semiring for numbers given as natural logarithms (nats)",
    ),
    check=False,
)
boolean = register(
    Semiring(
        "boolean",
        plus=logical_or,
        times=logical_and,
        zero=False,
        one=True,
        carrier="bool",
        complement=logical_not,
        idempotent_plus=True,
        idempotent_times=True,
        selective_plus=True,
        absorptive=True,
        invertible_times=True,
        differentiable=False,
        description="truth: satisfiability, reachability",
    ),
    check=False,
)
max_product = register(
    Semiring(
        "max_product",
        plus=maximum,
        times=_multiply,
        zero=0.0,
        one=1.0,
        complement=_one_minus,
        idempotent_plus=True,
        selective_plus=True,
        invertible_times=True,
        inverse=_reciprocal,
        domain=(0.0, math.inf),
        description="the weight of the best term: most probable explanation, Viterbi",
    ),
    check=False,
)
max_plus = register(
    Semiring(
        "max_plus",
        plus=maximum,
        times=_add,
        zero=-math.inf,
        one=0.0,
        idempotent_plus=True,
        selective_plus=True,
        invertible_times=True,
        inverse=_negate,
        description="longest paths; max_product for logarithms",
    ),
    check=False,
)
min_plus = register(
    Semiring(
        "min_plus",
        plus=minimum,
        times=_add,
        zero=math.inf,
        one=0.0,
        idempotent_plus=True,
        selective_plus=True,
        invertible_times=True,
        inverse=_negate,
        description="shortest paths; also called tropical",
    ),
    check=False,
)
godel = register(
    Semiring(
        "godel",
        plus=maximum,
        times=minimum,
        zero=0.0,
        one=1.0,
        complement=_one_minus,
        idempotent_plus=True,
        idempotent_times=True,
        selective_plus=True,
        absorptive=True,
        domain=(0.0, 1.0),
        description="fuzzy truth by the weakest link of the best proof; also called max_min",
    ),
    check=False,
)
counting = register(
    Semiring(
        "counting",
        plus=_add,
        times=_multiply,
        zero=0,
        one=1,
        carrier="integer",
        complement=_unit,
        differentiable=False,
        domain=(0, math.inf),
        description="exact numbers of models, proofs or paths, as Python integers",
    ),
    check=False,
)
_BUILT_IN = frozenset(_registry)
