"""RAM as SQL: each store of a rule is a query over views, whose columns are c0, c1, ... and, with tags, tag.

    same <- project [x, y]                      SELECT t1.c0 AS c0, t2.c0 AS c1
      join [q]                                  FROM same_recent t0
        join [p]                                JOIN parent t1 ON t1.c1 = t0.c0
          scan recent same(p, q)                JOIN parent t2 ON t2.c1 = t0.c1
          scan parent(x, p)
        scan parent(y, q)

A relation without columns has one, c0, of ones. What SQL computes otherwise than the language does is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from derivable.core.diagnostics import TypeMismatchError
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.distribution.frames import result_type
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules import nodes as r
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var
from derivable.datalog.values.values import ValueType

_COMPARISONS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CONNECTIVES = {"&&": "AND", "||": "OR"}
_AGGREGATES = ("count", "min", "max", "exists")


@dataclass(frozen=True)
class TagSql:
    """The tags of a semiring in SQL.

    times  of two tags; plus  the aggregate of tags, and `after` of its value
    one    the tag of a certain row
    better whether a tag is better than that before it, where plus chooses: others are passed on when a row is new
    zero   the tag of what is no row
    low    the least tag of facts, and
    high   the largest: between them no recursion goes on for ever
    """

    times: str
    plus: str
    one: str
    better: str | None
    after: str = "{}"
    zero: float = 0.0
    low: float = 0.0
    high: float = 1.0


# By the names of semirings. Those of a row that follows more than once add up in each round.
TAGS = {
    "godel": TagSql("least({}, {})", "max", "1.0D", "{} > {}"),
    **dict.fromkeys(("max_product", "maxmultprob"), TagSql("({} * {})", "max", "1.0D", "{} > {}")),
    "max_plus": TagSql("({} + {})", "max", "0.0D", "{} > {}", zero=-math.inf, low=-math.inf, high=0.0),
    "min_plus": TagSql("({} + {})", "min", "0.0D", "{} < {}", zero=math.inf, high=math.inf),
    "addmultprob": TagSql("({} * {})", "sum", "1.0D", None, "least({}, 1.0D)"),
}


class RefusedError(Exception):
    """What rounds do not compute; `reason` is a clause."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def refusal(ram: m.Ram, output: str, semiring: str) -> str | None:
    """Why an output is not computed in rounds; None if it is.

    semiring  the name of that of tags, "boolean" without any
    """
    if semiring != "boolean" and semiring not in TAGS:
        return f"tags of {semiring} are no columns that the engine adds up"
    try:
        for stratum in needed_strata(ram, output):
            if stratum.timed is not None:
                return f"`{stratum.relations[0]}` is computed one time after the other"
            for name in stratum.relations:
                relation = ram.relations[name]
                if relation.lattice is not None:
                    return f"`{name}` is joined in its lattice"
                for column in range(len(relation.types)):
                    _checked_type(relation, column)
            for instruction in stratum.full:
                Query(ram, semiring, lambda name, part: name).of(instruction)
    except RefusedError as error:
        return error.reason
    return None


def needed_strata(ram: m.Ram, output: str) -> list[m.Stratum]:
    """The strata that an output depends on, in their order."""
    needed, strata = {output}, []
    for stratum in reversed(ram.strata):
        if not needed.isdisjoint(stratum.relations):
            strata.append(stratum)
            needed |= stratum.reads
    return strata[::-1]


def _checked_type(relation: r.Relation, column: int) -> str:
    try:
        return result_type(relation, column)
    except TypeMismatchError as error:
        raise RefusedError(error.message) from None


