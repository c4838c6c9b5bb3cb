import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from derivable.algebra import semirings
from derivable.algebra.compiled import compiled
from derivable.algebra.expr import maximum, where
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


@pytest.mark.parametrize("semiring", EVERY, ids=lambda s: s.name)
def test_scalars_agree_with_the_python_functions(semiring):
    c = compiled(semiring)
    values = [v for v in sample_values(semiring) if not (semiring is SMOOTH_MIN and math.isinf(v))]
    for a in values:
        for b in values:
            assert c.plus(a, b) == pytest.approx(semiring.plus(a, b), rel=1e-12)
            assert c.times(a, b) == pytest.approx(semiring.times(a, b), rel=1e-12)
        if semiring.complement is not None and not (semiring.name == "log" and a > 0):
            assert c.complement is not None
            assert c.complement(a) == pytest.approx(semiring.complement(a), rel=1e-12)


@pytest.mark.parametrize("semiring", [s for s in EVERY if s.differentiable], ids=lambda s: s.name)
def test_adjoints_against_finite_differences(semiring):
    c = compiled(semiring, "float64")
    assert c.plus_vjp is not None
    assert c.times_vjp is not None
    step = 1e-6
    for function, adjoints in ((c.plus, c.plus_vjp), (c.times, c.times_vjp)):
        for a, b in [(0.31, 0.82), (0.9, 0.4), (0.05, 0.07)]:
            if semiring.plus_rule is not None and a + b >= 1:
                continue  # a cut that lets gradients pass
            slope_a = (function(a + step, b) - function(a - step, b)) / (2 * step)
            slope_b = (function(a, b + step) - function(a, b - step)) / (2 * step)
            assert adjoints(a, b, 3.0) == pytest.approx((3 * slope_a, 3 * slope_b), abs=1e-6)


def test_types_and_absence():
    assert compiled("boolean").plus(True, False) is True
    assert compiled("boolean").plus_vjp is None
    assert compiled("max_plus").complement is None
    half = compiled("real", "float32")
    assert half.zero.dtype == np.float32
    assert half.times(1 + 2**-20, 1 + 2**-20) == np.float32(1 + 2**-20) * np.float32(1 + 2**-20)
    assert compiled("real", "float32") is compiled(semirings.real, np.float32)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="exact Python integers"):
        compiled("counting")
    with pytest.raises(TypeMismatchError, match="no dtype bool"):
        compiled("real", "bool")
    with pytest.raises(TypeMismatchError, match="gives bool for float64"):
        compiled(Semiring("odd", plus=lambda a, b: a < b, times=lambda a, b: a, zero=0.0, one=1.0))


def test_log_adjoints_are_never_nan():
    c = compiled("log")
    assert c.plus_vjp is not None
    assert c.complement_vjp is not None
    assert c.plus_vjp(-math.inf, -math.inf, 1.0) == (0.0, 0.0)
    assert c.plus_vjp(-math.inf, 0.0, 1.0) == (0.0, 1.0)
    assert c.complement_vjp(0.0, 0.0) == 0.0
    assert c.complement_vjp(-math.inf, 1.0) == 0.0


def test_a_branching_semiring_is_refused():
    branching = Semiring("branching", plus=lambda a, b: a if a > b else b, times=min, zero=0.0, one=1.0)
    with pytest.raises(UnsupportedError, match="decides on the value of `b < a`"):
        compiled(branching)


def test_other_functions_under_the_same_name_are_other_kernels():
    other = dataclasses.replace(LUKASIEWICZ, times=lambda a, b: a * b)
    assert compiled(other).times(0.5, 0.5) == 0.25
    assert compiled(LUKASIEWICZ).times(0.5, 0.5) == 0.0


def test_source_stands_alone():
    scope = {}
    exec(compiled("log").source.replace("cache=True, ", ""), scope)
    assert scope["plus"](0.0, 0.0) == pytest.approx(math.log(2))


def test_importing_the_registry_loads_no_numba():
    code = "import sys, derivable.algebra.semirings, derivable.algebra.expr; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
