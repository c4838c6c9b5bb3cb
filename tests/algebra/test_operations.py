"""The table of scalar operations is complete, and every text in it means what the row says."""

import itertools
import re

import numpy as np
import pytest

from derivable.algebra import expr
from derivable.algebra.expr import emit, types
from derivable.algebra.expr.emit_numba import DECORATOR, HEADER, preamble, statements
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.types import DTYPES, INTEGERS, LIMITS, numpy_dtype, promote
from derivable.core.diagnostics import UnsupportedError
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel.build import Builder, substitute
from triton_process import printed_by

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
torch = pytest.importorskip("torch")

INF, NAN = np.inf, np.nan
# The dtype's edge values; all pairs of them are tried.
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.7, -0.69, 2.5, -3.0, 7.0, 1e-6, -1e-6, 40.0, -40.0, 1e30, INF, -INF, NAN]
HALVES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.75, 2.5, -3.0, 7.0, 100.0, INF, -INF, NAN]


def integers(dtype):
    low, high = LIMITS[dtype]
    return [
        n for n in (0, 1, -1, 2, -2, 3, -7, 100, low, low + 1, low // 2, high // 2, high - 1, high) if low <= n <= high
    ]


EDGES = {"bool": [False, True], "float32": FLOATS, "float64": FLOATS} | {dtype: integers(dtype) for dtype in INTEGERS}
# What is computed by other formulas than NumPy's, in units of the last place; everything else is exact.
ROUNDED = {
    *("power", "exp", "exp_of_difference", "expm1", "log", "log1p", "log1mexp", "logaddexp"),
    *("sqrt", "sin", "cos", "tanh", "sigmoid"),
}
HAS_NONE = {
    "triton": {
        *("floor_divide", "remainder", "power", "tanh", "truncate_remainder"),
    },
}


def test_every_row_is_complete():
    for row in OPERATIONS.values():
        has_derivative = row.rule in ("arithmetic", "float")
        assert (row.partials is not None) == has_derivative, row.name
        for target in ("numba", "triton", "jnp", "torch"):
            texts = getattr(row, target)
            assert (texts is None) == (row.name in HAS_NONE.get(target, ())), (row.name, target)
            for text in texts if isinstance(texts, tuple) else (texts,):
                operands = set(re.findall(r"\{(\d)\}", text or ""))
                assert not text or text.startswith("def ") or operands == set("012"[: row.arity]), (row.name, target)


def test_triton_texts_are_expressions():
    for row in OPERATIONS.values():
        for dtype in ("float32", "int64"):
            text = row.text("triton", dtype)
            if text:
                compile(text.format("a", "b", "c", type=f"tl.{dtype}", low=0, high=1, bits=8), row.name, "eval")


@pytest.mark.parametrize(
    ("types_tried", "counts"),
    [
        ("float32 int64 bool", "31 22 9"),
        # A second float and other widths: the same texts.
        pytest.param("float64 int8 uint8", "31 22 22", marks=pytest.mark.slow),
    ],
)
def test_triton_texts_mean_what_the_row_says(types_tried, counts):
    assert printed_by("algebra/triton_table.py", *types_tried.split()).split() == counts.split()


def applications(dtype):
    """Every operation that takes operands of this type, applied to arguments of it, and the arguments."""
    x, y = expr.Argument(0, dtype, "x"), expr.Argument(1, dtype, "y")
    found = {}
    for row in OPERATIONS.values():
        if row.rule == "cast" or (
            (row.rule == "logical") != (dtype == "bool") and row.rule not in ("comparison", "where")
        ):
            continue
        if row.rule == "bits" and dtype not in INTEGERS:
            continue
        operands = (x if dtype == "bool" else expr.less(x, y), x, y)
        node = expr.apply(row.name, *(operands if row.rule == "where" else (x, y)[: row.arity]))
        if all(operand.dtype in (dtype, "bool") for operand in node.operands):
            found[row.name] = node
    return found, (x, y)


def values_of(dtype, route=""):
    pairs = list(itertools.product(EDGES[dtype], EDGES[dtype]))
    if dtype in ("float32", "float64") and route in COMPILED:
        # Where roundings of the same function by two libraries differ.
        pairs += np.random.default_rng(0).normal(0, 3, (150, 2)).tolist()
    x, y = np.array(pairs, dtype).T
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


def check(name, got, expected, dtype):
    got, expected = np.asarray(got), np.asarray(expected)
    if name in ROUNDED:
        # log(exp(a) + exp(b)) is as near to zero as rounded exponentials allow; JAX takes denormal numbers as zero.
        limits = np.finfo(dtype)
        atol = limits.eps if name == "logaddexp" else limits.tiny
        np.testing.assert_allclose(got, expected, rtol=8 * limits.eps, atol=atol, err_msg=name)
    else:
        np.testing.assert_array_equal(got, expected, err_msg=name)


def numba_route(exprs, arguments, x, y):
    body, results = statements(exprs, dict(zip(arguments, "xy")), indent="        ")
    stores = [f"        out{k}[i] = {text}" for k, text in enumerate(results)]
    outs = [np.empty(x.shape, types.computed_in(e.dtype)) for e in exprs]
    names = ", ".join(f"out{k}" for k in range(len(outs)))
    lines = [
        f"{HEADER}\n\n{preamble(exprs)}\n\n{DECORATOR}",
        f"def kernel(xs, ys, {names}):",
        "    for i in range(xs.size):\n        x, y = xs[i], ys[i]",
        *body,
        *stores,
    ]
    load_generated("\n".join(lines), "table").kernel(x, y, *outs)
    return outs


def llvm_route(exprs, arguments, x, y, as_lines=False):
    """The instructions of LLVM in a kernel of the loop IR, row by row or by lines."""
    width = 64 // x.dtype.itemsize if as_lines else 1
    columns = [np.resize(column, -(-x.size // width) * width) for column in (x, y)]
    outs = [np.empty(columns[0].shape, types.computed_in(e.dtype)) for e in exprs]
    k = Builder("table", max(width, 8))
    count, *given = k.scalar("count"), *(k.array(name, x.dtype) for name in ("xs", "ys"))
    results = [k.array("out", out.dtype) for out in outs]
    with k.loop("i", 0, count, step=width) as i:
        registers = [k.register(a.name, a.dtype) for a in arguments]
        for register, array in zip(registers, given):
            (k.load_line if as_lines else k.load_into)(register, array, i)
        for array, value in zip(results, substitute(exprs, dict(zip(arguments, registers)))):
            (k.store_line if as_lines else k.store)(array, i, value)
    compile_kernel(k.kernel())(len(columns[0]), *columns, *outs)
    return [out[: x.size] for out in outs]


COMPILED = ("numba", "llvm", "llvm lines")
ROUTES = [*COMPILED, "jnp", "torch"]
# Compilers take seconds for each type. Those of the widths between have the same texts, and wait for the long suite.
BETWEEN = ("int16", "int32", "uint8", "uint16", "uint32")


@pytest.mark.parametrize(
    ("dtype", "route"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case[0] in BETWEEN and case[1] not in ("torch", "llvm") else ())
        for case in itertools.product(EDGES, ROUTES)
    ],
)
def test_texts_mean_what_the_row_says(dtype, route):
    found, arguments = applications(dtype)
    x, y = values_of(dtype, route)
    if route == "torch" and dtype in ("uint16", "uint32", "uint64"):
        pytest.skip("torch has these types in name only")
    if route == "llvm lines" and dtype not in ("int64", "float32", "float64"):
        pytest.skip("no lines hold these")
    if route == "llvm lines":
        found.pop("tanh", None)
    exprs = tuple(found.values())
    expected = expr.interpret(exprs, (x, y))
    if route == "numba":
        got = numba_route(exprs, arguments, x, y)
    elif route.startswith("llvm"):
        got = llvm_route(exprs, arguments, x, y, route == "llvm lines")
    elif route == "jnp":
        got = jax.jit(expr.compile_jnp(exprs, arguments))(x, y)
    else:
        got = [part.numpy() for part in expr.compile_torch(exprs, arguments)(torch.tensor(x), torch.tensor(y))]
    for name, ours, theirs in zip(found, got, expected):
        check(name, ours, theirs, dtype if dtype in ("float32", "float64") else "float64")


@pytest.mark.parametrize("route", COMPILED)
def test_powers_whose_base_or_exponent_the_compiler_knows(route):
    """LLVM puts a square, a root, a quotient or exp2 in the place of such powers."""
    arguments = x, y = expr.Argument(0, "float64", "x"), expr.Argument(1, "float64", "y")
    exponents = (2.0, -1.0, 0.5, -0.5, 3.0, 0.0, 1.0, -2.0)
    bases = (2.0, 8.0, 0.25, 10.0, 1.0)
    exprs = (*(expr.power(x, c) for c in exponents), *(expr.power(c, y) for c in bases))
    columns = values_of("float64", route)
    with np.errstate(all="ignore"):
        expected = [np.power(columns[0], np.full(columns[0].shape, c)) for c in exponents]
        expected += [np.power(np.full(columns[1].shape, c), columns[1]) for c in bases]
    if route.startswith("llvm"):
        got = llvm_route(exprs, arguments, *columns, route == "llvm lines")
    else:
        got = numba_route(exprs, arguments, *columns)
    for ours, theirs in zip(got, expected):
        check("power", ours, theirs, "float64")


def test_what_a_target_has_not():
    x = expr.Argument(0, "float64", "x")
    with pytest.raises(UnsupportedError, match="triton has no tanh of float64"):
        emit.statements("triton", expr.tanh(x), {x: "x"})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("route", ["numba", "llvm", "jnp", "torch"])
def test_half_precision_is_rounded_single_precision(dtype, route):
    pytest.importorskip("ml_dtypes")
    found, arguments = applications(dtype)
    kind = numpy_dtype(dtype)
    x, y = np.array(list(itertools.product(HALVES, HALVES)), np.float32).T.astype(kind)
    exprs = tuple(found.values())
    expected = expr.interpret(exprs, (x, y))
    # The oracle: every operation in float32, then rounded.
    wide, _ = applications("float32")
    in_float32 = expr.interpret(tuple(wide.values()), (x.astype(np.float32), y.astype(np.float32)))
    for name, value, oracle in zip(found, expected, in_float32):
        assert value.dtype == (kind if found[name].dtype == dtype else bool)
        np.testing.assert_array_equal(value.astype(float), oracle.astype(value.dtype).astype(float), name)
    if route == "numba":
        got = numba_route(exprs, arguments, x.astype(np.float32), y.astype(np.float32))
    elif route == "llvm":
        got = llvm_route(exprs, arguments, x.astype(np.float32), y.astype(np.float32))
    elif route == "jnp":
        got = expr.compile_jnp(exprs, arguments)(x, y)
    else:
        columns = [torch.tensor(column.astype(np.float32)).to(getattr(torch, dtype)) for column in (x, y)]
        got = [part.to(torch.float32).numpy() for part in expr.compile_torch(exprs, arguments)(*columns)]
    for name, ours, theirs in zip(found, got, expected):
        # A target may round inside an operation, as in 1 / (1 + exp(-x)).
        eps = 4 * float(jax.numpy.finfo(kind).eps)
        ours, theirs = np.asarray(ours).astype(kind).astype(float), theirs.astype(float)
        np.testing.assert_allclose(ours, theirs, rtol=eps, atol=eps, err_msg=name)


SAMPLES: dict = {
    "bool": [False, True],
    **{dtype: [0, 1, 2, 100, LIMITS[dtype][0], LIMITS[dtype][1]] for dtype in INTEGERS},
    **{dtype: [0.0, 1.0, -1.5, 2.75, 100.0] for dtype in types.FLOATS},
}


def wrapped(value, dtype):
    low, high = LIMITS[dtype]
    return (int(value) - low) % (high - low + 1) + low


def values_by(route, exprs, argument, x):
    """Expressions of one argument on a column, as lists."""
    if route == "interpret":
        return [value.tolist() for value in expr.interpret(exprs, [x])]
    if route == "numba":
        compiled = expr.compile_numba(exprs, [argument])
        return [list(column) for column in zip(*(compiled(value) for value in x))]
    if route == "llvm":
        return [out.tolist() for out in llvm_route(exprs, [argument, argument], x, x)]
    if route == "jnp":
        return [np.asarray(value).tolist() for value in jax.jit(expr.compile_jnp(exprs, [argument]))(x)]
    column = torch.tensor(x.astype(float) if argument.dtype == "bfloat16" else x).to(getattr(torch, argument.dtype))
    return [value.tolist() for value in expr.compile_torch(exprs, [argument])(column)]


def types_of(route) -> list[types.Dtype]:
    missing = {"torch": ("uint16", "uint32", "uint64"), "numba": ("float16", "bfloat16")}
    missing["llvm"] = missing["numba"]
    return [dtype for dtype in DTYPES if dtype not in missing.get(route, ())]


@pytest.mark.parametrize("route", ["interpret", "numba", "llvm", "jnp", "torch"])
def test_casts(route):
    """Integers wrap around, floats lose their fractions; of what does not fit nothing is said."""
    pytest.importorskip("ml_dtypes")
    for source in types_of(route):
        argument = expr.Argument(0, source, "x")
        exprs = tuple(expr.cast(argument, target) for target in types_of(route))
        x = np.array(SAMPLES[source], numpy_dtype(source))
        for cast, got in zip(exprs, values_by(route, exprs, argument, x)):
            for value, ours in zip(SAMPLES[source], got):
                if cast.dtype in INTEGERS:
                    expected = wrapped(value, cast.dtype)
                    if source in types.FLOATS and expected != int(value):
                        continue
                else:
                    with np.errstate(over="ignore"):
                        expected = numpy_dtype(source).type(value).astype(numpy_dtype(cast.dtype)).item()
                assert ours == expected, (source, cast.dtype, value)


@pytest.mark.parametrize("route", ["interpret", "numba", "llvm", "jnp", "torch"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_saturating_casts(route, source):
    edges = [2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64)]
    edges = [e * sign + step for e in edges for sign in (1, -1) for step in (-1.5, -0.5, 0, 0.5, 1.5)]
    x = np.array([*edges, 0.0, -0.0, 0.9, -0.9, 1e30, -1e30, INF, -INF, NAN], source)
    argument = expr.Argument(0, source, "x")
    exprs = tuple(expr.saturating_cast(argument, target) for target in types_of(route) if target in INTEGERS)
    for cast, got in zip(exprs, values_by(route, exprs, argument, x)):
        low, high = LIMITS[cast.dtype]
        exact = [0 if v != v else high if v == INF else low if v == -INF else int(v) for v in x.tolist()]
        assert got == [max(low, min(high, v)) for v in exact], cast.dtype
        assert expr.saturating_cast(x, cast.dtype).tolist() == got or route != "interpret"


@pytest.mark.parametrize("route", ["interpret", "numba", "llvm", "jnp", "torch"])
@pytest.mark.parametrize(("source", "target"), [("float64", "int64"), ("float32", "int32"), ("int64", "float64")])
def test_bitcasts(route, source, target):
    x = np.array([0.0, -0.0, 1.5, -2.75, 1e-310, INF, -INF], source.replace("int", "float")).view(source)
    argument = expr.Argument(0, source, "x")
    (got,) = values_by(route, (expr.functions.bitcast(argument, target),), argument, x)
    assert got == x.view(target).tolist()


def test_types_are_a_lattice():
    for a, b in itertools.product(DTYPES, DTYPES):
        assert promote((a, b)) == promote((b, a))
        assert promote((a, promote((a, b)))) == promote((a, b))
        if a in INTEGERS and b in INTEGERS and promote((a, b)) in INTEGERS:
            low, high = LIMITS[promote((a, b))]
            assert low <= min(LIMITS[a][0], LIMITS[b][0])
            assert max(LIMITS[a][1], LIMITS[b][1]) <= high
    for three in itertools.combinations(DTYPES, 3):
        assert len({promote(order) for order in itertools.permutations(three)}) == 1
    assert promote(("uint8", "int8")) == "int16"
    assert promote(("uint64", "int8")) == "float64"
    assert promote(("float16", "bfloat16")) == "float32"
    assert promote(("int64", "float16")) == "float16"
    assert promote(("int64", "uint64", "float32")) == "float32"
    x = expr.Argument(0, "int8", "x")
    assert [(x + 1).dtype, (x + 0.5).dtype, (x < 1).dtype, (x / 2).dtype] == ["int8", "float64", "bool", "float64"]
