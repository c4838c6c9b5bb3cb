"""What a program is compiled to before it runs: with types, lowered, for each way that it may be run."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import Span, warn
from derivable.datalog.api.titles import titles_of
from derivable.datalog.desugar import desugar
from derivable.datalog.facts.load import known_relation
from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.ram.lower import lower
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.demand import Demand, demand
from derivable.datalog.rules.keyed import with_keys
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.nodes import Clause, Generate, RuleProbability, Rules
from derivable.datalog.rules.optimise import optimise
from derivable.datalog.rules.projection import projected
from derivable.datalog.rules.strata import stratify
from derivable.datalog.rules.transitive_rules import linear, transitive_relations
from derivable.datalog.rules.untagged import without_coins
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types import Typed, infer

if TYPE_CHECKING:
    from derivable.datalog.api.batched import Batched
    from derivable.datalog.api.evaluation import Evaluation
    from derivable.datalog.facts.program_facts import WrittenFacts
    from derivable.datalog.facts.store import FactStore
    from derivable.datalog.run.limits import Watch


class Plan:
    """A program with types, and what it is lowered to."""

    def __init__(self, syntax: s.Syntax, hints: Mapping[str, tuple[str, ...]], warned: set[Span], compatible: bool):
        self.syntax = syntax
        self.warned = warned
        self.typed: Typed = infer(syntax, hints)
        self.rules: Rules = with_keys(desugar(self.typed, compatible))
        # The rules as written must have strata, whatever becomes of them.
        stratify(with_terms(self.rules))
        self.plain_rules = without_coins(self.rules)
        self._demands: dict[tuple[bool, bool], Demand] = {}
        self._rams: dict[tuple[bool, str | None, bool, frozenset[str]], Ram] = {}
        self._transitive: dict[bool, frozenset[str]] = {}
        self._batched: dict[tuple[frozenset[str], tuple[str, ...], bool], Batched] = {}
        self._observing: dict[tuple[str, ...], Plan] = {}
        self._written: WrittenFacts | None = None

    def load(self, store: FactStore, facts: Mapping[str, Any], watch: Watch) -> None:
        """Put the facts of the program, and those that Python gives, into a store."""
        from derivable.datalog.facts.load import load_python_facts
        from derivable.datalog.facts.program_facts import WrittenFacts, load_program_facts

        store.look = watch.read
        with watch.loading():
            if store.random.carrier is None and WrittenFacts.suits(self.rules):
                if self._written is None:
                    self._written = WrittenFacts(self.rules, watch.read)
                self._written.begin(store)
            else:
                load_program_facts(self.rules, store)
            load_python_facts(self.rules, facts, store)
        store.look = None

    def exact(
        self, facts: Mapping[str, Any], evidence: Mapping[str, Any] | None, watch: Watch, others: Iterable[str] = ()
    ) -> Evaluation:
        """An exact run under evidence, besides that of the program, which has not begun; `others` are further
        relations that it computes."""
        from derivable.datalog.api.evaluation import Evaluation, take_tags
        from derivable.datalog.exact.evidence import checked_evidence
        from derivable.datalog.facts.store import new_store
        from derivable.datalog.run.limits import EXACT_HINT
        from derivable.datalog.tags.provenance import EXACT

        watch.hint = EXACT_HINT
        items = checked_evidence(evidence, self.rules)
        plan = self.observing(tuple(dict.fromkeys([*(item.relation for item in items), *others])))
        store = new_store(plan.rules)
        plan.load(store, facts, watch)
        take_tags(store, plan.rules, EXACT)
        return Evaluation(plan.ram(narrow=True), store, EXACT, 0, items)

    def demand(self, narrow: bool, has_coins: bool = True) -> Demand:
        """The rules with their demand; `narrow` if only the outputs matter.

        has_coins  whether rules have their probabilities, which a run without tags does not read
        """
        key = narrow, has_coins and self.has_coins
        if key not in self._demands:
            result = self._demands[key] = demand(self.optimised(narrow, has_coins), automatic=narrow)
            for idle in result.idle:
                span = idle.literal.span
                if span not in self.warned:
                    self.warned.add(span)
                    message, hint = idle.message(self.rules)
                    warn(message, hint=hint, source=self.rules.source, text=self.rules.text, span=span)
        return self._demands[key]

    def optimised(self, narrow: bool, has_coins: bool = True) -> Rules:
        """The rules made simpler; arguments as for `demand`."""
        return optimise(self.rules if has_coins else self.plain_rules, narrow)

    def batched(
        self, varying: frozenset[str], outputs: tuple[str, ...], narrow: bool, is_distributive: bool
    ) -> Batched:
        """The rules for runs over batches; see `Program.batched`."""
        from derivable.datalog.api.batched import batched

        key = varying, outputs, is_distributive
        if key not in self._batched:
            for name in (*varying, *outputs):
                known_relation(self.rules, name, f"the program has no relation `{name}`", self.rules.source)
            rules = replace(self.rules, outputs=outputs, queries=())
            demanded = demand(optimise(rules), automatic=narrow)
            if is_distributive:
                demanded = replace(demanded, then=projected(demanded.then, is_tagged=True))
            self._batched[key] = batched(self.rules, demanded, varying)
        return self._batched[key]

    def observing(self, relations: tuple[str, ...]) -> Plan:
        """The plan of runs that read these relations too, whether they are outputs or not."""
        outputs = tuple(dict.fromkeys((*self.rules.outputs, *relations)))
        if outputs == self.rules.outputs:
            return self
        if outputs not in self._observing:
            made, plain = (replace(one, outputs=outputs) for one in (self.rules, self.plain_rules))
            made = self.with_rules(made, made if self.plain_rules is self.rules else plain)
            self._observing[outputs] = made
        return self._observing[outputs]

    def with_rules(self, rules: Rules, plain_rules: Rules) -> Plan:
        """The plan of other rules, and of these without the coins of rules, themselves if they have none."""
        made = copy.copy(self)
        made.rules, made.plain_rules = rules, plain_rules
        made._written = None
        made._demands, made._rams, made._transitive, made._batched, made._observing = {}, {}, {}, {}, {}
        return made

    @property
    def has_coins(self) -> bool:
        return self.plain_rules is not self.rules

    @cached_property
    def num_uncertain(self) -> int:
        """How many tagged rules and uses of tagged predicates have probabilities."""
        literals = [literal for rule in self.rules.rules if isinstance(rule, Clause) for literal in rule.body]
        soft = sum(isinstance(literal, Generate) and predicate_of(literal.predicate).is_tagged for literal in literals)
        return len({literal.name for literal in literals if isinstance(literal, RuleProbability)}) + soft

    @cached_property
    def is_uncertain(self) -> bool:
        """Whether its rules, or its facts, have probabilities."""
        return self.num_uncertain > 0 or any(facts.tags is not None for facts in self.rules.facts)

    @cached_property
    def titles(self) -> Mapping[str, tuple[str | None, ...]]:
        """What the columns of the outputs are called."""
        return titles_of(self.syntax, self.rules)

    @property
    def goal(self) -> str | None:
        """The relation whose first tuple may end a run."""
        return next((name for name, relation in self.rules.relations.items() if relation.is_goal), None)

    def transitive(self, narrow: bool) -> frozenset[str]:
        """The relations whose transitive rules may be made linear in runs without tags."""
        if narrow not in self._transitive:
            self._transitive[narrow] = transitive_relations(self.demand(narrow, has_coins=False).rules)
        return self._transitive[narrow]

    def ram(
        self,
        narrow: bool,
        goal: str | None = None,
        counts_rounds: bool = False,
        made_linear: frozenset[str] = frozenset(),
    ) -> Ram:
        """RAM, in which there is also that for runs with tags if it is another; for runs that end at a goal.

        counts_rounds  whether its recursions have the rounds of the rules as they are written
        made_linear    those of the relations of `transitive` whose rules are made linear
        """
        key = narrow, goal, counts_rounds, made_linear
        if key not in self._rams:
            demanded, plain = self.demand(narrow), self.demand(narrow, has_coins=False).rules
            short, then = linear(plain, made_linear), demanded.then
            if not counts_rounds:
                short, then = projected(short), projected(demanded.then, is_tagged=True)
            ram = lower(stratify(short, goal))
            first = None if demanded.first is None else lower(stratify(demanded.first))
            if demanded.rules is not demanded.then or self.has_coins or short is not plain:
                ram = replace(ram, tagged=replace(lower(stratify(demanded.then, goal)), demand=first))
            if then is not demanded.then:
                ram = replace(ram, distributed=replace(lower(stratify(then, goal)), demand=first))
            self._rams[key] = ram
        return self._rams[key]

    def shown_ram(self, narrow: bool) -> Ram:
        """RAM as `explain` shows it: one program with the demand and with the probabilities of rules."""
        return lower(stratify(self.demand(narrow).rules)) if self.has_coins else self.ram(narrow)
