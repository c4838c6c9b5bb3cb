"""A flat program of Soufflé's as the syntax tree of this library, whose nodes have their positions in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import BindingError, TypeMismatchError, UnsupportedError, warn
from derivable.datalog.aggregates.ordering import CHOICE
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.clauses import Bound, Clause, Names, disjuncts, replaced, variables_in
from derivable.datalog.souffle.expressions import Expressions
from derivable.datalog.souffle.fact_columns import spelled_out, with_facts
from derivable.datalog.souffle.inlining import inlined
from derivable.datalog.souffle.selections import Selection, feeders, is_extremum, makes_values, selections
from derivable.datalog.souffle.types import ClauseTypes, Types
from derivable.datalog.syntax import nodes as s

_SIGNS = {"=": "=="}
_TEXT_TESTS = {"match": "string_matches", "contains": "string_contains"}


class Translation:
    """The items of one program.

    bits      of a word: 32 or 64
    functors  name of a functor -> name of the function that it calls
    """

    def __init__(self, items: list[n.Node], types: Types, bits: int, functors: dict[str, str]):
        self.file, self.types, self.names = types.file, types, Names()
        self.items_of_file = items = inlined(with_facts(items, types, bits), self.types, self.names)
        self.expressions = Expressions(self.types, bits, functors)
        self.selections = selections(items, self.types)
        self.reached = feeders(items) if self.selections else {}
        self.items: list[s.Item] = []
        # Rules with `autoinc()` so far: the relation of the rows that it numbers, and how many columns that has.
        self.numbered: list[tuple[str, int]] = []

    def run(self, shown: list[str]) -> s.Syntax:
        """The syntax of the whole program. shown: the relations that are outputs, all of them if it is empty."""
        self.declarations()
        facts: dict[str, list[s.Fact]] = {}
        for item in self.items_of_file:
            if isinstance(item, n.Clause):
                if item.body is None and len(item.heads) == 1 and _is_ground(item.heads[0]):
                    self.fact(item.heads[0], facts)
                    if item.more is not None:
                        self.more_facts(item, facts)
                else:
                    self.clause(item)
        for name, rows in facts.items():
            self.items.append(s.FactSet(name, tuple(rows), span=rows[0].span))
        for selection in self.selections.values():
            if not selection.is_whole:
                self.selected(selection)
        names = dict.fromkeys(shown or self.types.relations)
        self.items += [s.Query(name, span=self.types.relations[name].span) for name in names]
        return s.Syntax(tuple(self.items), self.file.text, self.file.source)

    # Declarations

    def declarations(self) -> None:
        named = self.expressions
        for name, item in self.types.declared.items():
            if isinstance(item, n.RecordType):
                record = self.types.records[name]
                fields = self.columns(item.fields)
                variants = (
                    s.Variant(named.nil(name), (), span=item.span),
                    s.Variant(record.name, fields, span=item.span),
                )
            elif isinstance(item, n.SumType):
                variants = tuple(
                    s.Variant(self.types.sums[name][branch.name].name, self.columns(branch.fields), span=branch.span)
                    for branch in item.variants
                )
            else:
                continue
            self.items.append(s.DataType(named.data_type(name), variants, span=item.span))
        for name, item in self.types.relations.items():
            columns, selection = self.columns(item.attributes), self.selections.get(name)
            if selection is not None and selection.is_whole:
                columns = (*columns[:-1], replace(columns[-1], lattice=selection.lattice))
            self.items.append(s.RelationType(name, columns, span=item.span))
            if "eqrel" in item.qualifiers:
                self.equivalence(item)

    def columns(self, attributes: tuple[n.Attribute, ...]) -> tuple[s.Column, ...]:
        types = self.types.fields(attributes)
        return tuple(s.Column(self.expressions.type_name(t), a.name, span=a.span) for t, a in zip(types, attributes))

    def equivalence(self, item: n.Relation) -> None:
        """The rules of symmetry and transitivity."""
        types = self.types.fields(item.attributes)
        if len(types) != 2 or types[0] != types[1]:
            message = f"the equivalence `{item.name}` has not two columns of one type"
            raise self.types.error(TypeMismatchError, message, item.span)

        name, span = item.name, item.span
        self.items.append(s.Rule((_atom(name, "yx", span),), _atom(name, "xy", span), span=span))
        joined = s.Conjunction((_atom(name, "xy", span), _atom(name, "yz", span)), span=span)
        self.items.append(s.Rule((_atom(name, "xz", span),), joined, span=span))

    # Facts and rules

    def fact(self, atom: n.Atom, facts: dict[str, list[s.Fact]]) -> None:
        typed = ClauseTypes(self.types, [atom])
        columns = self.types.columns(atom.name, atom.span)
        values = tuple(self.expressions.value(a, typed, t) for a, t in zip(atom.arguments, columns))
        selection = self.selections.get(atom.name)
        if selection is not None:
            made = selection.atom(values, atom.span, True)
            facts.setdefault(made.relation, []).append(s.Fact(made.arguments, span=atom.span))
            return
        facts.setdefault(atom.name, []).append(s.Fact(values, span=atom.span))

    def more_facts(self, item: n.Clause, facts: dict[str, list[s.Fact]]) -> None:
        name, run = item.heads[0].name, item.more
        if name in self.selections:
            for clause in spelled_out(item, self.file)[1:]:
                self.fact(clause.heads[0], facts)
        else:
            self.items.append(s.FactTable(name, run.kinds, run.columns, span=item.span))

    def clause(self, item: n.Clause) -> None:
        for literals in disjuncts(item.body, self.types):
            clause = Clause(item.heads, literals, self.types, self.names, set())
            formulas = [self.literal(literal, clause) for literal in clause.literals]
            heads = tuple(self.head(head, clause.typed) for head in clause.heads)
            self.items.append(s.Rule(heads, _conjunction(formulas, item.span), span=item.span))

    def head(self, atom: n.Node, typed: ClauseTypes) -> s.Atom:
        assert isinstance(atom, n.Atom)
        columns = self.types.columns(atom.name, atom.span)
        for argument in atom.arguments:
            if any(isinstance(part, n.Unnamed) for part in walk(argument)):
                raise self.types.error(BindingError, "`_` in a head has no value", argument.span)
        arguments = [a.arguments[0] if isinstance(a, n.Functor) and is_extremum(a) else a for a in atom.arguments]
        values = tuple(self.expressions.value(a, typed, t) for a, t in zip(arguments, columns))
        selection = self.selections.get(atom.name)
        return selection.atom(values, atom.span, True) if selection else s.Atom(atom.name, values, span=atom.span)

    def read(self, atom: n.Atom, clause: Clause, span: n.Span) -> tuple[s.Atom, list[Any]]:
        """The atom of a body, and the equations that it needs."""
        name, extra = atom.name, []
        columns = zip(atom.arguments, self.types.columns(name, span))
        parts = tuple(self.expressions.pattern(a, clause.typed, t, extra, self.names) for a, t in columns)
        selection = self.selections.get(name)
        if selection is not None:
            heads = {head.name for head in clause.heads if isinstance(head, n.Atom)}
            is_inside = any(head == name or name in self.reached.get(head, ()) for head in heads)
            if selection.is_read or (is_inside and selection.lattice is None):
                return selection.atom(parts, span, False), extra
        return s.Atom(name, parts, span=span), extra

    def selected(self, selection: Selection) -> None:
        """The relations and rules of one that does not keep all rows."""
        item, span = selection.relation, selection.relation.span
        columns = self.columns(item.attributes)
        ordered = [s.Column(columns[c].type_name, columns[c].name, span=span) for c in selection.order]
        if selection.packed is not None:
            constructor, width = selection.packed
            fields = tuple(s.Column(one.type_name, span=span) for one in ordered[-width:])
            name = f"{constructor}'type"
            self.items.append(s.DataType(name, (s.Variant(constructor, fields, span=span),), span=span))
            ordered = [*ordered[:-width], s.Column(name, span=span)]
        if selection.lattice is not None:
            last = ordered[-1]
            ordered[-1] = s.Column(last.type_name, last.name, lattice=selection.lattice, span=span)
        self.items.append(s.RelationType(selection.derived, tuple(ordered), span=span))
        names = [f"x{number}" for number in range(len(columns))]
        self.items.append(s.RelationType(selection.facts, self.columns(item.attributes), span=span))
        facts = s.Atom(selection.facts, tuple(s.Variable(name, span=span) for name in names), span=span)
        made = selection.atom(tuple(s.Variable(name, span=span) for name in names), span, True)
        self.items.append(s.Rule((made,), facts, span=span))

        def variables(stem: str) -> tuple[Any, ...]:
            return tuple(s.Variable(f"{stem}{name}", span=span) for name in names)

        body: Any = selection.atom(variables(""), span, False)
        if selection.choice is not None:
            inner = tuple(f"inner{name}" for name in names)
            body = s.Aggregate(
                CHOICE,
                inner,
                selection.atom(variables("inner"), span, False),
                variables(""),
                parameters=(("keys", selection.choice),),
                span=span,
            )
        if selection.subsumptions:
            body = self.not_subsumed(selection, body, variables, span)
        self.items.append(s.Rule((s.Atom(item.name, variables(""), span=span),), body, span=span))

    def not_subsumed(self, selection: Selection, body: Any, variables: Callable[[str], Any], span: n.Span) -> Any:
        """The rows of a body that no other row subsumes; of rows that subsume each other the first one stays."""
        name = selection.relation.name
        around = self.reached.get(name, set())
        endless = makes_values(self.items_of_file, around | {name}) if name in around else None
        if endless is not None:
            message = (
                f"the subsumption of `{name}` is decided when all its rows are there, which may be many or endless"
            )
            hint = "`p(x, a) <= p(x, b) :- b <= a.` keeps the smallest value while rules run"
            rule = selection.subsumptions[0]
            warn(message, hint=hint, source=self.file.source, text=self.file.text, span=rule.span)
        less, worse = f"#less {name}", f"#worse {name}"
        width = len(selection.order)
        for rule in selection.subsumptions:
            less_atom, greater = self.with_names(rule.less), self.with_names(rule.greater)
            for literals in disjuncts(rule.body, self.types):
                clause = Clause([less_atom, greater], [less_atom, greater, *literals], self.types, self.names, set())
                values = [
                    self.expressions.value(a, clause.typed, t)
                    for atom in (less_atom, greater)
                    for a, t in zip(atom.arguments, self.types.columns(name, span))
                ]
                formulas = [self.literal(literal, clause) for literal in clause.literals]
                self.items.append(
                    s.Rule((s.Atom(less, tuple(values), span=span),), _conjunction(formulas, span), span=span)
                )
        pair = s.Atom(less, (*variables("a"), *variables("b")), span=span)
        back = s.Not(s.Atom(less, (*variables("b"), *variables("a")), span=span), span=span)
        head = s.Atom(worse, variables("a"), span=span)
        self.items.append(s.Rule((head,), s.Conjunction((pair, back), span=span), span=span))
        for column in range(width):
            same = [s.Binary("==", a, b, span=span) for a, b in zip(variables("a")[:column], variables("b")[:column])]
            later = s.Binary(">", variables("a")[column], variables("b")[column], span=span)
            pair = s.Atom(less, (*variables("a"), *variables("b")), span=span)
            self.items.append(
                s.Rule(
                    (s.Atom(worse, variables("a"), span=span),),
                    s.Conjunction((pair, *same, later), span=span),
                    span=span,
                )
            )
        return s.Conjunction((body, s.Not(s.Atom(worse, variables(""), span=span), span=span)), span=span)

    def literal(self, node: n.Formula | Bound, clause: Clause) -> Any:
        """The formula of one literal, with the equations that it needs; made afresh at every call."""
        match node:
            case Bound():
                return self.bound(node, clause)
            case n.Atom():
                atom, extra = self.read(node, clause, node.span)
                return _conjunction([atom, *extra], node.span)
            case n.Not(operand=n.Atom() as operand):
                atom, extra = self.read(operand, clause, node.span)
                return _conjunction([*extra, s.Not(atom, span=node.span)], node.span)
            case n.Not(operand=n.Constraint() as constraint):
                return s.Unary("!", self.constraint(constraint, clause), span=node.span)
            case n.Constraint():
                return self.constraint(node, clause)
        raise self.types.error(UnsupportedError, "this cannot stand in a body", node.span)

    def constraint(self, node: n.Constraint, clause: Clause) -> Any:
        typed, span = clause.typed, node.span
        left, right = (_without_type(side) for side in (node.left, node.right))
        if node.operator in ("match", "contains"):
            texts = (self.expressions.value(a, typed, "symbol") for a in (left, right))
            return self.expressions.call(_TEXT_TESTS[node.operator], *texts, span=span)
        t = typed.argument(node.left) or typed.argument(node.right)
        if node.operator in ("=", "!="):
            t = typed.argument(node.left, typed.argument(node.right)) or t
            if node.operator == "=" and (isinstance(left, n.TERMS) or isinstance(right, n.TERMS)):
                return self.equation(node, left, right, t, clause)
        elif t is not None and t not in ("number", "unsigned", "float", "symbol"):
            message, hint = f"values of the type {t} have no order", "compare them with `=` and `!=`"
            raise self.types.error(TypeMismatchError, message, span, hint)
        sign = _SIGNS.get(node.operator, node.operator)
        parts = (self.expressions.value(a, typed, t) for a in (node.left, node.right))
        return s.Binary(sign, *parts, span=span)

    def equation(
        self, node: n.Constraint, subject: n.Argument, pattern: n.Argument, t: str | None, clause: Clause
    ) -> Any:
        """`x = [a, b]`: takes `x` apart where it is bound by another literal, else `x` is a new record."""
        if not isinstance(pattern, n.TERMS):
            subject, pattern = pattern, subject
        if isinstance(subject, n.STRUCTURES) and isinstance(pattern, n.STRUCTURES):
            return self.matched(subject, pattern, t, clause, node.span)
        extra: list[Any] = []
        if isinstance(subject, n.Variable) and not self.is_bound_before(subject.name, node, clause):
            value = self.expressions.value(pattern, clause.typed, t)
            return s.Binary("==", s.Variable(subject.name, span=subject.span), value, span=node.span)
        pattern_parts = self.expressions.pattern(pattern, clause.typed, t or "", extra, self.names)
        value = self.expressions.value(subject, clause.typed, t)
        return _conjunction([s.Case(value, pattern_parts, span=node.span), *extra], node.span)

    def is_bound_before(self, name: str, node: n.Formula, clause: Clause) -> bool:
        """Whether a literal before this one, in the order of what binds what, has a variable."""
        if name in clause.outer:
            return True
        index = next(i for i, literal in enumerate(clause.literals) if literal is node)
        before = clause.literals[:index]
        return any(
            literal.variable.name == name if isinstance(literal, Bound) else name in variables_in(literal)
            for literal in before
            if not isinstance(literal, n.Not)
        )

    def matched(self, a: n.Argument, b: n.Argument, t: str | None, clause: Clause, span: n.Span) -> Any:
        """Two records or branches that are equal: their parts are."""
        name, left, fields = self.expressions.structure(a, t)
        other, right, _ = self.expressions.structure(b, t)
        if name != other:
            return s.Constant(False, "bool", span=span)
        parts: list[Any] = [s.Constant(True, "bool", span=span)]
        for x, y, field in zip(left, right, fields):
            if not isinstance(x, n.Unnamed) and not isinstance(y, n.Unnamed):
                if isinstance(x, n.STRUCTURES) and isinstance(y, n.STRUCTURES):
                    parts.append(self.matched(x, y, field, clause, span))
                    continue
                values = (self.expressions.value(part, clause.typed, field) for part in (x, y))
                parts.append(s.Binary("==", *values, span=span))
        return _conjunction(parts, span)

    # What is no expression

    def bound(self, node: Bound, clause: Clause) -> Any:
        value, variable = node.value, node.variable
        if isinstance(value, n.Aggregate):
            return self.aggregate(node, value, clause)
        if isinstance(value, n.Counter):
            return self.counter(node, clause)
        assert isinstance(value, n.Functor)
        if len(value.arguments) not in (2, 3):
            message = f"`range` takes two or three arguments, {len(value.arguments)} given"
            raise self.types.error(TypeMismatchError, message, value.span)
        t = clause.typed.argument(value, clause.typed.variables.get(variable.name)) or "number"
        parts = (self.expressions.value(a, clause.typed, t) for a in value.arguments)
        name = "numbers_to" if len(value.arguments) == 2 else "numbers_by"
        return s.Atom(name, (*parts, s.Variable(variable.name, span=value.span)), span=value.span)

    def around(self, node: Bound, clause: Clause, wanted: Iterable[str]) -> Any:
        """The literals before an aggregate that say what its variables from around are; None if there are none."""
        index, span = clause.literals.index(node), node.value.span
        before = clause.literals[:index]
        chosen, bound = clause.without_aggregates(before)
        if not bound.issuperset(wanted):
            chosen = before
        formulas = [self.literal(literal, clause) for literal in chosen]
        return _conjunction(
            [*([] if clause.outer_atom is None else [_atom(*clause.outer_atom, span)]), *formulas], span
        )

    def aggregate(self, node: Bound, value: n.Aggregate, clause: Clause) -> Any:
        operator, span = value.operator, value.span
        alternatives = disjuncts(value.body, self.types)
        if len(alternatives) != 1:
            hint = "name the alternatives: a relation with a rule for each of them"
            raise self.types.error(UnsupportedError, "an aggregate has no alternatives in its body", span, hint)
        is_counted = operator in ("count", "sum", "mean")
        literals = [self.with_names(one) if is_counted else one for one in alternatives[0]]
        targets = [] if value.target is None else [value.target]
        outer = set(node.used) & (clause.bound | clause.outer)
        types = {name: t for name, t in clause.typed.variables.items() if name in outer}
        inner = Clause(targets, literals, self.types, self.names, outer, types)
        group = tuple(name for name in dict.fromkeys(node.used) if name in outer)
        inner.outer_atom = self.groups(node, clause, group, span) if group else None
        formulas = [self.literal(literal, inner) for literal in inner.literals]
        inner_names = [
            name for name in dict.fromkeys(x for part in inner.literals for x in _names(part)) if name not in outer
        ]
        bindings, arguments, result_type = self.folded(operator, inner, clause, formulas, inner_names, span)
        result = s.Variable(self.names.fresh("r"), span=span)
        operator = "avg" if operator == "mean" else operator
        body = _conjunction(formulas, span) or s.Constant(True, "bool", span=span)
        groups = None if inner.outer_atom is None else _atom(*inner.outer_atom, span)
        aggregate = s.Aggregate(
            operator, bindings, body, (result,), arguments, group=group, group_body=groups, span=span
        )
        return _conjunction([aggregate, self.assigned(node.variable, result, result_type, span)], span)

    def with_names(self, literal: Any) -> Any:
        """An atom of which every column counts: `_` is a variable."""
        if not isinstance(literal, n.Atom):
            return literal

        def named(part: Any) -> Any:
            return n.Variable(self.names.fresh("_"), span=part.span) if isinstance(part, n.Unnamed) else part

        return replaced(literal, named)

    def folded(
        self, operator: str, inner: Clause, clause: Clause, formulas: list[Any], inner_names: list[str], span: n.Span
    ) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
        """(the variables that are folded, those that tell rows apart, the type that the result is made of)."""
        words = self.expressions.words
        if operator == "count":
            return tuple(inner_names or self.constant(formulas, span)), (), "count"
        [target] = inner.heads
        assert isinstance(target, n.Argument)
        t = "float" if operator == "mean" else inner.typed.argument(target) or "number"
        if t not in ("number", "unsigned", "float"):
            hint = "give a number, such as `ord(x)`"
            raise self.types.error(TypeMismatchError, f"`{operator}` is of numbers, not of {t}", target.span, hint)
        target_type = inner.typed.argument(target) or t
        value = self.expressions.value(target, inner.typed, target_type)
        wide = {"i32": "i64", "u32": "u64"}.get(words[t]) if operator == "sum" else None
        if wide is not None:
            value = s.Cast(value, wide, span=span)
        elif operator == "mean" and target_type != "float":
            value = s.Cast(value, words["float"], span=span)
        folded = self.names.fresh("t")
        formulas.append(s.Binary("==", s.Variable(folded, span=span), value, span=span))
        rows = tuple(inner_names) if operator in ("sum", "mean") else ()
        return (folded,), rows, words[t] if wide is not None else None

    def constant(self, formulas: list[Any], span: n.Span) -> list[str]:
        """A new variable of formulas that have none, which is 0: there is one row if they hold."""
        name = self.names.fresh("c")
        zero = s.Constant(0, "integer", span=span)
        formulas.append(s.Binary("==", s.Variable(name, span=span), zero, span=span))
        return [name]

    def assigned(self, variable: n.Variable, result: s.Variable, made_of: str | None, span: n.Span) -> Any:
        """`v = result`, which is converted to the type of words that it is made of."""
        value: Any = s.Variable(result.name, span=span)
        if made_of is not None:
            value = s.Call(f"wrapping_{made_of}", (value,), span=span)
        return s.Binary("==", s.Variable(variable.name, span=span), value, span=span)

    def groups(self, node: Bound, clause: Clause, group: tuple[str, ...], span: n.Span) -> tuple[str, tuple[str, ...]]:
        """A new relation that says what the variables from around an aggregate are, and its columns."""
        name = self.names.fresh("#around")
        body = self.around(node, clause, group)
        self.items.append(s.Rule((_atom(name, group, span),), body, span=span))
        return name, group

    def counter(self, node: Bound, clause: Clause) -> Any:
        """`autoinc()`: the rows of the other literals are numbered in their order, after those of earlier rules."""
        span = node.value.span
        others = [one for one in clause.literals if not (isinstance(one, Bound) and isinstance(one.value, n.Counter))]
        inner_names = list(dict.fromkeys(name for one in others for name in _names(one)))
        name = self.names.fresh("#rows")
        rows = [self.literal(one, clause) for one in others]
        inner_names = inner_names or self.constant(rows, span)
        self.items.append(s.Rule((_atom(name, inner_names, span),), _conjunction(rows, span), span=span))
        inner = [self.names.fresh(x) for x in inner_names]
        rank = s.Variable(self.names.fresh("i"), span=span)
        outputs = (rank, *(s.Variable(x, span=span) for x in inner_names))
        formulas: list[Any] = [s.Aggregate("enumerate", tuple(inner), _atom(name, inner, span), outputs, span=span)]
        value: Any = s.Call("wrapping_count", (s.Variable(rank.name, span=span),), span=span)
        for earlier, width in self.numbered:
            columns = tuple(self.names.fresh("c") for _ in range(width))
            count = s.Variable(self.names.fresh("n"), span=span)
            formulas.append(s.Aggregate("count", columns, _atom(earlier, columns, span), (count,), span=span))
            more = s.Call("wrapping_count", (s.Variable(count.name, span=span),), span=span)
            value = s.Call("wrapping_add", (value, more), span=span)
        self.numbered.append((name, len(inner_names)))
        formulas.append(s.Binary("==", s.Variable(node.variable.name, span=span), value, span=span))
        return _conjunction(formulas, span)


def _without_type(node: n.Argument) -> n.Argument:
    """A record or branch without the type that is written with it."""
    is_typed = isinstance(node, n.As) and isinstance(node.operand, n.TERMS)
    return node.operand if is_typed else node  # type: ignore[union-attr]


def _atom(name: str, variables: Iterable[str], span: n.Span) -> s.Atom:
    return s.Atom(name, tuple(s.Variable(x, span=span) for x in variables), span=span)


def _names(literal: n.Formula | Bound) -> set[str]:
    if isinstance(literal, Bound):
        is_aggregate = isinstance(literal.value, n.Aggregate)
        return {literal.variable.name, *literal.used, *(() if is_aggregate else variables_in(literal.value))}
    return set(variables_in(literal))


def _is_ground(atom: n.Atom) -> bool:
    plain = (n.Literal, *n.TERMS, n.As, n.Atom)
    return all(isinstance(part, plain) for part in walk(atom))


def _conjunction(formulas: list[Any], span: n.Span) -> Any:
    parts = [formula for formula in formulas if formula is not None]
    return None if not parts else parts[0] if len(parts) == 1 else s.Conjunction(tuple(parts), span=span)
