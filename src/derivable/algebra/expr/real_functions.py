"""The rows of the table for functions of real numbers: roundings, exponentials, logarithms, trigonometry."""

from __future__ import annotations

import numpy as np

from derivable.algebra.expr.nodes import Constant, Expr, applied
from derivable.algebra.expr.operation import Operation, call, flat, intrinsic, is_number, where, zero

LOG_HALF = -0.6931471805599453


def _power_partials(node: Expr, a: Expr, b: Expr) -> tuple[Expr, ...]:
    to_base = where(applied("equal", b, 0), zero(node), b * applied("power", a, b - 1))
    # 0 ** b is 0 for every b > 0, so b has no influence there.
    to_exponent = where(applied("equal", a, 0), zero(node), node * applied("log", a))
    return to_base, to_exponent


def _logaddexp_partials(node: Expr, a: Expr, b: Expr) -> tuple[Expr, ...]:
    dead = applied("equal", applied("maximum", a, b), float("-inf"))

    def share(x: Expr, y: Expr) -> Expr:
        half = Constant(0.5, node.dtype)
        return where(dead, zero(node), where(applied("equal", x, y), half, applied("sigmoid", x - y)))

    return share(a, b), share(b, a)


def _log1mexp_partials(node: Expr, a: Expr) -> tuple[Expr, ...]:
    # -exp(a) / (1 - exp(a)); at a = 0 the limit from below.
    slope = applied("exp", a) / applied("expm1", a)
    return (where(applied("less_equal", 0, a), Constant(float("-inf"), node.dtype), slope),)


def _log1mexp(x):
    near_zero = np.log(-np.expm1(np.maximum(x, np.asarray(x).dtype.type(2 * LOG_HALF))))
    return np.where(np.greater(x, LOG_HALF), near_zero, np.log1p(-np.exp(x)))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


ROWS = (
    Operation(
        "power",
        2,
        "float",
        partials=_power_partials,
        symbol="**",
        precedence=8,
        defined=is_number,
        **call("power", 2, numba="{0} ** {1}", lanes="power({0}, {1})", torch="torch.pow({0}, {1})"),
    ),
    Operation("floor", 1, "float", partials=flat, **intrinsic("floor")),
    Operation("ceil", 1, "float", partials=flat, **intrinsic("ceil")),
    Operation("exp", 1, "float", partials=lambda node, a: (node,), **intrinsic("exp", numba="math.exp({0})")),
    Operation(
        "expm1",
        1,
        "float",
        partials=lambda node, a: (applied("exp", a),),
        **call("expm1", numba="math.expm1({0})", lanes="expm1({0})"),
    ),
    Operation("log", 1, "float", partials=lambda node, a: (1 / a,), defined=is_number, **intrinsic("log")),
    Operation(
        "log1p",
        1,
        "float",
        partials=lambda node, a: (1 / (1 + a),),
        defined=is_number,
        **call("log1p", lanes="log1p({0})"),
    ),
    Operation(
        "log1mexp",
        1,
        "float",
        _log1mexp,
        _log1mexp_partials,
        defined=is_number,
        numba="""def log1mexp_{t}(a):
    if a > np.{t}(-0.6931471805599453):
        return np.log(-math.expm1(a))
    return np.log1p(-math.exp(a))
""",
        lanes="select(less(like({0}, -0.6931471805599453), {0}), log(negate(expm1({0}))), log1p(negate(exp({0}))))",
        jnp="jnp.where({0} > {type}(-0.6931471805599453), jnp.log(-jnp.expm1({0})), jnp.log1p(-jnp.exp({0})))",
        # The branch that is not taken has a finite slope, as torch differentiates both.
        torch="torch.where({0} > -0.6931471805599453, torch.log(-torch.expm1({0})), "
        "torch.log1p(-torch.exp(torch.where({0} > -0.6931471805599453, -1.0, {0}))))",
    ),
    Operation(
        "logaddexp",
        2,
        "float",
        partials=_logaddexp_partials,
        **call(
            "logaddexp",
            2,
            numba="""def logaddexp_{t}(a, b):
    if a == b:
        return a + np.{t}(0.6931471805599453)
    if a > b:
        return a + np.log1p(math.exp(b - a))
    if a < b:
        return b + np.log1p(math.exp(a - b))
    return a + b
""",
            lanes="logaddexp({0}, {1})",
            # With u = 1 + t, the logarithm of 1 + t is t log(u) / (u - 1) without cancellation.
            triton="tl.where({0} == {1}, {0} + 0.6931471805599453, tl.maximum({0}, {1}, "
            "propagate_nan=tl.PropagateNan.ALL) + tl.where(1 + tl.exp(-tl.abs({0} - {1})) == 1, "
            "tl.exp(-tl.abs({0} - {1})), tl.exp(-tl.abs({0} - {1})) * tl.log(1 + tl.exp(-tl.abs({0} - {1}))) "
            "/ ((1 + tl.exp(-tl.abs({0} - {1}))) - 1)))",
        ),
    ),
    Operation("sqrt", 1, "float", partials=lambda node, a: (0.5 / node,), defined=is_number, **intrinsic("sqrt")),
    Operation(
        "sin",
        1,
        "float",
        partials=lambda node, a: (applied("cos", a),),
        defined=is_number,
        **intrinsic("sin", numba="math.sin({0})"),
    ),
    Operation(
        "cos",
        1,
        "float",
        partials=lambda node, a: (-applied("sin", a),),
        defined=is_number,
        **intrinsic("cos", numba="math.cos({0})"),
    ),
    Operation("tanh", 1, "float", partials=lambda node, a: (1 - node * node,), **call("tanh", numba="math.tanh({0})")),
    Operation(
        "sigmoid",
        1,
        "float",
        _sigmoid,
        lambda node, a: (node * applied("sigmoid", -a),),
        numba="np.{t}(1.0) / (np.{t}(1.0) + math.exp(-{0}))",
        lanes="divide(like({0}, 1), add(like({0}, 1), exp(negate({0}))))",
        triton="1 / (1 + tl.exp(-{0}))",
        jnp="1 / (1 + jnp.exp(-{0}))",
        torch="torch.sigmoid({0})",
    ),
)
