"""The table of scalar operations, and how their types follow; `operation` says what a row is.

The rows of arithmetic, comparisons, logic and casts are here, those of real functions in `real_functions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derivable.algebra.expr import real_functions
from derivable.algebra.expr.nodes import Constant, Expr, applied
from derivable.algebra.expr.operation import TARGETS, Operation, flat, infix, is_number, one, row, where, zero
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


def _guarded(where: str, text: str) -> tuple[str, str]:
    """The text for floats, and for integers the one that gives 0 for the divisor 0."""
    return text, f"{where}({{1}} == 0, 0, {text.replace('{1}', f'{where}({{1}} == 0, 1, {{1}})')})"


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


def _saturating(name: str, symbol: str, partials: Callable) -> Operation:
    """A wrapped sum is below the first operand where the second is not negative, else above it; a difference above."""
    is_sum, of = symbol == "+", f"{{0}} {symbol} {{1}}"
    low, high = ("{low}", "{high}") if is_sum else ("{high}", "{low}")
    less, more, back = ("<", ">", "-") if is_sum else (">", "<", "+")

    def chosen(where: str, constant: str) -> tuple[str, str]:
        up = f"{where}({of} {less} {{0}}, {constant.format(high)}, {of})"
        down = f"{where}({of} {more} {{0}}, {constant.format(low)}, {of})"
        return of, f"{where}({{1}} >= 0, {up}, {down})"

    # Numba lets LLVM assume that sums of integers do not overflow, so the bound is compared before the sum is formed.
    function = f"""def {name}_{{t}}(a, b):
    if b >= 0:
        return np.{{t}}({high}) if a {more} np.{{t}}({high}) {back} b else np.{{t}}(a {symbol} b)
    return np.{{t}}({low}) if a {less} np.{{t}}({low}) {back} b else np.{{t}}(a {symbol} b)
"""
    return row(
        name,
        "arithmetic",
        partials,
        arity=2,
        meaning=_saturated(np.add if is_sum else np.subtract, is_sum),
        defined=is_number,
        numba=(of, function),
        triton=chosen("tl.where", "tl.full((), {}, {{type}})"),
        jnp=chosen("jnp.where", "{{type}}({})"),
        torch=chosen("torch.where", "{}"),
    )


def _choose(first: Expr, node: Expr, a: Expr) -> tuple[Expr, Expr]:
    """The partial derivatives of an extremum: a first operand that is not a number is the result."""
    first = applied("logical_or", first, applied("not_equal", a, a))
    return where(first, one(node), zero(node)), where(first, zero(node), one(node))


def _extremum(name: str, symbol: str, partials: Callable) -> Operation:
    return row(
        name,
        "arithmetic",
        partials,
        arity=2,
        numba=f"({{0}} if ({{0}} {symbol} {{1}} or {{0}} != {{0}}) else {{1}})",
        triton=(f"tl.{name}({{0}}, {{1}}, propagate_nan=tl.PropagateNan.ALL)", f"tl.{name}({{0}}, {{1}})"),
        # The derivatives of `torch.minimum` and `jnp.minimum` are shared where both are equal.
        jnp=f"jnp.where(({{0}} {symbol} {{1}}) | ({{0}} != {{0}}), {{0}}, {{1}})",
        torch=f"torch.where(({{0}} {symbol} {{1}}) | ({{0}} != {{0}}), {{0}}, {{1}})",
    )


def _logical(name: str, symbol: str, precedence: int, numba: str) -> Operation:
    triton = f"{{0}} {symbol} {{1}}"
    return row(name, "logical", arity=2, symbol=symbol, precedence=precedence, numba=numba, triton=triton)


def _of_bits(name: str, symbol: str) -> Operation:
    text = f"{{0}} {symbol} {{1}}"
    return row(name, "bits", arity=2, numba=text, triton=text)


def _shift(name: str, symbol: str, beyond: str) -> Operation:
    """As NumPy has it: places below 0 or beyond the width of the type leave zeros, or copies of the sign."""
    text = f"{{0}} {symbol} {{1}}"
    inside = "({1} >= 0) & ({1} < {bits})"
    return row(
        name,
        "bits",
        arity=2,
        numba=f"""def {name}_{{t}}(a, b):
    if b < 0 or b >= {{bits}}:
        return np.{{t}}({beyond.replace("{0}", "a")})
    return np.{{t}}(a {symbol} b)
