"""From ProbLog's clauses to the syntax of this library's language, whose nodes keep their positions in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from derivable.core.diagnostics import BindingError, DomainError, ParseError, Span, UnsupportedError, Written, warn
from derivable.core.registry import similar
from derivable.datalog.problog import goals as g
from derivable.datalog.problog import library
from derivable.datalog.problog.bodies import MADE, NUMBER, Bodies, Formulas, Names, conjunction
from derivable.datalog.problog.clauses import Clauses
from derivable.datalog.problog.kinds import TERM, TYPES, Kinds
from derivable.datalog.problog.modes import Modes, is_pattern
from derivable.datalog.problog.names import WRAPPERS, Shown, constructor_names, term_text, unique_names
from derivable.datalog.problog.reader import read_terms, spelled_out
from derivable.datalog.problog.solve import solved
from derivable.datalog.problog.terms import Compound, Facts, Number, Term, Var, canonical, is_ground, variables
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.syntax import nodes as s

Include = Callable[[str, Span], tuple[str, str]]
# Kinds of constants here and there.
_KINDS = {"integer": "integer", "text": "atom", "symbol": "string"}
# How much more than one the shares of heads may add up to.
ROUNDING = Fraction(1, 10**9)
HIDDEN = (s.Attribute("hidden"),)


def translated(text: str, source: str, include: Include | None = None) -> tuple[s.Syntax, Shown]:
    """The syntax of a program of ProbLog, and how its outputs are written.

    include  from the name of a file and the span that names it to its text and name; None if no file may be read

    Raises ParseError, BindingError, TypeMismatchError, UnsupportedError and DomainError with the span.
    """

    def included(path: str, span: Span) -> list[Term]:
        if include is None:
            raise ParseError("files are not read here", source=source, text=text, span=span)
        content, name = include(path, span)
        return read_terms(content, name, is_included=True)

    terms = read_terms(text, source)
    defined = frozenset(functor for term in terms for functor, _ in library.defined_by(term))
    program = Clauses(text, source, included, defined).read(library.with_known(terms))
    return Translation(program, text, source).run()


@dataclass(frozen=True)
class _Aux:
    """A relation of some variables of a clause."""

    name: str
    names: tuple[str, ...]

    def atom(self, span: Span) -> s.Atom:
        return s.Atom(self.name, tuple(s.Variable(name, span=span) for name in self.names), span=span)


class Translation(Written):
    """The items of one program."""

    def __init__(self, source: g.Source, text: str, name: str):
        self.text, self.source = text, name
        source.clauses = [solved(clause) for clause in source.clauses]
        self.program = source
        self.kinds = Kinds(source)
        self.modes = Modes(source, self)
        self.items: list[s.Item] = []
        predicates = {key[1:3]: None for key in list(self.kinds.parents) if key[0] == "column"}
        predicates |= {head.key: None for clause in source.clauses for _, head in clause.heads}
        atoms = [part.atom for c in source.clauses for part in g.walk(c.body) if isinstance(part, g.Call)]
        atoms += [part.atom for q in source.queries for part in g.walk(q.body) if isinstance(part, g.Call)]
        atoms += [item.atom for item in (*source.queries, *source.evidence)]
        predicates |= {atom.key: None for atom in atoms}
        self.check_known(atoms)
        relations = unique_names(predicates)
        constructors = constructor_names(self.kinds.functors, (*relations.values(), *WRAPPERS, TERM))
        self.names = Names(relations, constructors)
        self.functors: dict[str, str] = {name: key[0] for key, name in relations.items()}
        self.absent: dict[str, str] = {}
        self.has_made = False
        self.outputs: dict[str, str] = {}

    def check_known(self, atoms: list[Compound]) -> None:
        """Say of predicates without clauses what was probably meant."""
        known = [f"{functor}/{arity}" for functor, arity in self.modes.clauses]
        seen = set()
        for atom in atoms:
            if atom.key in self.modes.clauses or atom.key in seen or atom.key not in self.modes.bound:
                continue
            seen.add(atom.key)
            close = similar(atom.indicator, known)
            message = f"there are no clauses for `{atom.indicator}`"
            if close is not None:
                self.error(BindingError, message, atom.span, f"did you mean `{close}`?")
            hint = "write facts or rules for it, or give its facts to `run`"
            warn(message, hint=hint, source=self.source, text=self.text, span=atom.span)

    def run(self) -> tuple[s.Syntax, Shown]:
        for clause in self.program.clauses:
            if not self.modes.is_left_out(clause):
                self.clause(clause)
                if clause.more is not None:
                    self.more_facts(clause, clause.more)
        for item in self.program.evidence:
            self.evidence(item)
        for query in self.program.queries:
            self.query(query)
        self.items = [*self.declarations(), *grouped(self.items)]
        constructors = {
            name: (key[0], tuple(self.kinds.type_of(("field", *key, i)) for i in range(key[1])))
            for key, name in self.names.constructors.items()
        }
        shown = Shown(self.functors, self.absent, constructors, self.outputs)
        return s.Syntax(tuple(self.items), self.text, self.source), shown

    # Declarations

    def declarations(self) -> list[s.Item]:
        items: list[s.Item] = []
        if self.names.constructors or self.names.uses_numbers or self.has_terms:
            variants = [s.Variant(kind, (s.Column(of),)) for kind, of in WRAPPERS.items()]
            for key, name in self.names.constructors.items():
                columns = tuple(s.Column(self.kinds.type_of(("field", *key, i))) for i in range(key[1]))
                variants.append(s.Variant(name, columns, span=self.kinds.functors[key]))
            items.append(s.DataType(TERM, tuple(variants)))
        for key, name in self.names.relations.items():
            bound = self.modes.bound.get(key, set()) if key in self.modes.demanded else set()
            types = [self.kinds.type_of(("column", *key, i)) for i in range(key[1])]
            columns = tuple(s.Column(t, adornment="bound" if i in bound else None) for i, t in enumerate(types))
            is_library = key in library.clauses() and all(c.span.origin for c in self.modes.clauses.get(key, ()))
            items.append(s.RelationType(name, columns, attributes=HIDDEN if is_library else ()))
        if self.has_made:
            items.append(s.RelationType(MADE, (s.Column(TERM),), attributes=HIDDEN))
        if self.names.uses_numbers:
            items.append(s.RelationType(NUMBER, (s.Column(TERM), s.Column("f64")), attributes=HIDDEN))
            n = s.Variable("N")
            for kind, value in (("integer", s.Cast(n, "f64")), ("float", n)):
                pattern = s.Atom(kind, (n,))
                t = s.Variable("T")
                head = s.Atom(NUMBER, (t, value))
                items.append(s.Rule((head,), s.Case(t, pattern)))
        return items

    @property
    def has_terms(self) -> bool:
        keys = [key for key in self.kinds.parents if key[0] in ("column", "variable")]
        return any(self.kinds.type_of(key) == TERM for key in keys)

    def auxiliary(self, stem: str, clause: g.Clause, names: tuple[str, ...], bound: set[str]) -> _Aux:
        """A hidden relation of variables, on demand for those that only calls bind."""
        aux = _Aux(self.names.new(stem), names)
        columns = tuple(
            s.Column(self.kinds.of_variable(clause.number, name), adornment="bound" if name in bound else None)
            for name in names
        )
        self.items.append(s.RelationType(aux.name, columns, attributes=HIDDEN, span=clause.span))
        return aux

    # Clauses

    def clause(self, clause: g.Clause) -> None:
        heads, span = clause.heads, clause.span
        if clause.is_idle:
            return
        bodies = Bodies(clause.number, self.names, self.kinds, self.modes, self)
        known = [head for _, head in heads if head.key in self.modes.bound] or [heads[0][1]]
        bound_by_calls = set.intersection(*(self.modes.bound_by_call(head) for head in known))
        formulas, bound = bodies.goals(clause.body, bound_by_calls)
        self.made(bodies, span)
        shares = [None if p is None else self.probability(p, bodies, formulas) for p, _ in heads]
        atoms = [self.head(head, bodies) for _, head in heads]
        if all(share is None for share in shares):
            body = conjunction(formulas, span) if formulas else None
            self.plain(atoms[0], body, heads[0][1], span)
            return
        is_tuned = any(isinstance(share, s.Tunable) for share in shares)
        are_numbers = all(isinstance(share, Fraction) for share in shares)
        is_fact = not formulas and all(is_ground(head) for _, head in heads)
        if is_fact and (are_numbers or (is_tuned and len(heads) == 1)):
            self.facts(clause, atoms, shares)
            return
        demanded = any(head.key in self.modes.demanded for _, head in heads)
        unsafe = (bound_by_calls if demanded else set()) - self.bound_by_body(clause)
        body: s.Expression | None = conjunction(formulas, span) if formulas else None
        wanted = dict.fromkeys((*variables(*(h for _, h in heads)), *g.visible_names(clause.body)))
        names = tuple(name for name in wanted if name in bound)
        missing = [name for name in wanted if name not in bound]
        if missing:
            self.error(
                BindingError,
                f"`{missing[0]}` has no value in every instance of a clause with a probability",
                span,
                "bind it in each of the alternatives",
            )
        if bodies.has_choice:
            aux = self.auxiliary("body", clause, names, unsafe)
            self.items.append(s.Rule((aux.atom(span),), body, span=span))
            body = aux.atom(span)
        are_fixed = all(isinstance(share, (Fraction, s.Tunable)) for share in shares)
        takes_apart = any(is_pattern(argument) for _, head in heads for argument in head.arguments)
        if len(heads) > 1 and (is_tuned or (are_fixed and not takes_apart)):
            self.check_sum(clause, shares)
            tags = tuple(self.tag(share, p) for share, (p, _) in zip(shares, heads) if share is not None)
            self.items.append(s.Rule(tuple(atoms), or_true(body, span), None, True, tags, span=span))
            return
        if len(heads) == 1:
            share = shares[0]
            assert share is not None
            self.items.append(s.Rule((atoms[0],), or_true(body, span), self.tag(share, heads[0][0]), span=span))
            return
        self.disjunction(clause, atoms, shares, body, names, unsafe)

    def more_facts(self, clause: g.Clause, facts: Facts) -> None:
        """A table of facts, if constants of these kinds are values as they are."""
        [(_, head)], run = clause.heads, facts.run
        types = {kind: TYPES[other] for kind, other in _KINDS.items()}
        if all(self.kinds.type_of(("column", *head.key, i)) == types[kind] for i, kind in enumerate(run.kinds)):
            relation = self.names.relations[head.key]
            self.items.append(s.FactTable(relation, run.kinds, run.columns, run.tags, span=clause.span))
            return
        for term in spelled_out(facts, self.source):
            share, fact = term.arguments if isinstance(term, Compound) and term.key == ("::", 2) else (None, term)
            assert isinstance(fact, Compound)
            self.clause(replace(clause, heads=((share, fact),), span=term.span, more=None))

    def bound_by_body(self, clause: g.Clause) -> set[str]:
        return self.modes.reached(clause.body, set())[0]

    def plain(self, atom: s.Atom, body: s.Expression | None, head: Compound, span: Span) -> None:
        if body is None and is_ground(head):
            arguments = tuple(self.constant(a, ("column", *head.key, i)) for i, a in enumerate(head.arguments))
            self.items.append(s.FactSet(atom.relation, (s.Fact(arguments, span=span),), span=span))
            return
        self.items.append(s.Rule((atom,), or_true(body, span), span=span))

    def constant(self, term: Term, key: Any) -> s.Expression:
        return Bodies(0, self.names, self.kinds, self.modes, self).term(term, key)

    def head(self, head: Compound, bodies: Bodies) -> s.Atom:
        """A head: terms with variables that its calls bind are taken apart, the rest is made."""
        bound = self.modes.bound.get(head.key, set())
        arguments = tuple(
            bodies.term(argument, ("column", *head.key, i), is_new=i not in bound or is_ground(argument))
            for i, argument in enumerate(head.arguments)
        )
        return s.Atom(self.names.relations[head.key], arguments, span=head.span)

    def facts(self, clause: g.Clause, atoms: list[s.Atom], shares: list[Any]) -> None:
        """One fact, or facts that exclude each other."""
        span, heads = clause.span, [head for _, head in clause.heads]
        tags = [self.tag(share, p) for share, (p, _) in zip(shares, clause.heads)]
        if len(atoms) == 1:
            arguments = tuple(self.constant(a, ("column", *heads[0].key, i)) for i, a in enumerate(heads[0].arguments))
            fact = s.Fact(arguments, tags[0], span=span)
            self.items.append(s.FactSet(atoms[0].relation, (fact,), span=span))
            return
        self.check_sum(clause, shares)
        choice = self.names.new("choice")
        self.items.append(s.RelationType(choice, (s.Column("usize"),), attributes=HIDDEN, span=span))
        numbers = [s.Constant(i, "integer", span=span) for i in range(len(atoms))]
        facts = tuple(s.Fact((number,), tag, span=span) for number, tag in zip(numbers, tags))
        self.items.append(s.FactSet(choice, facts, exclusive=True, span=span))
        for number, atom in zip(numbers, atoms):
            self.items.append(s.Rule((atom,), s.Atom(choice, (number,), span=span), span=span))

    def disjunction(
        self,
        clause: g.Clause,
        atoms: list[s.Atom],
        shares: list[Any],
        body: s.Expression | None,
        names: tuple[str, ...],
        unsafe: set[str],
    ) -> None:
        """A choice of one head, or none, for each instance of the body, where shares are computed or heads take terms
        apart: one coin a head, for its share of what is left by those before it."""
        span = clause.span
        if all(isinstance(share, Fraction) for share in shares):
            self.check_sum(clause, shares)
        before: Formulas = [] if body is None else [body]
        left: Any = Fraction(1)
        for number, (atom, share) in enumerate(zip(atoms, shares)):
            if share == 0:
                continue
            is_last = number == len(atoms) - 1
            picked = self.auxiliary("choice", clause, names, unsafe)
            here = picked.atom(span)
            if isinstance(share, Fraction) and isinstance(left, Fraction):
                part: Any = min(share / left, Fraction(1))
                rest: Any = left - share
            else:
                a, b = as_expression(share), as_expression(left)
                part = share if left == 1 else s.Binary("/", a, b, span=span)
                rest = s.Binary("-", b, a, span=span)
            tag = None if part == 1 else self.tag(part, clause.heads[number][0])
            self.items.append(s.Rule((here,), conjunction(before, span), tag, span=span))
            self.items.append(s.Rule((atom,), here, span=span))
            if isinstance(rest, Fraction) and rest <= 0:
                break
            if not is_last:
                before = [*before, s.Not(here, span=span)]
                left = rest

    # Probabilities

    def probability(self, term: Term, bodies: Bodies, formulas: Formulas) -> Fraction | s.Expression:
        """A number, or an expression over the variables of the clause; `t(_)` and `t(0.3)` are tunable."""
        if isinstance(term, Compound) and term.functor == "t":
            return self.tunable(term, bodies)
        value = folded(term)
        if value is None:
            e = bodies.arithmetic.as_float(term)
            formulas += bodies.extra
            bodies.extra = []
            return e
        if not 0 <= value <= 1:
            hint = "write a number between 0 and 1 before `::`"
            self.error(DomainError, f"the probability {term_text(term)} is not in [0, 1]", term.span, hint)
        return value

    def tunable(self, term: Compound, bodies: Bodies) -> s.Tunable:
        written, *by = term.arguments
        assert isinstance(written, Compound)
        value = folded(written.arguments[0]) if written.arguments else None
        if written.arguments and (value is None or not 0 < value < 1):
            hint = "write `t(0.3)::`, or `t(_)::` for a start that is drawn"
            message = "the start of a probability that is learned lies between 0 and 1"
            self.error(DomainError, message, term.span, hint)
        variables = tuple(s.Variable(one.name, span=one.span) for one in by if isinstance(one, Var))
        start = 0.5 if value is None else float(value)
        return s.Tunable(start, "float", value is not None, variables, span=term.span)

    def tag(self, share: Fraction | s.Expression, written: Term | None) -> s.Expression:
        span = self.program.clauses[0].span if written is None else written.span
        return s.Constant(float(share), "float", span=span) if isinstance(share, Fraction) else share

    def check_sum(self, clause: g.Clause, shares: list[Any]) -> None:
        # Sixteen digits of each number may add up to a little more.
        if (total := sum(share for share in shares if isinstance(share, Fraction))) > 1 + ROUNDING:
            message = f"the probabilities of the heads add up to {float(total):.6g}, which is more than 1"
            self.error(DomainError, message, clause.heads[0][1].span, "give shares that add up to at most one")

    # Questions

    def query(self, query: g.Query) -> None:
        atom, span = query.atom, query.span
        relation = self.names.relations[atom.key]
        arguments = atom.arguments
        are_free = all(isinstance(a, Var) for a in arguments) and len(variables(*arguments)) == len(arguments)
        text, form = term_text(atom), canonical(atom)
        if query.body == g.TRUE:
            if form in self.outputs:
                return
            self.outputs[form] = relation if are_free else text
        if are_free and query.body == g.TRUE:
            self.items.append(s.Query(relation, span=span))
            self.absent[relation] = text
            return
        name = text
        while name in self.absent:
            name = f"{name} "
        self.absent[name], self.functors[name] = text, atom.functor
        bodies = Bodies(query.number, self.names, self.kinds, self.modes, self)
        formulas, _ = bodies.goals(query.body, set())
        self.made(bodies, span)
        for part in g.walk(query.body):
            if isinstance(part, g.Call) and part.atom.key in self.uncertain:
                hint = "the body of a query says which atoms are queried: use facts without probabilities there"
                self.error(UnsupportedError, "a query depends on what is uncertain", part.span, hint)
        columns: list[s.Expression] = []
        for i, argument in enumerate(arguments):
            if is_pattern(argument) and not is_ground(argument):
                columns.append(s.Variable(self.names.new("column"), span=argument.span))
                formulas.append(s.Binary("==", columns[-1], bodies.term(argument, ("column", *atom.key, i))))
            elif isinstance(argument, Var):
                columns.append(s.Variable(argument.name, span=argument.span))
            else:
                columns.append(bodies.term(argument, ("column", *atom.key, i)))
                if self.kinds.type_of(("column", *atom.key, i)) == TERM:
                    bodies.made.append((columns[-1], []))
        self.made(bodies, span)
        formulas.append(s.Atom(relation, tuple(columns), span=atom.span))
        types = tuple(s.Column(self.kinds.type_of(("column", *atom.key, i))) for i in range(len(columns)))
        self.items.append(s.RelationType(name, types, span=span))
        head = s.Atom(name, tuple(columns), span=atom.span)
        self.items.append(s.Rule((head,), conjunction(formulas, span), span=span))
        self.items.append(s.Query(name, span=span))

    def made(self, bodies: Bodies, span: Span) -> None:
        """The terms that calls make."""
        self.items += bodies.items
        for term, before in bodies.made:
            self.has_made = True
            if any(isinstance(node, s.Variable) for node in walk(term)):
                self.items.append(s.Rule((s.Atom(MADE, (term,), span=span),), conjunction(before, span), span=span))
            else:
                self.items.append(s.FactSet(MADE, (s.Fact((term,), span=span),), span=span))
        bodies.made, bodies.items = [], []

    @cached_property
    def uncertain(self) -> set[tuple[str, int]]:
        """The predicates whose atoms may be uncertain."""
        keys = {head.key for c in self.program.clauses for p, head in c.heads if p is not None}
        is_new = True
        while is_new:
            is_new = False
            for clause in self.program.clauses:
                calls = {part.atom.key for part in g.walk(clause.body) if isinstance(part, g.Call)}
                heads = {head.key for _, head in clause.heads}
                if calls & keys and not heads <= keys:
                    keys |= heads
                    is_new = True
        return keys

    def evidence(self, item: g.Observation) -> None:
        atom, span = item.atom, item.span
        if atom.key not in self.modes.clauses:
            message = f"there are no clauses for what was observed, `{atom.indicator}`"
            self.error(BindingError, message, atom.span, "write facts or rules for it")
        arguments = tuple(self.constant(a, ("column", *atom.key, i)) for i, a in enumerate(atom.arguments))
        relation = self.names.relations[atom.key]
        if atom.key not in self.modes.demanded:
            self.items.append(s.Evidence(relation, arguments, item.is_true, span=span))
            return
        # A name that no predicate has, and that evidence may have.
        seen = self.names.new("observed ").removeprefix("#")
        self.items.append(s.RelationType(seen, (), attributes=HIDDEN))
        self.items.append(s.Rule((s.Atom(seen, (), span=span),), s.Atom(relation, arguments, span=span), span=span))
        self.items.append(s.Evidence(seen, (), item.is_true, span=span))


def or_true(body: s.Expression | None, span: Span) -> s.Expression:
    return s.Constant(True, "bool", span=span) if body is None else body


def as_expression(share: Any) -> s.Expression:
    return s.Constant(float(share), "float") if isinstance(share, Fraction) else share


def folded(term: Term) -> Fraction | None:
    """The value of an expression of numbers, exactly as it is written; None of one with variables."""
    match term:
        case Number(text=text):
            return None if "'" in text else Fraction(text)
        case Compound(functor="/", arguments=(a, b)):
            x, y = folded(a), folded(b)
            return None if x is None or not y else x / y
        case Compound(functor="+" | "-" | "*" as operator, arguments=(a, b)):
            x, y = folded(a), folded(b)
            if x is None or y is None:
                return None
            return x + y if operator == "+" else x - y if operator == "-" else x * y
    return None


def grouped(items: list[s.Item]) -> list[s.Item]:
    """The items, in which facts of one relation that follow each other are one set."""
    made_items: list[s.Item] = []
    run: list[s.FactSet] = []

    def end() -> None:
        if run:
            facts = tuple(fact for item in run for fact in item.facts)
            made_items.append(s.FactSet(run[0].relation, facts, span=run[0].span))
            run.clear()

    for item in items:
        if isinstance(item, s.FactSet) and not item.exclusive:
            if run and run[0].relation != item.relation:
                end()
            run.append(item)
            continue
        end()
        made_items.append(item)
    end()
    return made_items
