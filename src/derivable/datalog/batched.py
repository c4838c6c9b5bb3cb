"""The ground program: every derivation of the outputs as flat arrays in levels, for evaluation in batches.

Grounding depends on the facts that may hold, not on their probabilities, so it is done once; a provenance is then
evaluated level by level over whole batches. The graph is acyclic:

- where plus is idempotent (godel, topkproofs), a recursive component with n tuples is unrolled n rounds (see `unroll`),
  which is exact for every provenance in which a derivation that uses a tuple to derive itself adds nothing;
- where values are always saturated (addmultprob), the rounds of semi-naive evaluation are spelled out, as `Program.run`
  performs them: a derivation reads the tags its tuples have when it fires, and a tuple that is derived again does not
  fire again;
- otherwise (real, counting) no tuple may be derived from itself, since the sum over its derivations has no end.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import godel
from derivable.core.and_or import AND, FALSE, LITERAL, NOT, OR, TRUE
from derivable.core.progress import NEVER, Deadline
from derivable.datalog.exact import Grounding, ground_inputs
from derivable.datalog.ground_graph import GraphArrays
from derivable.datalog.inputs import InputMapping
from derivable.datalog.random_facts import RandomFacts
from derivable.datalog.tags import ColumnTags
from derivable.datalog.unroll import restrict, topological, unroll

if TYPE_CHECKING:
    from derivable.datalog.program import Program


@dataclass(frozen=True, eq=False)
class GroundProgram:
    """Ground derivations in levels; nodes are sorted by level, within a level by kind.

    kind           [node] uint8: as in `core.and_or`, negations as NOT
    variable       [node] int64: random fact of a LITERAL, -1 elsewhere
    offsets        [node + 1] int64: node n's children are children[offsets[n]:offsets[n + 1]]
    children       [edge] int64, all in earlier levels; a NOT has one child, AND and OR at least one
    level_offsets  [level + 1] int64
    segments       (kind, first node, behind last node) of each run of one kind, in order of evaluation
    roots          [output] int64: node of each output tuple, outputs concatenated in order
    variables      relation -> [fact] int64: random facts of an input
    groups         arrays of random facts of which exactly one holds
    fixed          [fixed] int64: random facts written in the program; their probabilities are `fixed_weights`
    """

    kind: np.ndarray
    variable: np.ndarray
    offsets: np.ndarray
    children: np.ndarray
    level_offsets: np.ndarray
    segments: tuple[tuple[int, int, int], ...]
    roots: np.ndarray
    num_variables: int
    variables: dict[str, np.ndarray]
    groups: tuple[np.ndarray, ...]
    fixed: np.ndarray
    fixed_weights: np.ndarray
    random: RandomFacts

    def evaluate(self, tags: ColumnTags) -> Any:
        """Tags of the roots [output] for one data point, one column operation a fold step.

        tags  of the random facts whose probabilities they should use
        """
        values = tags.zero(len(self.kind))
        for kind, start, stop in self.segments:
            if kind == TRUE:
                values[start:stop] = tags.one(stop - start)
            elif kind == LITERAL:
                values[start:stop] = tags.fact_tags(self.variable[start:stop])
            elif kind == NOT:
                values[start:stop] = tags.negate(values[self.children[self.offsets[start] : self.offsets[stop]]])
            elif kind in (AND, OR):
                operation = tags.times if kind == AND else tags.plus
                lengths = np.diff(self.offsets[start : stop + 1])
                folded = values[self.children[self.offsets[start:stop]]]
                for position in range(1, int(lengths.max())):
                    some = np.flatnonzero(lengths > position)
                    following = values[self.children[self.offsets[start:stop][some] + position]]
                    folded[some] = operation(folded[some], following)
                values[start:stop] = folded
        return values[self.roots]


def ground(
    program: Program,
    inputs: Mapping[str, InputMapping],
    outputs: Mapping[str, Sequence[Any]],
    facts: Mapping[str, Any] | None = None,
    provenance: Semiring = godel,
) -> GroundProgram:
    """Ground the derivations of the output tuples for a tagged provenance.

    Arguments as for `exact.compile_exact`; `provenance` chooses how recursion is spelled out (module docstring), and
    its laws simplify; topkproofs has those of `boolean`. An output that cannot be derived is the FALSE node.
    """
    ram, grounding, variables = ground_inputs(program, inputs, facts, semiring=provenance)
    return levelled(grounding, grounding.nodes_of(ram, outputs), variables, provenance)


def levelled(
    grounding: Grounding,
    roots: np.ndarray,
    variables: dict[str, np.ndarray],
    semiring: Semiring,
    deadline: Deadline = NEVER,
) -> GroundProgram:
    """The derivations of nodes in levels. Raises UnsupportedError for an endless sum."""
    graph = grounding.graph
    if not graph.acyclic and not semiring.is_exact and semiring.typed().always_saturated:
        graph, roots = restrict(*_spell_rounds(graph, roots, grounding.recursive))
    else:
        graph, roots = unroll(graph, roots, deadline, semiring)
    graph, roots = topological(graph, roots)
    random = grounding.facts.random
    of_inputs = np.concatenate([*variables.values(), np.empty(0, dtype=np.int64)])
    fixed = np.setdiff1d(np.arange(len(random.probabilities)), of_inputs)
    return _levelled(graph, roots, variables, random, fixed)


@njit(cache=True, nogil=True)
def _heights(offsets, children, height, negated):
    """height [node], where a negation is a step of its own; marks the nodes that are negated."""
    for n in range(len(height)):
        best = -1
        for e in range(offsets[n], offsets[n + 1]):
            c = children[e]
            if c < 0:
                negated[~c] = True
                best = max(best, height[~c] + 1)
            else:
                best = max(best, height[c])
        height[n] = best + 1


def _levelled(
    graph: GraphArrays, roots: np.ndarray, variables: dict[str, np.ndarray], random: RandomFacts, fixed: np.ndarray
) -> GroundProgram:
    size = len(graph.kind)
    height = np.zeros(size, dtype=np.int64)
    negated = np.zeros(size, dtype=np.bool_)
    _heights(graph.offsets, graph.children, height, negated)
    negated[~roots[roots < 0]] = True
    inverted = np.flatnonzero(negated)
    negation = np.full(size, -1, dtype=np.int64)
    negation[inverted] = size + np.arange(len(inverted))

    def plain(signed: np.ndarray) -> np.ndarray:
        return np.where(signed < 0, negation[np.where(signed < 0, ~signed, 0)], signed)

    kind = np.concatenate([graph.kind, np.full(len(inverted), NOT, dtype=np.uint8)])
    height = np.concatenate([height, height[inverted] + 1])
    variable = np.concatenate([np.where(graph.kind == LITERAL, graph.literal - 1, -1), np.full(len(inverted), -1)])
    lengths = np.concatenate([np.diff(graph.offsets), np.ones(len(inverted), dtype=np.int64)])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    children = np.concatenate([plain(graph.children), inverted])
    order = np.lexsort((kind, height))
    new = np.empty(len(order), dtype=np.int64)
    new[order] = np.arange(len(order))
    offsets = np.concatenate([[0], np.cumsum(lengths[order])])
    within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths[order])
    sorted_children = new[children[np.repeat(starts[:-1][order], lengths[order]) + within]]
    sorted_height, sorted_kind = height[order], kind[order]
    level_offsets = np.searchsorted(sorted_height, np.arange(int(sorted_height.max(initial=0)) + 2))
    cuts = np.flatnonzero((np.diff(sorted_height) != 0) | (np.diff(sorted_kind.astype(int)) != 0)) + 1
    bounds = [0, *cuts.tolist(), len(order)]
    segments = tuple((int(sorted_kind[a]), a, b) for a, b in itertools.pairwise(bounds) if b > a)
    return GroundProgram(
        sorted_kind,
        variable[order].astype(np.int64),
        offsets,
        sorted_children,
        level_offsets,
        segments,
        new[plain(roots)],
        len(random.probabilities),
        variables,
        tuple(random.groups),
        fixed,
        np.asarray(random.probabilities, dtype=np.float64)[fixed],
        random,
    )


def _spell_rounds(
    graph: GraphArrays, roots: np.ndarray, recursive: tuple[np.ndarray, ...]
) -> tuple[GraphArrays, np.ndarray]:
    """The rounds of semi-naive evaluation of each recursive stratum, as new nodes.

    A derivation fires in the round after the last of its tuples became known, and reads the versions they have then;
    a tuple has a version for each round in which one of its derivations fires.
    """
    kinds, literals = list(graph.kind), list(graph.literal)
    children: list[list[int]] = [c.tolist() for c in np.split(graph.children, graph.offsets[1:-1])]
    image = list(range(len(kinds)))

    def seen(signed: int) -> int:
        return image[signed] if signed >= 0 else ~image[~signed]

    def add(kind: int, parts: list[int]) -> int:
        kinds.append(kind)
        literals.append(0)
        children.append(parts)
        image.append(len(kinds) - 1)
        return len(kinds) - 1

    inside_any = {int(t) for tuples in recursive for t in tuples}
    for tuples in recursive:
        own = {int(t) for t in tuples}
        versions: dict[int, int] = {}
        firing: list[tuple[int, int]] = []
        dependants: dict[int, list[tuple[int, int]]] = {}
        parts_of: dict[tuple[int, int], list[int]] = {}
        missing: dict[tuple[int, int], set[int]] = {}
        for t in sorted(own):
            for j, derivation in enumerate(children[t]):
                is_and = derivation >= 0 and kinds[derivation] == AND
                parts = children[derivation] if is_and else [derivation]
                parts_of[t, j] = parts
                missing[t, j] = {p for p in parts if p in own}
                if not missing[t, j]:
                    firing.append((t, j))
                for p in missing[t, j]:
                    dependants.setdefault(p, []).append((t, j))
        while firing:
            by_tuple: dict[int, list[int]] = {}
            for t, j in firing:
                parts = [versions[p] if p in own else seen(p) for p in parts_of[t, j]]
                node = parts[0] if len(parts) == 1 else add(AND, parts)
                by_tuple.setdefault(t, []).append(node)
            fresh = []
            for t, nodes in by_tuple.items():
                if t in versions:
                    versions[t] = add(OR, [versions[t], *nodes])
                else:
                    versions[t] = nodes[0] if len(nodes) == 1 else add(OR, nodes)
                    fresh.append(t)
            firing = []
            for t in fresh:
                for key in dependants.get(t, ()):
                    missing[key].discard(t)
                    if not missing[key]:
                        firing.append(key)
        for t in own:
            image[t] = versions.get(t, FALSE)
    # Nodes outside the recursive strata read the last version of every tuple.
    for n in range(len(graph.kind)):
        if n not in inside_any:
            children[n] = [seen(c) for c in children[n]]
        else:
            kinds[n], children[n] = FALSE, []
    lengths = np.array([len(c) for c in children], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.array([c for part in children for c in part], dtype=np.int64)
    arrays = GraphArrays(np.array(kinds, dtype=np.uint8), np.array(literals, dtype=np.int32), offsets, flat, True)
    return arrays, np.array([seen(int(r)) for r in roots], dtype=np.int64)
