"""The most probable model, and the k most probable ones."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from derivable.algebra import semirings
from derivable.circuit.fold.fold_rows import fold, fold_each_root
from derivable.circuit.fold.literal_weights import LiteralWeights, read_weights
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.queries.properties import require_countable, require_decomposable
from derivable.core.and_or import AND, FALSE, LITERAL, TRUE
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError
from derivable.core.graph import offsets_of


class MostProbable(NamedTuple):
    """Models with their weights.

    assignment  bool [..., variable]
    weight      float64 [...], the product of the weights of its literals
    log_weight  float64 [...], nats, for weights beyond the range of float64

    `most_probable`: [...] is [*batch] (and [root] for several roots); `k_most_probable`: [model].
    """

    assignment: np.ndarray
    weight: Any
    log_weight: Any


def _relative_logs(weights: LiteralWeights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log positive, log negative, log largest): each literal's weight over the larger of its variable's two.

    A variable that is left open then contributes zero, whichever way it is completed best.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        positive, negative = np.log(weights.positive), np.log(weights.negative)
        largest = np.maximum(positive, negative)
        return (
            np.where(positive == largest, np.where(largest == -np.inf, -np.inf, 0.0), positive - largest),
            np.where(negative == largest, np.where(largest == -np.inf, -np.inf, 0.0), negative - largest),
            largest,
        )


def _with_weights(weights: LiteralWeights, assignment: np.ndarray) -> MostProbable:
    """Assignments [item, ..., variable] with their weights."""
    shape = weights.num_items, *(1,) * (assignment.ndim - 2), assignment.shape[-1]
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        chosen = np.where(assignment, weights.positive.reshape(shape), weights.negative.reshape(shape))
        product, log_weight = np.prod(chosen, axis=-1), np.log(chosen).sum(axis=-1)
        # Where the running product left the range of float64, the logarithm may still be inside it.
        usual = (product > 1e-290) & (product < 1e290)
        return MostProbable(assignment, np.where(usual, product, np.exp(log_weight)), log_weight)


def _require_model(log_best: np.ndarray, largest: np.ndarray) -> None:
    """log_best [item, root], largest [item, variable]"""
    without = (log_best == -np.inf) | (largest == -np.inf).any(axis=1, keepdims=True)
    if without.any():
        item, root = np.argwhere(without)[0].tolist()
        raise DomainError(
            f"no model of the circuit has positive weight (root {root}, weights {item})",
            hint="the circuit is unsatisfiable, or the weights rule out all its models",
        )


def most_probable(circuit: Circuit, weights=None, negative_weights=None) -> MostProbable:
    """The model with the largest weight, decoded, with that weight (MPE).

    weights, negative_weights  [*batch, variable] of at least 0; None as in `weighted_count`
    returns                    `MostProbable`: assignment bool [*batch, variable] (for several roots
                               [*batch, root, variable]), weight and log_weight [*batch] (or [*batch, root])

    Ties: the first child of an or-node (smallest node id) and, for a variable that the model leaves open,
    false. Determinism is not needed: a maximum counts nothing twice.

    Raises DomainError if no model has positive weight or a weight is negative, NaN or infinite;
    UnsupportedError if the circuit is not decomposable.
    """
    require_decomposable(circuit, "most_probable")
    read = read_weights(circuit, weights, negative_weights)
    log_positive, log_negative, largest = _relative_logs(read)
    # The derivative of a maximum is one for the literals of its best term, and zero for all others.
    log_best, positive, negative = fold_each_root(plan_of(circuit), semirings.max_plus, log_positive, log_negative)
    _require_model(log_best, largest)
    likelier = (read.positive > read.negative)[:, None]
    assignment = (positive > 0) | ((negative == 0) & likelier)
    found = _with_weights(read, assignment)
    return MostProbable(*(read.shaped(array, circuit.num_roots) for array in found))


def k_most_probable(circuit: Circuit, k: int, weights=None, negative_weights=None) -> Any:
    """The k models of largest weight, best first, all distinct.

    k                          at least 0; fewer models come back if fewer have positive weight
    weights, negative_weights  [variable] of at least 0 (no batch); None as in `weighted_count`
    returns                    `MostProbable` with assignment bool [model, variable], weight and log_weight
                               [model]; for several roots a list of them

    Exact: derivations of the circuit are enumerated lazily, best first (the k-best algorithm of Huang and
    Chiang 2005, algorithm 3, without recursion); each is completed over the variables it leaves open,
    again best first. In a deterministic circuit two derivations share no model. Models of equal weight
    come in an unspecified but repeatable order.

    Raises as `most_probable`, and UnsupportedError for a circuit known not to be deterministic.
    """
    require_countable(circuit, "k_most_probable")
    k = integer(k, "k", 0)
    read = read_weights(circuit, weights, negative_weights)
    if read.batch:
        raise DomainError(
            f"k_most_probable takes one vector of weights, not a batch {list(read.batch)}",
            hint="call it once for each row",
        )
    log_positive, log_negative, largest = _relative_logs(read)
    others = Alternatives.of_variables(read.positive[0] > read.negative[0], log_positive[0], log_negative[0])
    log_best = best_derivations(circuit, log_positive, log_negative)
    _require_model(log_best[None, circuit.roots], largest)
    results = []
    for root in circuit.roots.tolist():
        assignment = np.array(list(islice(models_by_weight(circuit, root, log_best, others), k)), np.bool_)
        assignment = assignment.reshape(-1, circuit.num_variables)
        found = _with_weights(read, assignment[None])
        order = np.argsort(-found.log_weight[0], kind="stable")  # the enumeration's sums differ in the last bits
        results.append(MostProbable(*(array[0, order] for array in found)))
    return results[0] if circuit.num_roots == 1 else results


@dataclass(frozen=True, eq=False)
class Alternatives:
    """What may hold in place of the best: of each choice its other values, and what they cost.

    A choice is a variable, or several of which exactly one is true.

    best     bool [variable], of all choices their best values
    choice   [variable] the choice that it is of
    default  [choice] the variable of its best value
    offsets  [choice + 1] where its other values begin, the most probable first, each with
    variable, value, worse  its variable, what that is then, and what it adds to the log weight, which is at most 0
    """

    best: np.ndarray
    choice: np.ndarray
    default: np.ndarray
    offsets: np.ndarray
    variable: np.ndarray
    value: np.ndarray
    worse: np.ndarray

    @staticmethod
    def of_variables(best: np.ndarray, log_positive: np.ndarray, log_negative: np.ndarray) -> Alternatives:
        """Each variable is a choice; the log weights [variable] are relative to the best."""
        worse = np.minimum(log_positive, log_negative)
        some = np.flatnonzero(worse > -np.inf)
        numbers = np.arange(len(best))
        return Alternatives(best, numbers, numbers, offsets_of(worse > -np.inf), some, ~best[some], worse[some])

    def put(self, model: np.ndarray, variable: int, value: bool) -> None:
        """Have a variable and the choice that it is of the value, in a model where the choice is at its best."""
        model[self.default[self.choice[variable]]] = False
        model[variable] = value


def best_derivations(circuit: Circuit, log_positive: np.ndarray, log_negative: np.ndarray) -> np.ndarray:
    """The log weight [node] of the best derivation of each node, for log weights [1, variable]."""
    (found,) = fold(plan_of(circuit).of_all_nodes(), semirings.max_plus, (log_positive,), (log_negative,))
    return found[0]


class _Derivations:
    """The derivations of the nodes of a circuit, best first, found when asked for.

    A derivation of an or-node is (rank, edge): the rank-th best derivation of that edge's child; of an
    and-node a tuple of ranks, one for each child. `found[n]` lists those of node n so far with their log
    weights, `waiting[n]` is a heap of candidates for the next.
    """

    def __init__(self, circuit: Circuit, log_best: np.ndarray):
        self.kind, self.literal = circuit.kind, circuit.literal
        self.offsets, self.children = circuit.offsets, circuit.children
        self.log_best = log_best
        self.found: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        self.waiting: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        self.exhausted: set[int] = set()

    def of(self, node: int) -> list[int]:
        return self.children[self.offsets[node] : self.offsets[node + 1]].tolist()

    def log_weight(self, node: int, rank: int) -> float | None:
        """The log weight of the derivation of that rank, None past the last. Drives the generators below
        with an explicit stack, so that depth costs memory and not Python's call stack."""
        stack: list[Generator[tuple[int, int], float | None, float | None]] = []
        answer = self._known(node, rank)
        if answer is False:
            stack.append(self._find(node, rank))
            answer = None
        while stack:
            try:
                wanted = stack[-1].send(None if answer is None else float(answer))
            except StopIteration as stop:
                stack.pop()
                answer = stop.value
                continue
            answer = self._known(*wanted)
            if answer is False:
                stack.append(self._find(*wanted))
                answer = None
        return answer

    def _known(self, node: int, rank: int) -> float | bool | None:
        """The log weight of that rank if it can be told without a search, else False."""
        if rank == 0:
            best = float(self.log_best[node])
            return None if best == -np.inf else best
        if self.kind[node] <= LITERAL:
            return None
        found = self.found.get(node, ())
        if rank < len(found):
            return found[rank][0]
        return None if node in self.exhausted else False

    def _find(self, node: int, rank: int) -> Generator[tuple[int, int], float | None, float | None]:
        found = self.found.setdefault(node, [])
        if node not in self.waiting:
            self._start(node)
        waiting = self.waiting[node]
        is_or = self.kind[node] != AND
        children = self.of(node)
        while len(found) <= rank:
            if found:
                # The last one found lets its successors in: they were not worth computing before.
                total, last = found[-1]
                if is_or:
                    next_rank, edge = last[0] + 1, last[1]
                    weight = yield children[edge], next_rank
                    if weight is not None:
                        heapq.heappush(waiting, (-weight, (next_rank, edge)))
                else:
                    # Raising only places from the last raised one on reaches every tuple exactly once.
                    raised = max((i for i, r in enumerate(last) if r), default=0)
                    for i in range(raised, len(last)):
                        weight = yield children[i], last[i] + 1
                        if weight is not None:
                            before = yield children[i], last[i]
                            assert before is not None
                            successor = (*last[:i], last[i] + 1, *last[i + 1 :])
                            heapq.heappush(waiting, (-(total - before + weight), successor))
            if not waiting:
                self.exhausted.add(node)
                return None
            negated, derivation = heapq.heappop(waiting)
            found.append((-negated, derivation))
        return found[rank][0]

    def _start(self, node: int) -> None:
        children = self.of(node)
        if self.kind[node] == AND:
            self.waiting[node] = [(-float(self.log_best[node]), (0,) * len(children))]
        else:
            logs = self.log_best[children].tolist()
            self.waiting[node] = [(-log, (0, edge)) for edge, log in enumerate(logs) if log > -np.inf]
            heapq.heapify(self.waiting[node])

    def literals(self, node: int, rank: int) -> list[int]:
        """The literals of a derivation that was found."""
        result, stack = [], [(node, rank)]
        while stack:
            node, rank = stack.pop()
            kind = self.kind[node]
            if kind == LITERAL:
                result.append(int(self.literal[node]))
            elif kind > LITERAL:
                if not self.found.get(node):
                    next(self._find(node, 0), None)  # the best derivation; those of its children follow when needed
                derivation = self.found[node][rank][1]
                children = self.of(node)
                if kind == AND:
                    stack.extend(zip(children, derivation))
                else:
                    stack.append((children[derivation[1]], derivation[0]))
        return result


