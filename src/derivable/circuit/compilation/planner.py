"""Which compiler a formula goes to, by what each would cost.

The cost of variable elimination is known before it begins, that of others is not: a formula of small width has small
diagrams too, and one of large width may. So elimination goes first where its tables are small, is tried with a bound
where zeros may make them so, and D4 has the rest.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any

from derivable.circuit.compilation.clause_tables import ClauseTables
from derivable.circuit.compilation.eliminate import cost_of, memory_of, room_of
from derivable.circuit.compilation.tables import TooLarge
from derivable.circuit.formulas.cnf import Cnf
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import EliminationCircuit, described
from derivable.core.diagnostics import CompileTimeout, OutOfMemory

# Entries of tables: some seconds of elimination, whose circuit nothing else makes sooner; and up to which zeros are
# hoped for, with as many nodes of a circuit at most.
CHEAP, HOPED, MOST_TRIED = 1 << 24, 1e15, 1 << 20
# Entries of the tables of a network, which are folded as they are: half a second for each answer.
MOST_ENTRIES = 1 << 26


@dataclass(frozen=True)
class Compilation:
    """How a circuit came about: the compiler, why, and a row for each one there is, (name, cost, what became of it)."""

    compiler: str
    rows: tuple[tuple[str, str, str], ...]

    def text(self) -> str:
        names, costs = (max(len(row[column]) for row in self.rows) for column in (0, 1))
        rows = [f"  {name:<{names}}  {cost:<{costs}}  {became}".rstrip() for name, cost, became in self.rows]
        return "\n".join([f"compiled by {self.compiler}", *rows])


def made_of(circuit: Circuit) -> str:
    """How large a circuit is, as far as it has been made."""
    if isinstance(circuit, EliminationCircuit) and not circuit.has_nodes:
        return f"tables of {circuit.program.entries:,} entries"
    return f"{circuit.num_nodes:,} nodes"


def compile_planned(cnf: Cnf, options: dict[str, Any]) -> Circuit:
    """A CNF, without repeats and empty clauses, by the compiler that suits it; `circuit.compilation` says which."""
    deadline, memory_limit = options["deadline"], options["memory_limit"]
    tables = ClauseTables.of(cnf, deadline)
    order = tables.order(deadline)
    cost, began = cost_of(order), time.monotonic()
    # Numbers of tables are what networks have, and what is wanted of these is sums.
    is_network = bool(tables.labels) and order.cost <= MOST_ENTRIES
    is_cheap = is_network or (order.cost <= CHEAP and memory_of(order.cost) <= room_of(memory_limit))
    became = "too large to try"
    # Tables without zeros may not fit the memory where a circuit of few nodes does.
    for most in [None] * is_cheap + [MOST_TRIED] * (order.cost <= HOPED):
        try:
            circuit = tables.compiled(order, cnf.num_variables, deadline, most, memory_limit)
        except (TooLarge, OutOfMemory) as error:
            became = f"tried: {error.message}"
        else:
            became = f"taken: {made_of(circuit)} in {time.monotonic() - began:.2f} s"
            rows = [("elimination", cost, became), *((name, "not known before", "") for name in ("d4", "sdd"))]
            return described(circuit, compilation=Compilation("elimination", tuple(rows)))
    return _by_search(cnf, options, ("elimination", cost, became))


def _by_search(cnf: Cnf, options: dict[str, Any], tried: tuple[str, str, str]) -> Circuit:
    from derivable.circuit.compilation.compilation import compile_by

    has_d4 = importlib.util.find_spec("py_d4") is not None
    name, other = ("d4", "sdd") if has_d4 else ("sdd", "d4")
    began = time.monotonic()
    try:
        circuit = compile_by(name, cnf, options)
    except CompileTimeout as error:
        raise CompileTimeout(f"{error.message}; elimination: {tried[1]}, {tried[2]}", hint=error.hint) from None
    became = f"taken: {circuit.num_nodes:,} nodes in {time.monotonic() - began:.2f} s"
    unused = (other, "not known before", "" if has_d4 else "not installed")
    rows = (tried, (name, "not known before", became), unused)
    return described(circuit, compilation=Compilation(name, rows))
