"""Answers to `Database.why` and `Database.why_not`, and the tables that proofs are searched in, made for the first.

A run keeps its facts for this, and nothing else. Where the relations behind a tuple are outputs or have facts alone,
their tables are there. Else the relations behind it are computed once more, as they are written and without tags, or,
where some rows are there in some worlds only, with their derivations. Relations of which only demanded keys
are computed are computed for the tuple in question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from derivable.algebra.semirings import boolean
from derivable.core.arguments import is_integer
from derivable.core.collection import gc_paused
from derivable.core.diagnostics import AbsentTupleError, DomainError, TypeMismatchError, UnsupportedError
from derivable.datalog.api.evaluation import Evaluation
from derivable.datalog.facts.inputs import as_tuple
from derivable.datalog.facts.load import known_relation
from derivable.datalog.facts.store import FactStore
from derivable.datalog.ram.lower import lower
from derivable.datalog.reasons.absence import absence
from derivable.datalog.reasons.explain import Explainer
from derivable.datalog.reasons.model import Model
from derivable.datalog.reasons.prefixes import with_prefixes
from derivable.datalog.reasons.proof import Absence, Proof, Proofs
from derivable.datalog.reasons.rows import Row
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.adorn import adorn
from derivable.datalog.rules.demand import demand
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.sideways import Patterns
from derivable.datalog.rules.strata import dependents, needed_for, stratify
from derivable.datalog.run.demand_facts import demanded
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.limits import Watch, checked_limits, watched
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.provenance import EXACT
from derivable.datalog.tags.tags import Untagged
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import fits

Answer = TypeVar("Answer")


class Reasons:
    """The questions about one state of a database.

    rules   of the program, as it writes them
    facts   of the run
    record  its provenance
    narrow  whether it computes only what its outputs need
    rounds  of recursions after which it has stopped; None if they are at their end
    """

    def __init__(self, rules: r.Rules, facts: FactStore, record: Any, narrow: bool, rounds: int | None):
        self.rules, self.facts, self.record, self.narrow, self.rounds = rules, facts, record, narrow, rounds
        self.explainers: dict[Any, Explainer] = {}

    # Questions

    def why(self, outputs: Mapping[str, Table], name: str, row: Any, k: Any, limits: Any) -> Proof | Proofs:
        if k is not None and (not is_integer(k) or k < 1):
            raise DomainError(f"k is {k!r}", hint="a number of proofs from 1 on, or None for one of least height")
        relation, values = self.checked(name, row)

        def answer(watch: Watch) -> Proof | Proofs:
            explainer = self.explainer_of(outputs, relation, values, watch)
            row = explainer.model.words_of(relation.name, values)
            table = _whole_table(outputs, relation)
            shown = atom_text(relation.name, values)
            is_there = table is None or table.find(_columns(row), 1)[0] >= 0
            if k is None:
                proof = explainer.least(relation.name, row, watch) if is_there else None
                if proof is not None:
                    return proof
                if is_there and table is not None:
                    raise self.no_proof(relation, shown)
            elif is_there:
                if not explainer.has_probabilities:
                    raise UnsupportedError(
                        "the tags of this provenance are no probabilities, so that no proof is the most probable",
                        hint=f"database.why({name!r}, {values!r}) without k gives a proof of least height",
                    )
                several = explainer.most_probable(relation.name, row, k, watch)
                if len(several):
                    return several
                if table is not None:
                    raise self.no_proof(relation, shown)
            raise AbsentTupleError(
                f"`{shown}` does not hold, so there is no proof",
                hint=f"database.why_not({name!r}, {values!r}) says which atoms fail",
            )

        return self.answered(answer, limits)

    def no_proof(self, relation: r.Relation, shown: str) -> UnsupportedError:
        """The error for a tuple that a run has, and no proof: what its table says is no single derivation."""
        hint = (
            "there are none for aggregates of random rows in a recursion, and where all use facts that exclude others"
        )
        lattices = [one for one in self.rules.relations.values() if one.lattice not in (None, "min", "max")]
        if lattices:
            hint = f"the `{lattices[0].lattice}` of `{lattices[0].name}` joins the values of several derivations"
        return UnsupportedError(f"`{shown}` holds, but no single derivation gives it", hint=hint)

    def why_not(self, outputs: Mapping[str, Table], name: str, row: Any, depth: Any, limits: Any) -> Absence:
        if not is_integer(depth) or depth < 1:
            raise DomainError(f"depth is {depth!r}", hint="1 for the rules of the relation, 2 for those of their atoms")
        relation, values = self.checked(name, row)

        def answer(watch: Watch) -> Absence:
            def question(name: str, values: tuple[Any, ...]) -> Explainer:
                return self.explainer_of(
                    outputs, self.rules.relations[name], values, watch, is_missing=True, is_restricted=True
                )

            explainer = self.explainer_of(outputs, relation, values, watch, is_missing=True)
            row = explainer.model.words_of(relation.name, values)
            table = _whole_table(outputs, relation)
            if table is None:
                holds = explainer.least(relation.name, row, watch) is not None
            else:
                holds = table.find(_columns(row), 1)[0] >= 0
            if holds:
                raise DomainError(
                    f"`{atom_text(relation.name, values)}` holds", hint=f"database.why({name!r}, {values!r}) says why"
                )
            return absence(explainer, relation.name, row, depth, question, watch)

        return self.answered(answer, limits)

    def answered(self, answer: Callable[[Watch], Answer], limits: Mapping[str, Any]) -> Answer:
        watch = Watch(
            checked_limits(self.rounds, None, None, limits["time_limit"], limits["memory_limit"]), limits["progress"]
        )
        with gc_paused():
            return watched(watch, lambda: answer(watch))

    def checked(self, name: str, row: Any) -> tuple[r.Relation, tuple[Any, ...]]:
        """The relation of a question, and its tuple. Raises errors of ours where they do not fit."""
        query = next((q for q in self.rules.queries if q.output == name), None)
        name = name if query is None else query.relation
        if not isinstance(name, str):
            raise TypeMismatchError(
                f"a relation is named by a text, not a {type(name).__name__}", hint='database.why("path", (3, 1))'
            )
        relation = known_relation(self.rules, name, f"unknown relation `{name}`")
        values = as_tuple(row)
        types = ", ".join(map(str, relation.types))
        if len(values) != len(relation.types):
            count = len(values)
            raise TypeMismatchError(
                f"`{atom_text(name, values)}` has {count} value{'' if count == 1 else 's'},"
                f" and `{name}` has {len(relation.types)} column{'' if len(relation.types) == 1 else 's'}",
                hint=f"`{name}({types})`",
            )
        for value, t in zip(values, relation.types):
            if not fits(value, t):
                raise TypeMismatchError(
                    f"`{atom_text(name, values)}` does not fit `{name}({types})`: {value!r} is no {t}"
                )
        return relation, values

    # Tables

    def explainer_of(
        self,
        outputs: Mapping[str, Table],
        relation: r.Relation,
        values: tuple[Any, ...],
        watch: Watch,
        is_missing: bool = False,
        is_restricted: bool = False,
    ) -> Explainer:
        """Who answers questions about a tuple, or about all that have some values, where others are None.

        is_missing     whether the questions are about what its rules lack
        is_restricted  whether it is reached by demand alone, so that all its rows may have no end
        """
        # Which terms there are follows from all rules that make some.
        needed = needed_for(with_terms(self.rules), [relation.name])
        rules = tuple(rule for rule in self.rules.rules if rule.relation in needed)
        rules = replace(self.rules, rules=rules, outputs=(), queries=(), evidence=())
        is_restricted = is_restricted or bool(adorn(replace(rules, outputs=(relation.name,)), self.narrow).patterns)
        key = (relation.name, values, is_missing) if is_restricted else frozenset(needed)
        explainer = self.explainers.get(key)
        if explainer is None:
            facts = self.facts
            if facts.elsewhere:
                facts.bring()
            store = FactStore(facts.symbols.copy(), facts.random.copy())
            store.relations = {name: f for name, f in facts.relations.items() if name in self.rules.relations}
            patterns: Patterns = {}
            if is_restricted:
                known = {
                    c: r.Const(value, t)
                    for c, (value, t) in enumerate(zip(values, relation.types))
                    if value is not None
                }
                rules = self._with_question(rules, relation, known)
                patterns = adorn(rules, self.narrow).patterns
                if is_missing:
                    rules = with_prefixes(rules, relation.name, known, patterns)
                tables = self.computed(rules, store, watch)
            else:
                rules = replace(rules, outputs=(relation.name,))
                tables = self.known(outputs, rules)
                if tables is None:
                    tables = self.computed(rules, store, watch)
            model = Model(self.rules, tables, store, self.record is boolean, patterns)
            explainer = self.explainers[key] = Explainer(model)
        return explainer

    def _with_question(self, rules: r.Rules, relation: r.Relation, known: dict[int, r.Const]) -> r.Rules:
        """The rules with one output: a question for the tuples with these values."""
        name = f"{relation.name}(…)"
        types = tuple(value.type for value in known.values())
        terms = tuple(known.get(column) for column in range(len(relation.types)))
        clause = r.Clause(name, tuple(known.values()), (r.Atom(relation.name, terms),))
        pattern = "".join("f" if term is None else "b" for term in terms)
        return replace(
            rules,
            relations={**rules.relations, name: r.Relation(name, types)},
            rules=(*rules.rules, clause),
            outputs=(name,),
            queries=(r.Query(name, relation.name, pattern),),
        )

    def _derived(self, rules: r.Rules) -> tuple[str, ...]:
        """The relations with rules, without those that have rows for demanded keys alone."""
        keyed = [name for name, relation in rules.relations.items() if relation.keys is not None]
        hidden = dependents(rules, rules.key_relations) & needed_for(rules, keyed) if keyed else set()
        return tuple(dict.fromkeys(rule.relation for rule in rules.rules if rule.relation not in hidden))

    def known(self, outputs: Mapping[str, Table], rules: r.Rules) -> dict[str, Table] | None:
        """The tables of the run, if these are all that is needed."""
        derived = set(self._derived(rules))
        is_read_whole = any(
            not isinstance(rule, r.Clause) or any(isinstance(node, r.Negated) for node in rule.body)
            for rule in rules.rules
        )
        if not derived <= outputs.keys() or rules.constructors or (is_read_whole and self.record is not boolean):
            return None
        return {name: outputs[name] for name in derived}

    def computed(self, rules: r.Rules, store: FactStore, watch: Watch) -> dict[str, Table]:
        """The tables of all relations of some rules."""
        made = demand(rules, automatic=self.narrow and bool(rules.queries))
        ram = lower(stratify(made.then))
        if made.first is not None:
            ram = replace(ram, demand=lower(stratify(made.first)))
        evaluation = Evaluation(ram, store, boolean if self.record is boolean else EXACT, 3)
        facts = replace(store, relations=store.more(demanded(ram, store, watch)))
        algebra = Untagged() if self.record is boolean else evaluation.algebra
        executor = Executor(ram, facts, algebra, watch)
        executor.foreign, executor.coins = evaluation.foreign, evaluation.coins
        with evaluation.weighing(algebra, executor.tables, watch):
            tables = executor.run()
        names = [constructor.relation for constructor in rules.constructors.values()]
        names += [rule.relation for rule in rules.rules]
        return {name: tables[name] for name in dict.fromkeys(names) if name in tables}


def _whole_table(outputs: Mapping[str, Table], relation: r.Relation) -> Table | None:
    """The table of an output; None for one that has rows for what is demanded alone."""
    return outputs.get(relation.name) if relation.demand is None else None


def atom_text(name: str, values: tuple[Any, ...]) -> str:
    return f"{name}({', '.join(show_value(value) for value in values)})"


def _columns(row: Row) -> list[Any]:
    return [np.array([word], np.int64) for word in row]
