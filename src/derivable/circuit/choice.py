"""Exact probabilities of arbitrary and-or DAGs whose inputs are independent facts and categorical choices.

Whatever can be proved decomposable and deterministic stays as it is and costs nothing; only the nodes
where that fails go through an SDD, in which each mentioned choice is constrained to exactly one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

import numpy as np

from derivable.circuit.builder import circuit_from_arrays
from derivable.circuit.circuit import Circuit
from derivable.circuit.compile_process import checked_time_limit
from derivable.circuit.compile_sdd import Arrays, compile_sdd
from derivable.core.and_or import AND, FALSE, LITERAL, OR
from derivable.core.diagnostics import DomainError
from derivable.core.graph import from_edges, strongly_connected_components
from derivable.core.progress import Deadline

PAIR_BUDGET = 20_000_000  # about a second
SUPPORT_LIMIT = 1 << 26  # int32 elements: 256 MiB

Arrays4 = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Arrays5 = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class ChoiceVariables:
    """Which random choices the variables 1..num_variables stand for.

    A variable in no group is independent: a choice of two values. A group of n variables is one
    choice of n values: exactly one of its variables is true.

    group_of    [2 * variable + 2] int64: by literal code (2 v for v, 2 v + 1 for its negation), the choice; -1 for
                the negation of a categorical variable, which is no single value
    value_of    [2 * variable + 2] int64: the value
    group_size  [choice] int64: number of values
    groups      the categorical groups, each an array of variables
    """

    num_variables: int
    group_of: np.ndarray
    value_of: np.ndarray
    group_size: np.ndarray
    groups: tuple[np.ndarray, ...]

    @staticmethod
    def of(num_variables: int, groups: Iterable[Sequence[int] | np.ndarray]) -> ChoiceVariables:
        """Raises DomainError for an empty group, a variable out of range, or one in two groups."""
        given = tuple(np.asarray(group, dtype=np.int64).reshape(-1) for group in groups)
        owner = np.full(num_variables + 1, -1, dtype=np.int64)
        for number, group in enumerate(given):
            if len(group) == 0:
                raise DomainError(f"group {number} is empty", hint="exactly one of its variables would have to be true")
            if group.min() < 1 or group.max() > num_variables:
                raise DomainError(f"group {number} has a variable outside 1..{num_variables}")
            if (owner[group] >= 0).any() or len(np.unique(group)) < len(group):
                raise DomainError(f"group {number} has a variable that is in a group already")
            owner[group] = number
        group_of = np.full(2 * num_variables + 2, -1, dtype=np.int64)
        value_of = np.zeros(2 * num_variables + 2, dtype=np.int64)
        for number, group in enumerate(given):
            group_of[2 * group] = number
            value_of[2 * group] = np.arange(len(group))
        free = np.flatnonzero(owner[1:] < 0) + 1
        group_of[2 * free] = group_of[2 * free + 1] = len(given) + np.arange(len(free))
        value_of[2 * free + 1] = 1
        sizes = np.concatenate([[len(group) for group in given], np.full(len(free), 2)]).astype(np.int64)
        return ChoiceVariables(num_variables, group_of, value_of, sizes, given)

    @property
    def is_categorical(self) -> np.ndarray:
        """[variable] bool: in a group, so that its negative literal weighs one."""
        return self.group_of[3::2] < 0


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
) -> Circuit:
    """A circuit that computes the exact probability of each root of an NNF DAG.

    kind, literal, offsets, children, roots  as in `CircuitBuilder.add_nodes`: any and-or DAG, neither
                                             decomposable nor deterministic, children before parents
    groups      sets of variables of which exactly one is true; all other variables are independent
    method      "prove" keeps what is provably decomposable and deterministic as it is; "sdd" compiles every root
                to an SDD, which takes much longer and can be smaller (decision 023)
    time_limit  seconds; then CompileTimeout is raised
    returns     a circuit with the same roots. Evaluate it with weights = the probabilities and negative
                weights 1 - p for independent variables, ONE for those in groups
                (`ChoiceVariables.is_categorical`).

    Each root is a polynomial in the weights, which is its probability wherever the weights of every
    group sum to one. Elsewhere it is a polynomial that agrees with it there: a disjunction of all values
    of a group is their sum, never replaced by one, and a group that a root does not mention counts as
    one. For a choice that may also fall on nothing, give its group one more variable, mentioned nowhere,
    whose weight is the rest.

    Raises DomainError (groups), LayoutError (the DAG), CompileTimeout, CompilerError.
    """
    if method not in ("prove", "sdd"):
        raise DomainError(f"no method {method!r}", hint="method is 'prove' or 'sdd'")
    choices = ChoiceVariables.of(num_variables, groups)
    deadline = Deadline(checked_time_limit(time_limit), "compilation", "raise time_limit")
    dag = circuit_from_arrays(
        *_positive(np.asarray(kind), np.asarray(literal), np.asarray(offsets), np.asarray(children), choices, roots),
        num_variables,
    )
    from derivable.device.cpu import choice as kernels

    is_false, proven, keep, support, set_offsets, set_elements = kernels.analyse(
        dag.kind,
        dag.literal,
        dag.offsets,
        dag.children,
        choices.group_of,
        choices.value_of,
        choices.group_size,
        PAIR_BUDGET,
        SUPPORT_LIMIT,
    )
    need = kernels.needed_nodes(dag.kind, dag.offsets, dag.children, dag.roots, is_false, proven, keep)
    pruned = _without_false(dag, is_false, keep)
    if method == "sdd":
        inner = (dag.kind >= AND) & ~is_false
        need[dag.roots[inner[dag.roots]]] = 2
    hard = np.flatnonzero(need == 2)
    if len(hard) == 0:
        return circuit_from_arrays(*pruned, dag.roots, num_variables, origin="" if choices.groups else "decision")
    parts = _components(hard, support, set_offsets, set_elements, len(choices.group_size))
    compiled = [_compile_part(dag, is_false, nodes, choices, deadline, progress) for nodes in parts]
    return _splice(pruned, dag.roots, parts, compiled, num_variables, "" if choices.groups else "decision")


def _positive(kind, literal, offsets, children, choices: ChoiceVariables, roots) -> Arrays5:
    """Replace each negated variable of a group by the disjunction of the group's other variables."""
    literal = literal.astype(np.int64)
    leaf = kind == LITERAL
    outside = np.flatnonzero(leaf & (np.abs(literal) > choices.num_variables))
    if len(outside):
        raise DomainError(
            f"node {outside[0]} is literal {literal[outside[0]]}, and there are {choices.num_variables} variables"
        )
    negated = leaf & (literal < 0)
    negated[negated] = choices.is_categorical[-literal[negated] - 1]
    where = np.flatnonzero(negated)
    if len(where) == 0:
        return kind, literal, offsets, children, roots
    wanted = np.unique(-literal[where])
    owners = np.unique(choices.group_of[2 * wanted])
    values = np.concatenate([choices.groups[owner] for owner in owners])
    position = np.full(choices.num_variables + 1, -1, dtype=np.int64)
    position[values] = np.arange(len(values))
    others = [np.setdiff1d(choices.groups[choices.group_of[2 * v]], [v], assume_unique=True) for v in wanted]
    front, middle = len(values), len(values) + len(wanted)
    position_of_or = np.full(choices.num_variables + 1, -1, dtype=np.int64)
    position_of_or[wanted] = front + np.arange(len(wanted))
    # New nodes first, then the old ones; an old negated leaf becomes a disjunction of the one new node.
    lengths = np.diff(offsets)
    lengths[where] = 1
    old_children = np.insert(children + middle, offsets[where], position_of_or[-literal[where]])
    new_kind = np.concatenate([np.full(front, LITERAL), np.full(len(wanted), OR), np.where(negated, OR, kind)])
    new_literal = np.concatenate([values, np.zeros(len(wanted), np.int64), np.where(negated, 0, literal)])
    new_lengths = np.concatenate([np.zeros(front, np.int64), [len(row) for row in others], lengths])
    new_children = np.concatenate([*(position[row] for row in others), old_children])
    return (
        new_kind.astype(np.uint8),
        new_literal,
        np.concatenate([[0], np.cumsum(new_lengths)]).astype(np.int64),
        new_children,
        np.asarray(roots, dtype=np.int64) + middle,
    )


