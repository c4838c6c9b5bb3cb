"""Recursion that hands its answers through, queried with constants: the reachable rows are computed first, then their
answers.

    path(x, z) :- edge(x, z)
    path(x, z) :- edge(x, y), path(y, z)
    path(1, z)(1, z) :- path(1, z)
becomes
    #reached_path_bf(1, 1)
    #reached_path_bf(path's0, y) :- #reached_path_bf(path's0, x), edge(x, y)
    #asked_path_bf(path's0, z) :- #reached_path_bf(path's0, x), edge(x, z)
    #asked_path_bf(path's0, z) :- #reached_path_bf(path's0, x), path(x, z)
    path(1, z)(1, z) :- #asked_path_bf(1, z)

where `path` has its facts alone. With demand, `path` would have the answers of every value that is reached, as many as
there are pairs; here each is handed through once. Decision 084 proves it, and says why runs with tags do without it.

Source: Naughton, Ramakrishnan, Sagiv, Ullman, "Efficient evaluation of right-, left-, and multi-linear rules", 1989.
"""

from __future__ import annotations

from dataclasses import replace

from derivable.core.diagnostics import BindingError
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.adorn import Adorned
from derivable.datalog.rules.literal_order import bound_terms, order
from derivable.datalog.rules.share import renamed
from derivable.datalog.rules.sideways import Columns
from derivable.datalog.rules.strata import cycles


def right_linear(program: r.Rules, adorned: Adorned) -> tuple[r.Rules, tuple[str, ...]]:
    """The program with what was flipped, and a note on each relation that was."""
    if not adorned.questions:
        return program, ()
    component = cycles(program.relations, program.rules).component_of
    sizes: dict[int, int] = {}
    for number in component.values():
        sizes[number] = sizes.get(number, 0) + 1
    notes = []
    for name in sorted(adorned.questions):
        if sizes[component[name]] > 1 or program.relations[name].is_goal:
            continue
        made = _Flipped.of(program, name, adorned.patterns[name])
        if made is not None and not made.asks(adorned):
            program = made.within(program)
            notes.append(
                f"flip {name} {made.pattern}: without tags, the reachable rows are computed first, then their answers"
            )
    return program, tuple(notes)


class _Flipped:
    """What becomes of one relation.

    columns  those that it is asked with; the others are handed through
    """

    def __init__(self, program: r.Rules, name: str, columns: Columns):
        self.name, self.columns = name, columns
        self.relation = program.relations[name]
        types = self.relation.types
        self.pattern = "".join("b" if c in columns else "f" for c in range(len(types)))
        self.reached, self.asked = (f"#{what}_{name.removeprefix('#')}_{self.pattern}" for what in ("reached", "asked"))
        self.seeds = tuple(r.Var(f"{name}'s{c}", types[c]) for c in columns)
        self.seen: dict[tuple[r.Const, ...], r.Clause] = {}
        self.rules: list[r.Clause] = []

    @staticmethod
    def of(program: r.Rules, name: str, columns: Columns) -> _Flipped | None:
        """None if the relation is used or defined in another way."""
        made = _Flipped(program, name, columns)
        if made.reached in program.relations or made.asked in program.relations:
            return None
        for rule in program.rules:
            fine = made.defining(rule) if rule.relation == name else made.using(rule)
            if not fine:
                return None
        if not made.seen:
            return None
        fresh = tuple(r.Var(f"{name}'f{c}", t) for c, t in enumerate(made.relation.types))
        made.answer(r.Clause(name, fresh, (r.Atom(name, fresh),), made.relation.span))
        return made if made.can_be_ordered(program) else None

    def using(self, rule: r.Rule) -> bool:
        """Whether a rule asks for the relation with constants, if it does; they are where reaching begins."""
        if all(target != self.name for target, _ in rule.dependencies):
            return True
        if not isinstance(rule, r.Clause):
            return False
        for literal in rule.body:
            if isinstance(literal, (r.Atom, r.Negated)) and literal.relation == self.name:
                terms = tuple(term for c in self.columns if isinstance(term := literal.terms[c], r.Const))
                if len(terms) < len(self.columns):
                    return False
                self.seen.setdefault(terms, r.Clause(self.reached, (*terms, *terms), (), literal.span))
        return True

    def defining(self, rule: r.Rule) -> bool:
        """Add what becomes of a rule of the relation; whether it is of the right shape."""
        if not isinstance(rule, r.Clause):
            return False
        recursive_atoms = [a for a in rule.body if isinstance(a, (r.Atom, r.Negated)) and a.relation == self.name]
        if not recursive_atoms:
            self.answer(rule)
            return True
        if (
            len(recursive_atoms) > 1
            or isinstance(recursive_atoms[0], r.Negated)
            or not self.hands_through(rule, recursive_atoms[0])
        ):
            return False
        terms, equations = bound_terms(rule, self.columns)
        start = r.Atom(self.reached, (*self.seeds, *terms), rule.span)
        next_terms = tuple(term for c in self.columns if (term := recursive_atoms[0].terms[c]) is not None)
        others = tuple(literal for literal in rule.body if literal is not recursive_atoms[0])
        self.rules.append(r.Clause(self.reached, (*self.seeds, *next_terms), (start, *equations, *others), rule.span))
        return len(next_terms) == len(self.columns)

    def answer(self, rule: r.Clause) -> None:
        """Add the answers that a rule without recursion has for what is reached."""
        terms, equations = bound_terms(rule, self.columns)
        start = r.Atom(self.reached, (*self.seeds, *terms), rule.span)
        seeds = dict(zip(self.columns, self.seeds))
        head = tuple(seeds.get(c, term) for c, term in enumerate(rule.terms))
        self.rules.append(r.Clause(self.asked, head, (start, *equations, *rule.body), rule.span))

    def hands_through(self, rule: r.Clause, recursive_atom: r.Atom) -> bool:
        """Whether all columns that are not asked with are those of the recursive atom, and matter nowhere else."""
        free = [c for c in range(len(rule.terms)) if c not in self.columns]
        for c in free:
            term = rule.terms[c]
            if not isinstance(term, r.Var) or recursive_atom.terms[c] != term or rule.uses[term.name] != 2:
                return False
        return True

    def can_be_ordered(self, program: r.Rules) -> bool:
        made = self.within(program)
        try:
            for rule in self.rules:
                order(rule, made)
        except BindingError:
            return False
        return True

    def asks(self, adorned: Adorned) -> bool:
        """Whether its rules ask for something else on demand, which would have to be computed whole."""
        read = {target for rule in self.rules for target, _ in rule.dependencies} - {self.name}
        return not read.isdisjoint(adorned.patterns)

    def within(self, program: r.Rules) -> r.Rules:
        """The program in which it is flipped."""
        others = [rule for rule in program.rules if rule.relation != self.name]
        names = {self.name: self.asked}
        renamed_rules = [renamed(rule, names) if isinstance(rule, r.Clause) else rule for rule in others]
        types = self.relation.types
        both = tuple(types[c] for c in self.columns) * 2
        relations = {
            **program.relations,
            self.reached: r.Relation(self.reached, both, is_hidden=True, span=self.relation.span),
            self.asked: r.Relation(
                self.asked, types, is_hidden=True, span=self.relation.span, lattice=self.relation.lattice
            ),
        }
        return replace(program, relations=relations, rules=(*renamed_rules, *self.seen.values(), *self.rules))
