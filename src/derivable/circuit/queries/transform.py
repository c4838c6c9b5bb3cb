"""Circuits from circuits: condition, forget, smooth, pick roots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from derivable.circuit.formulas.formula import Not
from derivable.circuit.graph.and_or_graph import AndOrGraph, NodeLists
from derivable.circuit.graph.builder import CircuitBuilder, circuit_from_arrays
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.scopes import edge_gaps, fold_scopes, order_of_appearance
from derivable.circuit.queries.properties import FORGOTTEN, require_decomposable
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError
from derivable.core.graph import offsets_of

WORDS_AT_ONCE = 8


def condition(circuit: Circuit, evidence: Mapping[Any, bool] | Iterable[Any]) -> Circuit:
    """The circuit with literals fixed: its models are the models of `circuit` that agree with the evidence.

    evidence  a mapping variable -> bool, or literals. A variable is a number from 1, a name if the circuit has names,
              or a formula's variable; a literal is a signed number, a name, or a formula `a` or `~a`
    returns   a circuit over the same variables that mentions each fixed variable once, at its roots

    The weighted count of the result is therefore that of (circuit and evidence), its marginals are posteriors,
    and its samples are conditional ones. It stays decomposable, deterministic and smooth. `restrict` gives
    the textbook's circuit without the fixed variables.

    Raises DomainError for evidence that contradicts itself or names a variable the circuit does not have.
    Evidence that contradicts the circuit gives the constant false.
    """
    fixed = _read_evidence(circuit, evidence)
    restricted = _replace_literals(circuit, fixed, circuit.origin)
    if not fixed:
        return restricted
    builder = CircuitBuilder(restricted.num_nodes + len(fixed) + 2)
    ids = builder.add_nodes(restricted.kind, restricted.literal, restricted.offsets, restricted.children)
    literals = [builder.literal(v if value else -v) for v, value in sorted(fixed.items())]
    roots = [builder.conjunction([root, *literals]) for root in ids[restricted.roots].tolist()]
    return _named(circuit, builder.build(roots, circuit.num_variables, circuit.weights, circuit.origin))


def restrict(circuit: Circuit, evidence: Mapping[Any, bool] | Iterable[Any]) -> Circuit:
    """The circuit with literals replaced by constants (Darwiche and Marquis 2002, conditioning).

    As `condition`, but the result does not mention the fixed variables: they are free in it, and counts
    over all `num_variables` variables take both their values into account.
    """
    return _replace_literals(circuit, _read_evidence(circuit, evidence), circuit.origin)


def without_absences(circuit: Circuit, variables: np.ndarray) -> Circuit:
    """The circuit for folds in which the negative literals of `variables` (bool [variable]) weigh one.

    They are constants in the place of literals: or-nodes keep them, so this is a circuit to be folded alone.
    """
    negative = np.flatnonzero(circuit.literal < 0)
    gone = negative[variables[-1 - circuit.literal[negative]]]
    if not len(gone):
        return circuit
    kind, literal = circuit.kind.copy(), circuit.literal.copy()
    kind[gone], literal[gone] = TRUE, 0
    return replace(circuit, kind=kind, literal=literal)


def forget(circuit: Circuit, variables: Iterable[Any]) -> Circuit:
    """Existential quantification: true for an assignment if some values of `variables` make `circuit` true.

    variables  as in `condition`; they stay among the `num_variables` variables of the result, which does not
               mention them (a count over all variables doubles for each)
    returns    a circuit with origin "forgotten", still decomposable and, where it was, smooth

    Both literals of each variable become true, which is right for decomposable circuits only. The
    children of an or-node that the forgotten variable told apart need not exclude each other any more:
    determinism is lost in general, and counts, marginals, samples and entropy of the result are refused
    unless `check_determinism` proves it again. `most_probable` and satisfiability need no determinism.
    For the probability of a formula over the other variables nothing need be forgotten: `weighted_count`
    sums them out by itself.

    Raises UnsupportedError if the circuit is not decomposable, DomainError for an unknown variable.
    """
    require_decomposable(circuit, "forget")
    if not isinstance(variables, Iterable):
        raise DomainError(f"{variables!r} are no variables", hint="give their numbers or names: forget([1, 2])")
    chosen = sorted({circuit.variable_number(v) for v in variables})
    if not chosen:
        return circuit
    kind = circuit.kind.copy()
    kind[np.isin(np.abs(circuit.literal), chosen) & (kind == LITERAL)] = TRUE
    return _rebuilt(circuit, kind, FORGOTTEN)


def restrict_roots(circuit: Circuit, roots: Sequence[int]) -> Circuit:
    """The circuit with only some roots (indices into `circuit.roots`, repeats allowed) and what they need."""
    index = np.asarray(roots, np.int64).reshape(-1)
    bad = index[(index < 0) | (index >= circuit.num_roots)]
    if len(bad):
        raise DomainError(f"there is no root {bad[0]}: the circuit has {circuit.num_roots} roots, counted from 0")
    return _rebuilt(circuit, circuit.kind, circuit.origin, circuit.roots[index])


def smooth(circuit: Circuit) -> Circuit:
    """An equivalent circuit in which all children of an or-node mention the same variables, and each root all.

    A child that lacks variables is conjoined with (v or not v) for each. The gaps are cut into aligned
    blocks of a fixed variable order (that in which the circuit meets the variables), and each block is
    one shared node, so a circuit with a vtree grows by a logarithm of the number of variables per gap
    (the idea of Shih et al. 2019). Decomposability and determinism stay. The constant false stays false.

    Law: model counts, weighted counts and the models stay the same.
    """
    return smooth_over(circuit, np.arange(1, circuit.num_variables + 1))


def smooth_over(circuit: Circuit, variables: np.ndarray) -> Circuit:
    """`smooth`, but only the given variables [k] (1-based) are filled in, at or-nodes and at roots."""
    require_decomposable(circuit, "smooth")
    owners, blocks, block_nodes = _gaps(circuit, np.asarray(variables, np.int64))
    if len(owners) == 0:
        return circuit
    filled = conjoined(circuit, owners, blocks, block_nodes)
    return _named(circuit, circuit_from_arrays(*filled.arrays, circuit.num_variables, circuit.weights, circuit.origin))


def _gaps(circuit: Circuit, variables: np.ndarray):
    """What is missing where: (owner [gap], block [gap], graph of the block nodes).

    owner  an edge, or num_edges + root index
    block  a block node, which is (v or not v) or an and-node of two blocks, children first
    """
    appearance = np.empty(circuit.num_variables, np.int64)
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    order_of_appearance(*arrays, circuit.roots, appearance)
    variables = variables[np.argsort(appearance[variables - 1], kind="stable")]
    words = 1
    while words < WORDS_AT_ONCE and 64 * words < len(variables):
        words *= 2
    tree_size = 64 * words
    scopes = np.empty((circuit.num_nodes, words), np.uint64)
    position = np.empty(circuit.num_variables, np.int64)
    parts = np.empty(tree_size, np.int64)
    nothing = np.empty(0, np.int64)
    all_owners, all_blocks = [], []
    for number, start in enumerate(range(0, len(variables), tree_size)):
        chunk = variables[start : start + tree_size] - 1
        position[:] = -1
        position[chunk] = np.arange(len(chunk))
        fold_scopes(*arrays, position, scopes)
        required = np.zeros(words, np.uint64)
        for i in range(len(chunk)):
            required[i // 64] |= np.uint64(1) << np.uint64(i % 64)
        gaps = circuit.kind, circuit.offsets, circuit.children, circuit.roots, scopes, required, tree_size
        count = edge_gaps(*gaps, nothing, nothing, parts)
        owners, blocks = np.empty(count, np.int64), np.empty(count, np.int64)
        if count:
            edge_gaps(*gaps, owners, blocks, parts)
        all_owners.append(owners)
        all_blocks.append(blocks + 2 * tree_size * number)
    owners = np.concatenate(all_owners) if all_owners else nothing
    blocks = np.concatenate(all_blocks) if all_blocks else nothing
    used = np.unique(blocks)
    block_nodes, index = _block_nodes(variables, tree_size, used.tolist())
    return owners, index[np.searchsorted(used, blocks)] if len(used) else nothing, block_nodes


def _block_nodes(variables: np.ndarray, tree_size: int, used: list[int]):
    """Nodes for the blocks in `used` (heap numbers, plus 2 * tree_size per pass) and their indices."""
    nodes = NodeLists()
    made: dict[int, int] = {}
    for top in used:
        stack = [top]
        while stack:
            block = stack[-1]
            number, heap = divmod(block, 2 * tree_size)
            if block in made:
                stack.pop()
            elif heap >= tree_size:
                variable = int(variables[number * tree_size + heap - tree_size])
                signs = [nodes.add(LITERAL, literal=sign * variable) for sign in (-1, 1)]
                made[block] = nodes.add(OR, signs)
            else:
                below = [number * 2 * tree_size + 2 * heap, number * 2 * tree_size + 2 * heap + 1]
                waiting = [b for b in below if b not in made]
                if waiting:
                    stack.extend(waiting)
                else:
                    made[block] = nodes.add(AND, [made[b] for b in below])
    return nodes.graph(), np.array([made[block] for block in used], np.int64)


def conjoined(circuit: Circuit, owners: np.ndarray, others: np.ndarray, graph: AndOrGraph) -> AndOrGraph:
    """The circuit with each edge and root of `owners` led to an and-node, which also holds nodes of `graph`.

    owners  [pair] an edge, or num_edges + root index
    others  [pair] the node of `graph`, which is without roots, that goes there
    """
    order = np.argsort(owners, kind="stable")
    wrapped, first, counts = np.unique(owners[order], return_index=True, return_counts=True)
    start = graph.num_nodes + circuit.num_nodes
    targets = np.concatenate([circuit.children, circuit.roots]) + graph.num_nodes
    inside = targets[wrapped]
    targets[wrapped] = start + np.arange(len(wrapped))
    below, roots = np.split(targets, [circuit.num_edges])
    owning = np.concatenate([circuit.parents, np.full(circuit.num_roots, circuit.num_nodes)])[wrapped]
    # The new nodes are last in the arrays, and belong right before those that own them.
    place = np.concatenate([np.full(graph.num_nodes, -1), np.arange(circuit.num_nodes), owning - 0.5])
    return AndOrGraph(
        np.concatenate([graph.kind, circuit.kind, np.full(len(wrapped), AND, np.uint8)]),
        np.concatenate([graph.literal, circuit.literal, np.zeros(len(wrapped), np.int32)]),
        offsets_of(np.concatenate([graph.sizes, circuit.sizes, counts + 1])),
        np.concatenate([graph.children, below, np.insert(others[order], first, inside)]),
        roots,
    ).taken(np.argsort(place, kind="stable"))


def _named(source: Circuit, circuit: Circuit) -> Circuit:
    """`circuit` with the variable names of `source`."""
    return circuit if source.names is None else replace(circuit, names=source.names)


def _replace_literals(circuit: Circuit, fixed: dict[int, bool], origin: str) -> Circuit:
    value = np.zeros(circuit.num_variables + 1, np.int8)
    for variable, truth in fixed.items():
        value[variable] = 1 if truth else -1
    agreement = value[np.abs(circuit.literal)] * np.sign(circuit.literal)
    kind = circuit.kind.copy()
    kind[agreement > 0] = TRUE
    kind[agreement < 0] = FALSE
    return _rebuilt(circuit, kind, origin)


def _rebuilt(circuit: Circuit, kind: np.ndarray, origin: str, roots: np.ndarray | None = None) -> Circuit:
    graph = circuit.with_kinds(kind)
    if roots is not None:
        graph = graph.with_roots(roots)
    return _named(circuit, circuit_from_arrays(*graph.arrays, circuit.num_variables, circuit.weights, origin))


def _read_evidence(circuit: Circuit, evidence: Mapping[Any, bool] | Iterable[Any]) -> dict[int, bool]:
    pairs: list[tuple[int, bool]] = []
    if isinstance(evidence, Mapping):
        for variable, value in evidence.items():
            if not isinstance(value, bool | np.bool_) and value not in (0, 1):
                raise DomainError(f"the evidence on variable {variable} is {value!r}", hint="give True or False")
            pairs.append((circuit.variable_number(variable), bool(value)))
    elif isinstance(evidence, Iterable) and not isinstance(evidence, str):
        for literal in evidence:
            variable: Any = literal
            value = True
            while isinstance(variable, Not):
                variable, value = variable.part, not value
            if is_integer(literal):
                variable, value = abs(literal), literal > 0
            pairs.append((circuit.variable_number(variable), value))
    else:
        raise DomainError(
            f"{evidence!r} is no evidence",
            hint="give a mapping {1: True, 'rain': False} or literals [1, -2, rain, ~sun]",
        )
    fixed: dict[int, bool] = {}
    for variable, value in pairs:
        if fixed.setdefault(variable, value) != value:
            raise DomainError(
                f"the evidence contradicts itself: it has both {variable} and -{variable}",
                hint="give one value for each variable",
            )
    return fixed
