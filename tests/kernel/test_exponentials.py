"""exp, 1 - exp and log as sums and products, and numbers with an exponent of 64 bits, on rows and on lines."""

import math

import numpy as np
import pytest

from derivable.circuit.kernels import levels_scaled
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel.build import Builder
from derivable.kernel.exponentials import exp_and_complement, logarithm
from derivable.kernel.interpret import interpret

ROUTES = ("rows", "lines", "interpreted")


def computed(functions, columns, route):
    """The values [result][row] of what functions make of registers with these columns [row]."""
    columns = [np.resize(column, -(-len(column) // 8) * 8).reshape(-1, 8) for column in columns]
    k = Builder("table")
    count = k.scalar("count")
    arrays = [k.array(f"x{i}", column.dtype, is_lines=True) for i, column in enumerate(columns)]
    results = [k.array(f"y{i}", "float64", is_lines=True) for i in range(len(functions))]
    with k.loop("row", 0, count) as row:
        given = [k.load(array, row, "x") for array in arrays]
        for array, function in zip(results, functions):
            k.store(array, row, function(*given))
    kernel = k.kernel()
    if route == "rows":
        columns = [column.reshape(-1) for column in columns]
    outs = [np.empty(columns[0].shape) for _ in functions]
    run = (
        (lambda *given: interpret(kernel, *given))
        if route == "interpreted"
        else compile_kernel(kernel, route == "rows")
    )
    run(len(columns[0]), *columns, *outs)
    return [out.reshape(-1) for out in outs]


@pytest.mark.parametrize("route", ROUTES)
def test_exp_and_its_complement(route):
    rng = np.random.default_rng(1)
    x = np.concatenate([-rng.exponential(1, 400), -(10.0 ** rng.uniform(-300, 2.8, 400)), rng.uniform(-700, 700, 400)])
    x = np.concatenate([x, [0.0, -708.0, -709.0, -math.inf, -1e300, 709.0, -math.log(2), -5e-324]])
    functions = [lambda x: exp_and_complement(x)[0], lambda x: exp_and_complement(x)[1]]
    values, complements = computed(functions, [x], route)
    inside, low = x >= -708, x <= 0
    np.testing.assert_allclose(values[inside], np.exp(x[inside]), rtol=4e-16)
    assert not values[~inside].any()
    np.testing.assert_allclose(complements[low], -np.expm1(x[low]), rtol=4e-16, atol=0)


@pytest.mark.parametrize("route", ROUTES)
def test_logarithm(route):
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [10.0 ** rng.uniform(-300, 300, 800), 1 + rng.uniform(-0.5, 0.9, 400), 1 + np.logspace(-15, -1, 400)]
    )
    x = np.concatenate([x, [1.0, 2.0**-1022, 1.7e308, math.sqrt(0.5), math.sqrt(2), 0.999999, 1.5, 2.0]])
    (found,) = computed([logarithm], [x], route)
    np.testing.assert_allclose(found, np.log(x), rtol=5e-16, atol=0)


def test_scaled_exponentials():
    weights = np.array([-math.inf, -1e6, -800.0, -1.0, 0.0, 3.0, 800.0, 1e6])

    def scaled(x):
        return levels_scaled.scaled_exp(x, 2.0**39)

    for route in ROUTES:
        functions = [
            lambda x: scaled(x)[0],
            lambda x: levels_scaled.cast(scaled(x)[1], "float64"),
            lambda x: levels_scaled.collapsed(scaled(x)),
            lambda x: levels_scaled.log_of(scaled(x)),
        ]
        mantissas, exponents, values, logs = computed(functions, [weights], route)
        assert (mantissas[0], values[0]) == (0.0, 0.0)
        assert ((mantissas[1:] >= 1) & (mantissas[1:] < 2)).all()
        total = [math.log(m) + e * math.log(2) for m, e in zip(mantissas[1:], exponents[1:])]
        np.testing.assert_allclose(total, weights[1:], rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(logs, weights, rtol=1e-14, atol=1e-15)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(values, np.exp(weights), rtol=1e-14)


@pytest.mark.parametrize("route", ROUTES)
def test_normalised_is_the_same_number(route):
    m, e = np.array([0.0, 1.0, -1.0, 3.5, -0.3, 1e300, -1e-300, 2.0**-1022]), np.full(8, 5)
    functions = [
        lambda m, e: levels_scaled.normalised((m, e))[0],
        lambda m, e: levels_scaled.cast(levels_scaled.normalised((m, e))[1], "float64"),
    ]
    mantissas, exponents = computed(functions, [m, e], route)
    assert exponents[0] == levels_scaled.NOTHING
    assert [math.ldexp(a, int(b) - 5) if a else 0 for a, b in zip(mantissas, exponents)] == m.tolist()
    assert all(a == 0 or 1 <= abs(a) < 2 for a in mantissas)


@pytest.mark.parametrize("route", ROUTES)
def test_numbers_beyond_the_range_of_floats_collapse_as_ldexp_has_it(route):
    rng = np.random.default_rng(3)
    m, e = rng.uniform(1, 2, 4000) * rng.choice([-1, 1], 4000), rng.integers(-1100, 1060, 4000)
    e[:8] = 2**40, -(2**40), -1074, -1075, -1022, -1023, 1023, 1024
    (found,) = computed([lambda m, e: levels_scaled.collapsed((m, e))], [m, e], route)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, np.ldexp(m, np.clip(e, -5000, 5000)))
