"""The laws of every registered semiring, and that a record which lies is caught."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.algebra import laws, semirings
from derivable.algebra.expr import maximum, minimum
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError

PROPERTIES = [law.property for law in laws.LAWS if law.property]


def values_of(semiring):
    if semiring.carrier == "bool":
        return st.booleans()
    low, high = semiring.domain
    if semiring.carrier == "integer":
        return st.integers(None if math.isinf(low) else int(low), None if math.isinf(high) else int(high))
    ordinary = st.floats(max(low, -50.0), min(high, 50.0)).filter(lambda x: x == 0 or abs(x) > 1e-6)
    return st.sampled_from([semiring.zero, semiring.one]) | ordinary


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("name", semirings.names())
@pytest.mark.parametrize("examples", [25, pytest.param(60, marks=pytest.mark.slow)])
def test_law(name, law, examples):
    semiring = semirings.get(name)
    if not law.applies(semiring):
        return

    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.tuples(*[values_of(semiring)] * law.arity))
    def check(values):
        assert laws.holds(law, semiring, values), law.sides(semiring, *values)

    check()


def test_every_declared_property_has_a_law():
    flags = {field.name for field in dataclasses.fields(Semiring) if field.type == "bool"}
    assert set(PROPERTIES) == flags - {"differentiable"}


@pytest.mark.parametrize("name", semirings.names())
def test_declarations_are_not_modest(name):
    """A property that is not declared really fails somewhere, so the declarations say all there is to say."""
    semiring = semirings.get(name)
    for law in laws.LAWS:
        needs = {"invertible_times": semiring.inverse, "complement_negates": semiring.complement}
        if law.property and not law.applies(semiring) and needs.get(law.property, True):
            claims = dataclasses.replace(semiring, **{law.property: True})
            assert any(law.property in text for text in laws.violations(claims, laws.sample_values(semiring)))


@pytest.mark.parametrize(
    ("base", "change", "law"),
    [
        ("real", {"idempotent_plus": True}, "plus is idempotent .declared idempotent_plus."),
        ("real", {"selective_plus": True}, "plus selects"),
        ("max_plus", {"absorptive": True}, "one absorbs in plus"),
        ("godel", {"invertible_times": True, "inverse": lambda a: a}, "has an inverse"),
        ("real", {"idempotent_times": True}, "times is idempotent"),
        ("real", {"zero": 1.0}, "zero is neutral"),
        ("real", {"one": 0.5}, "one is neutral"),
        ("real", {"plus": lambda a, b: a - b}, "plus is commutative"),
        ("real", {"plus": lambda a, b: (a + b) / 2}, "plus is associative"),
        ("real", {"times": lambda a, b: a * a * b}, "times is associative"),
        ("godel", {"times": lambda a, b: maximum(a, b)}, "one is neutral"),
        ("max_product", {"times": lambda a, b: a + b, "one": 0.0}, "zero absorbs"),
        ("min_plus", {"plus": lambda a, b: maximum(a, b), "zero": -math.inf, "times": minimum}, "one is neutral"),
        ("counting", {"times": lambda a, b: a * b + a * b * (a - 1) * (b - 1)}, "distributes"),
    ],
)
def test_a_wrong_record_is_caught(base, change, law):
    wrong = dataclasses.replace(semirings.get(base), name="wrong", **change)
    with pytest.raises(DomainError, match="is not what it declares"):
        semirings.register(wrong)
    assert any(law.split(" .")[0] in text for text in laws.violations(wrong, laws.sample_values(wrong)))
    assert "wrong" not in semirings.names()


def test_not_commutative_is_seen():
    first = Semiring("first", plus=maximum, times=lambda a, b: a + 0 * b, zero=0.0, one=1.0)
    assert any("times is commutative" in text for text in laws.violations(first, (0.0, 1.0, 2.0)))


def test_a_function_that_raises_is_reported():
    broken = Semiring("broken", plus=lambda a, b: None + a, times=lambda a, b: a * b, zero=0.0, one=1.0)  # type: ignore
    assert "TypeError" in (laws.first_violation(broken) or "")