def _without_false(dag: Circuit, is_false: np.ndarray, keep: np.ndarray) -> Arrays4:
    """kind, literal, offsets, children with false nodes as constants and dropped edges left out."""
    lengths = np.diff(dag.offsets)
    parent = np.repeat(np.arange(dag.num_nodes), lengths)
    keep = keep & ~is_false[parent]
    lengths = np.bincount(parent[keep], minlength=dag.num_nodes)
    return (
        np.where(is_false, FALSE, dag.kind).astype(np.uint8),
        np.where(is_false, 0, dag.literal).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        dag.children[keep],
    )


def _components(hard, support, set_offsets, set_elements, num_groups: int) -> list[np.ndarray]:
    """The nodes in `hard`, split so that different parts depend on different choices."""
    if (support[hard] < 0).any():
        return [hard]
    first, other = [], []
    for place in support[hard].tolist():
        mentioned = set_elements[set_offsets[place] : set_offsets[place + 1]]
        first.append(mentioned[:1].repeat(len(mentioned)))
        other.append(mentioned)
    one, two = np.concatenate(first), np.concatenate(other)
    # With each edge both ways, what is connected is strongly connected.
    edges = from_edges(num_groups, np.concatenate([one, two]), np.concatenate([two, one]))
    component, _ = strongly_connected_components(*edges)
    label = component[[groups[0] for groups in other]]
    return [hard[label == number] for number in np.unique(label)]


