"""Equalities of SDQLite for egglog, over the terms of `terms`: they hold in every commutative semiring.

No equality changes what a bound name stands for. A loop over an input, or over a part of one, has no name for the value
at its key `i`: this is the lookup `R(i)`, so that two tensors can change places without substitution. What is free in
a class of terms is what is free in all of them, so factors leave loops wherever one equal term allows it.

Source: section 5.1 of Shaikhha, Huot and Hashemian, nabla-SD (2023), and the rules of Schleich et al., Optimizing
tensor programs on flexible storage (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from egglog import Expr, Set, eq, function, i64, i64Like, relation, rewrite, rule, ruleset, set_, vars_


class Term(Expr): ...


# What egglog calls each operation of a term, by name.
OPERATIONS: dict[str, Callable[..., Any]] = {}


def operation(made: Callable[..., Any]) -> Callable[..., Any]:
    OPERATIONS[made.__name__] = found = function(made)
    return found


@operation
def var(name: i64Like) -> Term: ...
@operation
def number(value: i64Like) -> Term: ...
@operation
def zero() -> Term: ...
@operation
def one() -> Term: ...
@operation
def look(tensor: Term, key: Term) -> Term: ...
@operation
def singleton(key: Term, value: Term) -> Term: ...
@operation
def row(key: Term, value: Term) -> Term: ...
@operation
def over(key: i64Like, range: Term, body: Term) -> Term: ...
@operation
def run(key: i64Like, value: i64Like, range: Term, body: Term) -> Term: ...
@operation
def let(name: i64Like, value: Term, body: Term) -> Term: ...
@operation
def when(condition: Term, body: Term) -> Term: ...
@operation
def add(left: Term, right: Term) -> Term: ...
@operation
def times(left: Term, right: Term) -> Term: ...
@operation
def scale(factor: Term, tensor: Term) -> Term: ...
@operation
def outer(left: Term, right: Term) -> Term: ...
@operation
def apply1(operation: i64Like, a: Term) -> Term: ...
@operation
def apply2(operation: i64Like, a: Term, b: Term) -> Term: ...
@operation
def apply3(operation: i64Like, a: Term, b: Term, c: Term) -> Term: ...
@operation
def between(start: Term, stop: Term) -> Term: ...


@function(merge=lambda old, new: old & new)
def free(term: Term) -> Set[i64]: ...


# That a term is zero where a tensor has nothing at the key of that name.
needs = relation("needs", Term, Term, i64)

a, b, c, e, k, R, S = vars_("a b c e k R S", Term)
i, j, n, v, w = vars_("i j n v w", i64)
p, q, r = vars_("p q r", Set[i64])
_STRICT = (look, singleton, row, when, add, times, scale, outer, between)
_PRODUCTS = (times, scale, outer)


def _free_variables() -> Iterator[Any]:
    def free_in(term: Any, found: Any, *facts: Any) -> Any:
        return rule(eq(a).to(term), *facts).then(set_(free(a)).to(found))

    yield free_in(var(n), Set(n))
    yield free_in(number(n), Set[i64].empty())
    yield free_in(zero(), Set[i64].empty())
    yield free_in(one(), Set[i64].empty())
    b_, c_, e_ = eq(p).to(free(b)), eq(q).to(free(c)), eq(r).to(free(e))
    for made in _STRICT:
        yield free_in(made(b, c), p | q, b_, c_)
    yield free_in(apply1(n, b), p, b_)
    yield free_in(apply2(n, b, c), p | q, b_, c_)
    yield free_in(apply3(n, b, c, e), p | q | r, b_, c_, e_)
    yield free_in(over(i, b, c), p | (q - Set(i)), b_, c_)
    yield free_in(run(i, j, b, c), p | (q - Set(i, j)), b_, c_)
    yield free_in(let(i, b, c), p | (q - Set(i)), b_, c_)


def _needed() -> Iterator[Any]:
    yield rule(eq(a).to(look(R, var(i)))).then(needs(a, R, i))
    yield rule(eq(a).to(look(b, k)), needs(b, R, i)).then(needs(a, R, i))
    for made in (singleton, row, when):
        yield rule(eq(a).to(made(k, b)), needs(b, R, i)).then(needs(a, R, i))
    for made in _PRODUCTS:
        yield rule(eq(a).to(made(b, c)), needs(b, R, i)).then(needs(a, R, i))
        yield rule(eq(a).to(made(b, c)), needs(c, R, i)).then(needs(a, R, i))
    yield rule(eq(a).to(add(b, c)), needs(b, R, i), needs(c, R, i)).then(needs(a, R, i))
    yield rule(eq(a).to(over(j, S, b)), needs(S, R, i)).then(needs(a, R, i))
    yield rule(eq(a).to(run(j, v, S, b)), needs(S, R, i)).then(needs(a, R, i))
    # What the name of a loop is part of is something else outside of it.
    for made, names in ((over(j, S, b), (j,)), (run(j, v, S, b), (j, v)), (let(j, e, b), (j,))):
        apart = [*_lack(R, names), *(Set(i).not_contains(x) for x in names)]
        yield rule(eq(a).to(made), needs(b, R, i), *apart).then(needs(a, R, i))


def _both(left: Any, right: Any, *facts: Any) -> Iterator[Any]:
    yield rewrite(left).to(right, *facts)
    yield rewrite(right).to(left, *facts)


def _algebra() -> Iterator[Any]:
    yield rewrite(times(a, b)).to(times(b, a))
    yield rewrite(times(times(a, b), c)).to(times(a, times(b, c)))
    yield rewrite(add(a, b)).to(add(b, a))
    yield rewrite(add(add(a, b), c)).to(add(a, add(b, c)))
    yield rewrite(times(one(), a)).to(a)
    yield rewrite(scale(one(), a)).to(a)
    for made in _PRODUCTS:
        yield from _both(made(a, add(b, c)), add(made(a, b), made(a, c)))
        yield from _both(made(add(a, b), c), add(made(a, c), made(b, c)))
    yield from _both(scale(times(a, b), c), scale(a, scale(b, c)))
    yield from _both(outer(scale(a, b), c), scale(a, outer(b, c)))
    yield from _both(outer(b, scale(a, c)), scale(a, outer(b, c)))
    yield from _both(outer(outer(a, b), c), outer(a, outer(b, c)))
    # Entries of tensors
    yield from _both(singleton(k, times(a, b)), scale(a, singleton(k, b)))
    yield rewrite(singleton(k, a)).to(scale(a, singleton(k, one())))
    yield from _both(row(k, scale(a, b)), scale(a, row(k, b)))
    yield from _both(row(k, scale(a, b)), outer(singleton(k, a), b))
    yield from _both(row(k, outer(a, b)), outer(row(k, a), b))
    for made in (singleton, row):
        yield from _both(made(k, add(a, b)), add(made(k, a), made(k, b)))
        yield rewrite(over(i, R, made(var(i), look(R, var(i))))).to(R, free(R).not_contains(i))


def _linear() -> Iterator[Any]:
    """What is linear in a part of its own, with the names that it binds there."""
    contexts: list[tuple[Callable[[Any], Any], tuple[Any, ...], bool]] = [
        (lambda x: over(i, R, x), (i,), True),
        (lambda x: run(i, v, R, x), (i, v), True),
        (lambda x: let(i, R, x), (i,), False),
        (lambda x: when(R, x), (), False),
    ]
    for context, names, is_loop in contexts:
        for made in _PRODUCTS:
            yield rewrite(context(made(a, b))).to(made(a, context(b)), *_lack(a, names))
            yield rewrite(context(made(a, b))).to(made(context(a), b), *_lack(b, names))
            # A factor enters a loop that another one depends on. Conditions are outside of products to begin with.
            for name in names if is_loop else ():
                yield rewrite(made(a, context(b))).to(context(made(a, b)), *_lack(a, names), free(b).contains(name))
                yield rewrite(made(context(a), b)).to(context(made(a, b)), *_lack(b, names), free(a).contains(name))
        yield from _both(context(add(a, b)), add(context(a), context(b)))
        for made in (singleton, row):
            yield from _both(context(made(k, a)), made(k, context(a)), *_lack(k, names))
        if names:
            yield from _both(context(when(c, a)), when(c, context(a)), *_lack(c, names))
    yield rewrite(when(c, when(c, a))).to(when(c, a))
    yield rewrite(when(b, when(c, a))).to(when(c, when(b, a)))
    for made in (times, scale):
        yield rewrite(made(when(c, one()), a)).to(when(c, a))
    yield rewrite(let(i, e, a)).to(a, free(a).not_contains(i))


def _lack(term: Term, names: Iterable[Any]) -> list[Any]:
    """That no such name is free in a term."""
    return [free(term).not_contains(name) for name in names]


def _loops() -> Iterator[Any]:
    made: list[tuple[Callable[[Any], Any], Any, tuple[Any, ...]]] = [
        (lambda x: over(i, R, x), R, (i,)),
        (lambda x: over(j, S, x), S, (j,)),
        (lambda x: run(i, v, R, x), R, (i, v)),
        (lambda x: run(j, w, S, x), S, (j, w)),
        (lambda x: let(i, R, x), R, (i,)),
    ]
    for first, second in ((0, 1), (0, 3), (2, 1), (2, 3), (4, 1), (4, 3)):
        (outer_, before, bound), (inner, after, inner_bound) = made[first], made[second]
        apart = [*_lack(after, bound), *_lack(before, inner_bound)]
        apart += [Set(x).not_contains(y) for x in bound for y in inner_bound]
        yield from _both(outer_(inner(a)), inner(outer_(a)), *apart)
    yield rewrite(over(i, R, a)).to(over(i, S, a), needs(a, R, i), needs(a, S, i), free(S).not_contains(i))


@ruleset
def ANALYSIS() -> Iterator[Any]:
    yield from _free_variables()
    yield from _needed()


@ruleset
def ALGEBRA() -> Iterator[Any]:
    yield from _algebra()


@ruleset
def LINEARITY() -> Iterator[Any]:
    yield from _linear()


@ruleset
def LOOPS() -> Iterator[Any]:
    yield from _loops()
