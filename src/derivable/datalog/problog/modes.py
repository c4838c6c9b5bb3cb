"""Modes: which arguments every call of a predicate binds, and which predicates need their callers for an answer.

ProbLog answers a call from its bound arguments on, so `same(X, X).` and `0.4::friend(X, Y).` are defined for every pair
that is called. Here rules are evaluated bottom-up; a predicate of which some clause has a variable that its body does
not bind, is computed on demand, for the arguments that calls bind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from derivable.core.diagnostics import BindingError, Written
from derivable.datalog.problog import goals as g
from derivable.datalog.problog.library import SOURCE
from derivable.datalog.problog.terms import Compound, Term, variables

Predicate = tuple[str, int]
Seen = Callable[[Compound, set[str]], None]


def are_bound(term: Term, bound: set[str]) -> bool:
    return all(name in bound for name in variables(term))


class Modes:
    """The modes of one program.

    bound     predicate -> the arguments that all of its calls bind
    demanded  the predicates that are computed on demand
    """

    def __init__(self, source: g.Source, written: Written):
        self.written = written
        self.clauses: dict[Predicate, list[g.Clause]] = {}
        # Those that the program itself defines, not a library.
        self.defined: set[Predicate] = set()
        for clause in source.clauses:
            for _, head in clause.heads:
                self.clauses.setdefault(head.key, []).append(clause)
                if clause.span.origin is None or clause.span.origin.source != SOURCE:
                    self.defined.add(head.key)
        self.bound: dict[Predicate, set[int]] = {}
        self.demanded: set[Predicate] = set()
        self.find_bound(source)
        for predicates, error in source.refused:
            # Without a query everything is shown.
            if not source.queries or not self.bound.keys().isdisjoint(predicates):
                raise error
        self.find_demanded()
        self.check(source)

    # Calls

    def find_bound(self, source: g.Source) -> None:
        waiting: list[Predicate] = []

        def called(atom: Compound, bound: set[str]) -> None:
            here = {i for i, argument in enumerate(atom.arguments) if are_bound(argument, bound)}
            before = self.bound.get(atom.key)
            after = here if before is None else before & here
            if after != before:
                self.bound[atom.key] = after
                waiting.append(atom.key)

        for query in source.queries:
            called(query.atom, self.after(query.body, set(), called))
        for item in source.evidence:
            called(item.atom, set())
        if not source.queries:
            for predicate in self.clauses:
                self.bound[predicate] = set()
                waiting.append(predicate)
        while waiting:
            predicate = waiting.pop()
            for clause in self.clauses.get(predicate, ()):
                for _, head in clause.heads:
                    if head.key == predicate:
                        self.after(clause.body, self.bound_by_call(head), called)
                        # The body says for all heads what is computed for one of them.
                        for _, other in clause.heads:
                            if other.key not in self.bound:
                                called(other, self.bound_by_call(head))

    def bound_by_call(self, head: Compound) -> set[str]:
        """The variables of a head to which its calls give values."""
        arguments = (head.arguments[i] for i in self.bound.get(head.key, range(len(head.arguments))))
        return set(variables(*arguments))

    def after(self, goal: g.Goal, bound: set[str], seen: Seen | None = None) -> set[str]:
        """The variables that are bound after a goal whose parts are called from the left.

        seen  called with each atom and what is bound before it; None where every goal must have what it needs
        """
        match goal:
            case g.And(goals=goals):
                for inside in goals:
                    bound = self.after(inside, bound, seen)
                return bound
            case g.Or(goals=goals):
                ways = [self.after(inside, bound, seen) for inside in goals]
                return set.intersection(*ways) if ways else bound | set(g.names_in(goal))
            case g.Negation(goal=inside):
                self.after(inside, bound, seen)
                return bound
            case g.Total(goal=inside, expression=expression, result=result):
                within = self.after(inside, bound, seen)
                if expression is not None and seen is None:
                    self.need(expression, within)
                return bound | set(variables(result))
            case g.Call(atom=atom):
                if seen is not None:
                    seen(atom, bound)
                return bound | set(variables(atom))
            case g.Unify(left=a, right=b):
                return self.unified(a, b, bound, seen is None)
        operands, results = g.flow(goal)
        if seen is None:
            for term in operands:
                self.need(term, bound)
        return bound | set(variables(*results))

    def unified(self, a: Term, b: Term, bound: set[str], is_checked: bool) -> set[str]:
        if are_bound(a, bound) or are_bound(b, bound):
            return bound | set(variables(a, b))
        if is_checked:
            self.need(a, bound)
        return bound

    def need(self, term: Term, bound: set[str]) -> None:
        for name, var in variables(term).items():
            if name not in bound:
                shown = "_" if var.is_anonymous else name
                self.written.error(
                    BindingError,
                    f"`{shown}` has no value yet",
                    var.span,
                    "put the goal behind one that binds it; goals are called from the left",
                )

    # Demand

    def find_demanded(self) -> None:
        """The predicates of which some clause is not safe, and those that call them with what their callers bind."""
        is_new = True
        while is_new:
            is_new = False
            for predicate, clauses in self.clauses.items():
                if predicate not in self.demanded and not all(map(self.is_safe, clauses)):
                    self.demanded.add(predicate)
                    is_new = True

    def is_safe(self, clause: g.Clause) -> bool:
        """Whether a clause binds its variables without its callers."""
        if clause.is_idle:
            return True
        bound: set[str] = set()
        for _, head in clause.heads:
            # Terms that calls give are there, and a pattern takes them apart.
            patterns = [head.arguments[i] for i in self.bound.get(head.key, ()) if is_pattern(head.arguments[i])]
            bound |= set(variables(*patterns))
        bound, is_done = self.reached(clause.body, bound)
        return is_done and all(name in bound for _, head in clause.heads for name in variables(head))

    def reached(self, goal: g.Goal, bound: set[str]) -> tuple[set[str], bool]:
        """What a body binds, its goals in any order, and whether each goal has what it needs."""
        waiting = goal.goals if isinstance(goal, g.And) else (goal,)
        while True:
            left = []
            for part in waiting:
                names = self.step(part, bound)
                if names is None:
                    left.append(part)
                else:
                    bound = bound | names
            if len(left) == len(waiting):
                return bound, not left
            waiting = left

    def step(self, goal: g.Goal, bound: set[str]) -> set[str] | None:
        """What one goal binds; None if it has not what it needs."""
        match goal:
            case g.And():
                bound_after, is_done = self.reached(goal, bound)
                return bound_after if is_done else None
            case g.Or(goals=goals):
                ways = [self.reached(inside, bound) for inside in goals]
                if not all(is_done for _, is_done in ways):
                    return None
                return set.intersection(*(bound_after for bound_after, _ in ways)) if ways else set(g.names_in(goal))
            case g.Call(atom=atom):
                # Terms that a call makes are made of what is bound.
                needed = [atom.arguments[i] for i in self.bound.get(atom.key, ())]
                needed = [term for term in needed if atom.key in self.demanded or is_pattern(term)]
                return set(variables(atom)) if all(are_bound(term, bound) for term in needed) else None
            case g.Negation(goal=inside):
                # Its variables that occur elsewhere are bound there, which the check of modes has seen to.
                return self.within(inside, bound)
            case g.Total(goal=inside, result=result):
                bound_after = self.within(inside, bound)
                return None if bound_after is None else set(variables(result))
            case g.Unify(left=a, right=b):
                return set(variables(a, b)) if are_bound(a, bound) or are_bound(b, bound) else None
        operands, results = g.flow(goal)
        return set(variables(*results)) if all(are_bound(term, bound) for term in operands) else None

    def within(self, inside: g.Goal, bound: set[str]) -> set[str] | None:
        """Nothing, or None if a goal under a negation has not what it needs, its local names aside."""
        return set() if self.reached(inside, bound)[1] else None

    def is_left_out(self, clause: g.Clause) -> bool:
        """Whether no query needs a clause, and it has no answer without a call."""
        return all(head.key in self.demanded and head.key not in self.bound for _, head in clause.heads)

    # Errors

    def check(self, source: g.Source) -> None:
        for query in source.queries:
            self.after(query.body, set())
            self.check_negations(query.body, set(), [query.atom])
        for predicate, clauses in self.clauses.items():
            if predicate not in self.bound:
                continue
            for clause in clauses:
                for _, head in clause.heads:
                    if head.key == predicate:
                        self.check_clause(clause, head)

    def check_clause(self, clause: g.Clause, head: Compound) -> None:
        if clause.is_idle:
            return
        of_call = self.bound_by_call(head)
        bound = self.after(clause.body, of_call)
        self.check_negations(clause.body, of_call, [other for _, other in clause.heads])
        for probability, _ in clause.heads:
            if probability is not None:
                self.need(probability, bound)
        for _, other in clause.heads:
            for name, var in variables(other).items():
                if name not in bound:
                    shown = "this variable" if var.is_anonymous else f"`{name}`"
                    hint = "use it in a goal of the body, or give it a value in every query and call"
                    self.written.error(BindingError, f"{shown} is not bound by the body", var.span, hint)

    def check_negations(self, goal: g.Goal, bound: set[str], heads: Iterable[Compound]) -> None:
        """A variable under a negation, without a value there, is any value; so it may not occur elsewhere."""
        everywhere = count_names(goal)
        for name in variables(*heads):
            everywhere[name] = everywhere.get(name, 0) + 1
        self.check_negated(goal, bound, everywhere)

    def check_negated(self, goal: g.Goal, bound: set[str], everywhere: dict[str, int]) -> set[str]:
        match goal:
            case g.And(goals=goals):
                for inside in goals:
                    bound = self.check_negated(inside, bound, everywhere)
                return bound
            case g.Or(goals=goals):
                ways = [self.check_negated(inside, bound, everywhere) for inside in goals]
                return set.union(*ways) if ways else bound
            case g.Negation(goal=inside) | g.Total(goal=inside):
                inner_counts = count_names(inside)
                for name, var in g.names_in(inside).items():
                    if (
                        name not in bound
                        and inner_counts[name] < everywhere.get(name, 0)
                        and not self.is_result(goal, name)
                    ):
                        what = "negation" if isinstance(goal, g.Negation) else "aggregate"
                        self.written.error(
                            BindingError,
                            f"`{name}` has no value yet where the {what} is called",
                            var.span,
                            "put the goals that bind it before it",
                        )
                self.check_negated(inside, bound, everywhere)
        return bound | set(g.visible_names(goal))

    @staticmethod
    def is_result(goal: g.Goal, name: str) -> bool:
        terms = [goal.expression] if isinstance(goal, g.Total) and goal.expression is not None else []
        return name in variables(*terms)


def is_pattern(term: Term) -> bool:
    return isinstance(term, Compound) and bool(term.arguments)


def count_names(goal: g.Goal) -> dict[str, int]:
    """How often each variable occurs in a goal: once for each goal in it."""
    counts: dict[str, int] = {}
    for part in g.walk(goal):
        for name in variables(*g.terms_of(part)):
            counts[name] = counts.get(name, 0) + 1
    return counts