def models_by_weight(circuit: Circuit, root: int, log_best: np.ndarray, others: Alternatives) -> Iterator[np.ndarray]:
    """Models of a root, bool [variable], by falling weight.

    log_best  of `best_derivations`, for weights relative to those of the best value of each choice
    Each derivation starts a sequence of completions, the best being its own weight; a heap merges them.
    """
    derivations = _Derivations(circuit, log_best)
    if derivations.kind[root] == FALSE:
        return
    offsets, worse = others.offsets, others.worse
    counts = np.diff(offsets)
    # Entries: (minus log weight, number, changes of `order`, order, model); a change is (an index into order, which of
    # its alternatives).
    heap: list[tuple[float, int, tuple[tuple[int, int], ...], np.ndarray, np.ndarray]] = []
    rank, number = 0, 0
    upcoming = 0.0 if derivations.kind[root] == TRUE else derivations.log_weight(root, 0)
    while heap or upcoming is not None:
        # Strictly better only: of many equal derivations no more than needed are searched for.
        if upcoming is not None and (not heap or upcoming > -heap[0][0]):
            model = others.best.copy()
            is_open = counts > 0
            for literal in derivations.literals(root, rank):
                others.put(model, abs(literal) - 1, literal > 0)
                is_open[others.choice[abs(literal) - 1]] = False
            order = np.flatnonzero(is_open)
            order = order[np.argsort(-worse[offsets[order]], kind="stable")]
            heapq.heappush(heap, (-upcoming, number, (), order, model))
            number += 1
            rank += 1
            upcoming = None if derivations.kind[root] == TRUE else derivations.log_weight(root, rank)
            continue
        negated, _, changes, order, model = heapq.heappop(heap)
        completed = model.copy()
        for place, which in changes:
            alternative = offsets[order[place]] + which
            others.put(completed, int(others.variable[alternative]), bool(others.value[alternative]))
        yield completed
        # Successors of changes with last (p, a): also the first one of p + 1; that instead of the first of p; the next
        # one of p. So each set of changes has one predecessor.
        place, which = changes[-1] if changes else (-1, 0)
        following = [(*changes, (place + 1, 0))] if place + 1 < len(order) else []
        if following and changes and which == 0:
            following.append((*changes[:-1], (place + 1, 0)))
        if changes and which + 1 < counts[order[place]]:
            following.append((*changes[:-1], (place, which + 1)))
        for after in following:
            lost = worse[offsets[order[place]] + which] if changes and len(after) == len(changes) else 0.0
            added = worse[offsets[order[after[-1][0]]] + after[-1][1]]
            heapq.heappush(heap, (negated - float(added) + float(lost), number, after, order, model))
            number += 1
