"""The scalar operations, one row each: type rule, meaning, derivative, and a text for every target.

    rule       how the types of the operands give the type of the result (below)
    symbol     and precedence (higher binds tighter) for printing infix
    meaning    the value, on NumPy scalars or arrays that already have the operands' types
    partials   (node, *operands) -> the partial derivative by each operand; None where the result is no float, and for
               `where` and `cast`, which pass tangents on as they are
    numba      source for Numba: an expression, or the text of a function `name_{t}` that its statements call
    lanes      source by the functions of `derivable.device.cpu.lanes`, for scalars and vectors alike; truth is a
               mask, an integer with all bits set or none
    triton     source by `triton.language as tl`
    jnp        source by `jax.numpy as jnp`
    torch      source by `torch`

In texts {0} {1} {2} are operands, {t} is the name of the result's type, {type} the type as the target writes it. A pair
of texts is (for floats, for integers) by the type of the result, and None says that the target has no such operation.
A test keeps the table complete and compares every text with the meaning.

Type rules:

    arithmetic   operands promoted, bool becomes int64; the result has that type
    float        operands promoted, bool and int64 become float64; the result has that type
    comparison   operands promoted; the result is bool
    logical      operands are bool; the result is bool
    where        the first operand is bool, the others are promoted; the result has their type
    cast         the result has the type asked for

Corners: integers wrap around, and x // 0 = x % 0 = 0; `abs` and `sign` have derivative 0 at 0; `minimum` and `maximum`
give NaN if one is NaN, and a tie, with its whole derivative, to the first operand; `floor`, `ceil`, comparisons and
integer results have derivative 0; `logaddexp` has derivative 0 where the result is -inf, and 1/2 each for two equal
infinities.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from derivable.algebra.expr.nodes import Constant, Expr, applied
from derivable.algebra.expr.types import FLOATS, Dtype, promote
from derivable.core.diagnostics import TypeMismatchError

Rule = Literal["arithmetic", "float", "comparison", "logical", "where", "cast"]
Target = Literal["numba", "lanes", "triton", "jnp", "torch"]
Text = str | tuple[str | None, str | None] | None
LOG_HALF = -0.6931471805599453


@dataclass(frozen=True)
class Operation:
    """One scalar operation; the fields are those of the module's text."""

    name: str
    arity: int
    rule: Rule
    meaning: Callable[..., Any]
    partials: Callable[..., tuple[Expr, ...]] | None = None
    symbol: str = ""
    precedence: int = 9
    numba: Text = None
    lanes: Text = None
    triton: Text = None
    jnp: Text = None
    torch: Text = None

    def text(self, target: Target, dtype: Dtype) -> str | None:
        """The source for a result of this type; None if the target has no such operation."""
        text = getattr(self, target)
        return text if text is None or isinstance(text, str) else text[dtype not in FLOATS]


def _one(node: Expr) -> Expr:
    return Constant(1, node.dtype)


def _zero(node: Expr) -> Expr:
    return Constant(0, node.dtype)


def _flat(node: Expr, *operands: Expr) -> tuple[Expr, ...]:
    return tuple(_zero(node) for _ in operands)


def _where(condition: Expr, a: Expr, b: Expr) -> Expr:
    return applied("where", condition, a, b)


def _choose(first: Expr, node: Expr) -> tuple[Expr, Expr]:
    return _where(first, _one(node), _zero(node)), _where(first, _zero(node), _one(node))


def _power_partials(node: Expr, a: Expr, b: Expr) -> tuple[Expr, ...]:
    to_base = _where(applied("equal", b, 0), _zero(node), b * applied("power", a, b - 1))
    # 0 ** b is 0 for every b > 0, so b has no influence there.
    to_exponent = _where(applied("equal", a, 0), _zero(node), node * applied("log", a))
    return to_base, to_exponent


def _logaddexp_partials(node: Expr, a: Expr, b: Expr) -> tuple[Expr, ...]:
    dead = applied("equal", applied("maximum", a, b), float("-inf"))

    def share(x: Expr, y: Expr) -> Expr:
        half = Constant(0.5, node.dtype)
        return _where(dead, _zero(node), _where(applied("equal", x, y), half, applied("sigmoid", x - y)))

    return share(a, b), share(b, a)


