"""From terms to clauses: heads with probabilities, queries, evidence, directives, and the goals of bodies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from derivable.core.diagnostics import ParseError, Span, UnsupportedError, Written
from derivable.datalog.problog import goals as g
from derivable.datalog.problog.library import defined_by
from derivable.datalog.problog.reader import spelled_out
from derivable.datalog.problog.terms import Compound, Facts, Number, Term, Text, Var, is_ground, operands

COMPARISONS = {"<": "<", ">": ">", "=<": "<=", ">=": ">=", "=:=": "==", "=\\=": "!="}
# Goals that have an effect, that bind one value, or that depend on the order of solutions.
_REFUSED = {
    **dict.fromkeys(
        ("write", "writeln", "print", "writenl", "nl", "format", "write_canonical", "halt", "read", "consult"),
        "a rule only says what holds: leave the goal out; results are printed by queries",
    ),
    **dict.fromkeys(
        ("findall", "all", "all_or_none", "bagof", "setof", "forall"),
        "`aggregate_all(count, G, N)`, and `sum(X)`, `max(X)` or `min(X)` instead of `count`, compute over solutions",
    ),
    **dict.fromkeys(
        ("assertz", "asserta", "assert", "retract", "retractall", "nb_setval", "b_setval", "subquery", "clause"),
        "a program does not change while it runs: write a relation",
    ),
    **dict.fromkeys(("!", "once", "->?"), "rules have no order: write what holds otherwise with `\\+`"),
    **dict.fromkeys(
        ("atom_codes", "atom_chars", "atom_length", "sub_atom", "number_codes", "=..", "functor", "arg", "copy_term"),
        "give what it computes as facts",
    ),
    **dict.fromkeys(
        ("var", "nonvar", "atom", "atomic", "number", "integer", "float", "is_list", "ground", "compound", "callable"),
        "columns have types: write a relation for each",
    ),
    **dict.fromkeys(
        ("@<", "@>", "@=<", "@>=", "sort", "msort", "compare"),
        "only numbers are compared: give each term one, `rank(a, 1).`, and compare these",
    ),
    "phrase": "write a relation over positions in the text",
    "-->": "write a relation over positions in the text",
}
_IGNORED = (
    *("dynamic", "discontiguous", "table", "multifile"),
    *("style_check", "set_prolog_flag", "ensure_loaded", "module"),
)
_RULES = ((":-", 2), ("<-", 2))
LIBRARIES = ("lists",)
_DECISIONS = ("utility", "decision")
_DISTRIBUTIONS = ("normal", "gaussian", "beta", "gamma", "exponential", "poisson", "uniform", "delta", "finite")


class Clauses(Written):
    """The clauses of one program, in order.

    include  reads another file's terms
    defined  the functors that the program has clauses for
    """

    def __init__(
        self, text: str, source: str, include: Callable[[str, Span], list[Term]], defined: frozenset[str] = frozenset()
    ):
        self.text, self.source = text, source
        self.include, self.defined = include, defined
        self.program = g.Source()
        self.number = 0

    def refuse(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        self.error(UnsupportedError, message, span, hint)

    def read(self, terms: list[Term]) -> g.Source:
        for term in terms:
            try:
                self.clause(term)
            except UnsupportedError as error:
                predicates = defined_by(term) if isinstance(term, Compound) and term.key in _RULES else []
                if not predicates or any(functor in ("query", "evidence") for functor, _ in predicates):
                    raise
                self.program.refused.append((predicates, error))
        return self.program

    def clause(self, term: Term) -> None:
        if isinstance(term, Facts):
            self.facts(term)
            return
        self.number += 1
        body: g.Goal = g.TRUE
        head = term
        if isinstance(term, Compound) and term.key in _RULES:
            head, body = term.arguments[0], self.goal(term.arguments[1])
        elif isinstance(term, Compound) and term.key in ((":-", 1), ("?-", 1)):
            self.directive(term)
            return
        if isinstance(head, Compound) and head.functor in ("query", "evidence") and 0 < len(head.arguments) < 3:
            self.query_or_evidence(head, body, term.span)
            return
        heads = tuple(self.head(part) for part in operands(head, ";"))
        if len(heads) > 1 and any(p is None for p, _ in heads):
            bare = next(atom for p, atom in heads if p is None)
            message = "a head of an annotated disjunction has no probability"
            self.error(ParseError, message, bare.span, "write `P::head`")
        self.program.clauses.append(g.Clause(heads, body, term.span, self.number))

    def facts(self, term: Facts) -> None:
        """Put many facts to the one before them; those of a library, whose first one is the library's, are clauses."""
        last = self.program.clauses[-1] if self.program.clauses else None
        if last is not None and last.span == term.span:
            self.program.clauses[-1] = replace(last, more=term)
            return
        self.read(spelled_out(term, self.source))

    def head(self, term: Term) -> tuple[Term | None, Compound]:
        probability: Term | None = None
        if isinstance(term, Compound) and term.key == ("::", 2):
            probability, term = term.arguments
            if isinstance(probability, Compound) and probability.functor == "t" and not probability.arguments:
                self.refuse("`t::` says no start", probability.span, "write `t(_)::head` or `t(0.3)::head`")
            if isinstance(probability, Compound) and probability.functor == "t":
                start, *by = probability.arguments
                if any(not isinstance(one, Var) and not is_ground(one) for one in by):
                    self.refuse(
                        "a probability that is learned for each value of a term with variables is not read",
                        probability.span,
                        "`t(_, X)::head` is one for each X",
                    )
                # What the variable of `t(_)` is no clause says; constants are the same in all instances.
                by = tuple(one for one in by if isinstance(one, Var))
                starts = () if isinstance(start, Var) else (start,)
                probability = Compound("t", (Compound("t", starts), *by), span=probability.span)
            if isinstance(probability, Compound) and (
                probability.functor in _DISTRIBUTIONS or probability.key == ("?", 0)
            ):
                self.refuse(
                    f"`{probability.functor}::` is no probability",
                    probability.span,
                    "facts hold with a number between 0 and 1; continuous distributions and decisions are not read",
                )
        elif isinstance(term, Compound) and term.key in (("?::", 2), ("~", 2), ("?", 1)):
            self.refuse("decisions and continuous variables are not read", term.span, "write `P::head`")
        if not isinstance(term, Compound):
            what = "a variable" if isinstance(term, Var) else "a number" if isinstance(term, Number) else "a text"
            self.error(ParseError, f"{what} is no head of a clause", term.span, "a head is an atom such as `p(X)`")
        if term.functor in ("\\+", ",", "->", ":-", "[]", ".", "::") or term.functor in COMPARISONS:
            self.error(ParseError, f"`{term.functor}` is no head of a clause", term.span, "a head is an atom as `p(X)`")
        if term.key in BUILTINS or term.key in (("true", 0), ("fail", 0), ("false", 0)) or term.functor in _DECISIONS:
            message = f"`{term.indicator}` is built in and has no clauses"
            self.error(ParseError, message, term.span, "give it another name")
        return probability, term

    def query_or_evidence(self, head: Compound, body: g.Goal, span: Span) -> None:
        if head.functor == "query":
            if len(head.arguments) != 1:
                self.error(ParseError, "`query` has one argument", head.span, "write `query(p(X)).`")
            atom = self.atom(head.arguments[0], "a query")
            self.program.queries.append(g.Query(atom, body, span, self.number))
            return
        if body != g.TRUE:
            self.refuse(
                "evidence is a fact here, not a rule",
                span,
                "observe the atom `seen` of a rule, `seen :- ...`, in `evidence(seen).`",
            )
        first, is_true = head.arguments[0], True
        if len(head.arguments) == 2:
            truth = head.arguments[1]
            if not (isinstance(truth, Compound) and truth.key in (("true", 0), ("false", 0))):
                self.error(
                    ParseError, "what was observed is `true` or `false`", truth.span, "write `evidence(p, true).`"
                )
            is_true = truth.functor == "true"
        while isinstance(first, Compound) and first.key == ("\\+", 1):
            first, is_true = first.arguments[0], not is_true
        atom = self.atom(first, "evidence")
        if not is_ground(atom):
            self.refuse("evidence has no variables", atom.span, "write an item for each atom that was observed")
        self.program.evidence.append(g.Observation(atom, is_true, span, self.number))

    def atom(self, term: Term, what: str) -> Compound:
        if not isinstance(term, Compound) or term.functor in ("\\+", ",", ";", ".", "[]") or term.key in BUILTINS:
            self.error(ParseError, f"{what} is of an atom", term.span, "such as `p(a, X)`")
        return term

    # Directives

    def directive(self, term: Compound) -> None:
        what = term.arguments[0]
        match what:
            case Compound(functor="use_module", arguments=(Compound(functor="library", arguments=(name,)), *_)):
                if not (isinstance(name, Compound) and name.functor in LIBRARIES):
                    hint = "`lists` is known; write the predicates that you use in the program"
                    self.refuse("this library is not known", name.span, hint)
            case Compound(functor="use_module" | "consult", arguments=(Compound() | Text() as name, *_)):
                path = name.value if isinstance(name, Text) else name.functor
                if path.endswith(".py"):
                    self.refuse("predicates in Python are not read", name.span, "give their rows as facts")
                self.read(self.include(path, name.span))
            case Compound(functor="."):
                for name in self.items(what):
                    if isinstance(name, (Compound, Text)):
                        self.read(self.include(name.value if isinstance(name, Text) else name.functor, name.span))
            case Compound(functor=functor) if functor in _IGNORED:
                pass
            case _:
                self.refuse("this directive is not known", what.span, "`:- use_module(library(lists)).` is")

    @staticmethod
    def items(term: Term) -> list[Term]:
        terms = []
        while isinstance(term, Compound) and term.key == (".", 2):
            terms.append(term.arguments[0])
            term = term.arguments[1]
        return terms

    # Bodies

    def goal(self, term: Term) -> g.Goal:
        span = term.span
        if isinstance(term, (Var, Number, Text)):
            self.error(ParseError, "a goal is an atom", span, "`call(G)` and variables as goals are not read")
        assert isinstance(term, Compound)
        match term.functor, term.arguments:
            case ",", (_, _):
                return g.And(tuple(self.goal(part) for part in operands(term, ",")), span=span)
            case ";", (first, second):
                if isinstance(first, Compound) and first.key == ("->", 2):
                    condition, then = first.arguments
                    return self.conditional(condition, then, second, span)
                return g.Or((self.goal(first), self.goal(second)), span=span)
            case "->", (condition, then):
                return g.And((self.goal(condition), self.goal(then)), span=span)
            case "\\+", (inside,):
                return g.Negation(self.goal(inside), span=span)
            case "true", ():
                return g.And((), span=span)
            case "fail" | "false", ():
                return g.Or((), span=span)
            case "=", (a, b):
                return g.Unify(a, b, span=span)
            case "\\=" | "\\==", (a, b):
                return g.Differ(a, b, span=span)
            case "==", (a, b):
                return g.Differ(a, b, same=True, span=span)
            case "is", (a, b):
                return g.Is(a, b, span=span)
            case "between", (low, high, value):
                return g.Between(low, high, value, span=span)
            case operator, (a, b) if operator in COMPARISONS:
                return g.Compare(COMPARISONS[operator], a, b, span=span)
            case "aggregate_all", (what, inside, result):
                return self.total(what, inside, result, span)
            case "call", (first, *more) if isinstance(first, Compound) and first.functor != ",":
                return self.goal(Compound(first.functor, (*first.arguments, *more), span=span))
            case "call", (first,):
                return self.goal(first)
            case ".", (_, _):
                self.error(ParseError, "a list is no goal", span)
        if term.functor in _REFUSED and term.functor not in self.defined:
            self.refuse(f"`{term.functor}` is not read", span, _REFUSED[term.functor])
        return g.Call(term, span=span)

    def conditional(self, condition: Term, then: Term, otherwise: Term, span: Span) -> g.Goal:
        test = self.goal(condition)
        first = g.And((test, self.goal(then)), span=span)
        return g.Or((first, g.And((g.Negation(test, span=condition.span), self.goal(otherwise)), span=span)), span=span)

    def total(self, what: Term, inside: Term, result: Term, span: Span) -> g.Goal:
        if isinstance(what, Compound):
            if what.key == ("count", 0):
                return g.Total("count", None, self.goal(inside), result, span=span)
            if what.functor in ("sum", "max", "min") and len(what.arguments) == 1:
                return g.Total(what.functor, what.arguments[0], self.goal(inside), result, span=span)
        hint = "write `count`, `sum(E)`, `max(E)` or `min(E)`"
        return self.error(ParseError, "this is no aggregate", what.span, hint)


BUILTINS = {
    *((operator, 2) for operator in (*COMPARISONS, "=", "\\=", "==", "\\==", "is", "->")),
    ("between", 3),
    ("aggregate_all", 3),
    ("\\+", 1),
}
