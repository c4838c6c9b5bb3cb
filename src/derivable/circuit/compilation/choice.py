"""Exact probabilities of arbitrary and-or DAGs whose inputs are independent facts and categorical choices.

Whatever can be proved decomposable and deterministic stays as it is and costs nothing; only the nodes
where that fails go through an SDD, in which each mentioned choice is constrained to exactly one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from typing import Literal as OneOf

import numpy as np

from derivable.circuit.compilation.alternatives import WIDE, decided, read_once
from derivable.circuit.compilation.categorical import CategoricalVariables
from derivable.circuit.compilation.compile_sdd import SMALL_VARIABLES, compile_sdd
from derivable.circuit.compilation.planner import Compilation
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, FALSE, LITERAL, OR
from derivable.core.diagnostics import DomainError
from derivable.core.graph import connected_components, offsets_of
from derivable.core.progress import NEVER, Deadline, checked_time_limit

# Steps of proofs, about those of a second, between which nobody looks at the clock; where there is a limit, they take
# this part of what is left at most.
PAIR_BUDGET, PART = 20_000_000, 0.1
SUPPORT_LIMIT = 1 << 26  # int32 elements: 256 MiB


def compile_formula_dag(
    kind,
    literal,
    offsets,
    children,
    roots,
    num_variables: int,
    groups: Iterable[Sequence[int] | np.ndarray] = (),
    time_limit: float | None = None,
    progress: bool | None = None,
    method: OneOf["prove", "sdd"] = "prove",
    otherwise: Callable[[], Circuit | None] | None = None,
    memory_limit: int | None = None,
) -> Circuit:
    """A circuit that computes the exact probability of each root of an NNF DAG.

    kind, literal, offsets, children, roots  as in `CircuitBuilder.add_nodes`: any and-or DAG, neither
                                             decomposable nor deterministic, children before parents
    groups      sets of variables of which exactly one is true; all other variables are independent
    method      "prove" keeps what is provably decomposable and deterministic as it is; "sdd" compiles every root
                to an SDD, which takes much longer and can be smaller (decision 023)
    time_limit  seconds; then CompileTimeout is raised
    otherwise   makes the circuit in another way where much cannot be proved, or None
    memory_limit  bytes of the compiler of SDDs; then OutOfMemory is raised
    returns     a circuit with the same roots. Evaluate it with weights = the probabilities and negative
                weights 1 - p for independent variables, ONE for those in groups
                (`CategoricalVariables.is_categorical`).

    Each root is a polynomial in the weights, which is its probability wherever the weights of every
    group sum to one. Elsewhere it is a polynomial that agrees with it there: a disjunction of all values
    of a group is their sum, never replaced by one, and a group that a root does not mention counts as
    one. For a choice that may also fall on nothing, give its group one more variable, mentioned nowhere,
    whose weight is the rest.

    Raises DomainError (groups), LayoutError (the DAG), CompileTimeout, CompilerError.
    """
    if method not in ("prove", "sdd"):
        raise DomainError(f"no method {method!r}", hint="method is 'prove' or 'sdd'")
    choices = CategoricalVariables.of(num_variables, groups)
    deadline = Deadline(checked_time_limit(time_limit), "compilation", "raise time_limit")
    arrays = [np.asarray(array) for array in (kind, literal, offsets, children)]
    given = AndOrGraph(arrays[0], arrays[1], arrays[2], arrays[3], np.asarray(roots, np.int64))
    dag = circuit_from_arrays(*_positive(given, choices).arrays, num_variables)
    deadline.remaining()
    found = _Analysis.of(dag, choices, method == "sdd", deadline=deadline)
    if method == "prove" and len(found.hard):
        found = _with_decisions(found, choices, deadline)
        deadline.remaining()
    dag, hard = found.dag, found.hard
    if otherwise is not None and method == "prove" and len(hard) and _num_variables(dag, hard) > SMALL_VARIABLES:
        made = otherwise()
        if made is not None:
            return made
    result = _without_false(dag, found.is_false, found.keep)
    rows = [("proof", f"{dag.num_nodes:,} nodes", "taken as they are")]
    if len(hard):
        parts = _components(hard, found.support, found.set_offsets, found.set_elements, len(choices.group_size))
        limits: dict[str, Any] = {"deadline": deadline, "progress": progress, "memory_limit": memory_limit}
        compiled = [_compile_part(dag, found.is_false, nodes, choices, limits) for nodes in parts]
        size = f"{len(hard):,} formulas over {_num_variables(dag, hard):,} facts, in {len(parts):,} parts"
        rows = [("proof", f"{dag.num_nodes:,} nodes", f"not of {len(hard):,} formulas")]
        rows.append(("sdd", size, f"taken: {sum(circuit.num_nodes for circuit in compiled):,} nodes"))
        nodes, bases = np.concatenate(parts), offsets_of([circuit.num_nodes for circuit in compiled])
        roots = np.concatenate([circuit.roots + base for circuit, base in zip(compiled, bases)])
        order = np.argsort(nodes)
        result = result.substituted(nodes[order], roots[order], compiled)
    made = circuit_from_arrays(*result.arrays, num_variables, origin="" if choices.groups else "decision")
    return replace(made, compilation=Compilation("proof and sdd" if len(hard) else "proof", tuple(rows)))


@dataclass(frozen=True, eq=False)
class _Analysis:
    """What is proved of a graph: see `kernels.choice.analyse`. `hard` are the highest nodes that are not proven."""

    dag: AndOrGraph
    is_false: np.ndarray
    keep: np.ndarray
    support: np.ndarray
    set_offsets: np.ndarray
    set_elements: np.ndarray
    hard: np.ndarray

    @staticmethod
    def of(
        dag: AndOrGraph,
        choices: CategoricalVariables,
        is_all_hard: bool = False,
        decisions: np.ndarray | None = None,
        deadline: Deadline = NEVER,
    ) -> _Analysis:
        """decisions: disjunctions that are known to be deterministic; is_all_hard: whether all roots are to be."""
        from derivable.circuit.kernels import choice as kernels

        left = deadline.remaining()
        budget = PAIR_BUDGET if left is None else int(min(1.0, PART * left) * PAIR_BUDGET)
        is_decision = np.zeros(dag.num_nodes, bool)
        is_decision[[] if decisions is None else decisions] = True
        is_false, proven, keep, support, set_offsets, set_elements = kernels.analyse(
            *dag.arrays[:4],
            choices.group_of,
            choices.value_of,
            choices.group_size,
            is_decision,
            budget,
            SUPPORT_LIMIT,
        )
        need = kernels.needed_nodes(dag.kind, dag.offsets, dag.children, dag.roots, is_false, proven, keep)
        if is_all_hard:
            inner = (dag.kind >= AND) & ~is_false
            need[dag.roots[inner[dag.roots]]] = 2
        return _Analysis(dag, is_false, keep, support, set_offsets, set_elements, np.flatnonzero(need == 2))


def _num_variables(dag: AndOrGraph, nodes: np.ndarray) -> int:
    """How many variables these nodes mention."""
    below = dag.with_roots(nodes).needed() & (dag.kind == LITERAL)
    return len(np.unique(np.abs(dag.literal[below])))


def _with_decisions(found: _Analysis, choices: CategoricalVariables, deadline: Deadline) -> _Analysis:
    """The analysis of the graph whose disjunctions of independent alternatives are decisions, where that may help."""
    dag, hard = found.dag, found.hard
    below = np.flatnonzero(dag.with_roots(hard).needed())
    sizes = np.where(found.support < 0, -1, np.diff(found.set_offsets)[found.support])
    chosen = read_once(dag, below, sizes, ~choices.is_categorical) & (dag.kind == OR)
    chosen &= np.isin(np.arange(dag.num_nodes), hard) | (dag.sizes >= WIDE)
    if not chosen.any():
        return found
    graph, decisions = decided(dag, np.flatnonzero(chosen))
    # As roots, the decisions are numbered anew with the rest.
    roots = np.concatenate([graph.roots, decisions])
    built = circuit_from_arrays(*graph.with_roots(roots).arrays, choices.num_variables)
    first = built.with_roots(built.roots[: dag.num_roots])
    return _Analysis.of(first, choices, decisions=built.roots[dag.num_roots :], deadline=deadline)


def _positive(graph: AndOrGraph, choices: CategoricalVariables) -> AndOrGraph:
    """Replace each negated variable of a group by the disjunction of the group's other variables."""
    literal = graph.literal.astype(np.int64)
    leaf = graph.kind == LITERAL
    outside = np.flatnonzero(leaf & (np.abs(literal) > choices.num_variables))
    if len(outside):
        raise DomainError(
            f"node {outside[0]} is literal {literal[outside[0]]}, and there are {choices.num_variables} variables"
        )
    negated = leaf & (literal < 0)
    negated[negated] = choices.is_categorical[-literal[negated] - 1]
    where = np.flatnonzero(negated)
    if len(where) == 0:
        return graph
    wanted = np.unique(-literal[where])
    owners = np.unique(choices.group_of[2 * wanted])
    values = np.concatenate([choices.groups[owner] for owner in owners])
    position = np.full(choices.num_variables + 1, -1, dtype=np.int64)
    position[values] = np.arange(len(values))
    others = [np.setdiff1d(choices.groups[choices.group_of[2 * v]], [v], assume_unique=True) for v in wanted]
    complements = AndOrGraph.of(
        [LITERAL] * len(values) + [OR] * len(wanted),
        values.tolist() + [0] * len(wanted),
        [[]] * len(values) + [position[row].tolist() for row in others],
        [],
    )
    return graph.substituted(where, len(values) + np.searchsorted(wanted, -literal[where]), [complements])


