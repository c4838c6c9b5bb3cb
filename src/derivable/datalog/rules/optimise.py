"""Optimisations of core rules, each of which keeps every result and tag: simpler clauses, shared auxiliary relations,
and no rules that no output needs."""

from __future__ import annotations

from dataclasses import replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.join_keys import with_join_keys
from derivable.datalog.rules.share import share
from derivable.datalog.rules.simplify import simplify
from derivable.datalog.rules.strata import dependents, needed_for


def optimise(program: r.Rules, narrow: bool = True) -> r.Rules:
    """The optimised program; `narrow` if only its outputs matter."""
    program = share(with_join_keys(simplify(program)))
    return reached(program) if narrow else program


def reached(program: r.Rules) -> r.Rules:
    """The program without the rules and auxiliary relations that no output depends on.

    Named relations stay, because facts may be given for them, and so do the facts: a random one that nothing reads
    still makes a program one with probabilities.
    """
    goals = [name for name, relation in program.relations.items() if relation.is_goal]
    # An output with a declared demand has what anything asks it for.
    asked = [name for name in program.outputs if "b" in (program.relations[name].demand or "")]
    needed = needed_for(program, (*program.outputs, *goals, *dependents(program, asked)))
    if all(rule.relation in needed for rule in program.rules):
        return program
    kept = {facts.relation for facts in program.facts}.union(c.relation for c in program.constructors.values())
    return replace(
        program,
        rules=tuple(rule for rule in program.rules if rule.relation in needed),
        relations={
            name: relation
            for name, relation in program.relations.items()
            if name in needed or name in kept or not name.startswith("#")
        },
    )
