"""The strata of a run on a device that the host computes: those that a device does not, and those whose rows cost it
less than launches would.

A device computes strata one after the other, and the host those before and behind them. A stratum of the device is on
the host too if all that it reads is there, and if its rows, as many as the relations that they are made of let expect,
take the host less time than the device needs for the launches of its instructions. A recursion is expected to have a
row for each combination of the values that it begins with.
"""

from __future__ import annotations

import numpy as np

from derivable.datalog.aggregates.retagging import RETAGGING
from derivable.datalog.apm.tables import LeftToHost
from derivable.datalog.facts.columns import FactColumns
from derivable.datalog.facts.store import FactStore
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import Estimator
from derivable.datalog.run.execute import Executor
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Algebra, Untagged
from derivable.datalog.tags.topkproofs import TopProofTags

# Seconds, about, of a row on the host, of a fact or a row from before, and of an instruction that Python runs.
ROW, FACT, INSTRUCTION = 3e-8, 1e-7, 5e-5
# Seconds, about, of a launch, by the kind of device; launches of an instruction, and rounds of a recursion.
LAUNCH = {"cuda": 1e-5}
LAUNCHES, ROUNDS = 20, 8


def strata_of_device(ram: m.Ram, facts: FactStore, algebra: Algebra) -> tuple[range, dict[str, str]]:
    """The strata that a device computes, and why the host computes the relations of the others.

    Of strata that are one after the other those with most recursions, and with most rules, are the device's.
    Raises LeftToHost where no rule is.
    """
    if any(relation.keys is not None for relation in ram.relations.values()):
        raise LeftToHost(
            "an aggregate inside of a recursion has its groups as the recursion looks them up, not on devices",
            hint="run without device",
        )
    has_proofs, stop, first = isinstance(algebra, TopProofTags), len(ram.strata), 0
    if has_proofs:
        # Random facts are numbered in the order of the host's rows.
        first = max((n + 1 for n, stratum in enumerate(ram.strata) if any(map(_makes_facts, stratum.full))), default=0)
    chosen = np.concatenate([np.empty(0, np.int64), *facts.random.groups])
    reasons: dict[int, str] = {}
    for number, stratum in enumerate(ram.strata):
        why = _left_to_host(ram, stratum, has_proofs)
        if has_proofs and (chosen_of := [n for n in sorted(ram.denied[number]) if _has_any(facts, n, chosen)]):
            # Proofs that deny a value are the host's from there on.
            why, stop = why or f"denies values of the choices in {', '.join(chosen_of)}", min(stop, number)
        if why is not None:
            reasons[number] = why
    if not reasons:
        return range(stop), {}
    best = range(0)
    for number in (*sorted(n for n in reasons if first <= n < stop), stop):
        best, first = max(best, range(first, number), key=lambda some: _rules(ram, some)), number + 1
    left = {
        name: reasons.get(number, "has what they read, or needs them")
        for number, stratum in enumerate(ram.strata)
        if number not in best
        for name in stratum.relations
    }
    if not any(ram.strata[number].full for number in best):
        number = min(reasons)
        relation = ram.relations[ram.strata[number].relations[0]]
        raise LeftToHost(
            f"`{relation.name}` is computed by the host, which {reasons[number]}, and no relation by the device",
            hint="leave `device` out, or choose a semiring, of which the host computes such rules alone",
            source=ram.source,
            text=ram.text,
            span=relation.span,
        )
    return best, left


def _makes_facts(instruction: m.Instruction) -> bool:
    """Whether an instruction may make random facts."""
    if not isinstance(instruction, m.Store):
        return instruction.operator in RETAGGING
    nodes = instruction.query.operators
    return any(
        isinstance(node, m.RuleProbability) or (isinstance(node, m.Generate) and PREDICATES[node.predicate].is_tagged)
        for node in nodes
    )


def _rules(ram: m.Ram, strata: range) -> tuple[int, int]:
    """The number of recursions and of rules."""
    some = [ram.strata[number] for number in strata]
    return sum(stratum.is_recursive for stratum in some), sum(len(stratum.full) for stratum in some)


def _has_any(facts: FactStore, name: str, variables: np.ndarray) -> bool:
    return bool(len(variables) and np.isin(facts.variables_of([name]), variables).any())


def _left_to_host(ram: m.Ram, stratum: m.Stratum, has_proofs: bool) -> str | None:
    """What the host does with the rows of a stratum that a device does not compute."""
    if any(ram.relations[name].lattice is not None for name in stratum.relations):
        return "has lattices"
    if stratum.timed is not None:
        return "goes from one time to the next"
    for instruction in stratum.full:
        if not isinstance(instruction, m.Store):
            if has_proofs:
                return f"computes `{instruction.operator}` over uncertain rows"
            continue
        for node in instruction.query.operators:
            if isinstance(node, m.Generate) and has_proofs:
                return f"calls the predicate `{node.predicate}`"
            if isinstance(node, m.RuleProbability) and has_proofs:
                return "makes a random fact for each row of a rule"
    return None


def run_on_host(executor: Executor, kind: str, strata: range) -> dict[str, Table]:
    """Relation -> its rows, of the strata that the host has computed for a device of this kind: those before the
    device's `strata`, which it has, and some of these."""
    before = [name for stratum in executor.ram.strata[: strata.start] for name in stratum.relations]
    tables = {name: executor.tables[name] for name in before}
    if kind not in LAUNCH:
        return tables
    for number in strata:
        stratum = executor.ram.strata[number]
        if stratum.reads <= tables.keys() and _is_cheaper(executor, stratum, LAUNCH[kind]):
            executor.run_stratum(number)
            tables |= {name: executor.tables[name] for name in stratum.relations}
    executor.give_reasons()
    return tables


def _is_cheaper(executor: Executor, stratum: m.Stratum, launch: float) -> bool:
    """Whether the host is expected to need less time than launches of the device."""
    relations = [executor.ram.relations[name] for name in stratum.relations]
    facts = executor.facts
    if any(relation.lattice is not None or facts.elsewhere.get(relation.name) for relation in relations):
        return False
    if stratum.timed is not None:
        return False
    rows = sum(len(facts.relations.get(name, FactColumns())) for name in stratum.relations)
    rows += sum(executor.tables[name].size for name in stratum.reads)
    estimator = Estimator(executor.statistics, isinstance(executor.mode, Untagged))
    seconds = rows * FACT
    for instruction in stratum.once:
        seconds += INSTRUCTION
        if isinstance(instruction, m.Store):
            seconds += 1e-9 * estimator.cost(instruction)
    launches = LAUNCHES * (1 + len(stratum.once))
    if stratum.loop:
        values = max((len(relation.types) for relation in relations), default=0) * rows
        values_of = sum(float(values) ** len(relation.types) for relation in relations)
        seconds += len(stratum.loop) * (values_of * ROW + ROUNDS * INSTRUCTION)
        launches += LAUNCHES * ROUNDS * len(stratum.loop)
    return seconds < launches * launch
