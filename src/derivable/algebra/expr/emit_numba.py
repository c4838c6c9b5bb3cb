"""Expressions as Numba source: one assignment per shared node, no loops, no allocation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, as_tuple, in_order
from derivable.core.diagnostics import TypeMismatchError

# Operation -> source on operand names; {0} {1} {2} are operands, {t} is the result's type.
NUMBA: dict[str, str] = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "floor_divide": "floor_divide_{t}({0}, {1})",
    "remainder": "remainder_{t}({0}, {1})",
    "negate": "-{0}",
    "power": "{0} ** {1}",
    "abs": "abs({0})",
    "sign": "sign_{t}({0})",
    "minimum": "({0} if ({0} <= {1} or {0} != {0}) else {1})",
    "maximum": "({0} if ({0} >= {1} or {0} != {0}) else {1})",
    "floor": "np.floor({0})",
    "ceil": "np.ceil({0})",
    "exp": "math.exp({0})",
    "expm1": "math.expm1({0})",
    "log": "np.log({0})",
    "log1p": "np.log1p({0})",
    "log1mexp": "log1mexp_{t}({0})",
    "logaddexp": "logaddexp_{t}({0}, {1})",
    "sqrt": "np.sqrt({0})",
    "sin": "math.sin({0})",
    "cos": "math.cos({0})",
    "tanh": "math.tanh({0})",
    "sigmoid": "np.{t}(1.0) / (np.{t}(1.0) + math.exp(-{0}))",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "logical_not": "not {0}",
    "logical_and": "{0} and {1}",
    "logical_xor": "{0} != {1}",
    "logical_or": "{0} or {1}",
    "where": "({1} if {0} else {2})",
    "cast": "{cast}({0})",
}

# Functions that the rows above call; `{t}` as above. They go before the first use.
PREAMBLE: dict[str, str] = {
    "floor_divide": """def floor_divide_{t}(a, b):
    if b == 0:
        return {by_zero}
{whole_quotient}    return {floor_divide}
""",
    "remainder": """def remainder_{t}(a, b):
    if b == 0:
        return {remainder_by_zero}
    r = {remainder}
    if r != 0 and (r < 0) != (b < 0):
        r += b
    return r
""",
    "sign": """def sign_{t}(a):
    if a > 0:
        return np.{t}(1)
    if a < 0:
        return np.{t}(-1)
    return a
""",
    "log1mexp": """def log1mexp_{t}(a):
    if a > np.{t}(-0.6931471805599453):
        return np.log(-math.expm1(a))
    return np.log1p(-math.exp(a))
""",
    "logaddexp": """def logaddexp_{t}(a, b):
    if a == b:
        return a + np.{t}(0.6931471805599453)
    if a > b:
        return a + np.log1p(math.exp(b - a))
    if a < b:
        return b + np.log1p(math.exp(a - b))
    return a + b