""",
        triton=f"tl.where({inside}, {text}, {beyond})",
        torch=f"torch.bitwise_{name}({{0}}, {{1}})",
    )


_ROWS = (
    infix("add", "arithmetic", "+", 5, lambda node, a, b: (one(node), one(node)), defined=is_number),
    infix("subtract", "arithmetic", "-", 5, lambda node, a, b: (one(node), -one(node)), defined=is_number),
    infix("multiply", "arithmetic", "*", 6, lambda node, a, b: (b, a), defined=is_number),
    infix("divide", "float", "/", 6, lambda node, a, b: (1 / b, -node / b), defined=is_number),
    infix(
        "floor_divide",
        "arithmetic",
        "//",
        6,
        flat,
        meaning=_nonzero_divisor(np.floor_divide),
        defined=_quotient_exists,
        triton=None,
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
    if {low} < 0 and b == -1:
        return np.{t}(-a)
    return np.{t}(a // b)
""",
        ),
        jnp=_guarded("jnp.where", "jnp.floor_divide({0}, {1})"),
        torch=("torch.div({0}, {1}, rounding_mode='floor')", _torch_quotient("floor")),
    ),
    infix(
        "remainder",
        "arithmetic",
        "%",
        6,
        lambda node, a, b: (one(node), -(a // b)),
        meaning=_nonzero_divisor(np.remainder),
        defined=_quotient_exists,
        triton=None,
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
        jnp=_guarded("jnp.where", "jnp.remainder({0}, {1})"),
        torch=_guarded("torch.where", "torch.remainder({0}, {1})"),
    ),
    _saturating("saturating_add", "+", lambda node, a, b: (one(node), one(node))),
    _saturating("saturating_subtract", "-", lambda node, a, b: (one(node), -one(node))),
    row(
        "truncate_divide",
        "arithmetic",
        flat,
        arity=2,
        meaning=_nonzero_divisor(_truncate_divide),
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
        triton=(
            None,
            # Triton's quotient of integers is that of C, which says nothing of the smallest integer by -1.
            "tl.where({1} == 0, tl.full((), 0, {type}), tl.where({1} == tl.full((), -({low} < 0), {type}), -{0}, "
            "{0} // tl.where(({1} == 0) | ({1} == tl.full((), -({low} < 0), {type})), tl.full((), 1, {type}), {1})))",
        ),
        jnp=("jnp.trunc({0} / {1})", _guarded("jnp.where", "({0} - jnp.fmod({0}, {1})) // {1}")[1]),
        torch=("torch.trunc({0} / {1})", _torch_quotient("trunc")),
    ),
    row(
        "truncate_remainder",
        "arithmetic",
        lambda node, a, b: (one(node), -applied("truncate_divide", a, b)),
        arity=2,
        meaning=_nonzero_divisor(np.fmod),
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
        jnp=_guarded("jnp.where", "jnp.fmod({0}, {1})"),
        torch=_guarded("torch.where", "torch.fmod({0}, {1})"),
    ),
    row(
        "negate",
        "arithmetic",
        lambda node, a: (-one(node),),
        meaning=np.negative,
        symbol="-",
        precedence=7,
        **dict.fromkeys(TARGETS, "-{0}"),
    ),
    row(
        "abs",
        "arithmetic",
        lambda node, a: (applied("sign", a),),
        numba="abs({0})",
        triton="tl.abs({0})",
    ),
    row(
        "sign",
        "arithmetic",
        flat,
        numba="""def sign_{t}(a):
    if a > 0:
        return np.{t}(1)
    if a < 0:
        return np.{t}(-1)
    return a
""",
        triton=(
            "tl.where({0} != {0}, {0}, ({0} > 0).to({type}) - ({0} < 0).to({type}))",
            "({0} > 0).to({type}) - ({0} < 0).to({type})",
        ),
        torch=("torch.where({0} != {0}, {0}, torch.sign({0}))", "torch.sign({0})"),
    ),
    _extremum("minimum", "<=", lambda node, a, b: _choose(a <= b, node, a)),
    _extremum("maximum", ">=", lambda node, a, b: _choose(b <= a, node, a)),
    infix("less", "comparison", "<", 4),
    infix("less_equal", "comparison", "<=", 4),
    infix("equal", "comparison", "==", 4),
    infix("not_equal", "comparison", "!=", 4),
    row("logical_not", "logical", symbol="~", precedence=7, numba="not {0}", triton="{0} == 0"),
    _logical("logical_and", "&", 3, "{0} and {1}"),
    _logical("logical_xor", "^", 2, "{0} != {1}"),
    _logical("logical_or", "|", 1, "{0} or {1}"),
    _of_bits("bitwise_and", "&"),
    _of_bits("bitwise_or", "|"),
    _of_bits("bitwise_xor", "^"),
    row("bitwise_not", "bits", numba="~{0}", triton="~{0}"),
    _shift("left_shift", "<<", "{0} & 0"),
    _shift("right_shift", ">>", "({0} >> ({bits} - 1)) >> 1"),
    row(
        "where",
        "where",
        arity=3,
        numba="({1} if {0} else {2})",
        triton="tl.where({0}, {1}, {2})",
    ),
    row(
        "cast",
        "cast",
        meaning=lambda a, dtype: np.asarray(a).astype(dtype),
        numba="{type}({0})",
        triton="{0}.to({type})",
        jnp="jnp.asarray({0}).astype({type})",
        torch="{0}.to({type})",
    ),
    row(
        # Of a float to an integer type: towards zero, at most to the type's limits, NaN to 0.
        "saturating_cast",
        "cast",
        meaning=_saturating_cast,
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
    row(
        # The bits of a number as one of another type of the same width.
        "bitcast",
        "cast",
        meaning=lambda a, dtype: np.asarray(a).view(dtype),
        # Where Python runs kernels, of integers only uint64 is one of NumPy's.
        numba=("np.uint{bits}({0}).view({type})", "{type}(np.float{bits}({0}).view({type}))"),
        triton="{0}.to({type}, bitcast=True)",
        jnp="jnp.asarray({0}).view({type})",
        torch="{0}.view({type})",
    ),
    *real_functions.ROWS,
)
OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}


def operation(name: str) -> Operation:
    """The operation called `name`. Raises TypeMismatchError for an unknown one, with the nearest name."""
    if name not in OPERATIONS:
        import difflib

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
    if row.rule == "bits":
        for dtype in (*dtypes, promote(dtypes)):
            if dtype not in INTEGERS:
                raise TypeMismatchError(
                    f"{name} needs integers or truth values, and {' and '.join(dtypes)} are given",
                    hint="compare floats, as in `x != 0`",
                )
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
