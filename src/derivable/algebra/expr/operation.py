"""The scalar operations, one row each: type rule, meaning, derivative, and a text for every target.

    rule       how the types of the operands give the type of the result (below)
    symbol     and precedence (higher binds tighter) for printing infix
    meaning    the value, on NumPy scalars or arrays that already have the operands' types
    partials   (node, *operands) -> the partial derivative by each operand; None where the result is no float, and for
               `where` and `cast`, which pass tangents on as they are
    numba      source for Numba: an expression, or the text of a function `name_{t}` that its statements call
    triton     source by `triton.language as tl`
    jnp        source by `jax.numpy as jnp`
    torch      source by `torch`
    defined    (node, *operands) -> whether it has a value where its operands have, a bool expression (see `optional`);
               None if it always has

In texts {0} {1} {2} are operands, {t} is the name of the result's type, {type} the type as the target writes it, {low}
and {high} are the limits of an integer type, {bits} its width. A pair of texts is (for floats, for integers) by the
type of the result, and None says that the target has no such operation.
A test keeps the table complete and compares every text with the meaning.

Type rules:

    arithmetic   operands promoted, bool becomes int64; the result has that type
    float        operands promoted, bool and integers become float64; the result has that type
    comparison   operands promoted; the result is bool
    logical      operands are bool; the result is bool
    bits         operands are integers, promoted; the result has that type
    where        the first operand is bool, the others are promoted; the result has their type
    cast         the result has the type requested; `meaning` takes it as a NumPy dtype named `dtype`

Corners: integers wrap around, and every division and remainder by the integer 0 is 0; `abs` and `sign` have derivative
0 at 0; `minimum` and `maximum` give NaN if one is NaN, and a tie, with its whole derivative, to the first operand;
`floor`, `ceil`, comparisons and integer results have derivative 0; `logaddexp` has derivative 0 where the result is
-inf, and 1/2 each for two equal infinities; `exp_of_difference`, exp(a - b), is 1 with slopes 1 and -1 for equal
infinities, as for any equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from derivable.algebra.expr.nodes import Constant, Expr, applied
from derivable.algebra.expr.types import FLOATS, Dtype

Rule = Literal["arithmetic", "float", "comparison", "logical", "bits", "where", "cast"]
Target = Literal["numba", "triton", "jnp", "torch"]
TARGETS = ("numba", "triton", "jnp", "torch")
Text = str | tuple[str | None, str | None] | None


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
    triton: Text = None
    jnp: Text = None
    torch: Text = None
    defined: Callable[..., Expr] | None = None

    def text(self, target: Target, dtype: Dtype) -> str | None:
        """The source for a result of this type; None if the target has no such operation."""
        text = getattr(self, target)
        return text if text is None or isinstance(text, str) else text[dtype not in FLOATS]


def one(node: Expr) -> Expr:
    return Constant(1, node.dtype)


def zero(node: Expr) -> Expr:
    return Constant(0, node.dtype)


def flat(node: Expr, *operands: Expr) -> tuple[Expr, ...]:
    return tuple(zero(node) for _ in operands)


def is_number(node: Expr, *operands: Expr) -> Expr:
    """It is not NaN."""
    return applied("equal", node, node) if node.dtype in FLOATS else Constant(True, "bool")


def where(condition: Expr, a: Expr, b: Expr) -> Expr:
    return applied("where", condition, a, b)


def row(
    name: str, rule: Rule, partials: Callable[..., tuple[Expr, ...]] | None = None, *, arity: int = 1, **fields: Any
) -> Operation:
    """A row; the fields that are not given are the functions of that name in NumPy, jax.numpy and torch."""
    call = f"{name}({', '.join(f'{{{place}}}' for place in range(arity))})"
    given = {"numba": f"np.{call}", "jnp": f"jnp.{call}", "torch": f"torch.{call}", **fields}
    return Operation(name, arity, rule, given.pop("meaning", None) or getattr(np, name), partials, **given)


def infix(
    name: str,
    rule: Rule,
    symbol: str,
    precedence: int,
    partials: Callable[..., tuple[Expr, ...]] | None = None,
    **fields: Any,
) -> Operation:
    """A row with an operator of two operands."""
    texts = dict.fromkeys(TARGETS, f"{{0}} {symbol} {{1}}")
    return row(name, rule, partials, arity=2, **{**texts, "symbol": symbol, "precedence": precedence, **fields})


def instruction(name: str, partials: Callable[..., tuple[Expr, ...]], **fields: Any) -> Operation:
    """A row with a function of floats that Triton has under the same name."""
    return row(name, "float", partials, **{"triton": f"tl.{name}({{0}})", **fields})
