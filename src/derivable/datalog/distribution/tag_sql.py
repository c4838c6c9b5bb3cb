"""Tags of a semiring as a column of an engine: the SQL of their sums and products, and of the values of facts.

Sums are aggregates: `min`, `max`, `bool_or` and `sum`, the last one also cut at a bound, of logarithms
(log-sum-exp), and of independent chances, 1 - prod(1 - p). Products and facts are the traced functions of the record.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.algebra.semirings import nandmultprob
from derivable.core.diagnostics import DerivableError
from derivable.datalog.distribution.scalar_sql import MOST_INTEGER, RefusedError

# What one machine has, of which SQL is written; those that an engine computes otherwise, as quotients, are not here.
_OPERATIONS = {
    "add": "({} + {})",
    "subtract": "({} - {})",
    "multiply": "({} * {})",
    "negate": "(-{})",
    "abs": "abs({})",
    "minimum": "least({}, {})",
    "maximum": "greatest({}, {})",
    "less": "({} < {})",
    "less_equal": "({} <= {})",
    "equal": "({} = {})",
    "not_equal": "({} <> {})",
    "logical_and": "({} AND {})",
    "logical_or": "({} OR {})",
    "logical_not": "(NOT {})",
    "where": "CASE WHEN {} THEN {} ELSE {} END",
    "exp": "exp({})",
    # An engine has no logarithm of zero.
    "log": "CASE WHEN {0} > 0.0D THEN ln({0}) WHEN {0} = 0.0D THEN CAST('-Infinity' AS DOUBLE)"
    " ELSE CAST('NaN' AS DOUBLE) END",
}
_LEAST = "4.9E-324D"
# Integers up to the next one after those of an engine, whose sums and products do not overflow.
_INTEGERS = "DECIMAL(20,0)"
# What a recursion does with the tag of a row that follows again: it passes on a better one, it adds it up but passes
# on what the row had when it was new, or it adds up each derivation once.
Recursion = Literal["better", "new", "derivations"]


@dataclass(frozen=True)
class TagSql:
    """Tags of a semiring in SQL.

    kind       the engine's type of them, and
    shown      of those of results
    aggregate  that adds up what `summand` makes of each tag, {0}, of which `total` makes the sum; both may have {1},
               the largest tag that is added up, where `has_top`
    times      of two tags; a product of others than zero is none where `is_float_product`
    one, zero  in SQL
    fact       the value of a fact with the tag {0}
    domain     the least and the largest value of a fact, inclusive; None of bools
    between    those between which no recursion goes on for ever
    better     whether the tag {0} is better than {1}
    recursion  None if no recursion is computed; `obstacle` says why, then
    """

    name: str
    kind: str
    shown: str
    aggregate: str
    times: str
    one: str
    zero: str
    fact: str
    domain: tuple[float, float] | None
    between: tuple[float, float] | None
    recursion: Recursion | None
    obstacle: str = ""
    summand: str = "{0}"
    total: str = "{0}"
    has_top: bool = False
    better: str = ""
    is_float_product: bool = False
    is_integer: bool = False

    @staticmethod
    def of(record: Semiring) -> TagSql:
        """Raises RefusedError for tags that an engine does not add up as one machine does."""
        if not record.is_scalar:
            raise RefusedError(f"tags of {record.name} are nests, and no column")
        if record.show is not None or record.discard is not None:
            raise RefusedError(f"{record.name} shows or drops tags by functions of its own")
        if record.is_exact:
            return _of_integers(record)
        try:
            return _of_expressions(record, record.typed("float64"))
        except DerivableError as error:
            raise RefusedError(f"{record.name} has no expressions for an engine: {error.message}") from None

    def product(self, factors: Sequence[str]) -> str:
        """SQL of the product of tags."""
        if not factors:
            return self.one
        made = factors[0]
        for factor in factors[1:]:
            made = self.times.format(made, factor)
        if len(factors) == 1:
            return made
        if self.is_float_product:
            # Zero says that there is no row.
            live = " AND ".join(f"{factor} <> 0.0D" for factor in factors)
            sign = " * ".join(f"signum({factor})" for factor in factors)
            return f"CASE WHEN {made} = 0.0D AND {live} THEN {sign} * {_LEAST} ELSE {made} END"
        return made

    def sum(self, columns: Sequence[str], source: str) -> str:
        """A query for distinct rows of a source, with their tags added up. A tag that is NULL makes a sum NULL."""
        shown = ", ".join(columns)
        by = shown
        if self.has_top:
            source = f"(SELECT *, max(tag) OVER (PARTITION BY {shown}) AS top FROM {source}) v"
            by = f"{shown}, top"
        value = self.total.format(f"{self.aggregate}({self.summand.format('tag', 'top')})", "top")
        if self.recursion == "derivations":
            value = f"CASE WHEN count(tag) = count(*) THEN {value} END"
        return f"SELECT {shown}, {value} AS tag FROM {source} GROUP BY {by}"

    def merged(self, rows: Any, columns: Collection[str]) -> Any:
        """The distinct rows of a DataFrame with these columns, the last one of tags, which are added up."""
        keys = [f"c{c}" for c in range(len(columns) - 1)]
        rows = rows.toDF(*keys, "tag").selectExpr(*keys, f"CAST(tag AS {self.kind}) AS tag")
        if self.has_top:
            over = f" OVER (PARTITION BY {', '.join(keys) or '1'})"
            rows = rows.selectExpr(*keys, "tag", f"max(tag){over} AS top")
            keys.append("top")
        rows = rows.selectExpr(*keys, f"{self.summand.format('tag', 'top')} AS tag")
        rows = rows.groupBy(*keys).agg({"tag": self.aggregate}).toDF(*keys, "tag")
        total = self.total.format("tag", "top")
        if self.is_integer:
            error = "raise_error('a tag is beyond 64 bits with a sign, which the engine has')"
            total = f"CASE WHEN {total} > {MOST_INTEGER} THEN {error} ELSE CAST(tag AS BIGINT) END"
        # Of no rows at all there is one sum too.
        rows = rows.filter("tag IS NOT NULL")
        return rows.selectExpr(*(key for key in keys if key != "top"), f"{total} AS tag").toDF(*columns)

    def wrong(self, tag: str, is_recursive: bool) -> list[str]:
        """Conditions under which a number of an engine is no tag of a fact."""
        value = self.fact.format(tag)
        conditions = [f"{tag} IS NULL", f"isnan({tag})"]
        bounds = self.between if is_recursive else self.domain
        if bounds is not None and not self.is_integer:
            low, high = map(double, bounds)
            conditions += [f"isnan({value})", f"{value} < {low}", f"{value} > {high}"]
        if self.is_integer:
            conditions += [f"{tag} < 0.0D", f"{tag} > 9.2e18D", f"({tag} > 1.0D AND {tag} <> floor({tag}))"]
        return conditions


def double(value: float) -> str:
    """A number in SQL."""
    return f"{value!r}D" if math.isfinite(value) else f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"


def _of_integers(record: Semiring) -> TagSql:
    """Exact integers up to 64 bits: larger ones become the next one, which is none of the engine."""
    is_sum = record.plus is operator.add and record.times is operator.mul
    if not is_sum or record.domains[0][0] < 0 or record.fact is not None or record.saturated is not None:
        raise RefusedError(f"integers of {record.name} are not added and multiplied alone")
    capped = "CASE WHEN {0} > " + str(MOST_INTEGER) + " THEN " + str(MOST_INTEGER + 1) + " ELSE {0} END"
    product = capped.replace("{0}", "({0} * {1})")
    one, zero = (f"CAST({value} AS {_INTEGERS})" for value in (record.one, record.zero))
    return TagSql(
        record.name,
        kind=_INTEGERS,
        shown="BIGINT",
        aggregate="sum",
        total=f"CAST({capped} AS {_INTEGERS})",
        times=f"CAST({product} AS {_INTEGERS})",
        one=one,
        zero=zero,
        # What is between 0 and 1 is a probability.
        fact=f"CAST(ceil({{0}}) AS {_INTEGERS})",
        domain=(0.0, math.inf),
        between=(0.0, math.inf),
        recursion="derivations",
        is_integer=True,
    )


def _of_expressions(record: Semiring, typed: TypedSemiring) -> TagSql:
    is_bool = record.carrier == "bool"
    kind = "BOOLEAN" if is_bool else "DOUBLE"
    fact = typed.require_fact()
    if any(node in fact.operands[1] for node in in_order(fact.values)):
        raise RefusedError(f"facts of {record.name} differ by which fact they are")
    sums = _sum(record, typed)
    recursion, obstacle = _recursion(record, typed)
    domain = between = None
    if not is_bool:
        low, high = domain = record.domains[0]
        ends = sorted((record.zero, record.one))
        # A sum that chooses takes one before a product of what lies between them.
        between = (max(low, ends[0]), min(high, ends[1])) if recursion == "better" else domain
    left, right = typed.times.left[0], typed.times.right[0]
    times = _sql(typed.times.values[0], {left: "{0}", right: "{1}"})
    if recursion == "derivations" and typed.times.special not in ("add", "mul"):
        # Other functions than sums and products may have a value where an operand is NULL.
        times = f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN {times} END"
    one, zero = (str(bool(x[0])).upper() if is_bool else double(float(x[0])) for x in (typed.one, typed.zero))
    return TagSql(
        record.name,
        kind=kind,
        shown=kind,
        times=times,
        one=one,
        zero=zero,
        fact=_sql(fact.values[0], {fact.operands[0][0]: "{0}"}),
        domain=domain,
        between=between,
        recursion=recursion,
        obstacle=obstacle,
        is_float_product=typed.times.special == "mul" and record.zero == 0,
        **sums,
    )


def _recursion(record: Semiring, typed: TypedSemiring) -> tuple[Recursion | None, str]:
    if typed.always_saturated:
        return "new", ""
    if record.saturated is not None:
        return None, f"{record.name} says by a function of its own when a row tells nothing new"
    if not record.idempotent_plus:
        return "derivations", ""
    if not record.distributive:
        return None, f"tags of {record.name} depend on the order of rounds"
    return "better", ""


def _sum(record: Semiring, typed: TypedSemiring) -> dict:
    """The fields of a `TagSql` that say how tags are added up."""
    plus = typed.plus
    if plus.extreme is not None:
        return {"aggregate": plus.extreme, "better": f"{{0}} {'>' if plus.extreme == 'max' else '<'} {{1}}"}
    if plus.special == "or":
        return {"aggregate": "bool_or", "better": "({0} AND NOT {1})"}
    if plus.special == "add":
        return {"aggregate": "sum"}
    if plus.special == "logaddexp":
        # Less the largest one no exponential overflows.
        infinite = "abs({1}) = CAST('Infinity' AS DOUBLE)"
        return {
            "aggregate": "sum",
            "has_top": True,
            "summand": f"CASE WHEN {infinite} THEN {{0}} - {{0}} ELSE exp({{0}} - {{1}}) END",
            "total": f"CASE WHEN {infinite} THEN {{1}} ELSE {{1}} + ln({{0}}) END",
        }
    if plus.values == nandmultprob.typed("float64").plus.values:
        return {
            "aggregate": "sum",
            "summand": "CASE WHEN {0} >= 1.0D THEN CAST('-Infinity' AS DOUBLE) ELSE log1p(-{0}) END",
            "total": "-expm1({0})",
        }
    cut = _cut(plus.values[0], {plus.left[0], plus.right[0]})
    if cut is not None and record.domains[0][0] >= 0:
        return {"aggregate": "sum", "total": f"least({{0}}, {double(cut)})"}
    raise RefusedError(f"the plus of {record.name} is no aggregate of the engine")


def _cut(value: Expr, arguments: set[Argument]) -> float | None:
    """Where a sum is cut, `minimum(a + b, 1)`; None for anything else."""
    if not isinstance(value, Apply) or value.operation != "minimum":
        return None
    added = [x for x in value.operands if isinstance(x, Apply) and x.operation == "add"]
    ends = [x for x in value.operands if isinstance(x, Constant)]
    if len(added) != 1 or len(ends) != 1 or {*added[0].operands} != arguments:
        return None
    return float(ends[0].value)


def _sql(value: Expr, names: Mapping[Argument, str]) -> str:
    """An expression in SQL. Raises RefusedError for operations that the engine has not, or computes otherwise."""
    if isinstance(value, Argument):
        return names[value]
    if isinstance(value, Constant):
        return str(value.value).upper() if value.dtype == "bool" else double(float(value.value))
    assert isinstance(value, Apply)
    operation = value.operation
    if value.dtype == "bool" and operation in ("bitwise_and", "bitwise_or"):
        operation = operation.replace("bitwise", "logical")
    if operation not in _OPERATIONS or value.dtype not in ("float64", "bool"):
        raise RefusedError(f"`{operation}` of {value.dtype} is not the one of the engine")
    return _OPERATIONS[operation].format(*(_sql(operand, names) for operand in value.operands))