def _log1mexp_partials(node: Expr, a: Expr) -> tuple[Expr, ...]:
    # -exp(a) / (1 - exp(a)); at a = 0 the limit from below.
    slope = applied("exp", a) / applied("expm1", a)
    return (_where(applied("less_equal", 0, a), Constant(float("-inf"), node.dtype), slope),)


def _nonzero_divisor(function: Callable) -> Callable:
    def divide(a, b):
        if np.issubdtype(np.result_type(a, b), np.integer):
            # By definition x // 0 = x % 0 = 0 for integers: no route may trap.
            safe = np.where(np.equal(b, 0), np.ones_like(b), b)
            return np.where(np.equal(b, 0), np.zeros_like(np.add(a, b)), function(a, safe))
        return function(a, b)

    return divide


def _log1mexp(x):
    near_zero = np.log(-np.expm1(np.maximum(x, np.asarray(x).dtype.type(2 * LOG_HALF))))
    return np.where(np.greater(x, LOG_HALF), near_zero, np.log1p(-np.exp(x)))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _everywhere(text: str, **others: Any) -> dict[str, Any]:
    """The same text for every target that has Python's operators."""
    return {"numba": text, "triton": text, "jnp": text, "torch": text, **others}


def _infix(symbol: str, precedence: int, **others: Any) -> dict[str, Any]:
    return {"symbol": symbol, "precedence": precedence, **_everywhere(f"{{0}} {symbol} {{1}}"), **others}


def _call(name: str, arity: int = 1, **others: Any) -> dict[str, Any]:
    """The function of this name in NumPy, jax.numpy and torch."""
    call = f"{name}({', '.join(f'{{{i}}}' for i in range(arity))})"
    texts = {"numba": f"np.{call}", "jnp": f"jnp.{call}", "torch": f"torch.{call}"}
    return {"meaning": getattr(np, name), **texts, **others}


def _intrinsic(name: str, **others: Any) -> dict[str, Any]:
    """`_call` of what is an instruction of vectors and of Triton too."""
    return _call(name, **{"lanes": f"{name}({{0}})", "triton": f"tl.{name}({{0}})", **others})


