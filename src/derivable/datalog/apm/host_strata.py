"""The strata of a run on a device that the host computes: those whose rows cost it less than launches would.

A stratum is on the host if all that it reads is there, and if its rows, as many as the relations that they are made of
let expect, take the host less time than the device needs for the launches of its instructions. A recursion is expected
to have a row for each combination of the values that it begins with.
"""

from __future__ import annotations

from derivable.datalog.facts.columns import FactColumns
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import Estimator
from derivable.datalog.rules.nodes import AggregateRule
from derivable.datalog.run.execute import Executor
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Untagged

# Seconds, about, of a row on the host, of one that is a fact or given, and of an instruction that Python runs.
ROW, GIVEN, INSTRUCTION = 3e-8, 1e-7, 5e-5
# Seconds, about, of a launch, by the kind of device; launches of an instruction, and rounds of a recursion.
LAUNCH = {"cuda": 1e-5}
LAUNCHES, ROUNDS = 20, 8


def run_on_host(executor: Executor, kind: str) -> dict[str, Table]:
    """Relation -> its rows, of those strata that the host has computed for a device of this kind."""
    found: dict[str, Table] = {}
    if kind not in LAUNCH:
        return found
    for number, stratum in enumerate(executor.ram.strata):
        if _reads(stratum) <= found.keys() and _is_cheaper(executor, stratum, LAUNCH[kind]):
            executor.run_stratum(number)
            found |= {name: executor.tables[name] for name in stratum.relations}
    executor.give_reasons()
    return found


def _reads(stratum: m.Stratum) -> set[str]:
    """The relations of other strata that a stratum reads."""
    found: set[str] = set()
    for instruction in stratum.full:
        if isinstance(instruction, AggregateRule):
            found |= {instruction.body, *([] if instruction.groups is None else [instruction.groups])}
        else:
            scans = map(m.scan_of, instruction.query.operators)
            found |= {scan.relation for scan in scans if scan is not None}
    return found - set(stratum.relations)


def _is_cheaper(executor: Executor, stratum: m.Stratum, launch: float) -> bool:
    """Whether the host is expected to need less time than launches of the device."""
    relations = [executor.ram.relations[name] for name in stratum.relations]
    facts = executor.facts
    if any(relation.lattice is not None or facts.elsewhere.get(relation.name) for relation in relations):
        return False
    rows = sum(sum(map(len, facts.relations.get(name, FactColumns()).variables)) for name in stratum.relations)
    rows += sum(executor.tables[name].size for name in _reads(stratum))
    estimator = Estimator(executor.statistics, isinstance(executor.mode, Untagged))
    seconds = rows * GIVEN
    for instruction in stratum.once:
        seconds += INSTRUCTION
        if isinstance(instruction, m.Store):
            seconds += 1e-9 * estimator.cost(instruction)
    launches = LAUNCHES * (1 + len(stratum.once))
    if stratum.loop:
        values = max((len(relation.types) for relation in relations), default=0) * rows
        found = sum(float(values) ** len(relation.types) for relation in relations)
        seconds += len(stratum.loop) * (found * ROW + ROUNDS * INSTRUCTION)
        launches += LAUNCHES * ROUNDS * len(stratum.loop)
    return seconds < launches * launch
