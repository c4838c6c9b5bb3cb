"""Inference over one program: its items declare and constrain types; at the end all are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derivable.core.diagnostics import BindingError, TypeMismatchError, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.aggregates.lattices import LATTICES
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.scalars.nodes import NOWHERE
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import as_written
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.types.formulas import Formulas
from derivable.datalog.types.typed import Typed
from derivable.datalog.types.unification import Open, final, meet, resolve
from derivable.datalog.values.values import BOOL, TYPES, USIZE, ValueType, castable


def infer(syntax: s.Syntax, hints: Mapping[str, tuple[str, ...]] | None = None) -> Typed:
    """Infer all types. `hints` gives types, or families, for the columns of relations that only Python facts define.

    Raises TypeMismatchError (arity or type clash), BindingError (duplicate declaration), UnsupportedError.
    """
    return _Inference(syntax, hints or {}).run()


def _fits(value: Any, t: ValueType) -> bool:
    """Whether a literal is inside the limits of its type."""
    if not t.is_number:
        return True
    low, high = t.limits
    if t.family == "float":
        high = float(np.finfo(t.dtype).max)
        low = -high
    return low <= value <= high


def _arguments_as_written(table: s.FactTable) -> list[tuple[Any, ...]]:
    """[row] the nodes of the arguments."""
    rows: list[tuple[Any, ...]] = []
    for item in as_written(table):
        if isinstance(item, s.FactSet):
            rows += [fact.arguments for fact in item.facts]
        elif isinstance(item, s.Rule):
            rows.append(item.heads[0].arguments)
    return rows


class _Inference(Formulas):
    def run(self) -> Typed:
        errors = self.errors
        self.declare_data_types()
        for item in self.syntax.items:
            with errors:
                self.declare(item)
        errors.report()
        self.declare_constructors()
        self.declare_functions()
        self.declare_terms()
        for name, families in self.hints.items():
            self.relation(name, len(families), NOWHERE)
            for column, hint in zip(self.columns[name], families):
                open_type = resolve(column)
                if name not in self.declared and isinstance(open_type, Open):
                    wish = TYPES.get(hint)
                    family = hint if wish is None else "integer" if wish.is_integer else wish.family
                    open_type.family = meet(open_type.family, family) or open_type.family
                    open_type.wish = wish
        for item in self.syntax.items:
            with errors:
                self.item(item)
                self.decide()
        for item in self.syntax.items:
            if isinstance(item, s.FactSet) and item.relation not in self.columns:
                # Without facts, and nothing says what they would be.
                self.relation(item.relation, 0, item.span)
        with errors:
            self.decide(last=True)
        errors.report()
        return self.finish()

    def declare(self, item: s.Item) -> None:
        match item:
            case s.AliasType(name=name, type_name=target):
                self.new_name(name, item.span)
                self.types[name] = self.named_type(target, item.span)
            case s.EnumType(name=name, members=members):
                self.new_name(name, item.span)
                self.types[name] = USIZE
                following = 0
                taken: dict[int, str] = {}
                for member, value in members:
                    self.new_name(member, item.span)
                    following = following if value is None else value
                    if not _fits(following, USIZE):
                        self.mismatch(f"`{member}` has the value {following}, no usize", item.span)
                    if following in taken:
                        self.error(
                            BindingError,
                            f"`{member}` has the value {following} of `{taken[following]}`",
                            item.span,
                            "the members of an enum have different values; one without a value follows the one before",
                        )
                    taken[following] = member
                    self.constants[member] = (following, USIZE)
                    following += 1
            case s.RelationType(name=name, columns=columns):
                if name in self.declared:
                    self.error(
                        BindingError,
                        f"relation `{name}` is declared twice",
                        item.span,
                        f"the first declaration is on {self.declared[name].location}",
                    )
                self.declared[name] = item.span
                self.lattice(name, columns)
                self.columns[name] = [self.named_type(c.type_name, c.span) for c in columns]
                self.names[name] = tuple(c.name for c in columns)
            case s.ConstantItem(name=name, type_name=type_name, value=value):
                self.new_name(name, item.span)
                if isinstance(value, (s.Atom, s.New)):
                    constructor = value.constructor if isinstance(value, s.New) else value.relation
                    self.constants[name] = value, self.variants.get(constructor, (None, Open()))[1]
                    return
                if not isinstance(value, s.Constant):
                    self.constants[name] = value, Open()
                    return
                t = self.expression(value)
                if type_name is not None:
                    self.unify(t, self.named_type(type_name, item.span), value.span, f"the declared type of `{name}`")
                self.constants[name] = (value.value, t)

    def lattice(self, name: str, columns: tuple[s.Column, ...]) -> None:
        """The lattice of a relation's last column, if it declares one."""
        for index, column in enumerate(columns):
            if column.lattice is None:
                continue
            if column.lattice not in LATTICES:
                hint = suggestion(column.lattice, LATTICES.known(), f"known are {', '.join(LATTICES.known())}")
                self.error(BindingError, f"unknown lattice `{column.lattice}`", column.span, hint)
            if index < len(columns) - 1:
                self.error(
                    UnsupportedError,
                    f"`{column.lattice}` stands on column {index + 1} of `{name}`, which has {len(columns)}",
                    column.span,
                    "the column that has a lattice comes last; split the relation if there are several",
                )
            t = self.named_type(column.type_name, column.span)
            if not LATTICES[column.lattice].takes_type(t):
                self.mismatch(
                    f"the lattice `{column.lattice}` has no column of type {t}",
                    column.span,
                    f"it takes what is `{LATTICES[column.lattice].takes}`",
                )
            if column.adornment == "bound":
                hint = "remove `bound`: values of a lattice can only be queried by the other columns"
                self.error(UnsupportedError, "the column of a lattice cannot be bound", column.span, hint)
            self.lattices[name] = column.lattice

    def item(self, item: s.Item) -> None:
        self.scope = {}
        match item:
            case s.FactSet(relation=name, facts=facts):
                (self.defined if facts else self.emptied).add(name)
                for fact in facts:
                    columns = self.relation(name, len(fact.arguments), fact.span)
                    self.arguments(name, fact.arguments, columns)
                    if fact.tag is not None:
                        self.tag(fact.tag)
            case s.FactTable():
                self.table(item)
                return
            case s.Rule(heads=heads, body=body, tag=tag):
                for head in heads:
                    self.defined.add(head.relation)
                    self.atom(head)
                if body is not None:
                    self.formula(body)
                for tag_node in (*item.head_tags, *(() if tag is None else (tag,))):
                    self.tag(tag_node)
            case s.ReduceRule(relation=name, aggregate=aggregate):
                self.defined.add(name)
                self.reduce_rule(item, aggregate)
            case s.Query(relation=name, arguments=arguments):
                if arguments is not None:
                    self.arguments(name, arguments, self.relation(name, len(arguments), item.span))
                elif name not in self.columns:
                    self.first_use.setdefault(name, item.span)
            case s.Evidence(relation=name, arguments=arguments):
                self.arguments(name, arguments, self.relation(name, len(arguments), item.span))
            case _:
                return
        self.variables[id(item)] = self.scope

    def table(self, item: s.FactTable) -> None:
        """A column of a table has one kind, and so one type. What does not fit is said of the facts as written."""
        self.defined.add(item.relation)
        columns = self.columns.get(item.relation)
        types = [self.literal(kind) for kind in item.kinds]
        try:
            for t, column in zip(types, self.relation(item.relation, len(types), item.span)):
                self.unify(t, column, item.span, "")
        except TypeMismatchError:
            if columns is None:
                raise
            for written in as_written(item):
                with self.errors:
                    self.item(written)
            return
        self.tables.append((item, types))

    def reduce_rule(self, item: s.ReduceRule, aggregate: s.Aggregate) -> None:
        result = self.aggregate(aggregate)
        group = list(aggregate.group)
        columns = self.relation(item.relation, len(group) + len(result), item.span)
        for column, name in zip(columns, group):
            self.unify(self.scope[name], column, item.span, f"a column of `{item.relation}`")
        for column, t in zip(columns[len(group) :], result):
            self.unify(t, column, item.span, f"a column of `{item.relation}`")

    # Result

    def finish(self) -> Typed:
        for node, t in self.literals:
            fixed = final(t)
            if not _fits(node.value, fixed):
                is_open = isinstance(resolve(t), Open) and fixed.is_integer
                hint = "declare the types of the relation, such as `type r(x: i64)`" if is_open else None
                self.mismatch(f"{node.value} does not fit {fixed}", node.span, hint)
        for tag, t in self.tags:
            fixed = final(t)
            if not (fixed.is_number or fixed is BOOL):
                hint = "tags are numbers or bools" if fixed.family != "text" else "convert it: `x as f64`"
                self.mismatch(f"a tag must be a number, this is {fixed}", tag.span, hint)
        for item, types in self.tables:
            for column, t in enumerate(types):
                fixed, values = final(t), item.columns[column]
                if fixed.is_number and not (_fits(min(values), fixed) and _fits(max(values), fixed)):
                    row = next(row for row, value in enumerate(values) if not _fits(value, fixed))
                    span = _arguments_as_written(item)[row][column].span
                    self.mismatch(f"{values[row]} does not fit {fixed}", span)
        for node in self.casts:
            source, target = final(self.of[id(node.operand)]), final(self.of[id(node)])
            if not castable(source, target):
                families, hint = {source.family, target.family}, None
                if "entity" in families:
                    hint = "a term becomes a text, `as String`, and a text a term; `case` takes a term apart"
                elif families == {"float", "char"}:
                    hint = f"go through an integer: `{expression_text(node.operand)} as u32 as {target}`"
                self.mismatch(f"{source} cannot be cast to {target}", node.span, hint)
        relations = {
            name: Relation(
                name,
                tuple(map(final, columns)),
                is_input=name not in self.declared and name not in self.defined,
                span=self.declared.get(name) or self.first_use.get(name, NOWHERE),
                column_names=self.names[name],
                is_emptied=name in self.emptied,
                lattice=self.lattices.get(name),
            )
            for name, columns in self.columns.items()
        }
        return Typed(
            self.syntax,
            relations,
            self.constant_terms(),
            {key: final(t) for key, t in self.of.items()},
            {key: {name: final(t) for name, t in scope.items()} for key, scope in self.variables.items()},
            self.types,
            self.constructors,
            frozenset(self.real),
        )
