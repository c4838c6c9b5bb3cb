import dataclasses
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

from derivable.algebra import semirings
from derivable.algebra.expr import maximum, minimum, where
from derivable.algebra.laws import sample_values
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError

LUKASIEWICZ = Semiring(
    "lukasiewicz",
    plus=maximum,
    times=lambda a, b: maximum(a + b - 1, 0.0),
    zero=0.0,
    one=1.0,
    complement=lambda a: 1 - a,
    domain=(0.0, 1.0),
    idempotent_plus=True,
    selective_plus=True,
    absorptive=True,
)
SMOOTH_MIN = Semiring(
    "soft_min",
    plus=lambda a, b: where(a < b, a - np.log1p(np.exp(a - b)), b - np.log1p(np.exp(b - a))),
    times=lambda a, b: a + b,
    zero=math.inf,
    one=0.0,
)
EVERY = [*(semirings.get(name) for name in semirings.names() if name != "counting"), LUKASIEWICZ, SMOOTH_MIN]


@pytest.mark.parametrize(
    "plus",
    [
        minimum,
        lambda a, b: where(b < a, b, a),
        lambda a, b: where(b <= a, b, a),
        lambda a, b: where(a > b, b, a),
        lambda a, b: where(~(a >= b), a, b),
    ],
)
def test_extremes_are_known_however_they_are_written(plus):
    typed = Semiring("x", plus, lambda a, b: a + b, zero=math.inf, one=0.0).typed("float64").plus
    assert typed.extreme == "min"
    values = np.array([1.0, 2.0, 2.0]), np.array([2.0, 1.0, 2.0])
    assert typed.apply(values[:1], values[1:])[0].tolist() == [1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("plus", "expected"),
    [
        (maximum, "max"),
        (lambda a, b: where(a < b, b, a), "max"),
        (lambda a, b: where(b < a, a, b), "max"),
        (lambda a, b: where(a < 2 * b, b, a), None),
        (lambda a, b: where(a < b, b, a + 1), None),
        (lambda a, b: where(a < 0.5, b, a), None),
        (lambda a, b: a + b, None),
    ],
)
def test_other_choices_are_no_minimum(plus, expected):
    assert Semiring("x", plus, lambda a, b: a + b, zero=0.0, one=0.0).typed("float64").plus.extreme == expected


@pytest.mark.parametrize("semiring", EVERY, ids=lambda s: s.name)
def test_expressions_agree_with_the_python_functions(semiring):
    typed = semiring.typed("float64" if semiring.carrier == "float" else "bool")
    values = [v for v in sample_values(semiring) if not (semiring is SMOOTH_MIN and math.isinf(v))]
    for a in values:
        for b in values:
            assert typed.plus.apply((a,), (b,)) == pytest.approx((semiring.plus(a, b),), rel=1e-12)
            assert typed.times.apply((a,), (b,)) == pytest.approx((semiring.times(a, b),), rel=1e-12)
        if semiring.complement is not None and not (semiring.name == "log" and a > 0):
            assert typed.complement.apply((a,)) == pytest.approx((semiring.complement(a),), rel=1e-12)


@pytest.mark.parametrize("semiring", [s for s in EVERY if s.differentiable], ids=lambda s: s.name)
def test_adjoints_against_finite_differences(semiring):
    typed = semiring.typed()
    step = 1e-6
    for monoid, function in ((typed.plus, semiring.plus), (typed.times, semiring.times)):
        for a, b in [(0.31, 0.82), (0.9, 0.4), (0.05, 0.07)]:
            if semiring.plus_rule is not None and a + b >= 1:
                continue  # a cut that lets gradients pass
            slope_a = (function(a + step, b) - function(a - step, b)) / (2 * step)
            slope_b = (function(a, b + step) - function(a, b - step)) / (2 * step)
            (adjoint_a,), (adjoint_b,) = monoid.apply_vjp((a,), (b,), (3.0,))
            assert (adjoint_a, adjoint_b) == pytest.approx((3 * slope_a, 3 * slope_b), abs=1e-6)


def test_types_and_absence():
    assert semirings.get("max_plus").typed().complement is None
    half = semirings.get("real").typed("float32")
    assert half.zero[0].dtype == np.float32
    assert half.times.apply((1 + 2**-20,), (1 + 2**-20,))[0] == np.float32(1 + 2**-20) * np.float32(1 + 2**-20)
    assert half is semirings.real.typed(np.float32)
    with pytest.raises(UnsupportedError, match="exact Python integers"):
        semirings.get("counting").typed()
    with pytest.raises(TypeMismatchError, match="no dtype bool"):
        semirings.get("real").typed("bool")
    with pytest.raises(TypeMismatchError, match="gives bool for float64"):
        Semiring("odd", plus=lambda a, b: a < b, times=lambda a, b: a, zero=0.0, one=1.0).typed()


def test_log_adjoints_are_never_nan():
    log = semirings.get("log").typed()
    assert log.plus.apply_vjp((-math.inf,), (-math.inf,), (1.0,)) == ((0.0,), (0.0,))
    assert log.plus.apply_vjp((-math.inf,), (0.0,), (1.0,)) == ((0.0,), (1.0,))
    assert log.complement.apply_vjp((0.0,), (0.0,)) == ((0.0,),)
    assert log.complement.apply_vjp((1.0,), (-math.inf,)) == ((0.0,),)


def test_a_branching_semiring_is_refused():
    branching = Semiring("branching", plus=lambda a, b: a if a > b else b, times=min, zero=0.0, one=1.0)
    with pytest.raises(UnsupportedError, match="decides on the value of `b < a`"):
        branching.typed()


def test_other_functions_under_the_same_name_are_another_semiring():
    other = dataclasses.replace(LUKASIEWICZ, times=lambda a, b: a * b)
    assert other.typed().times.apply((0.5,), (0.5,)) == (0.25,)
    assert LUKASIEWICZ.typed().times.apply((0.5,), (0.5,)) == (0.0,)


def test_importing_the_registry_loads_no_numba():
    code = "import sys, derivable.algebra.semirings, derivable.algebra.expr; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_operator_that_was_evaluated_is_pickled():
    for name in ("real", "log", "godel"):
        record = semirings.get(name)
        plus = record.typed("float64").plus
        expected = plus.apply([np.float64(0.25)], [np.float64(0.5)])
        again = pickle.loads(pickle.dumps(plus))
        assert again.apply([np.float64(0.25)], [np.float64(0.5)]) == expected
