"""Evidence: tuples that were observed, and the probabilities of others given that.

Each tuple that evidence is about has an indicator, a variable behind those of the random facts. The circuit's first
root is the evidence as a formula, that each indicator equals its tuple; the other roots are the rows of outputs, each
in conjunction with it. An observation is the weights of the indicator's literals: (1, 0) for a tuple that holds,
(0, 1) for one that does not. So other observations of the same tuples are other weights of the same circuit, and the
quotient of two roots is a posterior. Roots are evaluated as logarithms: evidence of many items has a tiny probability.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import DomainError, TypeMismatchError
from derivable.core.progress import Deadline
from derivable.datalog.exact.exact import Grounding, absences, circuit_of, nodes_of_items, posteriors_of
from derivable.datalog.facts.inputs import as_tuple
from derivable.datalog.facts.load import known_relation
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Evidence, Rules
from derivable.datalog.rules.text import evidence_text
from derivable.datalog.values.values import fits

# Observed tuples of a relation without columns, of others, or tuples with what was observed of each.
Observed = bool | Iterable[Any] | Mapping[Any, bool]


def checked_evidence(evidence: Mapping[str, Observed] | None, rules: Rules) -> tuple[Evidence, ...]:
    """The items of evidence of a program and of a run, each tuple once.

    evidence  relation -> True or False for one without columns, a list of tuples that hold, or a mapping from tuples to
              True and False; a tuple of one column may be its value

    Raises BindingError for an unknown relation, TypeMismatchError for what is no such evidence or does not fit its
    relation, DomainError for a tuple that is to hold and not to hold.
    """
    if evidence is not None and not isinstance(evidence, Mapping):
        raise TypeMismatchError(
            f"evidence is a {type(evidence).__name__}",
            hint='map relations: evidence={"alarm": True, "john": [("Ada",)]}',
        )
    items = list(rules.evidence)
    for name, observed in (evidence or {}).items():
        relation = known_relation(rules, name, f"evidence of an unknown relation `{name}`", rules.source)
        for key, is_true in _observations(name, observed):
            row = as_tuple(key)
            item = Evidence(name, row, is_true)
            if len(row) != len(relation.types) or not all(map(fits, row, relation.types)):
                types = ", ".join(map(str, relation.types))
                raise TypeMismatchError(f"`{evidence_text(item)}` does not fit `{name}({types})`")
            items.append(item)
    distinct: dict[tuple[str, tuple[Any, ...]], Evidence] = {}
    for item in items:
        before = distinct.setdefault((item.relation, item.row), item)
        if before.is_true != item.is_true:
            raise DomainError(
                f"`{evidence_text(before)}` and `{evidence_text(item)}` contradict each other",
                hint="a tuple was observed to hold, or not to hold",
                source=rules.source,
                text=rules.text,
                span=before.span,
            )
    return tuple(distinct.values())


def _observations(name: str, observed: Any) -> list[tuple[Any, bool]]:
    if isinstance(observed, (bool, np.bool_)):
        return [((), bool(observed))]
    if isinstance(observed, Mapping):
        for key, is_true in observed.items():
            if not isinstance(is_true, (bool, np.bool_)):
                raise TypeMismatchError(
                    f"the evidence of `{name}` has {is_true!r} for {key!r}",
                    hint="a tuple was observed to hold (True) or not (False); leave out what was not observed",
                )
        return [(key, bool(is_true)) for key, is_true in observed.items()]
    if isinstance(observed, str) or not isinstance(observed, Iterable):
        raise TypeMismatchError(
            f"the evidence of `{name}` is {observed!r}",
            hint="True or False for a relation without columns, a list of tuples that hold, or a mapping of tuples to"
            " True and False",
        )
    return [(key, True) for key in observed]


@dataclass(frozen=True, eq=False)
class Conditioned:
    """The circuit of evidence and of rows in conjunction with it, and what was observed.

    circuit       the first root is the evidence
    roots         [row] the root of each row, or its indicator, if the circuit has one root
    is_exclusive  [random fact] whether it is one of a choice, whose negative literal has weight one
    items         the evidence, in the order of the indicators
    """

    circuit: Circuit
    roots: np.ndarray
    is_exclusive: np.ndarray
    items: tuple[Evidence, ...]

    @staticmethod
    def of(
        grounding: Grounding, nodes: np.ndarray, ram: Ram, items: tuple[Evidence, ...], deadline: Deadline
    ) -> Conditioned:
        """Compile the nodes [row] of a grounding, given the items."""
        distinct, where = np.unique(nodes, return_inverse=True)
        observed = nodes_of_items(grounding, ram, items)
        circuit = circuit_of(grounding, distinct, deadline, observed, has_derivatives=True)
        made = Conditioned(circuit, where.reshape(-1), grounding.facts.random.group_of() >= 0, items)
        return made if made.num_indicators else replace(made, roots=made.roots + 1)

    @property
    def num_indicators(self) -> int:
        """How many rows are indicators of one root, none where each is a root."""
        return self.circuit.num_variables - len(self.is_exclusive) - len(self.items)

    def shown(self, fact_probabilities: Sequence[float]) -> tuple[np.ndarray, np.ndarray, float]:
        """P(row | evidence) [row], whether the row holds in some world of the evidence, and the logarithm of the
        probability of the evidence, under the probabilities [variable] of the random facts.

        Raises DomainError for evidence that holds in no world.
        """
        signs = np.array([item.is_true for item in self.items])
        if self.num_indicators:
            weights, negative = self._weights(fact_probabilities, signs, ~signs)
            posteriors, possible, log_evidence = posteriors_of(self.circuit, weights, negative, self.num_indicators)
            if log_evidence == -np.inf:
                raise self.impossible(fact_probabilities, signs)
            return posteriors[self.roots], possible[self.roots], log_evidence
        logs = self.logs(fact_probabilities, signs, ~signs)
        if np.isneginf(logs[0]):
            raise self.impossible(fact_probabilities, signs)
        of_rows = logs[self.roots]
        return np.minimum(np.exp(of_rows - logs[0]), 1.0), ~np.isneginf(of_rows), float(logs[0])

    def logs(self, fact_probabilities: Sequence[float], holds: np.ndarray, fails: np.ndarray) -> np.ndarray:
        """The logarithms [*batch, root] where the items [*batch, item] may hold, and may fail."""
        with np.errstate(divide="ignore"):
            weights, negative = map(np.log, self._weights(fact_probabilities, holds, fails))
        return np.asarray(self.circuit.evaluate(weights, negative, "log"))

    def _weights(
        self, probabilities: Sequence[float], holds: np.ndarray, fails: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The weights [*batch, variable] of both literals."""
        facts = np.broadcast_to(np.asarray(probabilities, np.float64), (*holds.shape[:-1], len(probabilities)))
        absent, ones = absences(facts, self.is_exclusive), np.ones((*holds.shape[:-1], self.num_indicators))
        return np.concatenate([facts, holds, ones], -1), np.concatenate([absent, fails, ones], -1)

    def impossible(self, fact_probabilities: Sequence[float], signs: np.ndarray) -> DomainError:
        """Of evidence that no world fits, with the first item that cannot be so, given those before it."""
        count = len(signs)
        # Row i has the first i + 1 items.
        unseen = np.arange(count) > np.arange(count)[:, None]
        prefixes = self.logs(fact_probabilities, signs | unseen, ~signs | unseen)[:, 0]
        first = int(np.argmax(np.isneginf(prefixes)))
        others = np.arange(count) != first
        alone = self.logs(fact_probabilities, signs | others, ~signs | others)[0]
        return impossible(self.items[first], not np.isneginf(alone))


def impossible(item: Evidence, is_after_others: bool) -> DomainError:
    """Of an item that holds in no world, or in none in which those before it hold."""
    before = ", given the items before it" if is_after_others else ""
    return DomainError(
        f"the evidence is impossible: `{evidence_text(item)}` holds in no world{before}",
        hint="remove the item, or give the facts that it needs a probability",
    )
