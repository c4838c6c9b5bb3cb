"""Why a tuple does not hold: how far the body of each rule comes, literal by literal as the program has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from derivable.datalog.reasons.bodies import Body, Instance
from derivable.datalog.reasons.explain import Explainer
from derivable.datalog.reasons.prefixes import bound_names, ordered
from derivable.datalog.reasons.proof import Absence, Attempt, Proof
from derivable.datalog.reasons.scalar import value_of
from derivable.datalog.reasons.wording import is_hidden, is_shown_name
from derivable.datalog.rules import nodes as r
from derivable.datalog.run.limits import Watch

# A row of which some values are not known.
Pattern = tuple[int | None, ...]
# Who explains why no row of a relation has some values, None for those that are not known.
Question = Callable[[str, tuple[Any, ...]], Explainer]
# Ways to fulfil the literals before the one that fails which are counted.
MOST_COUNTED = 1000
# Results of an aggregate that are named.
MOST_RESULTS = 3


def absence(
    explainer: Explainer, relation: str, pattern: Pattern, depth: int, question: Question, deadline: Watch
) -> Absence:
    """For each rule of a relation how far it comes with the known values of a row.

    explainer  one that has all rows that the beginnings of these rules join
    depth      how many rules deep the atoms that fail are explained
    question   for the explainers of these atoms
    """
    wording, types = explainer.wording, explainer.model.rules.relations[relation].types
    shown = ["_" if w is None else wording.value(w, t) for w, t in zip(pattern, types)]
    row = tuple(None if w is None else value_of(w, t, explainer.model.symbols) for w, t in zip(pattern, types))
    attempts = []
    for clause in explainer.model.clauses.get(relation, ()):
        deadline.remaining()
        attempts.append(_attempt(explainer, clause, pattern, depth, question, deadline))
    attempts.sort(key=lambda attempt: -len(attempt.held) - (attempt.failed is not None))
    return Absence(f"{relation}({', '.join(shown)})", relation, row, tuple(attempts))


def _attempt(
    explainer: Explainer, clause: r.Clause, pattern: Pattern, depth: int, question: Question, deadline: Watch
) -> Attempt:
    wording, model = explainer.wording, explainer.model
    columns = tuple(column for column, word in enumerate(pattern) if word is not None)
    known = tuple(word for word in pattern if word is not None)
    line, source = wording.line_of(clause.span)
    rule = wording.rule(clause)
    # What the head computes is an equation like others, behind the body.
    clause, literals = ordered(clause, columns, model.patterns, model.keys)
    held: list[r.Literal] = []
    body = Body(replace(clause, body=()), model, columns)
    witnesses = _some(body, known, clause)
    if not witnesses:
        return Attempt(rule, line, source, {}, (), None)
    for literal in literals:
        longer = Body(replace(clause, body=(*held, literal)), model, columns)
        attempt = _some(longer, known, clause)
        if not attempt:
            bound, origin = bound_names(clause, columns, held), (rule, line, source)
            return _failed(explainer, origin, body, witnesses, held, literal, bound, depth, question, deadline)
        held.append(literal)
        body, witnesses = longer, attempt
    # Each literal holds, and so would the head: what is missing is the probability of the rule.
    return Attempt(rule, line, source, {}, (), "the rule's own probability is 0" if clause.body else None)


def _some(body: Body, known: tuple[int, ...], clause: r.Clause) -> list[Instance]:
    """Some instances of the first literals of a clause."""
    columns = [slot for slot, _ in body.heads]
    unbound = any(slot >= 0 for slot in columns) or body.whole
    return list(islice(body.instances(known), MOST_COUNTED if unbound else 1))


def _failed(
    explainer: Explainer,
    rule: tuple[str, int | None, str | None],
    body: Body,
    witnesses: list[Instance],
    held: list[r.Literal],
    literal: r.Literal,
    bound: set[str],
    depth: int,
    question: Question,
    deadline: Watch,
) -> Attempt:
    """The attempt of a rule whose literals hold up to one that fails."""
    wording, model, words = explainer.wording, explainer.model, witnesses[0].words
    types = body.types
    slots = {name: slot for name, slot in body.slots.items() if name in bound}
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
        name: value_of(words[slot], types[name], model.symbols) for name, slot in slots.items() if is_shown_name(name)
    }
    relation, row = None, None
    because: Absence | Proof | None = None
    if isinstance(literal, (r.Atom, r.Negated)) and not literal.relation.startswith("#"):
        relation = literal.relation
        pattern = _known_words(literal, body, words, bound)
        row = tuple(
            None if word is None else value_of(word, t, model.symbols)
            for word, t in zip(pattern, model.rules.relations[relation].types)
        )
        free = [name for term in literal.terms if term is not None for name in r.names(term) - bound]
        # Of `e(x, x)` with an unknown x the pattern `e(_, _)` says less, and may have rows.
        if depth > 1 and len(free) == len({*free}):
            if isinstance(literal, r.Negated):
                because = explainer.least(relation, tuple(word or 0 for word in pattern), deadline)
            else:
                other = question(relation, row) if model.patterns else explainer
                words = other.model.words_of(relation, row)
                because = absence(other, relation, words, depth - 1, question, deadline)
    return Attempt(*rule, bindings, shown, text, relation, row, because)


def _known_words(literal: r.Atom | r.Negated, body: Body, words: tuple[int, ...], bound: set[str]) -> list[int | None]:
    return [
        None if term is None or not r.names(term) <= bound else body.evaluator(term)(words) for term in literal.terms
    ]


def _other_result(explainer: Explainer, literal: r.Atom, body: Body, words: tuple[int, ...], bound: set[str]) -> str:
    """What an aggregate finds where it does not find the wanted result."""
    wording, model = explainer.wording, explainer.model
    rule, types = model.aggregates[literal.relation], model.rules.relations[literal.relation].types
    known = _known_words(literal, body, words, bound)
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