@dataclass
class Query:
    """The SQL of instructions.

    semiring  the name of that of tags, "boolean" without any
    view      (relation, part) -> the name of its view
    """

    ram: m.Ram
    semiring: str
    view: Callable[[str, m.Part], str]

    @property
    def tags(self) -> TagSql | None:
        return TAGS.get(self.semiring)

    def of(self, instruction: m.Instruction) -> str:
        """The rows that an instruction gives, repeats possible."""
        if isinstance(instruction, AggregateRule):
            return self._aggregate(instruction)
        return self._project(instruction)

    def columns(self, relation: str) -> list[str]:
        """The names of the columns of a relation without tags."""
        return [f"c{c}" for c in range(max(1, len(self.ram.relations[relation].types)))]

    def summed(self, relation: str, queries: Sequence[str]) -> str:
        """Distinct rows of some queries, with their tags added up."""
        union = " UNION ALL ".join(queries)
        columns = ", ".join(self.columns(relation))
        if self.tags is None:
            return f"SELECT DISTINCT {columns} FROM ({union}) u"
        tag = self.tags.after.format(f"{self.tags.plus}(tag)")
        return f"SELECT {columns}, {tag} AS tag FROM ({union}) u GROUP BY {columns}"

    def _project(self, store: m.Store) -> str:
        tables: list[str] = []
        conditions: list[str] = []
        factors: list[str] = []
        names: dict[str, str] = {}
        for number, node in enumerate(store.query.operators):
            alias = f"t{number}"
            match node:
                case m.Unit():
                    tables.append(f"(SELECT 1 AS c0) {alias}")
                case m.Scan() | m.Join() | m.Difference():
                    self._table(node, alias, tables, conditions, factors, names)
                case r.Filter(condition=condition):
                    conditions.append(self._expression(condition, names))
                case m.Extend(variable=variable, expression=expression):
                    names[variable.name] = self._expression(expression, names)
                case r.Generate():
                    raise RefusedError(f"`{node.relation or node.predicate}` gives rows that no table has")
                case r.RuleProbability():
                    raise RefusedError("rules with probabilities have random facts for their instances")
        relation = self.ram.relations[store.relation]
        terms = [
            f"CAST({self._expression(term, names)} AS {_checked_type(relation, c)}) AS c{c}"
            for c, term in enumerate(store.query.terms)
        ] or ["1 AS c0"]
        if self.tags is not None:
            tag = factors[0] if factors else self.tags.one
            for factor in factors[1:]:
                tag = self.tags.times.format(tag, factor)
            terms.append(f"{tag} AS tag")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(terms)} FROM {' '.join(tables)}{where}"

    def _table(
        self,
        node: m.Scan | m.Join | m.Difference,
        alias: str,
        tables: list[str],
        conditions: list[str],
        factors: list[str],
        names: dict[str, str],
    ) -> None:
        scan = m.scan_of(node)
        assert scan is not None
        on: list[str] = []
        for column, term in enumerate(scan.terms):
            here = f"{alias}.c{column}"
            if isinstance(term, Const):
                on.append(f"{here} = {literal(term)}")
            elif isinstance(term, Var) and term.name in names:
                on.append(f"{here} = {names[term.name]}")
            elif isinstance(term, Var):
                names[term.name] = here
        table = f"{self.view(scan.relation, scan.part)} {alias}"
        if isinstance(node, m.Difference):
            if self.tags is not None:
                raise RefusedError(f"tags of `{scan.relation}` would be negated")
            tables.append(f"LEFT ANTI JOIN {table} ON {' AND '.join(on) or 'TRUE'}")
            return
        if self.tags is not None:
            factors.append(f"{alias}.tag")
        if isinstance(node, m.Scan):
            tables.append(table)
            conditions += on
        else:
            tables.append(f"JOIN {table} ON {' AND '.join(on)}" if on else f"CROSS JOIN {table}")

    def _aggregate(self, rule: AggregateRule) -> str:
        if self.tags is not None:
            raise RefusedError(f"`{rule.operator}` over rows with tags is one over worlds")
        if rule.operator not in _AGGREGATES or rule.num_arguments or rule.parameters:
            raise RefusedError(f"`{rule.operator}` is no aggregate of the engine")
        body, groups = self.view(rule.body, "all"), [f"c{c}" for c in range(rule.num_group)]
        relation = self.ram.relations[rule.relation]
        value = f"b.c{rule.num_group}"
        if rule.operator in ("min", "max"):
            t = self.ram.relations[rule.body].types[rule.num_group]
            if rule.num_values != 1 or not (t.is_integer or t.family == "float"):
                raise RefusedError(f"`{rule.operator}` of {t} has no order that the engine shares")
        of_groups = [f"b.{c} AS {c}" for c in groups]
        kind = _checked_type(relation, rule.num_group)
        by = f" GROUP BY {', '.join(f'b.{c}' for c in groups)}" if groups else ""
        if rule.groups is not None:
            if rule.operator in ("min", "max"):
                on = " AND ".join(f"g.{c} = b.{c}" for c in groups) or "TRUE"
                body = f"(SELECT b.* FROM {body} b LEFT SEMI JOIN {self.view(rule.groups, 'all')} g ON {on})"
            else:
                return self._counted(rule, body, groups, kind)
        aggregate = {"count": "count(*)", "exists": "count(*) > 0"}.get(rule.operator, f"{rule.operator}({value})")
        having = " HAVING count(*) > 0" if rule.operator in ("min", "max") and not groups else ""
        result = f"CAST({aggregate} AS {kind}) AS c{rule.num_group}"
        return f"SELECT {', '.join([*of_groups, result])} FROM {body} b{by}{having}"

    def _counted(self, rule: AggregateRule, body: str, groups: list[str], kind: str) -> str:
        """Counts of groups that may have no rows."""
        assert rule.groups is not None
        keys = ", ".join(f"g.{c}" for c in groups)
        on = " AND ".join(f"g.{c} = b.{c}" for c in groups) or "TRUE"
        counted = "count(b.present)" if rule.operator == "count" else "count(b.present) > 0"
        rows = f"(SELECT *, 1 AS present FROM {body}) b"
        of_groups = [f"g.{c} AS {c}" for c in groups]
        by = f" GROUP BY {keys}" if groups else ""
        result = f"CAST({counted} AS {kind}) AS c{rule.num_group}"
        tables = f"{self.view(rule.groups, 'all')} g LEFT JOIN {rows} ON {on}"
        return f"SELECT {', '.join([*of_groups, result])} FROM {tables}{by}"

    def _expression(self, e: Expr, names: Mapping[str, str]) -> str:
        if isinstance(e, Var):
            return names[e.name]
        if isinstance(e, Const):
            return literal(e)
        assert isinstance(e, Apply)
        types = [operand.type for operand in e.operands]
        parts = [self._expression(operand, names) for operand in e.operands]
        if e.operator in _COMPARISONS and all(map(_is_ordered, types)):
            return f"({parts[0]} {_COMPARISONS[e.operator]} {parts[1]})"
        if e.operator in ("==", "!=") and all(t.family in ("text", "char", "bool", "datetime") for t in types):
            return f"({parts[0]} {_COMPARISONS[e.operator]} {parts[1]})"
        if e.operator in _CONNECTIVES:
            return f"({parts[0]} {_CONNECTIVES[e.operator]} {parts[1]})"
        if e.operator == "!" and e.type.family == "bool":
            return f"(NOT {parts[0]})"
        if e.operator in ("+", "-", "*") and e.type.is_integer and len(parts) == 2:
            arithmetic = _arithmetic(e.operator, e.type, *parts)
            if arithmetic is not None:
                return arithmetic
        raise RefusedError(f"`{e.operator}` of {', '.join(map(str, types))} is not the one of the engine")


