"""Checks: decomposable, smooth, deterministic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from derivable.circuit.compilation.categorical import CategoricalVariables
from derivable.circuit.fold.fold_rows import fold_shares
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import EliminationCircuit
from derivable.circuit.kernels import exclusion
from derivable.circuit.kernels.and_or import reachable
from derivable.circuit.kernels.choice import analyse
from derivable.circuit.kernels.draw import choice_shares, draw_models
from derivable.circuit.kernels.scopes import fold_scopes, repeats_variable, same_mentions
from derivable.core.and_or import LITERAL, OR
from derivable.core.diagnostics import LayoutError, UnsupportedError

DETERMINISTIC_ORIGINS = ("sdd", "decision")
FORGOTTEN = "forgotten"
WORDS_AT_ONCE = 8
# Variables from which one pass over sums of random words comes first.
MANY = 512
LARGEST_TRUTH_TABLE = 22


def first_offences(circuit: Circuit) -> tuple[int, int]:
    """(an and-node that is not decomposable or -1, an or-node that is not smooth or -1).

    That there are none is seen in one pass where a sum of random words says what a node mentions, wrong with
    probability 2**-128 a pair of nodes. Otherwise exact, 512 variables a pass, 64 bytes a node: memory does not grow
    with the number of variables, time does.
    """
    mentioned = np.unique(np.abs(circuit.literal[circuit.kind == LITERAL])) - 1
    if len(mentioned) > MANY and _offends_nowhere(circuit):
        return -1, -1
    words = max(1, min(WORDS_AT_ONCE, -(-len(mentioned) // 64)))
    scopes = np.empty((circuit.num_nodes, words), np.uint64)
    position = np.empty(circuit.num_variables, np.int64)
    overlapping, uneven = -1, -1
    for start in range(0, len(mentioned), 64 * words):
        chunk = mentioned[start : start + 64 * words]
        position[:] = -1
        position[chunk] = np.arange(len(chunk))
        found = fold_scopes(circuit.kind, circuit.literal, circuit.offsets, circuit.children, position, scopes)
        overlapping = found[0] if overlapping < 0 else overlapping
        uneven = found[1] if uneven < 0 else uneven
        if overlapping >= 0 and uneven >= 0:
            break
    return overlapping, uneven


def _offends_nowhere(circuit: Circuit) -> bool:
    """Whether the circuit is known to be decomposable and smooth."""
    if circuit.num_roots > circuit.num_variables // MANY:
        # As long as the exact way.
        return False
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    words = np.random.default_rng().integers(0, 2**64, (circuit.num_variables, 2), np.uint64)
    sums = np.empty((circuit.num_nodes, 2), np.uint64)
    if not reachable(circuit.offsets, circuit.children, circuit.roots).all() or not same_mentions(*arrays, words, sums):
        return False
    times, seen = np.empty(circuit.num_nodes, np.uint8), np.empty(circuit.num_variables, np.uint8)
    return not any(repeats_variable(*arrays, root, times, seen) for root in circuit.roots.tolist())


@dataclass(frozen=True)
class Determinism:
    """What `check_determinism` found.

    holds           whether the children of every or-node exclude each other (as far as `method` can tell)
    method          how that was found out, the weakest that was needed for any or-node:
                    "decision"      opposite literals stand directly in every two children (exact)
                    "literals"      a structural proof down to opposite literals, as in an SDD (exact)
                    "exhaustive"    a truth table over the variables below the node (exact)
                    "construction"  not proved here, but the circuit was made by a compiler whose results
                                    are deterministic (Circuit.origin)
                    "sampled"       no counterexample among randomly drawn models (not a proof)
    node            the or-node with two true children, where one was found
    counterexample  [variable] bool: the assignment that makes two children of `node` true

    With a counterexample, `method` is the one that found it, and the answer is exact whichever it was.
    """

    holds: bool
    method: str
    node: int | None = None
    counterexample: np.ndarray | None = None

    @property
    def exact(self) -> bool:
        return not self.holds or self.method != "sampled"

    def __bool__(self) -> bool:
        return self.holds


def check_determinism(circuit: Circuit, budget: int = 1_000_000, *, seed: int = 0) -> Determinism:
    """Whether the children of every or-node exclude each other, how that was found out, and a counterexample.

    budget  elementary steps (pairs of nodes compared, words of truth tables) for each of the methods
    seed    for the random models of the last method; the same seed gives the same answer

    First every or-node is tried by structure. Nodes that stay open are decided by a truth table if they
    mention at most 22 variables, the lowest first, while the budget lasts. For the rest, models of each
    child are drawn at random (and uniform random worlds, if the circuit is not decomposable) and the
    whole circuit below is evaluated on them.
    """
    method, unresolved = _prove_by_structure(circuit, budget)
    if len(unresolved) == 0:
        return Determinism(True, method)
    unresolved, failure = _try_truth_tables(circuit, unresolved, budget)
    if failure is not None:
        return failure
    if len(unresolved) == 0:
        return Determinism(True, "exhaustive")
    failure = _try_random_models(circuit, unresolved, budget, seed)
    if failure is not None:
        return failure
    return Determinism(True, "construction" if circuit.origin in DETERMINISTIC_ORIGINS else "sampled")


def _prove_by_structure(circuit: Circuit, budget: int) -> tuple[str, np.ndarray]:
    """(method, the or-nodes that stay open)."""
    arrays = circuit.arrays[:4]
    decided = np.empty(circuit.num_nodes, np.bool_)
    exclusion.decisions(*arrays, np.zeros(circuit.num_variables, np.int8), budget, decided)
    if decided.all():
        return "decision", np.empty(0, np.int64)
    free = CategoricalVariables.of(circuit.num_variables, ())
    unknown = np.zeros(circuit.num_nodes, np.bool_)
    _, proven, *_ = analyse(*arrays, free.group_of, free.value_of, free.group_size, unknown, budget, 0)
    return "literals", np.flatnonzero(~(decided | proven))


def _below(circuit: Circuit, node: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(nodes below and with `node` ascending, their places, the 0-based variables they mention)."""
    nodes = np.flatnonzero(reachable(circuit.offsets[: node + 2], circuit.children, np.array([node])))
    place = np.full(node + 1, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    literals = circuit.literal[nodes]
    return nodes, place, np.unique(np.abs(literals[literals != 0])) - 1


def _overlap(circuit: Circuit, nodes, place, worlds, watched) -> tuple[int, np.ndarray] | None:
    tables = np.empty((len(nodes), worlds.shape[1]), np.uint64)
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    node, world = exclusion.find_overlap(*arrays, nodes, place, worlds, tables, watched)
    if node < 0:
        return None
    word, bit = divmod(int(world), 64)
    return int(node), (worlds[:, word] >> np.uint64(bit)) & np.uint64(1) == 1


def _try_truth_tables(circuit: Circuit, unresolved: np.ndarray, budget: int) -> tuple[np.ndarray, Determinism | None]:
    """(the or-nodes that stay open, the failure found if any)."""
    remaining, steps = [], 0
    watched = np.zeros(circuit.num_nodes, np.bool_)
    for node in unresolved.tolist():
        if steps + node // 64 > budget:  # marking what is below costs time too
            remaining.append(node)
            continue
        nodes, place, support = _below(circuit, node)
        steps += node // 64
        words = 1 << max(0, len(support) - 6)
        if len(support) > LARGEST_TRUTH_TABLE or steps + words * len(nodes) > budget:
            remaining.append(node)
            continue
        steps += words * len(nodes)
        watched[node] = True
        found = _overlap(circuit, nodes, place, _all_worlds(support, circuit.num_variables), watched)
        watched[node] = False
        if found is not None:
            return unresolved, Determinism(False, "exhaustive", *found)
    return np.array(remaining, np.int64), None


def _all_worlds(support: np.ndarray, num_variables: int) -> np.ndarray:
    """[variable, word] uint64: all assignments of the variables in `support`, the others false."""
    words = 1 << max(0, len(support) - 6)
    worlds = np.zeros((num_variables, words), np.uint64)
    bits = np.arange(64) >> np.arange(6)[:, None] & 1
    patterns = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little").view(np.uint64)[:, 0]
    for i, variable in enumerate(support):
        if i < 6:
            worlds[variable] = patterns[i]
        else:
            worlds[variable, (np.arange(words) >> (i - 6)) & 1 == 1] = 0xFFFFFFFFFFFFFFFF
    return worlds


def _try_random_models(circuit: Circuit, unresolved: np.ndarray, budget: int, seed: int) -> Determinism | None:
    """A failure found among 64 random models of each child of an open node, the lowest nodes first."""
    rng = np.random.default_rng(seed)
    if not circuit.is_decomposable:
        words = max(1, min(64, budget // max(1, circuit.num_nodes)))
        worlds = rng.integers(0, 2**64, (circuit.num_variables, words), np.uint64)
        every = np.arange(circuit.num_nodes)
        found = _overlap(circuit, every, every, worlds, circuit.kind == OR)
        return None if found is None else Determinism(False, "sampled", *found)
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    halves = np.full((1, circuit.num_variables), 0.5), np.zeros((1, circuit.num_variables), np.int64)
    (mantissa,), (exponent,) = fold_shares(plan_of(circuit).of_all_nodes(), halves, halves)
    shares = np.empty(circuit.num_edges)
    choice_shares(circuit.kind, circuit.offsets, circuit.children, mantissa, exponent, shares)
    stack = np.empty(circuit.num_nodes + 1, np.int64)
    models = np.empty((64, circuit.num_variables), np.int8)
    watched = circuit.kind == OR
    steps = 0
    for node in rng.permutation(unresolved).tolist():
        nodes, place, _ = _below(circuit, node)
        children = circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]
        for child in children.tolist():
            if mantissa[child] == 0:
                continue
            draw_seed = np.uint64(rng.integers(0, 2**63))
            draw_models(*arrays, child, shares, halves[0][0], draw_seed, 0, stack, models)
            worlds = np.ascontiguousarray(np.packbits(models.T, axis=1, bitorder="little")).view(np.uint64)
            found = _overlap(circuit, nodes, place, worlds, watched)
            if found is not None:
                return Determinism(False, "sampled", *found)
            steps += len(nodes) + node // 64 + models.size // 16
            if steps > budget:
                return None
    return None


def require_decomposable(circuit: Circuit, question: str) -> None:
    """Raise UnsupportedError, naming the node, if an and-node has children that share a variable."""
    if isinstance(circuit, EliminationCircuit) and not circuit.has_nodes:
        # Elimination joins tables that mention different variables.
        return
    node = circuit.first_offences[0]
    if node >= 0:
        raise UnsupportedError(
            f"{question} needs a decomposable circuit: two children of and-node {node} share a variable",
            hint="compile the formula: derivable.circuit.compile gives decomposable circuits",
        )


def check_origin(circuit: Circuit) -> None:
    """Raise LayoutError, naming the node, if a circuit is not decomposable and deterministic as its origin says."""
    if circuit.origin not in DETERMINISTIC_ORIGINS:
        return
    node, verdict = circuit.first_offences[0], circuit.determinism
    made = f"the origin {circuit.origin!r} says that the circuit is decomposable and deterministic"
    if node >= 0:
        raise LayoutError(f"{made}, but two children of and-node {node} share a variable")
    if verdict.counterexample is not None:
        mentioned = np.unique(np.abs(circuit.literal[circuit.kind == LITERAL]))
        signs = np.where(verdict.counterexample[mentioned - 1], 1, -1)
        raise LayoutError(
            f"{made}, but or-node {verdict.node} has two children that are true in one assignment: "
            + " ".join(map(str, (signs * mentioned).tolist())),
            hint='build the circuit with origin="", so that queries check what they need',
        )


def require_countable(circuit: Circuit, question: str) -> None:
    """Raise UnsupportedError unless the circuit is decomposable and, as far as is known, deterministic.

    A circuit from a compiler (origin "sdd" or "decision") is accepted without a check. One of unknown origin is
    refused if `check_determinism` finds a counterexample. One from `forget` is refused unless determinism is
    proved. The verdict is kept with the circuit.
    """
    require_decomposable(circuit, question)
    if circuit.origin in DETERMINISTIC_ORIGINS:
        return
    verdict = circuit.determinism
    if not verdict.holds:
        raise UnsupportedError(
            f"{question} needs a deterministic circuit: or-node {verdict.node} has two children that are true in "
            "one assignment (check_determinism() shows it)",
            hint="compile the formula again: derivable.circuit.compile gives deterministic circuits",
        )
    if circuit.origin == FORGOTTEN and not verdict.exact:
        raise UnsupportedError(
            f"{question} needs a deterministic circuit, and forgetting variables may have lost that",
            hint="most_probable needs no determinism; or compile the formula without these variables",
        )
