"""What rules with probabilities say without tags: the same rows, and nothing that tells their instances apart.

    h(x) :- e(x, '1), 0.3::#coin_1(x, '1)
becomes
    h(x) :- e(x, _)
"""

from __future__ import annotations

from dataclasses import replace

from derivable.datalog.rules import nodes as r


def without_coins(program: r.Rules) -> r.Rules:
    """The program without the coins of its rules; itself if it has none."""
    rules = tuple(_without(rule) if isinstance(rule, r.Clause) else rule for rule in program.rules)
    return program if rules == program.rules else replace(program, rules=rules)


def _without(clause: r.Clause) -> r.Clause:
    body = [literal for literal in clause.body if not isinstance(literal, r.RuleProbability)]
    if len(body) == len(clause.body):
        return clause
    without = replace(clause, body=tuple(body))
    # Names that only the coin needed; those with a quote are none of the program's.
    once = {name for name, count in without.uses.items() if count == 1 and name.startswith("'")}
    for i, literal in enumerate(body):
        if isinstance(literal, r.Atom):
            body[i] = replace(literal, terms=tuple(_wildcard(t, once) for t in literal.terms))
        elif isinstance(literal, r.Generate) and not literal.negated:
            body[i] = replace(literal, outputs=tuple(_wildcard(t, once) for t in literal.outputs))
    return replace(clause, body=tuple(body))


def _wildcard(term: r.Var | r.Const | None, once: set[str]) -> r.Var | r.Const | None:
    return None if isinstance(term, r.Var) and term.name in once else term
