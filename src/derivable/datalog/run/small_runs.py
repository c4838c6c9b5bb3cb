"""Small runs as one call: a program that has run often enough keeps its tables, indexes and kernels in one memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.collection import gc_paused
from derivable.core.lazy import later
from derivable.core.progress import NEVER
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.execute import Executor, FinishedStrata
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.overflow import looks_of, warn_of_overflow
from derivable.datalog.run.profile import MACHINE, Effort, Profile, StratumEffort
from derivable.datalog.scalars.nodes import Const
from derivable.datalog.shortcuts import shortcuts
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Algebra, ColumnTags, Untagged

if TYPE_CHECKING:
    from derivable.datalog.machine import whole_program
    from derivable.datalog.machine.whole_program import Row, WholeProgram
else:
    whole_program = later("derivable.datalog.machine.whole_program")

_KEY = "small", "runs"


@dataclass(eq=False)
class SmallRuns:
    """What a program keeps for its small runs.

    runs      how many there were, -1 if none is to have a memory
    free      the memory that no run has now
    number    of the first strata that may be run so
    computed  the relations whose integers expressions compute with that may leave their types
    """

    computed: frozenset[str]
    number: int
    runs: int = 0
    free: list[WholeProgram] = field(default_factory=list)


def run_whole(ram: m.Ram, facts: FactStore, watch: Watch, algebra: Algebra) -> FinishedStrata | None:
    """What the first strata of a small run find, up to one that is run in another way, all where there is none.

    None if it is no small run, or not one of many, or has tags of no fixed width.
    """
    form = algebra.form if isinstance(algebra, ColumnTags) else None
    if not policy().has_small_runs or (
        form is None and (not isinstance(algebra, Untagged) or facts.random.probabilities)
    ):
        return None
    key, limits = (_KEY, form), watch.limits
    small = ram.plans.get(key)
    if small is None:
        looks = (look.store for number in range(len(ram.strata)) for look in looks_of(ram, number))
        of = "rows" if form is None else "tags"
        number = next((k for k in range(len(ram.strata)) if _is_other(ram, k, of)), len(ram.strata))
        small = ram.plans.setdefault(key, SmallRuns(frozenset(m.relations_read(looks)), number))
    if small.runs < 0:
        return None
    if limits.iteration_limit is not None or limits.round_limit is not None or limits.tuple_limit is not None:
        return None
    small.runs += 1
    try:
        program = small.free.pop()
    except IndexError:
        if (small.runs == 1 and saved_by(ram) < policy().few_rows) or has_many_facts(ram.strata[: small.number], facts):
            return None
        with gc_paused():
            program = small_program(ram, algebra, small.number)
    finished = None
    if program is not None and program.bind():
        began = perf_counter()
        number = program.run(facts, ram, algebra)
        finished = finish(program, small, facts, ram, number, began)
    if program is None:
        small.runs = -1
    elif program.first_other < program.number_of_strata:
        # The next run makes one for those before the one that has a store without a kernel.
        small.number = program.first_other
    else:
        # What an error leaves behind is not used again.
        small.free.append(program)
    return finished


def saved_by(ram: m.Ram) -> int:
    """What a run saves, in rows."""
    return policy().small_round + policy().call_rows * _number_of_stores(ram.strata)


def has_many_facts(strata: Sequence[m.Stratum], facts: FactStore) -> bool:
    """Whether strata have more facts than a small run."""
    names = {name for stratum in strata for name in stratum.relations}
    count = sum(len(facts.relations[name]) for name in names & facts.relations.keys())
    return count > policy().few + policy().call_rows * _number_of_stores(strata)


def _number_of_stores(strata: Sequence[m.Stratum]) -> int:
    return sum(len(stratum.once) + len(stratum.loop) for stratum in strata)


def small_program(ram: m.Ram, algebra: Algebra, number: int) -> WholeProgram | None:
    """The first strata of a program, without kernels; None if they have no rules."""
    if ram.constructors or not any(stratum.once or stratum.loop for stratum in ram.strata[:number]):
        return None
    # Other plans: what the program saves is not to refer to the program.
    ram = ram.first(number)
    store = new_store(ram)
    executor = Executor(ram, store, algebra.anew(store.random) if isinstance(algebra, ColumnTags) else algebra)
    names = [name for stratum in ram.strata for name in stratum.relations]
    executor.tables = {name: executor.tables[name] for name in dict.fromkeys((*names, *ram.relations))}
    stores: list[tuple[Sequence[m.Store], Sequence[m.Store]]] = []
    rows: list[tuple[str, Row]] = []
    bases, symmetric, of = [], [], "rows" if isinstance(algebra, Untagged) else "tags"
    for number, stratum in enumerate(ram.strata):
        matched = executor.matched(number, stratum.loop, of) if stratum.loop else []
        once: list[m.Store] = []
        for one in stratum.once:
            assert isinstance(one, m.Store)
            row = _row(one)
            # Facts come before what other rules find.
            if row is None or any(one.relation == other.relation for other in once):
                once.append(one)
            else:
                rows.append((one.relation, row))
        loop, base = next((one.replacement for one in matched if one.replacement is not None), (None, ""))
        if loop is not None:
            executor.tables[base] = Table(base, executor.tables[loop.relation].types)
        stores.append((once, stratum.loop if loop is None else (loop,)))
        bases.append(base)
        symmetric.append(next((one.symmetric for one in matched if one.symmetric), ""))
    return whole_program.WholeProgram(executor, stores, rows, bases, symmetric)


def _is_other(ram: m.Ram, number: int, of: str) -> bool:
    """Whether a stratum is not run store by store."""
    stratum = ram.strata[number]
    has_lattice = any(ram.relations[name].lattice is not None for name in stratum.relations)
    return (
        any(one.always_pays(ram, number) for one in shortcuts() if one.of == of)
        or has_lattice
        or stratum.timed is not None
        or not all(isinstance(one, m.Store) for one in stratum.once)
    )


def _row(store: m.Store) -> Row | None:
    """The row of a rule that reads nothing; None for other rules."""
    terms = tuple(term for term in store.query.terms if isinstance(term, Const))
    return terms if store.query.operators == (m.Unit(),) and len(terms) == len(store.query.terms) else None


def finish(
    program: WholeProgram, small: SmallRuns, facts: FactStore, ram: m.Ram, number: int, began: float
) -> FinishedStrata | None:
    """The results of the first strata, and what says how much they have cost; None if no rule ran."""
    is_all = number == program.number_of_strata
    if not is_all and not any(stratum.once or stratum.loop for stratum in ram.strata[:number]):
        return None
    outputs = {name: program.rows_of(name) for name in (program.outputs if is_all else ram.first(number).outputs)}
    if small.computed:
        warn_of_small_integers(program, small, facts, ram, number)
    profile = partial(profile_of, ram, program.spent(number), perf_counter() - began)
    return FinishedStrata(number, outputs, profile)


def warn_of_small_integers(program: WholeProgram, small: SmallRuns, facts: FactStore, ram: m.Ram, until: int) -> None:
    """Warn of integers that have left their types in the first strata of this run."""
    # Of tags there are no copies here; what has any is taken to hold.
    tables = {name: program.words_of(name) for name in small.computed if name in program.machine.number}
    for number in range(until):
        warn_of_overflow(ram, number, tables, Untagged(), facts.symbols, NEVER)


def profile_of(ram: m.Ram, spent: tuple[Any, Any, np.ndarray, np.ndarray], seconds: float) -> Profile:
    """What a run has spent, of `WholeProgram.spent`; its seconds are shared by what stores did."""
    stores, strata, did, rounds = spent
    strata_of_run = [StratumEffort(max(0, number)) for number in rounds.tolist()]
    efforts, second = [], seconds / max(1, int(did[:, :-1].sum()))
    for store, number, (runs, candidates, driven, rows) in zip(stores, strata, did.tolist()):
        if not runs:
            continue
        effort, total = Effort(store, number, second * (runs + candidates + driven), runs), strata_of_run[number]
        effort.candidates, effort.rows = candidates, rows
        effort.by(MACHINE)
        efforts.append(effort)
        total.rows += effort.rows
        total.seconds += effort.seconds
    return Profile(ram, strata_of_run, efforts)
