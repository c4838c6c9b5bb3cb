"""Probabilities by brute force: the naive model, or the unit run, of every world."""

import itertools


def worlds(independent, choices=()):
    """(probability, facts) of each world; an independent fact is (relation, tuple, probability), a choice several."""
    options = [[(p, (relation, row)), (1 - p, None)] for relation, row, p in independent]
    for choice in choices:
        rest = 1 - sum(p for _, _, p in choice)
        options.append([(p, (relation, row)) for relation, row, p in choice] + ([(rest, None)] if rest > 1e-9 else []))
    for picked in itertools.product(*options):
        probability, facts = 1.0, {}
        for p, fact in picked:
            probability *= p
            if fact is not None:
                facts.setdefault(fact[0], []).append(fact[1])
        yield probability, facts


def probabilities(independent, choices, model_of):
    """(relation, tuple) -> probability, where model_of(facts) gives relation -> set of tuples."""
    found = {}
    for probability, facts in worlds(independent, choices):
        for relation, rows in model_of(facts).items():
            for row in rows:
                found[relation, row] = found.get((relation, row), 0.0) + probability
    return found
