"""Interpretations, what was observed of several worlds, as rows of weights of few circuits.

Observed tuples that depend on none of the same random facts are apart: each part of them has a circuit of its own, and
what an interpretation says of it is a row. Parts of the same structure share a circuit, whatever facts they are about;
equal rows are one, counted. A thousand interpretations of a program, or of a thousand programs over different
facts, so are one pass over a circuit.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import FALSE, LITERAL, TRUE
from derivable.core.diagnostics import DomainError
from derivable.core.graph import connected_components, offsets_of
from derivable.core.progress import Deadline
from derivable.datalog.exact.exact import Grounding, compiled_form
from derivable.datalog.exact.indicators import with_indicators
from derivable.datalog.exact.parts import Parts
from derivable.datalog.exact.unroll import acyclic, normal_form
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Evidence
from derivable.datalog.rules.text import evidence_text
from derivable.datalog.tags.ground_graph import negate

# What was observed of a tuple.
FAILS, HOLDS, UNSEEN = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Observations:
    """Rows of one circuit.

    circuit             one root: the indicators, behind the random facts, equal the observed tuples
    is_choice           bool [fact] whether it is one of a choice, whose negative literal weighs one
    seen                int8 [row, item]: HOLDS, FAILS or UNSEEN
    parameters          [row, fact] the number of each fact's tunable probability, -1 for one that has none, and
    fact_probabilities  [row, fact] the probabilities of these
    counts              [row] how many interpretations have it, and
    examples            [row] one of these
    """

    circuit: Circuit
    is_choice: np.ndarray
    seen: np.ndarray
    parameters: np.ndarray
    fact_probabilities: np.ndarray
    counts: np.ndarray
    examples: np.ndarray


@dataclass
class _Shape:
    """A circuit, and the rows so far."""

    graph: AndOrGraph
    groups: np.ndarray
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)


class Interpretations:
    """What was observed, by the structure of what it depends on."""

    def __init__(self) -> None:
        self._shapes: dict[Hashable, _Shape] = {}

    def add(
        self,
        ram: Ram,
        grounding: Grounding,
        examples: Sequence[tuple[int, Sequence[Evidence]]],
        parameter_of: np.ndarray,
        deadline: Deadline,
    ) -> None:
        """Add the (number, items) of interpretations over the same facts.

        parameter_of  [variable] the number of the tunable probability, -1 for none

        Raises DomainError for an interpretation with an item that is in no world.
        """
        item_numbers: dict[tuple[str, tuple], int] = {}
        for _, items in examples:
            for item in items:
                item_numbers.setdefault((item.relation, item.row), len(item_numbers))
        seen = np.full((len(examples), len(item_numbers)), UNSEEN, np.int8)
        for row, (_, items) in enumerate(examples):
            for item in items:
                seen[row, item_numbers[item.relation, item.row]] = HOLDS if item.is_true else FAILS
        nodes = _nodes(grounding, ram, list(item_numbers))
        numbers = np.array([number for number, _ in examples], np.int64)
        form = normal_form(acyclic(grounding.graph.with_roots(np.concatenate([nodes, negate(nodes)])), deadline))
        self._refuse_constants(form.kind[form.roots[: len(nodes)]], seen, examples)
        group_of = grounding.facts.random.group_of()
        fact_probabilities = np.asarray(grounding.facts.random.probabilities)
        items, starts = _apart(form, len(nodes), group_of)
        if not len(items):
            return
        roots = [form.roots[np.concatenate([some, some + len(nodes)])] for some in np.split(items, starts[1:-1])]
        offsets = offsets_of([len(some) for some in roots])
        parts = Parts.of(form.with_roots(np.concatenate(roots)), offsets, group_of, whole=True)
        for number in range(len(roots)):
            deadline.remaining()
            graph, groups = parts.part(number)
            shape = self._shapes.setdefault(parts.key(number), _Shape(graph, groups))
            variables = parts.variables[parts.variable_offsets[number] : parts.variable_offsets[number + 1]]
            of_part = seen[:, items[starts[number] : starts[number + 1]]]
            some = np.flatnonzero((of_part != UNSEEN).any(1))
            shape.rows.append((of_part[some], parameter_of[variables], fact_probabilities[variables], numbers[some]))

    @staticmethod
    def _refuse_constants(
        kinds: np.ndarray, seen: np.ndarray, examples: Sequence[tuple[int, Sequence[Evidence]]]
    ) -> None:
        """Raise DomainError for what holds in no world, or in all of them, and was observed to be otherwise."""
        wrong = ((kinds == FALSE) & (seen == HOLDS)) | ((kinds == TRUE) & (seen == FAILS))
        for row, _ in np.argwhere(wrong)[:1].tolist():
            number, items = examples[row]
            bad = np.flatnonzero(wrong[row])
            order = list(dict.fromkeys((item.relation, item.row) for _, all_items in examples for item in all_items))
            names = {order[number] for number in bad.tolist()}
            item = next(item for item in items if (item.relation, item.row) in names)
            shown = evidence_text(item).removeprefix("evidence ")
            raise DomainError(
                f"interpretation {number} is impossible: `{shown}` holds in no world",
                hint="remove the item, or give the facts that it needs a probability",
            )

    def compiled(self, deadline: Deadline) -> list[Observations]:
        observations = []
        for shape in self._shapes.values():
            num_facts, num_items = len(shape.groups), len(shape.graph.roots) // 2
            groups = [
                np.flatnonzero(shape.groups == group) + 1 for group in range(int(shape.groups.max(initial=-1)) + 1)
            ]
            form = with_indicators(shape.graph, 0, num_facts)
            circuit = compiled_form(form, num_facts + num_items, groups, deadline, " and the interpretations")
            observations.append(_joined(circuit, shape))
        return observations


def _joined(circuit: Circuit, shape: _Shape) -> Observations:
    """The rows of a circuit, equal ones once."""
    wide = [
        np.concatenate(
            [seen, *(np.broadcast_to(one, (len(seen), len(one))) for one in (parameters, fact_probabilities))], axis=1
        )
        for seen, parameters, fact_probabilities, _ in shape.rows
    ]
    examples = np.concatenate([numbers for *_, numbers in shape.rows])
    rows, first, counts = np.unique(np.concatenate(wide), axis=0, return_index=True, return_counts=True)
    seen, parameters, fact_probabilities = np.split(
        rows, np.cumsum([len(shape.graph.roots) // 2, len(shape.groups)]), axis=1
    )
    return Observations(
        circuit,
        shape.groups >= 0,
        seen.astype(np.int8),
        parameters.astype(np.int64),
        np.ascontiguousarray(fact_probabilities),
        counts.astype(np.float64),
        examples[first],
    )


def _nodes(grounding: Grounding, ram: Ram, tuples: Sequence[tuple[str, tuple]]) -> np.ndarray:
    """The nodes [tuple]."""
    by_relation: dict[str, list[int]] = {}
    for number, (relation, _) in enumerate(tuples):
        by_relation.setdefault(relation, []).append(number)
    nodes = np.empty(len(tuples), np.int64)
    for relation, numbers in by_relation.items():
        nodes[numbers] = grounding.nodes_of(ram, {relation: [tuples[number][1] for number in numbers]})
    return nodes


def _apart(form: AndOrGraph, count: int, group_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(items part by part, where each part begins), of items whose roots are followed by those of their negations.

    Items that share a random fact, or a choice, are of one part; constants are of none.
    """
    size, is_constant = form.num_nodes, form.kind < LITERAL
    leaf = np.flatnonzero(form.kind == LITERAL)
    variable = np.abs(form.literal[leaf].astype(np.int64)) - 1
    choice = np.where(group_of[variable] >= 0, group_of[variable], len(group_of) + variable)
    edges = ~is_constant[form.children]
    one = np.concatenate([form.parents[edges], leaf, form.roots[:count]])
    two = np.concatenate([form.children[edges], size + choice, form.roots[count:]])
    component = connected_components(size + 2 * len(group_of), zip(one.tolist(), two.tolist()))
    items = np.flatnonzero(~is_constant[form.roots[:count]])
    label = component[form.roots[items]]
    items = items[np.argsort(label, kind="stable")]
    label = np.sort(label)
    starts = np.flatnonzero(np.append(True, label[1:] != label[:-1])) if len(items) else np.empty(0, np.int64)
    return items, np.append(starts, len(items))
