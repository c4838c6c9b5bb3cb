"""Bodies: goals as formulas of this library's language."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from derivable.core.diagnostics import TypeMismatchError, Written
from derivable.datalog.problog import goals as g
from derivable.datalog.problog.arithmetic import Arithmetic, as_float
from derivable.datalog.problog.kinds import NUMERIC, TERM, Key, Kinds
from derivable.datalog.problog.library import SOURCE
from derivable.datalog.problog.modes import Modes, are_bound, is_pattern
from derivable.datalog.problog.terms import Compound, Number, Term, Text, Var, is_ground, variables
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.syntax import nodes as s

# The relation of terms that are numbers, and these as floats.
NUMBER = "#number"
# The relation of the terms that calls make, so that the clauses which are called find them.
MADE = "#made"
CONTAINS = (("member", 2), ("memberchk", 2))
Formulas = list[s.Expression]


class Names:
    """What predicates and constructors are called."""

    def __init__(self, relations: dict[tuple[str, int], str], constructors: dict[tuple[str, int], str]):
        self.relations = relations
        self.constructors = constructors
        self.fresh = 0
        self.uses_numbers = False

    def new(self, stem: str) -> str:
        self.fresh += 1
        return f"#{stem}{self.fresh}"


class Bodies:
    """The formulas and terms of one clause."""

    def __init__(self, number: int, names: Names, kinds: Kinds, modes: Modes, written: Written):
        self.number = number
        self.names, self.kinds, self.modes, self.written = names, kinds, modes, written
        self.extra: Formulas = []
        self.views: dict[str, tuple[s.Expression, str]] = {}
        self.arithmetic = Arithmetic(self.value_of, written.error)
        # Whether the body has several ways to hold, which would be separate rules with separate coins.
        self.has_choice = False
        # Terms that calls make, and what their variables are bound by.
        self.made: list[tuple[s.Expression, Formulas]] = []
        self.items: list[s.Item] = []

    # Terms

    def term(self, term: Term, key: Key, is_new: bool = False) -> s.Expression:
        """A term at a position of this class, `new` where it is made and not looked for."""
        span = term.span
        match term:
            case Var(name=name):
                return s.Variable(name, span=span)
            case Number(value=value):
                kind = "integer" if isinstance(value, int) else "float"
                return self.wrapped(s.Constant(value, kind, span=span), kind, key, is_new)
            case Text(value=value):
                return self.wrapped(s.Constant(value, "symbol", span=span), "string", key, is_new)
            case Compound(functor=functor, arguments=()) if functor != "[]":
                return self.wrapped(s.Constant(functor, "text", span=span), "atom", key, is_new)
        assert isinstance(term, Compound)
        name = self.names.constructors[term.key]
        parts = tuple(self.term(a, ("field", *term.key, i), is_new) for i, a in enumerate(term.arguments))
        return s.New(name, parts, span=span) if is_new else s.Atom(name, parts, span=span)

    def wrapped(self, e: s.Expression, kind: str, key: Key, is_new: bool = False) -> s.Expression:
        if self.kinds.type_of(key) != TERM:
            return e
        return s.New(kind, (e,), span=e.span) if is_new else s.Atom(kind, (e,), span=e.span)

    def key(self, term: Term) -> Key:
        """The class of a term that meets another one; of two, that of a variable says more."""
        return self.kinds.key(self.number, term)

    # Numbers

    def value_of(self, var: Var) -> tuple[s.Expression, str]:
        """The number that a variable has, and its kind."""
        if var.name in self.views:
            return self.views[var.name]
        kinds = self.kinds.of(("variable", self.number, var.name))
        numbers = [kind for kind in NUMERIC if kind in kinds]
        here = s.Variable(var.name, span=var.span)
        if not kinds:
            return s.Cast(here, "i64", span=var.span), "integer"
        if not numbers:
            kind, span = next(iter(kinds.items()))
            what = {"atom": "an atom", "string": "a text"}.get(kind, f"a term, `{kind}`")
            self.written.error(
                TypeMismatchError,
                f"`{var.name}` is {what}, and no number",
                var.span,
                f"its values come from {span.location}",
            )
        if len(kinds) == 1:
            return here, numbers[0]
        view = s.Variable(self.names.new("number"), span=var.span)
        if len(numbers) == 1:
            [kind] = numbers
            self.extra.append(s.Case(here, s.Atom(kind, (view,), span=var.span), span=var.span))
        else:
            self.names.uses_numbers, kind = True, "float"
            self.extra.append(s.Atom(NUMBER, (here, view), span=var.span))
        self.views[var.name] = view, kind
        return view, kind

    def is_mixed(self, name: str) -> bool:
        kinds = self.kinds.of(("variable", self.number, name))
        return len(kinds) > 1 and all(kind in kinds for kind in NUMERIC)

    def with_extra(self, e: s.Expression) -> Formulas:
        formulas, self.extra = [*self.extra, e], []
        self.views = {}
        return formulas

    # Goals

    def goals(self, goal: g.Goal, bound: set[str], before: Sequence[s.Expression] = ()) -> tuple[Formulas, set[str]]:
        """The formulas of a goal, all of which hold, and what is bound behind it.

        before  the formulas of the goals before it
        """
        after = self.modes.after(goal, bound)
        span = goal.span
        match goal:
            case g.And(goals=goals):
                formulas_of: Formulas = []
                for inside in goals:
                    formulas, bound = self.goals(inside, bound, (*before, *formulas_of))
                    formulas_of += formulas
                return formulas_of, bound
            case g.Or(goals=goals):
                ways = tuple(conjunction(self.goals(inside, bound, before)[0], span) for inside in goals)
                self.has_choice = self.has_choice or len(ways) > 1
                if not ways:
                    return [s.Constant(False, "bool", span=span)], after
                return [s.Disjunction(ways, span=span)], after
            case g.Negation(goal=inside):
                return [self.negation(inside, bound, before, span)], after
            case g.Call(atom=atom):
                return self.call(atom, bound, before), after
            case g.Unify(left=a, right=b):
                return [self.equal("==", a, b, bound, span)], after
            case g.Differ(left=a, right=b, same=same):
                return [self.equal("==" if same else "!=", a, b, bound, span)], after
            case g.Compare(operator=operator, left=a, right=b):
                (x, kind_x), (y, kind_y) = self.arithmetic.number(a), self.arithmetic.number(b)
                if kind_x != kind_y:
                    x, y = as_float(x, kind_x), as_float(y, kind_y)
                return self.with_extra(s.Binary(operator, x, y, span=span)), after
            case g.Is(result=result, expression=expression):
                return self.computed(result, expression, span), after
            case g.Between(low=low, high=high, value=value):
                return self.between(low, high, value, span), after
            case g.Total():
                return self.total(goal, bound, before), after
        raise TypeError(f"not a goal: {goal!r}")

    def call(self, atom: Compound, bound: set[str], before: Sequence[s.Expression]) -> Formulas:
        is_of_program = atom.span.origin is None or atom.span.origin.source != SOURCE
        if is_of_program and atom.key in CONTAINS and atom.key not in self.modes.defined and are_bound(atom, bound):
            element, items = atom.arguments
            return [self.contains(element, items, atom.span)]
        inputs = self.modes.bound.get(atom.key, set())
        arguments: Formulas = []
        formulas_of: Formulas = []
        for i, argument in enumerate(atom.arguments):
            key = "column", *atom.key, i
            if not (i in inputs and is_pattern(argument) and are_bound(argument, bound)):
                arguments.append(self.term(argument, key))
            elif is_ground(argument):
                arguments.append(self.term(argument, key))
                self.made.append((arguments[-1], []))
            else:
                term, made = self.making(argument, key, before)
                arguments.append(term)
                formulas_of += made
        return [*formulas_of, s.Atom(self.names.relations[atom.key], tuple(arguments), span=atom.span)]

    def making(self, term: Term, key: Key, before: Sequence[s.Expression]) -> tuple[s.Expression, Formulas]:
        """A term that a call makes, and what makes it.

        The clauses that are called find it because it is in a relation: one of all such terms, with what is bound by
        the goals before it, or, where it is the caller's caller that binds, one that is computed on demand.
        """
        made, span = self.term(term, key, is_new=True), term.span
        # That a term is there is no event, so conditions on it may go.
        held: Formulas = [e for e in before if isinstance(e, (s.Atom, s.Binary, s.Case, s.InRange, s.Disjunction))]
        if variables(term).keys() <= {node.name for e in held for node in walk(e) if isinstance(node, s.Variable)}:
            self.made.append((made, held))
            return made, []
        names = tuple(variables(term))
        here = s.Variable(self.names.new("term"), span=span)
        relation = self.names.new("made")
        types = [self.kinds.of_variable(self.number, name) for name in names]
        columns = (*(s.Column(t, adornment="bound") for t in types), s.Column(TERM))
        arguments = tuple(s.Variable(name, span=span) for name in names)
        hidden = (s.Attribute("hidden"),)
        self.items.append(s.RelationType(relation, columns, attributes=hidden, span=span))
        head = s.Atom(relation, (*arguments, made), span=span)
        self.items.append(s.Rule((head,), s.Constant(True, "bool", span=span), span=span))
        return here, [s.Atom(relation, (*arguments, here), span=span)]

    def contains(self, element: Term, whole: Term, span: Any) -> s.Expression:
        """Whether an element is in a list, where both are known: a condition, which negation and recursion may ask."""
        key = self.key(element)
        self.kinds.unite(key, ("field", ".", 2, 0))
        made = is_pattern(element) and not is_ground(element)
        value = self.term(element, key, made)
        items = self.term(whole, self.key(whole), is_pattern(whole) and not is_ground(whole))
        return s.Binary("==", s.Call("list_contains", (items, value), span=span), s.Constant(True, "bool"), span=span)

    def negation(self, inside: g.Goal, bound: set[str], before: Sequence[s.Expression], span: Any) -> s.Expression:
        formulas, _ = self.goals(inside, bound, before)
        body = conjunction(formulas, span)
        if isinstance(body, (s.Atom, s.Binary)):
            return s.Not(body, span=span)
        inner_names = dict.fromkeys(n.name for n in walk(body) if isinstance(n, s.Variable) and n.name not in bound)
        # The negation of a conjunction holds in several ways.
        self.has_choice = True
        if not inner_names:
            return s.Not(body, span=span)
        return s.Not(s.Aggregate("exists", tuple(inner_names), body, span=span), span=span)

    def equal(self, operator: str, a: Term, b: Term, bound: set[str], span: Any) -> s.Expression:
        key = self.key(a)
        self.kinds.unite(key, self.key(b))
        left, right = (self.term(t, key, is_pattern(t) and are_bound(t, bound) and not is_ground(t)) for t in (a, b))
        return s.Binary(operator, left, right, span=span)

    def computed(self, result: Term, expression: Term, span: Any) -> Formulas:
        """`X is E`. Variables that are integers or floats, whichever, go into alternatives."""
        key = self.key(result)
        mixed = [name for name in variables(expression) if self.is_mixed(name)]
        if not mixed:
            value, kind = self.arithmetic.number(expression)
            return self.with_extra(self.assigned(result, value, kind, key, span))
        ways = []
        self.has_choice = True
        for kinds in product(NUMERIC, repeat=len(mixed)):
            parts: Formulas = []
            for name, kind in zip(mixed, kinds):
                part = s.Variable(self.names.new(kind), span=span)
                parts.append(s.Case(s.Variable(name, span=span), s.Atom(kind, (part,), span=span), span=span))
                self.views[name] = part, kind
            value, kind = self.arithmetic.number(expression)
            parts += self.with_extra(self.assigned(result, value, kind, key, span))
            ways.append(s.Conjunction(tuple(parts), span=span))
        return [s.Disjunction(tuple(ways), span=span)]

    def assigned(self, result: Term, value: s.Expression, kind: str, key: Key, span: Any) -> s.Expression:
        self.kinds.add(key, kind, span)
        return s.Binary("==", self.term(result, key), self.wrapped(value, kind, key, is_new=True), span=span)

    def between(self, low: Term, high: Term, value: Term, span: Any) -> Formulas:
        bounds = []
        for term in (low, high):
            e, kind = self.arithmetic.number(term)
            if kind != "integer":
                self.written.error(TypeMismatchError, "the bounds of `between` are integers", term.span)
            bounds.append(e)
        key = self.key(value)
        if self.kinds.type_of(key) != TERM:
            return self.with_extra(s.InRange(self.term(value, key), bounds[0], bounds[1], True, span=span))
        here = s.Variable(self.names.new("between"), span=span)
        formulas = self.with_extra(s.InRange(here, bounds[0], bounds[1], True, span=span))
        return [*formulas, self.assigned(value, here, "integer", key, span)]

    def total(self, goal: g.Total, bound: set[str], before: Sequence[s.Expression]) -> Formulas:
        """An aggregate over what its goal has; what is bound before it says for which groups."""
        span = goal.span
        formulas, _ = self.goals(goal.goal, bound, before)
        inner_names = [name for name in g.visible_names(goal.goal) if name not in bound]
        group = tuple(name for name in g.names_in(goal.goal) if name in bound)
        # Groups that have no solution count too.
        groups = {"group": group, "group_body": conjunction(list(before), span)} if group and before else {}
        key = self.key(goal.result)
        if goal.expression is None:
            counted = s.Variable(self.names.new("count"), span=span)
            body = conjunction(formulas, span)
            aggregate: s.Expression = s.Aggregate("count", tuple(inner_names), body, (counted,), **groups, span=span)
            value, kind = s.Cast(counted, "i64", span=span), "integer"
        else:
            value, kind = self.arithmetic.number(goal.expression)
            formulas += self.extra
            self.extra, self.views = [], {}
            here, output = self.names.new("value"), s.Variable(self.names.new(goal.operator), span=span)
            formulas.append(s.Binary("==", s.Variable(here, span=span), value, span=span))
            arguments = tuple(inner_names) if goal.operator == "sum" else ()
            body = conjunction(formulas, span)
            aggregate = s.Aggregate(goal.operator, (here,), body, (output,), arguments=arguments, **groups, span=span)
            value = output
        return [aggregate, self.assigned(goal.result, value, kind, key, span)]


def conjunction(formulas: Formulas, span: Any) -> s.Expression:
    if not formulas:
        return s.Constant(True, "bool", span=span)
    return formulas[0] if len(formulas) == 1 else s.Conjunction(tuple(formulas), span=span)
