"""Why a tuple does not hold: how far the body of each rule comes, literal by literal as the program has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from derivable.datalog.reasons.bodies import Body, Instance
from derivable.datalog.reasons.explain import Explainer
from derivable.datalog.reasons.proof import Absence, Attempt, Proof
from derivable.datalog.reasons.scalar import value_of
from derivable.datalog.reasons.wording import is_hidden, is_shown_name
from derivable.datalog.rules import literal_order
from derivable.datalog.rules import nodes as r
from derivable.datalog.run.limits import Watch

# A row of which some values are not known.
Pattern = tuple[int | None, ...]
# Ways to fulfil the literals before the one that fails which are counted.
MOST_COUNTED = 1000
# Results of an aggregate that are named.
MOST_RESULTS = 3


def absence(explainer: Explainer, relation: str, pattern: Pattern, depth: int, deadline: Watch) -> Absence:
    """For each rule of a relation how far it comes with the known values of a row.

    depth  how many rules deep the atoms that fail are explained
    """
    wording, types = explainer.wording, explainer.model.rules.relations[relation].types
    shown = ["_" if w is None else wording.value(w, t) for w, t in zip(pattern, types)]
    row = tuple(None if w is None else value_of(w, t, explainer.model.symbols) for w, t in zip(pattern, types))
    attempts = []
    for clause in explainer.model.clauses.get(relation, ()):
        deadline.remaining()
        attempts.append(_attempt(explainer, clause, pattern, depth, deadline))
    attempts.sort(key=lambda attempt: -len(attempt.held) - (attempt.failed is not None))
    return Absence(f"{relation}({', '.join(shown)})", relation, row, tuple(attempts))


def _attempt(explainer: Explainer, clause: r.Clause, pattern: Pattern, depth: int, deadline: Watch) -> Attempt:
    wording, model = explainer.wording, explainer.model
    columns = tuple(column for column, word in enumerate(pattern) if word is not None)
    known = tuple(word for word in pattern if word is not None)
    line, source = wording.place(clause.span)
    rule = wording.rule(clause)
    # What the head computes is an equation like others, behind the body.
    bound_terms, equations = literal_order.bound_terms(clause, columns)
    terms = list(clause.terms)
    for column, term in zip(columns, bound_terms):
        terms[column] = term
    literals = [
        node
        for node in (*clause.body, *equations)
        if not isinstance(node, r.RuleProbability) and not (isinstance(node, r.Atom) and node.relation in model.keys)
    ]
    clause = replace(clause, terms=tuple(terms))
    held: list[r.Literal] = []
    waiting = list(literals)
    body = Body(replace(clause, body=()), model, columns)
    witnesses = _some(body, known, clause)
    if not witnesses:
        return Attempt(rule, line, source, {}, (), None)
    while waiting:
        bound = _bound(clause, columns, held)
        literal = next((node for node in waiting if _is_evaluable(node, bound)), waiting[0])
        longer = Body(replace(clause, body=(*held, literal)), model, columns)
        attempt = _some(longer, known, clause)
        if not attempt:
            return _failed(explainer, (rule, line, source), body, witnesses, held, literal, bound, depth, deadline)
        held.append(literal)
        waiting.remove(literal)
        body, witnesses = longer, attempt
    # Each literal holds, and so would the head: what is missing is the probability of the rule.
    return Attempt(rule, line, source, {}, (), "the rule's own probability is 0" if clause.body else None)


def _some(body: Body, known: tuple[int, ...], clause: r.Clause) -> list[Instance]:
    """Some instances of the first literals of a clause."""
    columns = [place for place, _ in body.heads]
    unbound = any(place >= 0 for place in columns) or body.whole
    return list(islice(body.instances(known), MOST_COUNTED if unbound else 1))


def _bound(clause: r.Clause, columns: tuple[int, ...], held: list[r.Literal]) -> set[str]:
    """The variables that have values once some literals hold."""
    names = {v.name for c in columns for v in r.variables(clause.terms[c])}
    for literal in held:
        if not isinstance(literal, r.Negated):
            names |= r.names(literal)
    return names


def _is_evaluable(literal: r.Literal, bound: set[str]) -> bool:
    if isinstance(literal, r.Filter) and any(isinstance(a, r.Var) and r.names(b) <= bound for a, b in r.sides(literal)):
        return True
    if isinstance(literal, (r.Filter, r.Negated)):
        return r.names(literal) <= bound
    return r.inputs(literal) <= bound


def _failed(
    explainer: Explainer,
    rule: tuple[str, int | None, str | None],
    body: Body,
    witnesses: list[Instance],
    held: list[r.Literal],
    literal: r.Literal,
    bound: set[str],
    depth: int,
    deadline: Watch,
) -> Attempt:
    """The attempt of a rule whose literals hold up to one that fails."""
    wording, model, words = explainer.wording, explainer.model, witnesses[0].words
    types = body.types
    slots = {name: place for name, place in body.slots.items() if name in bound}
    values = wording.names(slots, types, words)
    shown = tuple(wording.literal(node, values) for node in held if not is_hidden(node))
    text = wording.literal(literal, values)
    if isinstance(literal, r.Atom) and literal.relation in model.aggregates:
        text = _other_result(explainer, literal, body, words, bound)
    others = len(witnesses) - 1
    if others:
        count = f"{others:,}{' or more' if others >= MOST_COUNTED - 1 else ''}"
        text += f", and so with {count} other {'way' if others == 1 else 'ways'} to have what holds"
    bindings = {
        name: value_of(words[place], types[name], model.symbols) for name, place in slots.items() if is_shown_name(name)
    }
    relation, row, because = None, None, None
    if isinstance(literal, (r.Atom, r.Negated)) and not literal.relation.startswith("#"):
        relation = literal.relation
        pattern: list[int | None] = []
        for term in literal.terms:
            is_known = isinstance(term, r.Const) or (isinstance(term, r.Var) and term.name in bound)
            pattern.append(body.evaluator(term)(words) if is_known and term is not None else None)
        row = tuple(
            None if word is None else value_of(word, t, model.symbols)
            for word, t in zip(pattern, model.rules.relations[relation].types)
        )
        if depth > 1:
            because = _because(explainer, literal, tuple(pattern), depth - 1, deadline)
    return Attempt(*rule, bindings, shown, text, relation, row, because)


def _other_result(explainer: Explainer, literal: r.Atom, body: Body, words: tuple[int, ...], bound: set[str]) -> str:
    """What an aggregate finds where it does not find the wanted result."""
    wording, model = explainer.wording, explainer.model
    rule, types = model.aggregates[literal.relation], model.rules.relations[literal.relation].types
    known = [
        None if term is None or not r.names(term) <= bound else body.evaluator(term)(words) for term in literal.terms
    ]
    group = [column for column in range(rule.num_group) if known[column] is not None]
    rows = model.rows(literal.relation)
    numbers = rows.numbers(tuple(group), [known[column] or 0 for column in group])
    name = wording.aggregate(rule)

    def shown(row: Sequence[int | None]) -> str:
        texts = ["_" if w is None else wording.value(w, t) for w, t in zip(row, types)][rule.num_group :]
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

    if not numbers:
        return f"{name} has no rows"
    results = " or ".join(shown(rows.row(number)) for number in list(numbers)[:MOST_RESULTS])
    more = " or others" if len(numbers) > MOST_RESULTS else ""
    return f"{name} is {results}{more}, not {shown(known)}"


def _because(
    explainer: Explainer, literal: r.Atom | r.Negated, pattern: Pattern, depth: int, deadline: Watch
) -> Absence | Proof | None:
    if isinstance(literal, r.Negated):
        return explainer.least(literal.relation, tuple(word or 0 for word in pattern), deadline)
    return absence(explainer, literal.relation, pattern, depth, deadline)
