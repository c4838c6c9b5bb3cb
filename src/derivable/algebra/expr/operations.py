"""The table of scalar operations, and how their types follow; `operation` says what a row is.

The rows of arithmetic, comparisons, logic and casts are here, those of real functions in `real_functions`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import numpy as np

from derivable.algebra.expr import real_functions
from derivable.algebra.expr.nodes import Constant, Expr, applied
from derivable.algebra.expr.operation import Operation, call, choose, everywhere, flat, infix, is_number, one
from derivable.algebra.expr.types import FLOATS, INTEGERS, LIMITS, SIGNED, Dtype, promote
from derivable.core.diagnostics import TypeMismatchError


def _is_whole(values: Any) -> bool:
    return np.asarray(values).dtype.kind in "iu"


def _nonzero_divisor(function: Callable) -> Callable:
    def divide(a, b):
        if _is_whole(b):
            # By definition a division by the integer 0 gives 0: no route may trap.
            zero = np.equal(b, 0)
            return function(a, np.where(zero, 1, b).astype(b.dtype)) * ~zero if np.any(zero) else function(a, b)
        return function(a, b)

    return divide


def _truncate_divide(a, b):
    return (a - np.fmod(a, b)) // b if _is_whole(b) else np.trunc(np.divide(a, b))


def _quotient_exists(node: Expr, a: Expr, b: Expr) -> Expr:
    if node.dtype not in INTEGERS:
        return is_number(node)
    defined = applied("not_equal", b, 0)
    if node.dtype in SIGNED:
        # The quotient of the smallest integer by -1 is no integer of the type.
        smallest = Constant(LIMITS[node.dtype][0], node.dtype)
        defined = defined & (applied("not_equal", b, -1) | applied("not_equal", a, smallest))
    return defined


def _torch_quotient(rounding: str) -> str:
    # torch divides by the processor's instruction, which traps at the smallest integer by -1.
    is_minus_one = "({1} == -1) & ({low} < 0)"
    safe = f"torch.where(({{1}} == 0) | {is_minus_one}, 1, {{1}})"
    quotient = f"torch.div({{0}}, {safe}, rounding_mode='{rounding}')"
    return f"torch.where({{1}} == 0, 0, torch.where({is_minus_one}, -{{0}}, {quotient}))"


def _saturated(function: Callable, is_sum: bool) -> Callable:
    def meaning(a, b):
        result = function(a, b)
        kind = result.dtype.kind
        if kind not in "iu":
            return result
        # It is below the first operand where the second is negative, or else it has wrapped around; a difference above.
        over = np.less(result, a) if is_sum else np.greater(result, a)
        if kind == "i":
            over = over != np.less(b, 0)
        if not over.any():
            return result
        limits, scalar = np.iinfo(result.dtype), result.dtype.type
        low, high = (limits.min, limits.max) if is_sum or kind == "i" else (0, 0)
        return np.where(over, np.where(np.less(a, 0), scalar(low), scalar(high)), result)

    return meaning


def _saturating_cast(a, dtype):
    low, high = LIMITS[dtype.name]
    # The largest integer is no float, its rounding up is: what is below that fits.
    inside = (a > float(low)) & (a < float(high))
    whole = np.where(inside, a, 0).astype(dtype)
    if np.all(inside):
        return whole
    return np.where(a >= float(high), dtype.type(high), np.where(a <= float(low), dtype.type(low), whole))


def _saturating_texts(symbol: str, lanes: tuple[str, str]) -> dict[str, Any]:
    """A sum that wrapped is below the first operand where the second is not negative, else above it."""
    of, (up, down) = f"{{0}} {symbol} {{1}}", ("<", ">") if symbol == "+" else (">", "<")
    first, second = ("{high}", "{low}") if symbol == "+" else ("{low}", "{high}")
    name = {"+": "add", "-": "subtract"}[symbol]

    def chosen(where: str, constant: str) -> str:
        bounds = [constant.format(bound) for bound in (first, second)]
        inner = [f"{where}({of} {sign} {{0}}, {bound}, {of})" for sign, bound in zip((up, down), bounds)]
        return f"{where}({{1}} >= 0, {inner[0]}, {inner[1]})"

    # Numba lets LLVM assume that sums of integers do not overflow, so the bound is asked for before the sum is formed.
    other, less, more = ("-", "<", ">") if symbol == "+" else ("+", ">", "<")
    function = f"""def saturating_{name}_{{t}}(a, b):
    if b >= 0:
        return np.{{t}}({first}) if a {more} np.{{t}}({first}) {other} b else np.{{t}}(a {symbol} b)
    return np.{{t}}({second}) if a {less} np.{{t}}({second}) {other} b else np.{{t}}(a {symbol} b)
