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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from derivable.core.diagnostics import TypeMismatchError
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.distribution.frames import result_type
from derivable.datalog.distribution.scalar_sql import DECIMALS, RefusedError, expression_sql, fitted, literal
from derivable.datalog.distribution.tag_sql import TagSql
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules import nodes as r
from derivable.datalog.scalars.nodes import Const, Var

_AGGREGATES = ("count", "sum", "min", "max", "exists")


def refusal(ram: m.Ram, output: str, tags: TagSql | None) -> str | None:
    """Why an output is not computed in rounds; None if it is."""
    try:
        for stratum in needed_strata(ram, output):
            if stratum.timed is not None:
                return f"`{stratum.relations[0]}` is computed one time after the other"
            if stratum.is_recursive and tags is not None and tags.recursion is None:
                return tags.obstacle
            for name in stratum.relations:
                relation = ram.relations[name]
                if relation.lattice is not None:
                    return f"`{name}` is joined in its lattice"
                if relation.is_certain and stratum.is_recursive and tags is not None:
                    return f"rows of `{name}` are certain whatever they follow from"
                for column in range(len(relation.types)):
                    _checked_type(relation, column)
            for instruction in stratum.full:
                Query(ram, tags, lambda name, part: name).of(instruction)
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

    tags  None without any
    view  (relation, part) -> the name of its view
    """

    ram: m.Ram
    tags: TagSql | None
    view: Callable[[str, m.Part], str]

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
        union = f"({' UNION ALL '.join(queries)}) u"
        columns = self.columns(relation)
        if self.tags is None or self.ram.relations[relation].is_certain:
            tag = [] if self.tags is None else [f"{self.tags.one} AS tag"]
            return f"SELECT {', '.join([*columns, *tag])} FROM (SELECT DISTINCT {', '.join(columns)} FROM {union}) d"
        return self.tags.sum(columns, union)

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
                    conditions.append(expression_sql(condition, names, conditions))
                case m.Extend(variable=variable, expression=expression):
                    names[variable.name] = expression_sql(expression, names, conditions)
                case r.Generate():
                    raise RefusedError(f"`{node.relation or node.predicate}` gives rows that no table has")
                case r.RuleProbability():
                    raise RefusedError("rules with probabilities have random facts for their instances")
        relation = self.ram.relations[store.relation]
        terms = [
            f"CAST({expression_sql(term, names, conditions)} AS {_checked_type(relation, c)}) AS c{c}"
            for c, term in enumerate(store.query.terms)
        ] or ["1 AS c0"]
        if self.tags is not None:
            terms.append(f"{self.tags.product(factors)} AS tag")
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
        query = self._aggregated(rule)
        # A value that is no number has no row: the sum of infinities of both signs.
        is_float = rule.operator == "sum" and self.ram.relations[rule.relation].types[rule.num_group].family == "float"
        return f"SELECT * FROM ({query}) s WHERE NOT isnan(c{rule.num_group})" if is_float else query

    def _aggregated(self, rule: AggregateRule) -> str:
        if self.tags is not None:
            raise RefusedError(f"`{rule.operator}` over rows with tags is one over worlds")
        if rule.operator not in _AGGREGATES or rule.num_arguments or rule.parameters:
            raise RefusedError(f"`{rule.operator}` is no aggregate of the engine")
        body, groups = self.view(rule.body, "all"), [f"c{c}" for c in range(rule.num_group)]
        relation = self.ram.relations[rule.relation]
        value = f"b.c{rule.num_group}"
        if rule.operator in ("sum", "min", "max"):
            t = self.ram.relations[rule.body].types[rule.num_group]
            if rule.num_values != 1 or not (t.is_integer or t.family == "float"):
                raise RefusedError(f"`{rule.operator}` of {t} is not the one of the engine")
            if rule.operator == "sum" and t.is_integer and t.bits > 64:
                raise RefusedError(f"`sum` of {t} is not the one of the engine")
        of_groups = [f"b.{c} AS {c}" for c in groups]
        kind = _checked_type(relation, rule.num_group)
        by = f" GROUP BY {', '.join(f'b.{c}' for c in groups)}" if groups else ""
        if rule.groups is not None:
            if rule.operator in ("min", "max"):
                on = " AND ".join(f"g.{c} = b.{c}" for c in groups) or "TRUE"
                body = f"(SELECT b.* FROM {body} b LEFT SEMI JOIN {self.view(rule.groups, 'all')} g ON {on})"
            else:
                return self._counted(rule, body, groups, kind)
        aggregate = self._total(rule, "*", value)
        having = " HAVING count(*) > 0" if rule.operator in ("min", "max") and not groups else ""
        result = f"CAST({aggregate} AS {kind}) AS c{rule.num_group}"
        return f"SELECT {', '.join([*of_groups, result])} FROM {body} b{by}{having}"

    def _counted(self, rule: AggregateRule, body: str, groups: list[str], kind: str) -> str:
        """Counts and sums of groups that may have no rows."""
        assert rule.groups is not None
        keys = ", ".join(f"g.{c}" for c in groups)
        on = " AND ".join(f"g.{c} = b.{c}" for c in groups) or "TRUE"
        counted = self._total(rule, "b.present", f"b.c{rule.num_group}")
        rows = f"(SELECT *, 1 AS present FROM {body}) b"
        of_groups = [f"g.{c} AS {c}" for c in groups]
        by = f" GROUP BY {keys}" if groups else ""
        result = f"CAST({counted} AS {kind}) AS c{rule.num_group}"
        tables = f"{self.view(rule.groups, 'all')} g LEFT JOIN {rows} ON {on}"
        return f"SELECT {', '.join([*of_groups, result])} FROM {tables}{by}"

    def _total(self, rule: AggregateRule, present: str, value: str) -> str:
        """The aggregate of values of rows; of no rows a sum is 0."""
        if rule.operator != "sum":
            counts = {"count": f"count({present})", "exists": f"count({present}) > 0"}
            return counts.get(rule.operator, f"{rule.operator}({value})")
        t = self.ram.relations[rule.body].types[rule.num_group]
        if t.family == "float":
            return f"coalesce(sum(CAST({value} AS DOUBLE)), 0.0D)"
        return fitted(f"coalesce(sum(CAST({value} AS {DECIMALS})), 0)", t)
