"""The ground program: every derivation of the outputs as flat arrays in levels, for evaluation in batches.

Grounding depends on the facts that may hold, not on their probabilities, so it is done once; a provenance is then
evaluated over whole batches, level by level where the graph is acyclic:

- where plus is idempotent (godel, topkproofs), a recursive component with n tuples is unrolled n rounds (see `unroll`),
  which is exact for every provenance in which a derivation that uses a tuple to derive itself adds nothing;
- where it takes the better of two values (godel, max_product), cycles stay in graphs that are large, or evaluated once:
  each tuple has a best derivation (see `circuit.fold.fixpoint`);
- where values are always saturated (addmultprob), the rounds of semi-naive evaluation are spelled out, as `Program.run`
  performs them: a derivation reads the tags its tuples have when it fires, and a tuple that is derived again does not
  fire again;
- otherwise (real, counting) no tuple may be derived from itself, since the sum over its derivations has no end.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import godel
from derivable.circuit.fold.fixpoint import has_best_derivations
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.kernels.and_or import components, heights
from derivable.core.and_or import AND, FALSE, LITERAL, NOT, OR, TRUE
from derivable.core.graph import offsets_of
from derivable.core.progress import NEVER, Deadline
from derivable.datalog.exact.exact import Grounding, Lowers, ground_inputs
from derivable.datalog.exact.unroll import MAX_UNROLLED_EDGES, TooManyEdges, unroll
from derivable.datalog.facts.inputs import InputMapping
from derivable.datalog.run.limits import Watch
from derivable.datalog.tables.tag_columns import within
from derivable.datalog.tags.provenance import Inference
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags

# Edges of a graph with cycles that is unrolled, and of what becomes of it: a second of work each.
MOST_EDGES, MOST_UNROLLED = 1 << 16, 1 << 21


@dataclass(frozen=True, eq=False)
class GroundProgram(AndOrGraph):
    """Ground derivations in levels; nodes are sorted by level, within a level by kind.

    Negations are NOT nodes, and AND and OR have children; all children are in earlier levels. Roots are the output
    tuples, outputs concatenated in order. The literal of random fact v is v + 1.

    segments       (kind, first node, behind last node) of each run of one kind, in order of evaluation; none if
                   `has_cycles`, where nodes are in any order, and children and roots may be negated
    variables      relation -> [fact] int64: random facts of an input
    groups         arrays of random facts of which exactly one holds
    fixed          [fixed] int64: random facts written in the program; their probabilities are `fixed_weights`
    """

    segments: tuple[tuple[int, int, int], ...]
    num_variables: int
    variables: dict[str, np.ndarray]
    groups: tuple[np.ndarray, ...]
    fixed: np.ndarray
    fixed_weights: np.ndarray
    random: RandomFacts
    has_cycles: bool = False

    def unrolled(
        self, semiring: Semiring, deadline: Deadline = NEVER, most_edges: int = MAX_UNROLLED_EDGES
    ) -> GroundProgram:
        """The same without cycles. Raises TooManyEdges."""
        if not self.has_cycles:
            return self
        return self._in_levels(unroll(AndOrGraph(*self.arrays), deadline, semiring, most_edges))

    def _in_levels(self, graph: AndOrGraph) -> GroundProgram:
        """This program with another graph, which is acyclic, and whose children come before their parents."""
        height = np.zeros(graph.num_nodes, dtype=np.int64)
        heights(graph.offsets, graph.children, height)
        signed = np.concatenate([graph.children, graph.roots])
        negated, where = np.unique(~signed[signed < 0], return_inverse=True)
        signed[signed < 0] = graph.num_nodes + where
        graph = AndOrGraph(
            np.concatenate([graph.kind, np.full(len(negated), NOT, dtype=np.uint8)]),
            np.concatenate([graph.literal, np.zeros(len(negated), dtype=np.int32)]),
            offsets_of(np.concatenate([graph.sizes, np.ones(len(negated), dtype=np.int64)])),
            np.concatenate([signed[: graph.num_edges], negated]),
            signed[graph.num_edges :],
        )
        height = np.concatenate([height, height[negated] + 1])
        order = np.lexsort((graph.kind, height))
        graph, height = graph.taken(order), height[order]
        cuts = np.flatnonzero((np.diff(height) != 0) | (np.diff(graph.kind.astype(int)) != 0)) + 1
        bounds = [0, *cuts.tolist(), len(order)]
        segments = tuple((int(graph.kind[a]), a, b) for a, b in itertools.pairwise(bounds) if b > a)
        names = ("kind", "literal", "offsets", "children", "roots")
        return replace(self, **dict(zip(names, graph.arrays)), segments=segments, has_cycles=False)

    def copies(self, count: int) -> GroundProgram:
        """One program that is so many of this one; each has variables of its own, and its roots come
        after those of the one before."""
        sizes = np.repeat(self.sizes, count)
        copy = np.tile(np.arange(count), len(self.kind))
        children = self.children[np.repeat(np.repeat(self.offsets[:-1], count), sizes) + within(sizes)]
        literal = np.repeat(self.literal.astype(np.int64), count)
        return replace(
            self,
            kind=np.repeat(self.kind, count),
            literal=np.where(literal > 0, literal + self.num_variables * copy, literal),
            offsets=offsets_of(sizes),
            children=children * count + np.repeat(copy, sizes),
            roots=(self.roots * count + np.arange(count)[:, None]).reshape(-1),
            segments=tuple((kind, start * count, stop * count) for kind, start, stop in self.segments),
            num_variables=self.num_variables * count,
        )

    def evaluate(self, tags: ColumnTags) -> Any:
        """Tags of the roots [output] for one data point, one column operation a fold step.

        tags  of the random facts whose probabilities they should use
        """
        values = tags.zero(len(self.kind))
        for kind, start, stop in self.segments:
            if kind == TRUE:
                values[start:stop] = tags.one(stop - start)
            elif kind == LITERAL:
                values[start:stop] = tags.fact_tags(self.literal[start:stop].astype(np.int64) - 1)
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
    program: Lowers,
    inputs: Mapping[str, InputMapping],
    outputs: Mapping[str, Sequence[Any]],
    facts: Mapping[str, Any] | None = None,
    provenance: Semiring = godel,
    watch: Watch | None = None,
    record: Semiring | Inference | None = None,
) -> GroundProgram:
    """Ground the derivations of the output tuples for a tagged provenance.

    Arguments as for `exact.compile_exact`; `provenance` chooses how recursion is spelled out (module docstring), and
    its laws simplify; topkproofs has those of `boolean`, and is the `record` then. An output that cannot be derived is
    the FALSE node.
    """
    record = record or provenance
    ram, grounding, variables = ground_inputs(program, inputs, facts, watch, provenance, record=record)
    in_order = derivations if isinstance(record, Semiring) else levelled
    made = in_order(grounding, grounding.nodes_of(ram, outputs), variables, provenance, watch or NEVER)
    grounding.warn_of(made.num_nodes, "the ground program without its cycles")
    return made


def levelled(
    grounding: Grounding,
    roots: np.ndarray,
    variables: dict[str, np.ndarray],
    semiring: Semiring,
    deadline: Deadline = NEVER,
) -> GroundProgram:
    """The derivations of nodes in levels. Raises UnsupportedError for an endless sum."""
    graph = grounding.graph.with_roots(roots)
    if grounding.recursive and not semiring.is_exact and semiring.typed().always_saturated:
        graph = _spell_rounds(graph, grounding.recursive, deadline).trimmed().ordered()
    else:
        graph = unroll(graph, deadline, semiring)
    return _program(grounding, variables, graph, False)._in_levels(graph)


def derivations(
    grounding: Grounding,
    roots: np.ndarray,
    variables: dict[str, np.ndarray],
    semiring: Semiring,
    deadline: Deadline = NEVER,
    is_reused: bool = True,
) -> GroundProgram:
    """The derivations of nodes for values and gradients of a semiring: in levels, or with their cycles.

    Where the semiring has best derivations, cycles stay if the graph is for one evaluation, or too large without them:
    a fixpoint takes no time to prepare, and levels of a batch take a quarter of its time.
    """
    graph = grounding.graph.with_roots(roots).trimmed()
    has_negations = bool((graph.children < 0).any() or (graph.roots < 0).any() or (graph.literal < 0).any())
    if graph.is_ordered or not has_best_derivations(semiring, has_negations):
        return levelled(grounding, roots, variables, semiring, deadline)
    program = _program(grounding, variables, graph, True)
    if is_reused and (graph.num_edges <= MOST_EDGES or components(graph.offsets, graph.children)[1] == graph.num_nodes):
        with suppress(TooManyEdges):
            return program.unrolled(semiring, deadline, MOST_UNROLLED)
    return program


def _program(
    grounding: Grounding, variables: dict[str, np.ndarray], graph: AndOrGraph, has_cycles: bool
) -> GroundProgram:
    random = grounding.facts.random
    return GroundProgram(
        *graph.arrays,
        (),
        len(random.probabilities),
        variables,
        tuple(random.groups),
        *random.fixed(variables),
        random,
        has_cycles,
    )


def _spell_rounds(graph: AndOrGraph, recursive: tuple[np.ndarray, ...], deadline: Deadline) -> AndOrGraph:
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
        for number, t in enumerate(sorted(own)):
            if number % 256 == 0:
                deadline.remaining()
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
            deadline.remaining()
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
    return AndOrGraph.of(kinds, literals, children, [seen(root) for root in graph.roots.tolist()])