def _arithmetic(operator: str, t: ValueType, left: str, right: str) -> str | None:
    """Sums and differences, which stay at the bounds of their type, and products, which wrap; None for what no type of
    the engine holds."""
    low, high = t.limits
    narrow = f"(CAST({left} AS BIGINT) {operator} CAST({right} AS BIGINT)"
    if operator == "*":
        # Of 32 bits without a sign they are beyond 64 with one.
        return f"(pmod({narrow}) - ({low}), {high - low + 1}) + ({low}))" if -low + high < 1 << 32 and low else None
    if t.bits <= 32:
        return f"least(greatest({narrow}), {low}), {high})"
    if t.bits > 64:
        return None
    least, most = (f"CAST('{bound}' AS DECIMAL(19,0))" for bound in (low, (1 << 63) - 1))
    wide = f"greatest(CAST({left} AS DECIMAL(19,0)) {operator} CAST({right} AS DECIMAL(19,0)), {least})"
    if t.family == "signed":
        return f"CAST(least({wide}, {most}) AS BIGINT)"
    error = "raise_error('an integer is beyond 64 bits with a sign, which the engine has')"
    return f"CASE WHEN {wide} > {most} THEN {error} ELSE CAST({wide} AS BIGINT) END"


def _is_ordered(t: ValueType) -> bool:
    return (t.is_integer and not t.is_wide) or t.family == "float"


def literal(constant: Const) -> str:
    """A constant in SQL."""
    value, t = constant.value, constant.type
    if t.family == "bool":
        return "TRUE" if value else "FALSE"
    if t.is_integer and not t.is_wide and -(1 << 63) <= value < 1 << 63:
        return f"CAST({value} AS BIGINT)"
    if t.family == "float" and math.isfinite(value):
        return f"CAST({float(value)!r} AS {'FLOAT' if t.bits == 32 else 'DOUBLE'})"
    if t.family in ("text", "char"):
        # Without quotes, which engines escape in ways of their own.
        return f"CAST(X'{str(value).encode().hex()}' AS STRING)"
    raise RefusedError(f"the constant {value!r} of {t} is none of the engine")
