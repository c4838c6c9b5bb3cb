"""The rows of the table for functions of real numbers: roundings, exponentials, logarithms, trigonometry."""

from __future__ import annotations

import numpy as np

from derivable.algebra.expr.nodes import Constant, Expr, applied
from derivable.algebra.expr.operation import flat, instruction, is_number, row, where, zero

LOG_HALF = -0.6931471805599453

# Triton's interpreter has neither. With u = exp(x), exp(x) - 1 is x (u - 1) / log(u), without cancellation; with
# u = 1 + x, log(1 + x) is x log(u) / (u - 1).
_EXPM1 = (
    "tl.where(tl.exp({x}) == 1, {x}, tl.where(tl.abs({x}) < 1, {x} * (tl.exp({x}) - 1) / tl.log(tl.exp({x})), "
    "tl.exp({x}) - 1))"
)
_LOG1P = "tl.where(1 + {x} == 1, {x}, tl.where({x} < 1, {x} * tl.log(1 + {x}) / ((1 + {x}) - 1), tl.log(1 + {x})))"


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


def _exp_of_difference(a, b):
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(a, b), np.asarray(a).dtype.type(1), np.exp(a - b))


def _log1mexp_partials(node: Expr, a: Expr) -> tuple[Expr, ...]:
    # -exp(a) / (1 - exp(a)); at a = 0 the limit from below.
    slope = applied("exp", a) / applied("expm1", a)
    return (where(applied("less_equal", 0, a), Constant(float("-inf"), node.dtype), slope),)


def _log1mexp(x):
    near_zero = np.log(-np.expm1(np.maximum(x, np.asarray(x).dtype.type(2 * LOG_HALF))))
    return np.where(np.greater(x, LOG_HALF), near_zero, np.log1p(-np.exp(x)))


ROWS = (
    row(
        "power",
        "float",
        _power_partials,
        arity=2,
        symbol="**",
        precedence=8,
        defined=is_number,
        # LLVM replaces exponents that it knows: the same ones are replaced where they come at run time, so that bits do
        # not depend on who knows them. Of a base that it knows it would make exp2, with other roundings.
        numba="""def power_{t}(a, b):
    if b == 2:
        return a * a
    if b == -1:
        return np.{t}(1) / a
    if b == 0.5:
        return np.{t}(np.inf) if a == -np.inf else abs(np.sqrt(a))
    return (a if b != 0 else b) ** b
""",
        torch="torch.pow({0}, {1})",
    ),
    instruction("floor", flat),
    instruction("ceil", flat),
    instruction("exp", lambda node, a: (node,), numba="math.exp({0})"),
    row(
        "expm1",
        "float",
        lambda node, a: (applied("exp", a),),
        numba="math.expm1({0})",
        triton=_EXPM1.replace("{x}", "{0}"),
    ),
    instruction("log", lambda node, a: (1 / a,), defined=is_number),
    row(
        "log1p",
        "float",
        lambda node, a: (1 / (1 + a),),
        defined=is_number,
        triton=_LOG1P.replace("{x}", "{0}"),
    ),
    row(
        "log1mexp",
        "float",
        _log1mexp_partials,
        defined=is_number,
        meaning=_log1mexp,
        numba="""def log1mexp_{t}(a):
    if a > np.{t}(-0.6931471805599453):
        return np.log(-math.expm1(a))
    return np.log1p(-math.exp(a))
""",
        triton="tl.where({0} > -0.6931471805599453, tl.log(-("
        + _EXPM1.replace("{x}", "{0}")
        + ")), "
        + _LOG1P.replace("{x}", "(-tl.exp({0}))")
        + ")",
        jnp="jnp.where({0} > {type}(-0.6931471805599453), jnp.log(-jnp.expm1({0})), jnp.log1p(-jnp.exp({0})))",
        # The branch that is not taken has a finite slope, as torch differentiates both.
        torch="torch.where({0} > -0.6931471805599453, torch.log(-torch.expm1({0})), "
        "torch.log1p(-torch.exp(torch.where({0} > -0.6931471805599453, -1.0, {0}))))",
    ),
    row(
        "logaddexp",
        "float",
        _logaddexp_partials,
        arity=2,
        numba="""def logaddexp_{t}(a, b):
    if a == b:
        return a + np.{t}(0.6931471805599453)
    if a > b:
        return a + np.log1p(math.exp(b - a))
    if a < b:
        return b + np.log1p(math.exp(a - b))
    return a + b
""",
        # With u = 1 + t, the logarithm of 1 + t is t log(u) / (u - 1) without cancellation.
        triton="tl.where({0} == {1}, {0} + 0.6931471805599453, tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL) "
        "+ tl.where(1 + {t} == 1, {t}, {t} * tl.log(1 + {t}) / ((1 + {t}) - 1)))".replace(
            "{t}", "tl.exp(-tl.abs({0} - {1}))"
        ),
    ),
    row(
        "exp_of_difference",
        "float",
        lambda node, a, b: (node, -node),
        arity=2,
        meaning=_exp_of_difference,
        defined=is_number,
        numba="""def exp_of_difference_{t}(a, b):
    if a == b:
        return np.{t}(1)
    return np.exp(a - b)
""",
        triton="tl.where({0} == {1}, 1.0, tl.exp({0} - {1}))",
        # Libraries differentiate these texts, too, of which equal numbers have slopes.
        jnp="jnp.exp(jnp.where(jnp.isinf({0}) & ({0} == {1}), 0, {0} - {1}))",
        torch="torch.exp(torch.where(torch.isinf({0}) & ({0} == {1}), 0.0, {0} - {1}))",
    ),
    instruction("sqrt", lambda node, a: (0.5 / node,), defined=is_number),
    instruction("sin", lambda node, a: (applied("cos", a),), defined=is_number, numba="math.sin({0})"),
    instruction("cos", lambda node, a: (-applied("sin", a),), defined=is_number, numba="math.cos({0})"),
    row("tanh", "float", lambda node, a: (1 - node * node,), numba="math.tanh({0})"),
    row(
        "sigmoid",
        "float",
        lambda node, a: (node * applied("sigmoid", -a),),
        meaning=lambda a: 1 / (1 + np.exp(-a)),
        numba="np.{t}(1.0) / (np.{t}(1.0) + math.exp(-{0}))",
        triton="1 / (1 + tl.exp(-{0}))",
        jnp="1 / (1 + jnp.exp(-{0}))",
    ),
)
