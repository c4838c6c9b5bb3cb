"""Predicates of Prolog's libraries that rules can define; those which a program calls and does not define are added."""

from __future__ import annotations

from functools import cache

from derivable.datalog.problog.reader import read_terms
from derivable.datalog.problog.terms import Compound, Term, canonical

SOURCE = "library(lists)"
TEXT = """
member(X, [X|_]).
member(X, [_|T]) :- member(X, T).
memberchk(X, L) :- member(X, L).
length([], 0).
length([_|T], N) :- length(T, M), N is M + 1.
append([], L, L).
append([X|S], L, [X|T]) :- append(S, L, T).
reverse(L, R) :- 'reverse onto'(L, [], R).
'reverse onto'([], L, L).
'reverse onto'([X|S], L, R) :- 'reverse onto'(S, [X|L], R).
last([X], X).
last([_|T], X) :- last(T, X).
nth0(0, [X|_], X).
nth0(N, [_|T], X) :- nth0(M, T, X), N is M + 1.
nth1(N, L, X) :- nth0(M, L, X), N is M + 1.
sum_list([], 0).
sum_list([X|T], S) :- sum_list(T, R), S is R + X.
sumlist(L, S) :- sum_list(L, S).
max_list([X], X).
max_list([X|T], X) :- max_list(T, M), X >= M.
max_list([X|T], M) :- max_list(T, M), X < M.
min_list([X], X).
min_list([X|T], X) :- min_list(T, M), X =< M.
min_list([X|T], M) :- min_list(T, M), X > M.
select(X, [X|T], T).
select(X, [Y|T], [Y|S]) :- select(X, T, S).
permutation([], []).
permutation(L, [X|S]) :- select(X, L, T), permutation(T, S).
subset([], _).
subset([X|T], L) :- member(X, L), subset(T, L).
nextto(X, Y, [X,Y|_]).
nextto(X, Y, [_|T]) :- nextto(X, Y, T).
prefix(P, L) :- append(P, _, L).
numlist(N, N, [N]).
numlist(L, H, [L|T]) :- L < H, N is L + 1, numlist(N, H, T).
"""


@cache
def clauses() -> dict[tuple[str, int], tuple[Term, ...]]:
    """Predicate -> its clauses."""
    clauses_of: dict[tuple[str, int], list[Term]] = {}
    for term in read_terms(TEXT, SOURCE, is_included=True):
        for key in defined_by(term):
            clauses_of.setdefault(key, []).append(term)
    return {key: tuple(terms) for key, terms in clauses_of.items()}


def with_known(terms: list[Term]) -> list[Term]:
    """The terms of a program with the clauses of the library that they lead to.

    Clauses that say what the library says, as programs that came without it do, are the library's.
    """
    known = clauses()
    replaced: dict[tuple[str, int], list[str]] = {}
    for term in terms:
        for key in defined_by(term):
            if key in known:
                replaced.setdefault(key, []).append(canonical(term))
    same = {key for key, texts in replaced.items() if texts == [canonical(term) for term in known[key]]}
    remaining = [term for term in terms if not same.intersection(defined_by(term))]
    defined = {key for term in remaining for key in defined_by(term)}
    ordered, waiting = [], list(remaining)
    while waiting:
        term = waiting.pop()
        if not isinstance(term, Compound):
            continue
        waiting.extend(term.arguments)
        if term.key in known and term.key not in defined:
            defined.add(term.key)
            ordered += known[term.key]
            waiting += known[term.key]
    return [*remaining, *ordered]


def defined_by(term: Term) -> list[tuple[str, int]]:
    """The predicates of the heads of a clause."""
    if isinstance(term, Compound) and term.functor in (":-", "<-") and len(term.arguments) == 2:
        term = term.arguments[0]
    keys = []
    waiting = [term]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Compound) and part.key == (";", 2):
            waiting += part.arguments
        elif isinstance(part, Compound) and part.key == ("::", 2):
            waiting.append(part.arguments[1])
        elif isinstance(part, Compound):
            keys.append(part.key)
    return keys