_ROWS = (
    Operation(
        "add",
        2,
        "arithmetic",
        np.add,
        lambda node, a, b: (_one(node), _one(node)),
        **_infix("+", 5, lanes="add({0}, {1})"),
    ),
    Operation(
        "subtract",
        2,
        "arithmetic",
        np.subtract,
        lambda node, a, b: (_one(node), -_one(node)),
        **_infix("-", 5, lanes="subtract({0}, {1})"),
    ),
    Operation(
        "multiply",
        2,
        "arithmetic",
        np.multiply,
        lambda node, a, b: (b, a),
        **_infix("*", 6, lanes="multiply({0}, {1})"),
    ),
    Operation(
        "divide",
        2,
        "float",
        np.divide,
        lambda node, a, b: (1 / b, -node / b),
        **_infix("/", 6, lanes="divide({0}, {1})"),
    ),
    Operation(
        "floor_divide",
        2,
        "arithmetic",
        _nonzero_divisor(np.floor_divide),
        _flat,
        "//",
        6,
        # As in NumPy: the quotient of what the remainder leaves, rounded to the nearest integer.
        numba=(
            """def floor_divide_{t}(a, b):
    if b == 0:
        return a / b
    r = np.fmod(a, b)
    q = (a - r) / b
    if r != 0 and (r < 0) != (b < 0):
        q -= np.{t}(1)
    whole = np.floor(q)
    return whole + np.{t}(q - whole > 0.5)
""",
            # The smallest integer by -1 wraps around.
            """def floor_divide_{t}(a, b):
    if b == 0:
        return np.{t}(0)
    return -a if b == -1 else a // b
""",
        ),
        jnp=(
            "jnp.floor_divide({0}, {1})",
            "jnp.where({1} == 0, 0, jnp.floor_divide({0}, jnp.where({1} == 0, 1, {1})))",
        ),
        torch=(
            "torch.div({0}, {1}, rounding_mode='floor')",
            "torch.where({1} == 0, 0, torch.div({0}, torch.where({1} == 0, 1, {1}), rounding_mode='floor'))",
        ),
    ),
    Operation(
        "remainder",
        2,
        "arithmetic",
        _nonzero_divisor(np.remainder),
        lambda node, a, b: (_one(node), -(a // b)),
        "%",
        6,
        numba=(
            """def remainder_{t}(a, b):
    if b == 0:
        return np.{t}(np.nan)
    r = np.fmod(a, b)
    if r != 0 and (r < 0) != (b < 0):
        r += b
    return r
""",
            """def remainder_{t}(a, b):
    if b == 0:
        return np.{t}(0)
    return a % b
""",
        ),
        jnp=(
            "jnp.remainder({0}, {1})",
            "jnp.where({1} == 0, 0, jnp.remainder({0}, jnp.where({1} == 0, 1, {1})))",
        ),
        torch=(
            "torch.remainder({0}, {1})",
            "torch.where({1} == 0, 0, torch.remainder({0}, torch.where({1} == 0, 1, {1})))",
        ),
    ),
    Operation(
        "negate",
        1,
        "arithmetic",
        np.negative,
        lambda node, a: (-_one(node),),
        "-",
        7,
        **_everywhere("-{0}", lanes="negate({0})"),
    ),
    Operation(
        "power",
        2,
        "float",
        partials=_power_partials,
        symbol="**",
        precedence=8,
        **_call("power", 2, numba="{0} ** {1}", lanes="power({0}, {1})", torch="torch.pow({0}, {1})"),
    ),
    Operation(
        "abs",
        1,
        "arithmetic",
        np.absolute,
        lambda node, a: (applied("sign", a),),
        numba="abs({0})",
        lanes=("absolute({0})", "select(less({0}, like({0}, 0)), negate({0}), {0})"),
        triton="tl.abs({0})",
        jnp="jnp.abs({0})",
        torch="torch.abs({0})",
    ),
    Operation(
        "sign",
        1,
        "arithmetic",
        partials=_flat,
        **_call(
            "sign",
            numba="""def sign_{t}(a):
    if a > 0:
        return np.{t}(1)
    if a < 0:
        return np.{t}(-1)
    return a
""",
            lanes="select(less(like({0}, 0), {0}), like({0}, 1), select(less({0}, like({0}, 0)), like({0}, -1), {0}))",
            triton="tl.where({0} > 0, 1, tl.where({0} < 0, -1, {0}))",
            torch=("torch.where({0} != {0}, {0}, torch.sign({0}))", "torch.sign({0})"),
        ),
    ),
    Operation(
        "minimum",
        2,
        "arithmetic",
        partials=lambda node, a, b: _choose(applied("less_equal", a, b), node),
        **_call(
            "minimum",
            2,
            numba="({0} if ({0} <= {1} or {0} != {0}) else {1})",
            lanes=(
                "select(bit_or(less_equal({0}, {1}), not_equal({0}, {0})), {0}, {1})",
                "select(less_equal({0}, {1}), {0}, {1})",
            ),
            triton=("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "tl.minimum({0}, {1})"),
        ),
    ),
    Operation(
        "maximum",
        2,
        "arithmetic",
        partials=lambda node, a, b: _choose(applied("less_equal", b, a), node),
        **_call(
            "maximum",
            2,
            numba="({0} if ({0} >= {1} or {0} != {0}) else {1})",
            lanes=(
                "select(bit_or(less_equal({1}, {0}), not_equal({0}, {0})), {0}, {1})",
                "select(less_equal({1}, {0}), {0}, {1})",
            ),
            triton=("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "tl.maximum({0}, {1})"),
        ),
    ),
    Operation("floor", 1, "float", partials=_flat, **_intrinsic("floor")),
    Operation("ceil", 1, "float", partials=_flat, **_intrinsic("ceil")),
    Operation("exp", 1, "float", partials=lambda node, a: (node,), **_intrinsic("exp", numba="math.exp({0})")),
    Operation(
        "expm1",
        1,
        "float",
        partials=lambda node, a: (applied("exp", a),),
        **_call("expm1", numba="math.expm1({0})", lanes="expm1({0})"),
    ),
    Operation("log", 1, "float", partials=lambda node, a: (1 / a,), **_intrinsic("log")),
    Operation("log1p", 1, "float", partials=lambda node, a: (1 / (1 + a),), **_call("log1p", lanes="log1p({0})")),
    Operation(
        "log1mexp",
        1,
        "float",
        _log1mexp,
        _log1mexp_partials,
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
        **_call(
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
    Operation("sqrt", 1, "float", partials=lambda node, a: (0.5 / node,), **_intrinsic("sqrt")),
    Operation(
        "sin",
        1,
        "float",
        partials=lambda node, a: (applied("cos", a),),
        **_intrinsic("sin", numba="math.sin({0})"),
    ),
    Operation(
        "cos",
        1,
        "float",
        partials=lambda node, a: (-applied("sin", a),),
        **_intrinsic("cos", numba="math.cos({0})"),
    ),
    Operation("tanh", 1, "float", partials=lambda node, a: (1 - node * node,), **_call("tanh", numba="math.tanh({0})")),
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
    Operation("less", 2, "comparison", np.less, **_infix("<", 4, lanes="less({0}, {1})")),
    Operation("less_equal", 2, "comparison", np.less_equal, **_infix("<=", 4, lanes="less_equal({0}, {1})")),
    Operation("equal", 2, "comparison", np.equal, **_infix("==", 4, lanes="equal({0}, {1})")),
    Operation("not_equal", 2, "comparison", np.not_equal, **_infix("!=", 4, lanes="not_equal({0}, {1})")),
    Operation(
        "logical_not",
        1,
        "logical",
        symbol="~",
        precedence=7,
        **_call("logical_not", numba="not {0}", lanes="bit_not({0})", triton="{0} == 0"),
    ),
    Operation(
        "logical_and",
        2,
        "logical",
        symbol="&",
        precedence=3,
        **_call("logical_and", 2, numba="{0} and {1}", lanes="bit_and({0}, {1})", triton="{0} & {1}"),
    ),
    Operation(
        "logical_xor",
        2,
        "logical",
        symbol="^",
        precedence=2,
        **_call("logical_xor", 2, numba="{0} != {1}", lanes="bit_xor({0}, {1})", triton="{0} ^ {1}"),
    ),
    Operation(
        "logical_or",
        2,
        "logical",
        symbol="|",
        precedence=1,
        **_call("logical_or", 2, numba="{0} or {1}", lanes="bit_or({0}, {1})", triton="{0} | {1}"),
    ),
    Operation(
        "where",
        3,
        "where",
        **_call(
            "where",
            3,
            numba="({1} if {0} else {2})",
            lanes="select({0}, {1}, {2})",
            triton="tl.where({0}, {1}, {2})",
        ),
    ),
    Operation(
        "cast",
        1,
        "cast",
        lambda a: a,
        numba="{type}({0})",
        triton="{0}.to({type})",
        jnp="jnp.asarray({0}).astype({type})",
        torch="{0}.to({type})",
    ),
)
OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}


def operation(name: str) -> Operation:
    """The operation called `name`. Raises TypeMismatchError for an unknown one, with the nearest name."""
    if name not in OPERATIONS:
        near = difflib.get_close_matches(name, OPERATIONS, 1)
        raise TypeMismatchError(
            f"there is no scalar operation {name!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"known are {', '.join(OPERATIONS)}",
        )
    return OPERATIONS[name]


def operand_dtypes(name: str, dtypes: tuple[Dtype, ...]) -> tuple[tuple[Dtype, ...], Dtype]:
    """(the types that the operands are cast to, the type of the result). Raises TypeMismatchError."""
    row = operation(name)
    if len(dtypes) != row.arity:
        raise TypeMismatchError(f"{name} takes {row.arity} operands, {len(dtypes)} are given")
    if row.rule == "logical":
        for dtype in dtypes:
            if dtype != "bool":
                raise TypeMismatchError(
                    f"{name} needs bool operands, one is {dtype}", hint="compare it, as in `x != 0`"
                )
        return dtypes, "bool"
    if row.rule == "where":
        if dtypes[0] != "bool":
            raise TypeMismatchError(
                f"the condition of `where` is {dtypes[0]}, not bool", hint="compare it, as in `x != 0`"
            )
        common = promote(dtypes[1:])
        branches: tuple[Dtype, ...] = ("bool", common, common)
        return branches, common
    common = promote(dtypes)
    if row.rule == "comparison":
        operands: tuple[Dtype, ...] = tuple(common for _ in dtypes)
        return operands, "bool"
    if row.rule == "arithmetic" and common == "bool":
        common = "int64"
    if row.rule == "float" and common not in FLOATS:
        common = "float64"
    operands = tuple(common for _ in dtypes)
    return operands, common
