"""The demand transformation (magic sets): what a relation is never asked for is not computed.

A relation that is asked with some columns bound gets a demand relation of the values that it is asked with. Its rules
are guarded by it, and wherever it is asked a rule derives the demand from what is evaluated before:

    fib(x, (a + b)) :- fib(y, a), (y == (x - 1)), fib(z, b), (z == (x - 2)), (x > 1)
becomes
    fib(x, (a + b)) :- #demand_fib_bf(x), fib(y, a), (y == (x - 1)), fib(z, b), (z == (x - 2)), (x > 1)
    #demand_fib_bf(y) :- #demand_fib_bf(x), (x > 1), (y == (x - 1))
    #demand_fib_bf(z) :- #demand_fib_bf(x), (x > 1), (z == (x - 2))

This ends where the rules alone would not, and computes less where they would. Facts of a queried relation stay as
they are. A demand relation is certain: its tuples have no tags, so each derivation keeps its tag. Programs with tags
are therefore run in two steps, the demand first (`first`), then the guarded rules with the demand as facts (`then`).
These have the strata and the rounds of the program as written; without tags all is one program (`rules`), in which
recursion that hands its answers through is flipped (`rules.right_linear`), and relations with one rule and one reader
are written into that (`rules.inline`).

Demand may make a cycle through a negation or an aggregate. A demand rule in such a cycle is weakened: it loses its
literals of that cycle, so that more is demanded than is needed, which changes no result; where these bind what is
asked, the relation is computed whole. The same is done for literals that depend on weights of tags (`rank`,
`weighted_sum`), which the first step does not know; where weights choose among rows, it takes all rows.

Source: Bancilhon, Maier, Sagiv, Ullman, "Magic sets and other strange ways to implement logic programs", 1986; Beeri
and Ramakrishnan, "On the power of magic", 1991 (adornments, passing); Balbin, Port, Ramamohanarao, Meenakshi,
"Efficient bottom-up computation of queries on stratified databases", 1991 (stratified negation; they relabel strata
and keep every condition, we drop conditions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from derivable.core.diagnostics import BindingError
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.adorn import Adorned, adorn, guarded, is_caller
from derivable.datalog.rules.inline import inline
from derivable.datalog.rules.literal_order import bound_columns, order
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.right_linear import right_linear
from derivable.datalog.rules.sideways import Columns, Unbound, evaluable, passing
from derivable.datalog.rules.strata import cycles, dependents, needed_for
from derivable.datalog.rules.text import rules_text


@dataclass(frozen=True)
class Idle:
    """A literal that nothing gives a value for a bound column of its relation: it reads what is demanded elsewhere."""

    literal: r.Atom | r.Negated
    column: int

    def message(self, program: r.Rules) -> tuple[str, str]:
        """What to say of it, and the likely fix."""
        name, term = self.literal.relation, self.literal.terms[self.column]
        relation = program.relations[name]
        title = (relation.column_names or (None,) * len(relation.types))[self.column]
        title = f"`{title}`" if title else f"{self.column + 1}"
        shown = f"`{term.name}`" if isinstance(term, r.Var) and not term.name.startswith("'") else "it"
        return (
            f"nothing else in this body gives the bound column {title} of `{name}` a value,"
            f" so that only rows that are demanded elsewhere are derived",
            f"bind {shown} by another atom, or take the demand `{relation.demand}` from `{name}`",
        )


@dataclass(frozen=True)
class Demand:
    """What demand makes of a program.

    rules  everything, for a run without tags
    first  what the demand relations depend on, which are its outputs; None if nothing is asked
    then   the guarded rules, of which the demand relations are facts
    notes  what was decided, a line each
    idle   literals of relations with a declared demand that cannot demand anything
    """

    rules: r.Rules
    first: r.Rules | None
    then: r.Rules
    notes: tuple[str, ...]
    idle: tuple[Idle, ...] = ()


def demand(program: r.Rules, automatic: bool = True) -> Demand:
    """Transform a program. `automatic` also makes demand of questions with constants, see `adorn`."""
    result, adorned = _demanded(program, automatic)
    flipped, notes = right_linear(program, adorned)
    if notes:
        made = tuple(name for name in flipped.relations if name not in program.relations)
        result = replace(result, rules=_demanded(flipped, automatic, made)[0].rules, notes=(*result.notes, *notes))
    rules, notes = inline(result.rules) if automatic else (result.rules, ())
    return replace(result, rules=rules, notes=(*result.notes, *notes)) if notes else result


def _demanded(program: r.Rules, automatic: bool, narrow: tuple[str, ...] = ()) -> tuple[Demand, Adorned]:
    """What demand makes of a program, and its adornments; `narrow` relations have only what is asked as they are."""
    whole: list[str] = []
    while True:
        adorned = adorn(program, automatic, (*narrow, *whole))
        if not adorned.patterns:
            plain = with_terms(_undeclared(program))
            return Demand(plain, None, plain, _whole_notes(whole)), adorned
        built = _Transformation(program, adorned)
        stuck = built.stratify()
        if not stuck:
            return built.result(_whole_notes(whole)), adorned
        for name in stuck:
            _check_whole(program, name)
        whole += stuck


def demand_text(result: Demand) -> str:
    """The printer: what is asked how, then the rules."""
    return "\n".join((*result.notes, rules_text(result.rules)))


def _undeclared(program: r.Rules) -> r.Rules:
    """The program, whose relations are asked by guards if at all."""
    if all(relation.demand is None for relation in program.relations.values()):
        return program
    relations = {name: replace(relation, demand=None) for name, relation in program.relations.items()}
    return replace(program, relations=relations)


_STUCK = "its demand depends on a negation or aggregate of what asks for it, or on the weights of tags"


def _whole_notes(whole: list[str]) -> tuple[str, ...]:
    return tuple(f"whole {name}: {_STUCK}" for name in whole)


def _check_whole(program: r.Rules, name: str) -> None:
    """Raise BindingError if a relation cannot be computed whole, because only demand binds its variables."""
    plain = _undeclared(program)
    for rule in program.rules:
        if rule.relation == name and isinstance(rule, r.Clause):
            try:
                order(rule, plain)
            except BindingError as error:
                hint = "bind its variables in the rule itself, or ask for it before the negation or aggregate"
                program.error(
                    BindingError, f"`{name}` cannot be computed on demand: {_STUCK}", error.span or rule.span, hint
                )


class _Transformation:
    def __init__(self, program: r.Rules, adorned: Adorned):
        self.program, self.adorned, self.patterns = program, adorned, adorned.patterns
        self.relations = dict(_undeclared(program).relations)
        self.name_of = {name: self.new_relation(name, columns) for name, columns in self.patterns.items()}
        self.guarded: list[r.Rule] = []
        # Demand rules, and the relation that each asks.
        self.asking: dict[r.Clause, str] = {}
        self.weak: list[r.Clause] = []
        self.idle: list[Idle] = []
        for rule in program.rules:
            if isinstance(rule, r.Clause):
                self.clause(rule)
            else:
                self.guarded.append(rule)
                self.special(rule)

    def new_relation(self, name: str, columns: Columns) -> str:
        relation = self.relations[name]
        letters = "".join("b" if c in columns else "f" for c in range(len(relation.types)))
        title = f"#demand_{name.removeprefix('#')}_{letters}"
        while title in self.relations:
            title += "'"
        types = tuple(relation.types[c] for c in columns)
        self.relations[title] = r.Relation(title, types, is_hidden=True, span=relation.span)
        return title

    def clause(self, rule: r.Clause) -> None:
        columns = self.patterns.get(rule.relation)
        if columns:
            rule = guarded(rule, columns, self.name_of[rule.relation])
        if is_caller(rule, self.patterns):
            calls = passing(rule.body, self.patterns, bool(columns))
            assert isinstance(calls, list)
            for call in calls:
                target = call.literal.relation
                if isinstance(call, Unbound):
                    column = next(c for c in self.patterns[target] if c not in call.columns)
                    self.idle.append(Idle(call.literal, column))
                    continue
                terms = tuple(term for c in self.patterns[target] if (term := call.literal.terms[c]) is not None)
                self.ask(target, r.Clause(self.name_of[target], terms, call.before, call.literal.span))
        self.guarded.append(rule)

    def special(self, rule: r.AggregateRule) -> None:
        """The demand for an aggregate is the demand for its body."""
        columns = self.patterns.get(rule.relation, ())
        types = self.program.relations[rule.relation].types
        for target, _ in rule.dependencies:
            if target in self.patterns:
                wanted = self.patterns[target]
                terms = tuple(r.Var(f"x{c}", types[c], rule.span) if c in wanted else None for c in columns)
                head = tuple(term for term in terms if term is not None)
                guard = r.Atom(self.name_of[rule.relation], terms, rule.span)
                self.ask(target, r.Clause(self.name_of[target], head, (guard,), rule.span))

    def ask(self, target: str, rule: r.Clause) -> None:
        """Add a demand rule."""
        if not _says_nothing(rule):
            self.asking.setdefault(rule, target)

    def stratify(self) -> list[str]:
        """Weaken demand rules in cycles through negations; the relations for which that does not do."""
        rules = self.program_of((*self.guarded, *self.asking)).rules
        cyclic = cycles(self.relations, rules)
        component, broken = cyclic.component_of, cyclic.broken
        demands, stuck = set(self.name_of.values()), []
        weighed = self.weighed()
        if not broken and not weighed:
            return []
        weakened: dict[r.Clause, str] = {}
        for rule, target in self.asking.items():
            number = component[rule.relation]

            def is_known(literal: r.Literal, number: int = number) -> bool:
                if not isinstance(literal, (r.Atom, r.Negated)) or literal.relation in demands:
                    return True
                is_circular = number in broken and component[literal.relation] == number
                return not is_circular and literal.relation not in weighed

            known_literals = [literal for literal in rule.body if is_known(literal)]
            if len(known_literals) < len(rule.body):
                known_literals, bound = evaluable(known_literals)
                if not bound.issuperset(name for term in rule.terms for name in r.names(term)):
                    stuck.append(target)
                    continue
                rule = replace(rule, body=tuple(known_literals))
                self.weak.append(rule)
            if not _says_nothing(rule):
                weakened.setdefault(rule, target)
        self.asking = weakened
        return list(dict.fromkeys(stuck))

    def weighed(self) -> set[str]:
        """The relations whose tuples depend on weights of tags, which are not known when demand is computed."""
        by_weight = {rule.relation for rule in self.guarded if _by_weight(rule) == "values"}
        return dependents(self.program, by_weight) if by_weight else set()

    def program_of(self, rules: Iterable[r.Rule]) -> r.Rules:
        return with_terms(replace(self.program, relations=self.relations, rules=tuple(rules)))

    def result(self, notes: tuple[str, ...]) -> Demand:
        rules, then = self.program_of((*self.guarded, *self.asking)), self.program_of(self.guarded)
        first = _only(rules, tuple(self.name_of.values()))
        return Demand(rules, first, then, (*self.notes(), *notes), tuple(self.idle))

    def notes(self) -> list[str]:
        lines = []
        for name, columns in self.patterns.items():
            pattern = "".join("b" if c in columns else "f" for c in range(len(self.program.relations[name].types)))
            why = "a part of what asks it"
            if name in self.adorned.declared:
                why = "declared"
                declared = bound_columns(self.program.relations[name].demand)
                assert columns == declared
                if any(query.relation == name and query.pattern is None for query in self.program.queries):
                    why += "; `query` shows what is asked elsewhere, and its facts"
            elif name in self.adorned.questions:
                why = "reached only through questions with constants"
            lines.append(f"demand {name} {pattern}: {why}")
        weak = dict.fromkeys(rule.relation for rule in self.weak)
        why = "more is demanded than is needed, because some conditions are not known before it"
        return lines + [f"weak {name}: {why}" for name in weak]


def _says_nothing(rule: r.Clause) -> bool:
    """Whether a demand rule says that what is demanded is demanded."""
    return any(isinstance(a, r.Atom) and (a.relation, a.terms) == (rule.relation, rule.terms) for a in rule.body)


def _by_weight(rule: r.Rule) -> str | None:
    return AGGREGATES[rule.operator].by_weight if isinstance(rule, r.AggregateRule) else None


def _every_row(rules: r.Rules, rule: r.AggregateRule) -> r.Clause:
    """What a choice of rows may choose."""
    types = rules.relations[rule.body].types
    columns: list[r.Var | None] = [r.Var(f"x{c}", t, rule.span) for c, t in enumerate(types)]
    if "arguments" not in AGGREGATES[rule.operator].returns:
        columns[rule.num_group : rule.num_group + rule.num_arguments] = [None] * rule.num_arguments
    head = tuple(column for column in columns if column is not None)
    return r.Clause(rule.relation, head, (r.Atom(rule.body, tuple(columns), rule.span),), rule.span)


def _only(rules: r.Rules, outputs: tuple[str, ...]) -> r.Rules:
    """What these relations depend on. What weights of tags choose may be any row: they are known later."""
    needed = needed_for(rules, (*outputs, *(constructor.relation for constructor in rules.constructors.values())))
    relations: Mapping[str, r.Relation] = {name: rel for name, rel in rules.relations.items() if name in needed}
    return replace(
        rules,
        relations=relations,
        facts=tuple(facts for facts in rules.facts if facts.relation in needed),
        rules=tuple(
            _every_row(rules, rule) if isinstance(rule, r.AggregateRule) and _by_weight(rule) == "rows" else rule
            for rule in rules.rules
            if rule.relation in needed
        ),
        outputs=outputs,
        queries=(),
    )