""",
}
# The rows that branch, as calls. Numba's compile time grows with the square of the branches in one function, and LLVM
# turns only calls of such functions into selections: a 4x4 log product's vjp compiles in 8 seconds instead of 28, the
# vjp of 3x3 best paths runs three times as fast. Each function costs some 0.1 seconds, so few branches stay in line.
SELECTIONS: dict[str, str] = {
    "minimum": "minimum_{t}({0}, {1})",
    "maximum": "maximum_{t}({0}, {1})",
    "where": "where_{t}({0}, {1}, {2})",
}
MANY_SELECTIONS = 16
PREAMBLE |= {
    "minimum": "def minimum_{t}(a, b):\n    return " + NUMBA["minimum"].format("a", "b") + "\n",
    "maximum": "def maximum_{t}(a, b):\n    return " + NUMBA["maximum"].format("a", "b") + "\n",
    "where": "def where_{t}(c, a, b):\n    return " + NUMBA["where"].format("c", "a", "b") + "\n",
}
DECORATOR = '@njit(cache=True, nogil=True, error_model="numpy")'
HEADER = "import math\n\nimport numpy as np\nfrom numba import njit\n"


def constant_source(constant: Constant) -> str:
    """A typed Numba literal."""
    value = constant.value
    if constant.dtype == "bool":
        return repr(value)
    if constant.dtype == "int64":
        return f"np.int64({value})"
    text = repr(value) if math.isfinite(value) else ("np.nan" if math.isnan(value) else f"{'-' * (value < 0)}np.inf")
    return f"np.{constant.dtype}({text})"


def _has_many_selections(exprs: Expr | Sequence[Expr]) -> bool:
    found = sum(isinstance(node, Apply) and node.operation in SELECTIONS for node in in_order(exprs))
    return found >= MANY_SELECTIONS


def preamble(exprs: Expr | Sequence[Expr]) -> str:
    """The jitted functions that the statements of these expressions, or of some of them, call; "" for none."""
    called = PREAMBLE.keys() if _has_many_selections(exprs) else PREAMBLE.keys() - SELECTIONS.keys()
    needed = {
        (node.operation, node.dtype) for node in in_order(exprs) if isinstance(node, Apply) and node.operation in called
    }
    return "\n\n".join(f"{DECORATOR}\n{_preamble_source(*pair)}" for pair in sorted(needed))


def _preamble_source(operation: str, dtype: str) -> str:
    whole = dtype == "int64"
    return PREAMBLE[operation].format(
        t=dtype,
        # As in NumPy: the quotient of what the remainder leaves, rounded to the nearest integer.
        whole_quotient=""
        if whole
        else "    python_remainder = np.fmod(a, b)\n"
        "    if python_remainder != 0 and (python_remainder < 0) != (b < 0):\n"
        "        python_remainder += b\n",
        by_zero="np.int64(0)" if whole else "a / b",
        remainder_by_zero="np.int64(0)" if whole else f"np.{dtype}(np.nan)",
        floor_divide="a // b" if whole else f"np.floor((a - python_remainder) / b + np.{dtype}(0.5))",
        remainder="a % b" if whole else "np.fmod(a, b)",
    )


def statements(
    exprs: Expr | Sequence[Expr], names: dict[Argument, str], prefix: str = "t", indent: str = "    "
) -> tuple[list[str], list[str]]:
    """Source lines that compute expressions inside a larger kernel.

    names    the variable that holds each argument, of the argument's type
    prefix   start of the names of temporaries
    returns  (lines, one source text per expression: a temporary, an argument or a literal)
    """
    rows = NUMBA | SELECTIONS if _has_many_selections(exprs) else NUMBA
    texts: dict[Expr, str] = {}
    lines: list[str] = []
    for node in in_order(exprs):
        if isinstance(node, Constant):
            texts[node] = constant_source(node)
        elif isinstance(node, Argument):
            if node not in names:
                raise TypeMismatchError(f"the expression uses the argument `{node.name}`, which is not among {names}")
            texts[node] = names[node]
        else:
            assert isinstance(node, Apply)
            cast = "bool" if node.dtype == "bool" else f"np.{node.dtype}"
            operands = [texts[operand] for operand in node.operands]
            source = rows[node.operation].format(*operands, t=node.dtype, cast=cast)
            texts[node] = f"{prefix}{len(lines)}"
            lines.append(f"{indent}{texts[node]} = {source}")
    return lines, [texts[root] for root in as_tuple(exprs)]


def emit_numba(name: str, exprs: Expr | Sequence[Expr], arguments: Sequence[Argument]) -> str:
    """The text of a module with one jitted function `name(*arguments)`.

    arguments  its parameters in order; all arguments that occur must be among them. They are converted to
               their types first, so Python numbers may be given
    returns    source; the function returns a scalar for one expression, a tuple for a sequence of them
    """
    parts = [HEADER]
    before = preamble(exprs)
    if before:
        parts.append(before)
    return "\n\n".join([*parts, function_source(name, exprs, arguments)])


def function_source(name: str, exprs: Expr | Sequence[Expr], arguments: Sequence[Argument]) -> str:
    """The jitted function alone, for modules of several: `HEADER` and `preamble` go before it."""
    if not name.isidentifier():
        raise TypeMismatchError(f"{name!r} is not a name for a function")
    parameters = {argument: f"x{position}" for position, argument in enumerate(arguments)}
    lines, results = statements(exprs, parameters)
    conversions = [
        f"    {text} = {'bool' if argument.dtype == 'bool' else f'np.{argument.dtype}'}({text})"
        for argument, text in parameters.items()
    ]
    answer = results[0] if isinstance(exprs, Expr) else f"({', '.join(results)},)"
    body = "\n".join([*conversions, *lines, f"    return {answer}"])
    return f"{DECORATOR}\ndef {name}({', '.join(parameters.values())}):\n{body}\n"


def compile_numba(exprs: Expr | Sequence[Expr], arguments: Sequence[Argument], name: str = "scalar") -> Callable:
    """The jitted function of `emit_numba`, from the on-disk cache where it was compiled before."""
    name = re.sub(r"\W", "_", name)
    module: Any = load_generated(emit_numba(name, exprs, arguments), name)
    return getattr(module, name)