def _compile_part(dag: Circuit, is_false, nodes, choices: ChoiceVariables, deadline: Deadline, progress) -> Circuit:
    """The SDDs of some nodes in one manager, each conjoined with the constraints of the groups below it."""
    from derivable.device.cpu import choice as kernels

    remaining = deadline.remaining()
    marked = np.zeros(dag.num_nodes, dtype=np.bool_)
    marked[nodes] = True
    kernels.below(dag.offsets, dag.children, marked)
    kept = np.flatnonzero(marked)
    position = np.cumsum(marked) - 1
    kind, literal, offsets, children = _without_false(dag, is_false, np.ones(dag.num_edges, dtype=np.bool_))
    lengths = np.diff(offsets)
    edges = np.repeat(marked, lengths)
    arrays = Arrays(
        kind[kept],
        literal[kept],
        np.concatenate([[0], np.cumsum(lengths[kept])]),
        position[children[edges]],
        position[nodes],
    )
    codes = np.abs(literal[kept][kind[kept] == LITERAL])
    owners = np.unique(choices.group_of[2 * codes.astype(np.int64)])
    blocks = [choices.groups[owner].tolist() for owner in owners if owner < len(choices.groups)]
    return compile_sdd(arrays, choices.num_variables, blocks=blocks, time_limit=remaining, progress=progress)


def _splice(pruned, roots, parts, compiled: list[Circuit], num_variables: int, origin: str) -> Circuit:
    """One circuit: the proven nodes, with each hard node replaced by its SDD."""
    kind, literal, offsets, children = pruned
    lengths = np.diff(offsets)
    start = sum(circuit.num_nodes for circuit in compiled)
    replacement = np.full(len(kind), -1, dtype=np.int64)
    kinds, literals, rows, edges = [], [], [], []
    base = 0
    for nodes, circuit in zip(parts, compiled):
        replacement[nodes] = circuit.roots + base
        kinds.append(circuit.kind)
        literals.append(circuit.literal)
        rows.append(np.diff(circuit.offsets))
        edges.append(circuit.children.astype(np.int64) + base)
        base += circuit.num_nodes
    replaced = replacement >= 0
    own = children[np.repeat(~replaced, lengths)].astype(np.int64) + start
    lengths = np.where(replaced, 0, lengths)
    at = np.concatenate([[0], np.cumsum(lengths)])[:-1][replaced]
    own = np.insert(own, at, replacement[replaced])
    lengths = np.where(replaced, 1, lengths)
    return circuit_from_arrays(
        np.concatenate([*kinds, np.where(replaced, AND, kind)]).astype(np.uint8),
        np.concatenate([*literals, np.where(replaced, 0, literal)]),
        np.concatenate([[0], np.cumsum(np.concatenate([*rows, lengths]))]).astype(np.int64),
        np.concatenate([*edges, own]),
        np.asarray(roots) + start,
        num_variables,
        origin=origin,
    )
