"""The indicators of evidence: variables behind those of the random facts, each equal to an observed tuple."""

from __future__ import annotations

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.core.and_or import AND, LITERAL, OR
from derivable.core.graph import offsets_of


def with_indicators(form: AndOrGraph, num_rows: int, num_facts: int) -> AndOrGraph:
    """The graph with the evidence as first root, and the first `num_rows` roots in conjunction with it.

    form  its roots are rows, then observed tuples, then their negations
    """
    rows, observed, negated = np.split(form.roots, [num_rows, (len(form.roots) + num_rows) // 2])
    count, start = len(observed), form.num_nodes
    indicators = num_facts + 1 + np.arange(count)
    # Of each item its two literals, the two conjunctions, and their disjunction; then the evidence, and the rows.
    literals = np.stack([indicators, -indicators], 1).reshape(-1)
    indices = start + np.arange(2 * count)
    halves = start + 2 * count + np.arange(2 * count)
    equal = start + 4 * count + np.arange(count)
    evidence = start + 5 * count
    tuples = np.stack([observed, negated], 1).reshape(-1)
    children = [np.stack([indices, tuples], 1).reshape(-1), halves, equal]
    children.append(np.stack([rows, np.full(num_rows, evidence)], 1).reshape(-1))
    kinds = np.repeat([LITERAL, AND, OR, AND], [2 * count, 2 * count, count, 1 + num_rows])
    sizes = np.concatenate([np.zeros(2 * count), np.full(3 * count, 2), [count], np.full(num_rows, 2)]).astype(np.int64)
    return AndOrGraph(
        np.concatenate([form.kind, kinds]).astype(np.uint8),
        np.concatenate([form.literal, literals, np.zeros(3 * count + 1 + num_rows, np.int64)]).astype(np.int32),
        offsets_of(np.concatenate([form.sizes, sizes])),
        np.concatenate([form.children, *children]),
        np.concatenate([[evidence], evidence + 1 + np.arange(num_rows)]),
    )