"""
    return {
        "numba": (of, function),
        "lanes": lanes,
        "triton": (of, chosen("tl.where", "tl.full((), {}, {{type}})")),
        "jnp": (of, chosen("jnp.where", "{{type}}({})")),
        "torch": (of, chosen("torch.where", "{}")),
    }


_ROWS = (
    Operation(
        "add",
        2,
        "arithmetic",
        np.add,
        lambda node, a, b: (one(node), one(node)),
        defined=is_number,
        **infix("+", 5, lanes="add({0}, {1})"),
    ),
    Operation(
        "subtract",
        2,
        "arithmetic",
        np.subtract,
        lambda node, a, b: (one(node), -one(node)),
        defined=is_number,
        **infix("-", 5, lanes="subtract({0}, {1})"),
    ),
    Operation(
        "multiply",
        2,
        "arithmetic",
        np.multiply,
        lambda node, a, b: (b, a),
        defined=is_number,
        **infix("*", 6, lanes="multiply({0}, {1})"),
    ),
    Operation(
        "divide",
        2,
        "float",
        np.divide,
        lambda node, a, b: (1 / b, -node / b),
        defined=is_number,
        **infix("/", 6, lanes="divide({0}, {1})"),
    ),
    Operation(
        "floor_divide",
        2,
        "arithmetic",
        _nonzero_divisor(np.floor_divide),
        flat,
        "//",
        6,
        # As in NumPy: the quotient of what the remainder leaves, rounded to the nearest integer.
        defined=_quotient_exists,
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
    if {low} < 0 and b == -1:
        return np.{t}(-a)
    return np.{t}(a // b)
""",
        ),
        jnp=(
            "jnp.floor_divide({0}, {1})",
            "jnp.where({1} == 0, 0, jnp.floor_divide({0}, jnp.where({1} == 0, 1, {1})))",
        ),
        torch=(
            "torch.div({0}, {1}, rounding_mode='floor')",
            _torch_quotient("floor"),
        ),
    ),
    Operation(
        "remainder",
        2,
        "arithmetic",
        _nonzero_divisor(np.remainder),
        lambda node, a, b: (one(node), -(a // b)),
        "%",
        6,
        defined=_quotient_exists,
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
    return np.{t}(a % b)
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
        "saturating_add",
        2,
        "arithmetic",
        _saturated(np.add, True),
        lambda node, a, b: (one(node), one(node)),
        defined=is_number,
        **_saturating_texts("+", ("add({0}, {1})", "saturating_add({0}, {1})")),
    ),
    Operation(
        "saturating_subtract",
        2,
        "arithmetic",
        _saturated(np.subtract, False),
        lambda node, a, b: (one(node), -one(node)),
        defined=is_number,
        **_saturating_texts("-", ("subtract({0}, {1})", "saturating_subtract({0}, {1})")),
    ),
    Operation(
        "truncate_divide",
        2,
        "arithmetic",
        _nonzero_divisor(_truncate_divide),
        flat,
        defined=_quotient_exists,
        numba=(
            "np.trunc({0} / {1})",
            """def truncate_divide_{t}(a, b):
    if b == 0:
        return np.{t}(0)
    if {low} < 0 and b == -1:
        return np.{t}(-a)
    q = np.{t}(a // b)
    return np.{t}(q + np.{t}(q < 0 and q * b != a))
""",
        ),
        lanes=(None, "truncate_divide({0}, {1})"),
        jnp=(
            "jnp.trunc({0} / {1})",
            "jnp.where({1} == 0, 0, ({0} - jnp.fmod({0}, jnp.where({1} == 0, 1, {1}))) // jnp.where({1} == 0, 1, {1}))",
        ),
        torch=(
            "torch.trunc({0} / {1})",
            _torch_quotient("trunc"),
        ),
    ),
    Operation(
        "truncate_remainder",
        2,
        "arithmetic",
        _nonzero_divisor(np.fmod),
        lambda node, a, b: (one(node), -applied("truncate_divide", a, b)),
        defined=_quotient_exists,
        numba=(
            "np.fmod({0}, {1})",
            """def truncate_remainder_{t}(a, b):
    if b == 0 or {low} < 0 and b == -1:
        return np.{t}(0)
    r = np.{t}(a % b)
    return np.{t}(r - b) if r != 0 and (r < 0) != (a < 0) else r
""",
        ),
        lanes=(None, "truncate_remainder({0}, {1})"),
        jnp=(
            "jnp.fmod({0}, {1})",
            "jnp.where({1} == 0, 0, jnp.fmod({0}, jnp.where({1} == 0, 1, {1})))",
        ),
        torch=(
            "torch.fmod({0}, {1})",
            "torch.where({1} == 0, 0, torch.fmod({0}, torch.where({1} == 0, 1, {1})))",
        ),
    ),
    Operation(
        "negate",
        1,
        "arithmetic",
        np.negative,
        lambda node, a: (-one(node),),
        "-",
        7,
        **everywhere("-{0}", lanes="negate({0})"),
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
        partials=flat,
        **call(
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
        partials=lambda node, a, b: choose(applied("less_equal", a, b), node, a),
        **call(
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
        partials=lambda node, a, b: choose(applied("less_equal", b, a), node, a),
        **call(
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
    Operation("less", 2, "comparison", np.less, **infix("<", 4, lanes="less({0}, {1})")),
    Operation("less_equal", 2, "comparison", np.less_equal, **infix("<=", 4, lanes="less_equal({0}, {1})")),
    Operation("equal", 2, "comparison", np.equal, **infix("==", 4, lanes="equal({0}, {1})")),
    Operation("not_equal", 2, "comparison", np.not_equal, **infix("!=", 4, lanes="not_equal({0}, {1})")),
    Operation(
        "logical_not",
        1,
        "logical",
        symbol="~",
        precedence=7,
        **call("logical_not", numba="not {0}", lanes="bit_not({0})", triton="{0} == 0"),
    ),
    Operation(
        "logical_and",
        2,
        "logical",
        symbol="&",
        precedence=3,
        **call("logical_and", 2, numba="{0} and {1}", lanes="bit_and({0}, {1})", triton="{0} & {1}"),
    ),
    Operation(
        "logical_xor",
        2,
        "logical",
        symbol="^",
        precedence=2,
        **call("logical_xor", 2, numba="{0} != {1}", lanes="bit_xor({0}, {1})", triton="{0} ^ {1}"),
    ),
    Operation(
        "logical_or",
        2,
        "logical",
        symbol="|",
        precedence=1,
        **call("logical_or", 2, numba="{0} or {1}", lanes="bit_or({0}, {1})", triton="{0} | {1}"),
    ),
    Operation(
        "where",
        3,
        "where",
        **call(
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
        lambda a, dtype: np.asarray(a).astype(dtype),
        numba="{type}({0})",
        triton="{0}.to({type})",
        jnp="jnp.asarray({0}).astype({type})",
        torch="{0}.to({type})",
    ),
    Operation(
        # Of a float to an integer type: towards zero, at most to the type's limits, NaN to 0.
        "saturating_cast",
        1,
        "cast",
        _saturating_cast,
        defined=lambda node, a: is_number(a),
        numba="""def saturating_cast_{t}(a):
    if a >= {high}.0:
        return np.{t}({high})
    if a <= {low}.0:
        return np.{t}({low})
    return np.{t}(a) if a == a else np.{t}(0)
""",
        triton="tl.where({0} != {0}, tl.full((), 0, {type}), tl.where({0} >= {high}.0, tl.full((), {high}, {type}), "
        "tl.where({0} <= {low}.0, tl.full((), {low}, {type}), {0}.to({type}))))",
        jnp="jnp.where({0} != {0}, {type}(0), jnp.where({0} >= {high}.0, {type}({high}), "
        "jnp.where({0} <= {low}.0, {type}({low}), jnp.asarray({0}).astype({type}))))",
        torch="torch.where({0} != {0}, 0, torch.where({0} >= {high}.0, {high}, "
        "torch.where({0} <= {low}.0, {low}, {0}.to({type}))))",
    ),
    *real_functions.ROWS,
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
