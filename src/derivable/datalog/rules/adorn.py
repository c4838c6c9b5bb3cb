"""Adornments: with which of its columns bound each relation is asked.

Declared ones (`type fib(bound n: i32, v: i32)`, `@demand("bf")`) are as the program says; a use that does not bind
these columns reads what others demand. The auxiliary relations of desugaring between a use and a declared relation
are asked with whatever all their uses bind. So are the relations behind a question with constants,
`query path(0, x)`, if demand is automatic: those that are reached only through such questions, and that are recursive
or lead to recursive ones, because what is not recursive is computed once and costs about as much as its demand. A
relation with a rule that uses the recursion twice, `path(x, y), path(y, z)`, is none of them: its demand goes through
all that it derives, which costs more than to compute it whole, which the engine does as a linear recursion.

An automatic pattern has the columns that every use binds, computed from above: all columns first, then fewer until
every use can bind them; a relation without any is computed whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import bound_columns, bound_terms
from derivable.datalog.rules.sideways import Columns, Patterns, Unbound, passing
from derivable.datalog.rules.strata import cycles, dependents, reached


@dataclass(frozen=True)
class Adorned:
    """How relations are asked.

    patterns   relation -> its bound columns; what is not there is computed whole
    declared   the relations whose pattern the program states
    questions  the relations that are asked because a question has constants
    """

    patterns: Patterns
    declared: frozenset[str]
    questions: frozenset[str]


def adorn(program: r.Rules, automatic: bool = True, whole: Collection[str] = ()) -> Adorned:
    """The adornments of a program.

    automatic  whether questions with constants make demand
    whole      relations that are to be computed whole whatever is declared

    A use of a declared relation that cannot bind its columns demands nothing.
    """
    return _Adorning(program, automatic, whole).run()


def guarded(clause: r.Clause, columns: Columns, demand: str) -> r.Clause:
    """The clause for those values of its bound columns that are demanded: `fib(x, a) :- #demand_fib_bf(x), ...`."""
    terms, equations = bound_terms(clause, columns)
    guard = r.Atom(demand, terms, clause.span)
    return r.Clause(clause.relation, clause.terms, (guard, *equations, *clause.body), clause.span)


class _Adorning:
    def __init__(self, program: r.Rules, automatic: bool, whole: Collection[str]):
        self.program = program
        self.by_head: dict[str, list[r.Rule]] = {}
        self.users: dict[str, list[r.Rule]] = {}
        for rule in program.rules:
            self.by_head.setdefault(rule.relation, []).append(rule)
            for name in dict.fromkeys(target for target, _ in rule.dependencies):
                self.users.setdefault(name, []).append(rule)
        self.patterns: dict[str, Columns] = {
            name: columns
            for name, relation in program.relations.items()
            if (columns := bound_columns(relation.demand)) and name in self.by_head and name not in whole
        }
        self.declared = frozenset(self.patterns)
        # Asked by any use, and asked by questions with constants alone.
        self.recursion: set[str] = set()
        above = dependents(program, self.declared)
        self.between = {name for name in self.by_head if name.startswith("#") and name in above and name not in whole}
        self.questions = self.questioned(above | set(whole)) if automatic else set()
        self.flexible = self.between | self.questions
        for name in self.by_head:
            if name in self.flexible and (columns := tuple(range(self.num_columns(name)))):
                self.patterns[name] = columns

    def run(self) -> Adorned:
        if not self.patterns:
            return Adorned({}, frozenset(), frozenset())
        self.propagate(rule for name in self.patterns for rule in (*self.by_head[name], *self.users.get(name, ())))
        while idle := self.idle():
            self.propagate(rule for name in idle for rule in self.lower(name, ()))
        return Adorned(self.patterns, self.declared, frozenset(self.questions & set(self.patterns)))

    def recursive(self) -> tuple[set[str], set[str]]:
        """The recursive relations, and those of them that are no good to ask: a rule uses the recursion twice, or a
        negation or an aggregate is inside of it."""
        dependency = cycles(self.program.relations, self.program.rules)
        component = dependency.component_of
        names: set[str] = set()
        # What goes forward in time through negations (`rules.timed`) may ask for ever earlier times.
        twice = {name for name, number in component.items() if number in dependency.broken}
        for rule in self.program.rules:
            number_of_component = component[rule.relation]
            count = sum(component[target] == number_of_component for target, _ in rule.dependencies)
            if count:
                names.update(name for name, _ in rule.dependencies if component[name] == number_of_component)
            if count > 1:
                twice.add(rule.relation)
        return names, twice

    def questioned(self, others: set[str]) -> set[str]:
        """Relations that questions with constants may lead to; `others` are not theirs to ask."""
        outputs = set(self.program.outputs)
        asks = any(
            literal.relation in self.by_head and any(isinstance(term, r.Const) for term in literal.terms)
            for name in outputs
            for rule in self.by_head.get(name, ())
            if isinstance(rule, r.Clause)
            for literal in rule.body
            if isinstance(literal, (r.Atom, r.Negated))
        )
        if not asks:
            return set()
        self.recursion, twice = self.recursive()
        above = dependents(self.program, self.recursion)
        return {name for name in self.by_head if name in above and name not in outputs | others | twice}

    def num_columns(self, name: str) -> int:
        """How many columns, from the first, the rules of a relation can be asked with."""
        relation = self.program.relations[name]
        counts = [len(relation.types) - (relation.lattice is not None)]
        counts += [rule.num_group for rule in self.by_head[name] if isinstance(rule, r.AggregateRule)]
        return min(counts)

    def idle(self) -> set[str]:
        """Questioned relations through which no recursion is asked."""
        asked = self.questions & set(self.patterns)
        if not asked:
            return set()
        users = {name: [u.relation for u in self.users.get(name, ()) if u.relation in asked] for name in asked}
        return asked - reached(asked & self.recursion, users)

    # From above

    def propagate(self, rules: Iterable[r.Rule]) -> None:
        """Lower patterns until every use binds them."""
        queue = deque(dict.fromkeys(rules))
        waiting = set(map(id, queue))
        while queue:
            rule = queue.popleft()
            waiting.discard(id(rule))
            for name, columns in self.lowered(rule):
                for other in self.lower(name, columns):
                    if id(other) not in waiting:
                        waiting.add(id(other))
                        queue.append(other)

    def lower(self, name: str, columns: Columns) -> list[r.Rule]:
        """Give a relation fewer columns; the rules that this may matter to."""
        if columns:
            self.patterns[name] = columns
        else:
            del self.patterns[name]
        return [*self.by_head[name], *self.users.get(name, ())]

    def lowered(self, rule: r.Rule) -> list[tuple[str, Columns]]:
        """What of the patterns a rule does not allow."""
        if isinstance(rule, r.Clause):
            change = self.clause(rule)
            return [change] if change else []
        mine = self.patterns.get(rule.relation, ())
        changes = []
        for name, _ in rule.dependencies:
            if name in self.patterns and name in self.flexible:
                allowed = tuple(c for c in self.patterns[name] if c in mine)
                if allowed != self.patterns[name]:
                    changes.append((name, allowed))
        if mine and rule.relation in self.flexible and rule.body not in self.patterns:
            changes.append((rule.relation, ()))
        return changes

    def clause(self, clause: r.Clause) -> tuple[str, Columns] | None:
        is_asked = clause.relation in self.patterns
        if not is_asked:
            for literal in clause.body:
                if isinstance(literal, (r.Atom, r.Negated)) and literal.relation in self.questions:
                    pattern = self.patterns.get(literal.relation, ())
                    constant = tuple(c for c in pattern if isinstance(literal.terms[c], r.Const))
                    if constant != pattern:
                        return literal.relation, constant
        if not is_caller(clause, self.patterns):
            return None
        body = guarded(clause, self.patterns[clause.relation], "").body if is_asked else clause.body
        passed = passing(body, self.patterns, is_asked, self.flexible, self.questions)
        return (passed.literal.relation, passed.columns) if isinstance(passed, Unbound) else None


def is_caller(clause: r.Clause, patterns: Patterns) -> bool:
    """Whether a clause asks anything."""
    return any(isinstance(a, (r.Atom, r.Negated)) and a.relation in patterns for a in clause.body)
