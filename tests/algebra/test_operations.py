"""The table of scalar operations is complete, and every text in it means what the row says."""

import itertools
import re

import numpy as np
import pytest

from derivable.algebra import expr
from derivable.algebra.expr import emit
from derivable.algebra.expr.emit_numba import DECORATOR, HEADER, preamble, statements
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.types import INTEGERS, LIMITS
from derivable.core.diagnostics import UnsupportedError
from derivable.device.cpu import lanes

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
torch = pytest.importorskip("torch")

INF, NAN = np.inf, np.nan
# The dtype's edge values; all pairs of them are tried.
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.7, -0.69, 2.5, -3.0, 7.0, 1e-6, -1e-6, 40.0, -40.0, 1e30, INF, -INF, NAN]
HALF_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.75, 2.5, -3.0, 7.0, 100.0, INF, -INF, NAN]


def integers(dtype):
    low, high = LIMITS[dtype]
    return [
        n for n in (0, 1, -1, 2, -2, 3, -7, 100, low, low + 1, low // 2, high // 2, high - 1, high) if low <= n <= high
    ]


EDGES = {"bool": [False, True], "float32": FLOATS, "float64": FLOATS} | {dtype: integers(dtype) for dtype in INTEGERS}
# What is computed by other formulas than NumPy's, in units of the last place; everything else is exact.
ROUNDED = {"power", "exp", "expm1", "log", "log1p", "log1mexp", "logaddexp", "sqrt", "sin", "cos", "tanh", "sigmoid"}
HAS_NONE = {
    "lanes": {"floor_divide", "remainder", "tanh", "cast", "saturating_cast"},
    "triton": {
        *("floor_divide", "remainder", "power", "expm1", "log1p", "log1mexp", "tanh"),
        *("truncate_divide", "truncate_remainder"),
    },
}


def test_every_row_is_complete():
    for row in OPERATIONS.values():
        has_derivative = row.rule in ("arithmetic", "float")
        assert (row.partials is not None) == has_derivative, row.name
        for target in ("numba", "lanes", "triton", "jnp", "torch"):
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
                compile(text.format("a", "b", "c", type=f"tl.{dtype}", low=0, high=1), row.name, "eval")


def applications(dtype):
    """Every operation that takes operands of this type, applied to arguments of it, and the arguments."""
    x, y = expr.Argument(0, dtype, "x"), expr.Argument(1, dtype, "y")
    found = {}
    for row in OPERATIONS.values():
        if row.rule == "cast" or (
            (row.rule == "logical") != (dtype == "bool") and row.rule not in ("comparison", "where")
        ):
            continue
        operands = (x if dtype == "bool" else expr.less(x, y), x, y)
        node = expr.apply(row.name, *(operands if row.rule == "where" else (x, y)[: row.arity]))
        if all(operand.dtype in (dtype, "bool") for operand in node.operands):
            found[row.name] = node
    return found, (x, y)


def values_of(dtype):
    x, y = np.array(list(itertools.product(EDGES[dtype], EDGES[dtype])), dtype).T
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
    outs = [np.empty(x.shape, e.dtype) for e in exprs]
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


def lanes_route(exprs, arguments, x, y, as_lines):
    """The lanes' texts in a kernel over scalars [node], or over lines [node, lane]."""
    width = 64 // x.dtype.itemsize
    size = -(-x.size // width) * width
    shape = (size // width, width) if as_lines else (size,)
    columns = [np.resize(column, size).reshape(shape) for column in (x, y)]
    body, results = emit.statements("lanes", exprs, dict(zip(arguments, "xy")), indent="        ")
    # Masks are kept as numbers of the operands' type.
    one = "select({}, like(x, 1), like(x, 0))"
    stores = [
        f"        store(out{k}, i, {one.format(text) if e.dtype == 'bool' else text})"
        for k, (e, text) in enumerate(zip(exprs, results))
    ]
    outs = [np.empty(shape, x.dtype) for _ in exprs]
    used = sorted(name for name in vars(lanes) if re.search(rf"\b{name}\(", "\n".join(body + stores)))
    lines = [
        "import numpy as np\nfrom numba import njit",
        f"from derivable.device.cpu.lanes import load, {', '.join(used)}\n\n{DECORATOR}",
        f"def kernel(xs, ys, {', '.join(f'out{k}' for k in range(len(outs)))}):",
        "    for i in range(xs.shape[0]):\n        x, y = load(xs, i), load(ys, i)",
        *body,
        *stores,
    ]
    load_generated("\n".join(lines), "lanes").kernel(*columns, *outs)
    return [out.ravel()[: x.size] for out in outs]


@pytest.mark.parametrize("dtype", list(EDGES))
@pytest.mark.parametrize("route", ["numba", "scalars", "lines", "jnp", "torch"])
def test_texts_mean_what_the_row_says(dtype, route):
    found, arguments = applications(dtype)
    x, y = values_of(dtype)
    if route == "torch" and dtype in ("uint16", "uint32", "uint64"):
        pytest.skip("torch has these types in name only")
    if route in ("scalars", "lines"):
        if dtype == "bool":
            pytest.skip("masks are tried on the results of comparisons")
        found = {name: node for name, node in found.items() if OPERATIONS[name].text("lanes", node.dtype)}
        p, q = found["less"], found["equal"]
        found |= {"not": ~p, "and": p & expr.not_equal(*arguments), "or": p | q, "xor": expr.logical_xor(~p, q)}
    exprs = tuple(found.values())
    expected = expr.interpret(exprs, (x, y))
    if route == "numba":
        got = numba_route(exprs, arguments, x, y)
    elif route in ("scalars", "lines"):
        got = lanes_route(exprs, arguments, x, y, route == "lines")
    elif route == "jnp":
        got = expr.compile_jnp(exprs, arguments)(x, y)
    else:
        got = [part.numpy() for part in expr.compile_torch(exprs, arguments)(torch.tensor(x), torch.tensor(y))]
    for name, ours, theirs in zip(found, got, expected):
        check(name, ours, theirs, dtype if dtype in ("float32", "float64") else "float64")


def test_what_a_target_has_not():
    x = expr.Argument(0, "float64", "x")
    with pytest.raises(UnsupportedError, match="lanes has no tanh of float64"):
        emit.statements("lanes", expr.tanh(x), {x: "x"})
    with pytest.raises(UnsupportedError, match=r"the constant 1\.0 has no lanes without an argument that is float64"):
        emit.statements("lanes", expr.Constant(1, "float64"), {})
