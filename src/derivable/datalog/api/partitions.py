"""Runs in partitions: the program of one partition, which an engine calls wherever the partition is."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from derivable.algebra.semirings import boolean
from derivable.core.diagnostics import DerivableError, UnsupportedError
from derivable.datalog.api.evaluation import Evaluation, take_tags
from derivable.datalog.api.plan import Plan
from derivable.datalog.api.relation_view import RelationView
from derivable.datalog.distribution.keys import keys_of
from derivable.datalog.distribution.partition import Partition, alone, partition, prepared
from derivable.datalog.distribution.pivot import DRAWING, Pivots
from derivable.datalog.distribution.round_sql import refusal
from derivable.datalog.distribution.scalar_sql import RefusedError
from derivable.datalog.distribution.tag_sql import TagSql
from derivable.datalog.distribution.text import distribution_text
from derivable.datalog.facts.inputs import Columns, InputMapping
from derivable.datalog.facts.load import load_relation
from derivable.datalog.facts.program_facts import load_program_facts
from derivable.datalog.facts.store import new_store
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import needed_for, stratify
from derivable.datalog.rules.untagged import without_coins
from derivable.datalog.run.limits import Limits, Watch, watched
from derivable.datalog.tags.provenance import EXACT, Inference, carrier_of, distributes, in_rounds, provenance_of
from derivable.datalog.tags.random_facts import RandomFacts


@dataclass(frozen=True, eq=False)
class Distribution:
    """How a program is partitioned under a provenance.

    rules   as they are partitioned, of all outputs
    plans   output -> its partition's program, or why it has none
    """

    rules: r.Rules
    pivots: Pivots
    plans: dict[str, Partition | str]
    rounds: dict[str, RoundPlan | str]

    @staticmethod
    def of(plan: Plan, inputs: Collection[str], frames: Mapping[str, int | None], provenance: Any) -> Distribution:
        """inputs  the relations with facts from outside; frames  those of them that the engine has, with their bytes"""
        record = provenance_of("unit" if provenance is None else provenance)
        rules = plan.optimised(True, record is not boolean)
        _check(rules)
        rules = prepared(rules, inputs, _is_associative(record))
        pivots = Pivots(rules)
        named = {source_of(rules, name): size for name, size in frames.items()}
        plans: dict[str, Partition | str] = {}
        rounds: dict[str, RoundPlan | str] = {}
        for output in rules.outputs:
            planned = plans[output] = partition(rules, pivots, output, named)
            if isinstance(planned, str) and needed_for(rules, [output]).isdisjoint(named):
                plans[output] = alone(rules, pivots, output, planned)
            elif isinstance(planned, str):
                rounds[output] = RoundPlan.of(plan, output, record)
        return Distribution(rules, pivots, plans, rounds)

    def text(self, sizes: Mapping[str, int | None]) -> str:
        """Each stratum with its pivot, or why it has none, and what becomes of inputs of these sizes in bytes."""
        named = {source_of(self.rules, name): size for name, size in sizes.items()}
        refused = {name: plan if isinstance(plan, str) else None for name, plan in self.rounds.items()}
        return distribution_text(stratify(self.rules), self.pivots, self.plans, named, refused)


@dataclass(frozen=True, eq=False)
class RoundPlan:
    """What an output is computed by a round at a time: rules, RAM without demand, and the SQL of tags, None without."""

    rules: r.Rules
    ram: Ram
    tags: TagSql | None

    @staticmethod
    def of(plan: Plan, output: str, record: Any) -> RoundPlan | str:
        """The plan of rounds of an output, or why there is none."""
        if isinstance(record, Inference):
            return f"tags of {record.name} are no columns that the engine adds up"
        rules = replace(plan.rules, outputs=(output,), queries=())
        plain = without_coins(rules)
        made = plan.with_rules(rules, plain)
        ram, tags = made.ram(narrow=False, counts_rounds=True), None
        if record is not boolean:
            ram = ram.with_tags(distributes(record))
            try:
                tags = TagSql.of(record)
            except RefusedError as error:
                return error.reason
        refused = refusal(ram, output, tags)
        return RoundPlan(rules, ram, tags) if refused is None else refused


@contextmanager
def partition_errors() -> Iterator[None]:
    """Say of errors in this block which relation of the program they are of, and that rows are those of a partition."""
    try:
        yield
    except DerivableError as error:
        message = re.sub(r"`([^`@]+)@[^`]*`", r"`\1`", error.message)
        if message == error.message:
            raise
        message = re.sub(r"\brow (\d+)", r"row \1 of its partition", message)
        hint = "a relation has no missing values: drop such rows first" if "missing" in message else error.hint
        raise type(error)(message, hint=hint) from None


def source_of(rules: r.Rules, name: str) -> str:
    """The relation of prepared rules that has the facts of a relation of the program."""
    return f"{name}@facts" if f"{name}@facts" in rules.relations else name


def _is_associative(record: Any) -> bool:
    """Whether a transitive rule gives what a linear one does."""
    if record is EXACT:
        return True
    return not isinstance(record, Inference) and record.idempotent_plus and distributes(record)


def _check(rules: r.Rules) -> None:
    """Raises UnsupportedError for what no partition computes as one machine does."""
    for name, relation in rules.relations.items():
        for t in relation.types:
            if t.family in ("entity", "tensor"):
                what = "terms" if t.family == "entity" else "tensors"
                rules.error(UnsupportedError, f"`{name}` has {what}, which are not sent to partitions", relation.span)
        if any(attribute.name == "file" for attribute in relation.attributes):
            hint = f"leave out `@file`, and give the path to `run`: facts={{{name!r}: Path(...)}}"
            rules.error(UnsupportedError, f"partitions do not read the file of `{name}`", relation.span, hint)
    for rule in rules.rules:
        if isinstance(rule, r.AggregateRule) and rule.operator in DRAWING:
            hint = "leave out the engine"
            rules.error(UnsupportedError, f"`{rule.operator}` draws from all rows of one machine", rule.span, hint)
    if rules.evidence:
        raise UnsupportedError(
            "evidence is about all facts, and partitions know their own",
            hint="leave out the engine",
            source=rules.source,
        )


@dataclass(frozen=True, eq=False)
class PartitionRun:
    """What a partition runs; it is pickled.

    facts       input -> facts that all partitions have, as `inputs.taken` hands them on
    provenance  its name or record, `k` proofs and `limits` as for `Program.run`
    num_keys    how many keys there are (`distribution.keys`)
    """

    partition: Partition
    ram: Ram
    facts: Mapping[str, Any]
    provenance: Any
    k: int
    limits: Limits
    num_keys: int
    compatible: bool = False

    @staticmethod
    def of(plan: Plan, partition: Partition, facts: Mapping[str, Any], **settings: Any) -> PartitionRun:
        """Compile what a partition runs."""
        made = plan.with_rules(partition.rules, without_coins(partition.rules))
        limits: Limits = settings["limits"]
        counts = limits.iteration_limit is not None or limits.round_limit is not None
        ram = made.ram(narrow=limits.iteration_limit is None, counts_rounds=counts)
        return PartitionRun(partition, ram, facts, **settings)

    def run(self, keys: np.ndarray, rows: Mapping[str, Any], watch: Watch | None = None) -> RelationView:
        """The rows of the output in the partition that owns these keys.

        rows   split relation -> its facts in the partition, as `inputs.taken` hands them on
        watch  of its limits; None for one of those of the run
        """
        watch = Watch(self.limits, False) if watch is None else watch
        with partition_errors():
            return watched(watch, lambda: self._run(keys, rows, watch))

    def _run(self, keys: np.ndarray, rows: Mapping[str, Any], watch: Watch) -> RelationView:
        rules = self.partition.rules
        record = provenance_of(self.provenance)
        store = new_store(rules, RandomFacts())
        name = self.provenance if isinstance(self.provenance, str) else record.name
        carrier = carrier_of(record, name)
        if carrier.is_early:
            store.random.require(carrier)
        load_program_facts(rules, store)
        for relation, facts in (*self.facts.items(), *rows.items()):
            load_relation(rules.relations[relation], facts, store)
        for relation, version in self.partition.owners.items():
            assert version.column is not None
            words = self._values(store, version.relation, version.column)
            t = rules.relations[relation].types[0]
            is_owned = np.isin(keys_of(words, t, store.symbols, self.num_keys), keys)
            store.add(relation, [words[is_owned]])
        if self.compatible:
            record = in_rounds(record)
        take_tags(store, rules, record, name)
        evaluation = Evaluation(self.ram, store, record, self.k)
        evaluation.run(watch, is_extensible=False)
        table, tags = evaluation.outputs[self.partition.target.name]
        return RelationView(table, tags, store.symbols)

    @staticmethod
    def _values(store: Any, relation: str, column: int) -> np.ndarray:
        """The distinct words in a column of facts."""
        facts = store.relations.get(relation)
        if facts is None:
            return np.empty(0, np.int64)
        return np.unique(np.concatenate([np.asarray(part[column], np.int64) for part in facts.columns]))


def distribution_of(plan: Plan, facts: Mapping[str, Any], provenance: Any) -> str:
    """How the program is distributed over these facts, as `inputs.taken` hands them on, as a text."""
    if provenance is None:
        provenance = "exact" if plan.is_uncertain else "unit"
    return Distribution.of(plan, facts, {}, provenance).text({name: size_of(facts[name]) for name in facts})


def size_of(facts: Any) -> int | None:
    """The bytes of facts, as `inputs.taken` hands them on: a word for each value; None for files."""
    if isinstance(facts, os.PathLike):
        return None
    if isinstance(facts, np.ndarray):
        return facts.size * 8
    if isinstance(facts, Columns):
        return len(facts) * 8 * (len(facts.arrays) + (facts.probabilities is not None))
    rows: Any = facts.tuples if isinstance(facts, InputMapping) else facts
    first = next(iter(rows), ())
    return len(rows) * 8 * (len(first) if isinstance(first, tuple) else 1)