def _without_false(graph: AndOrGraph, is_false: np.ndarray, keep: np.ndarray) -> AndOrGraph:
    """With false nodes as constants, and only the edges to keep."""
    return graph.kept(keep & ~is_false[graph.parents]).with_kinds(np.where(is_false, FALSE, graph.kind))


def _components(hard, support, set_offsets, set_elements, num_groups: int) -> list[np.ndarray]:
    """The nodes in `hard`, split so that different parts depend on different choices."""
    if (support[hard] < 0).any():
        return [hard]
    sets = [set_elements[set_offsets[number] : set_offsets[number + 1]].tolist() for number in support[hard].tolist()]
    component = connected_components(num_groups, ((groups[0], group) for groups in sets for group in groups))
    label = component[[groups[0] for groups in sets]]
    return [hard[label == number] for number in np.unique(label)]


def _compile_part(dag: AndOrGraph, is_false, nodes, choices: CategoricalVariables, limits: dict[str, Any]) -> Circuit:
    """The SDDs of some nodes in one manager, each conjoined with the constraints of the groups below it."""
    part = dag.with_roots(nodes)
    kept = np.flatnonzero(part.needed())
    part = part.taken(kept)
    part = _without_false(part, is_false[kept], np.ones(part.num_edges, dtype=np.bool_))
    codes = np.abs(part.literal[part.kind == LITERAL])
    owners = np.unique(choices.group_of[2 * codes.astype(np.int64)])
    blocks = [choices.groups[owner].tolist() for owner in owners if owner < len(choices.groups)]
    limits["deadline"].remaining()
    return compile_sdd(part, choices.num_variables, blocks=blocks, **limits)
