"""Proof trees in the words of the program, made of what the search has reached."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Any

from derivable.algebra.semirings import boolean
from derivable.core.diagnostics import LimitError
from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.policy.costs import policy
from derivable.datalog.reasons.bodies import Body, Instance
from derivable.datalog.reasons.derivations import SPARE, Choice, Derivations, Tuple, Way
from derivable.datalog.reasons.groups import keyed_instances, rows_of_group
from derivable.datalog.reasons.model import Model
from derivable.datalog.reasons.proof import Proof, Proofs, postorder
from derivable.datalog.reasons.rows import Row
from derivable.datalog.reasons.search import LOOKED_AT
from derivable.datalog.reasons.wording import Wording, is_hidden, is_shown_name
from derivable.datalog.rules import nodes as r
from derivable.datalog.run.limits import Watch
from derivable.datalog.tags.random_facts import RandomFacts

# What is random in a proof: facts, coins, rows of predicates; None where something is random that is none of these.
Random = frozenset[Hashable] | None
_NOTHING: frozenset[Hashable] = frozenset()


class Explainer:
    """Answers questions about one state of a database; what one question has had computed stays for the next ones.

    most_rows  rows of an aggregate that are explained
    """

    def __init__(self, model: Model, most_rows: int = 20):
        self.model, self.most_rows = model, most_rows
        self.wording = Wording(model)
        self.derivations = Derivations(model)
        random = model.facts.random
        self.has_probabilities = _has_probabilities(random)
        self.groups = {variable: number for number, group in enumerate(random.groups) for variable in group.tolist()}
        self.chances: dict[Hashable, float] = {}

    # Questions

    def least(self, relation: str, row: Row, deadline: Watch) -> Proof | None:
        """A proof of least height; None if there is none."""
        goal = self.derivations.tuple(relation, row)
        choice, is_least = self.derivations.least(goal, deadline)
        if not choice:
            if is_least:
                return None
            raise LimitError(
                f"no proof is among {LOOKED_AT * policy().most_instances:,} instances of rules",
                hint="a rule that uses its own relation twice has very many: write it with facts instead of"
                " one of the two, as in `path(x, z) = path(x, y), edge(y, z)`",
            )
        proof = _Building(self, deadline, choice, is_least).proof(goal)
        if proof.probability == 0.0 and self.has_probabilities:
            # Facts that exclude each other: the next ones.
            tuples, _ = self.derivations.cone(goal, deadline)
            choices = self.derivations.by_cost(goal, tuples, _step_of, False, deadline)
            for choice in islice(choices, 1000):
                other = _Building(self, deadline, choice, is_least).proof(goal)
                if other.probability != 0.0:
                    return other
        return proof

    def most_probable(self, relation: str, row: Row, k: int, deadline: Watch) -> Proofs:
        """The k most probable proofs, as `Database.why` says."""
        goal = self.derivations.tuple(relation, row)
        tuples, is_complete = self.derivations.cone(goal, deadline)
        proofs: list[Proof] = []
        for choice in islice(self.derivations.by_cost(goal, tuples, self.cost, True, deadline), 3 * k + SPARE):
            proof = _Building(self, deadline, choice).proof(goal)
            if proof.probability != 0.0:
                proofs.append(proof)
        proofs.sort(key=lambda proof: -(proof.probability if proof.probability is not None else 1.0))
        return Proofs(proofs[:k], is_complete)

    def cost(self, way: Way) -> float:
        """Minus the logarithm of the probability of what is random in one way."""
        if way.factors is None:
            keys = self.random_of(way)
            way.factors = tuple((key, self.chances[key]) for key in keys or ())
        total = 0.0
        for _, chance in way.factors:
            total -= math.log(chance) if chance > 0.0 else -math.inf
        return max(total, 0.0)

    # What is random

    def random_of(self, way: Way) -> Random:
        """What is random in a way itself."""
        model = self.model
        if way.variable is not None:
            if way.variable < 0:
                return _NOTHING
            key = "fact", way.variable
            self.chances[key] = model.chance(way.variable)
            return frozenset([key])
        if way.instance is None:
            return self._of_aggregate(way)
        variables: set[Hashable] = set()
        body, words = way.instance.body, way.instance.words
        coin = body.chance(words)
        if coin is not None:
            variables.add(coin[0])
            self.chances[coin[0]] = coin[1]
        is_product = True
        for literal in body.literals:
            if isinstance(literal, r.Negated):
                is_product &= model.is_boolean or _is_absent(body, literal, words)
            elif isinstance(literal, r.Generate) and predicate_of(literal.predicate).is_tagged:
                key, chance = self._answer(body, literal, words)
                if literal.negated:
                    is_product &= model.is_boolean or chance is None
                elif chance is not None:
                    variables.add(key)
                    self.chances[key] = chance
        return frozenset(variables) if is_product else None

    def _answer(self, body: Body, literal: r.Generate, words: tuple[int, ...]) -> tuple[Hashable, float | None]:
        inputs = [body.evaluator(e)(words) for e in literal.inputs]
        bound = set(body.slots)
        for answer, chance in self.model.answers(literal, inputs):  # type: ignore[arg-type]
            if body.fits(literal, answer, list(words), set(bound)):
                return (literal.predicate, *inputs, *answer), chance
        return (literal.predicate, *inputs), None

    def _of_aggregate(self, way: Way) -> Random:
        model, relation = self.model, way.target.relation
        rule = model.aggregates[relation]
        if rule.operator == "disjunct":
            arguments = way.target.row[: rule.num_group + rule.num_arguments]
            columns = tuple(range(len(arguments)))
            key = "choice", relation, *way.target.row
            self.chances[key] = 1.0 / max(1, len(model.rows(rule.body).numbers(columns, arguments)))
            return _NOTHING if model.is_boolean else frozenset([key])
        is_certain = model.is_boolean or model.is_certain(relation, way.target.row)
        return _NOTHING if is_certain else None

    def probability(self, keys: Random) -> float | None:
        """That all of these hold."""
        if keys is None or not self.has_probabilities:
            return None if keys is None or keys else 1.0
        total, groups = 1.0, set()
        for key in sorted(keys, key=repr) if len(keys) > 1 else keys:
            total *= self.chances[key]
            group = self._group(key)
            if group is not None:
                if group in groups:
                    return 0.0
                groups.add(group)
        return total

    def _group(self, key: Hashable) -> Hashable | None:
        match key:
            case ("fact", variable):
                return self.groups.get(variable)
            case ("choice", *rest):
                return "choice", *rest[:-1]
        return None


def _step_of(way: Way) -> int:
    """What a way adds to the height of a proof."""
    return 0 if way.is_fact else way.target.step


def _has_probabilities(random: RandomFacts) -> bool:
    """Whether products of tags are probabilities: of a provenance of them, or of one that ignores tags, or multiplies
    them, if all are between 0 and 1."""
    carrier = random.carrier
    if carrier is None or carrier.has_probabilities:
        return True
    semiring = carrier.semiring
    if semiring is None or not (semiring is boolean or semiring.times is operator.mul) or random.objects:
        return False
    return all(0.0 <= number <= 1.0 for number in random.probabilities)


def _is_absent(body: Body, literal: r.Negated, words: tuple[int, ...]) -> bool:
    """Whether a negated atom is in no world."""
    return body.values(literal.terms, words) not in body.model.rows(literal.relation)


class _Building:
    """One answer under construction."""

    def __init__(self, explainer: Explainer, deadline: Watch, choice: Choice, is_least: bool = True):
        self.explainer, self.deadline, self.choice, self.is_least = explainer, deadline, dict(choice), is_least
        self.model, self.wording = explainer.model, explainer.wording
        # Tuple -> its node, or of a part of a rule those that stand for it; and what is random in it.
        self.made: dict[Tuple, tuple[tuple[Proof, ...], Random]] = {}

    def proof(self, goal: Tuple) -> Proof:
        (node,) = self.parts(goal)
        return node

    def chosen(self, target: Tuple) -> Way:
        """How a tuple follows in this proof. What a choice has needs nothing that it has not, and never in a circle."""
        return self.choice[target]

    def parts(self, target: Tuple) -> tuple[Proof, ...]:
        """The nodes of a tuple, several of one that is a part of a rule."""
        for need in postorder(target, lambda one: self.chosen(one).tuples):
            if need not in self.made:
                made = self.node(need, self.chosen(need))
                # Rows of aggregates may have made it by now.
                self.made.setdefault(need, made)
        return self.made[target][0]

    def node(self, target: Tuple, way: Way) -> tuple[tuple[Proof, ...], Random]:
        variables_of_way = self.explainer.random_of(way)
        if way.variable is not None:
            return (self.fact(target, way.variable),), variables_of_way
        if way.instance is None:
            return self.aggregate(target, way, variables_of_way)
        premises, random = self.premises(way.instance)
        random = None if variables_of_way is None or random is None else variables_of_way | random
        if target.relation.startswith("#"):
            return premises, random
        clause = way.instance.body.clause
        line, source = self.wording.line_of(clause.span)
        node = Proof(
            "rule",
            self.wording.atom(target.relation, target.row),
            target.relation,
            self.wording.values(target.relation, target.row),
            self.wording.rule(clause),
            line,
            source,
            self.bindings(way.instance),
            self.explainer.probability(random),
            premises,
            is_least=self.is_least,
        )
        return (node,), random

    def bindings(self, instance: Instance) -> dict[str, Any]:
        types, plain = instance.body.types, self.wording.plain
        return {
            name: plain(instance.words[slot], types[name])
            for name, slot in instance.body.slots.items()
            if is_shown_name(name)
        }

    def fact(self, target: Tuple, variable: int) -> Proof:
        relation, row = target.relation, self.wording.values(target.relation, target.row)
        line, source, written = self.wording.origin(relation, row)
        text = self.wording.atom(relation, target.row)
        return Proof("fact", text, relation, row, written, line, source, {}, self.model.chance(variable))

    def premises(self, instance: Instance) -> tuple[tuple[Proof, ...], Random]:
        """A node for each literal of a body, and what is random in those."""
        body, model = instance.body, self.model
        rows = dict(instance.rows)
        values = self.wording.names(body.slots, body.types, instance.words)
        premises: list[Proof] = []
        random: Random = _NOTHING
        for position, literal in enumerate(body.literals):
            if isinstance(literal, r.Atom):
                if literal.relation in model.constructors or literal.relation in model.keys:
                    continue
                nodes, more = self.made[self.explainer.derivations.tuple(literal.relation, rows[position])]
                premises += nodes
                random = None if random is None or more is None else random | more
            elif isinstance(literal, r.Generate) and literal.relation is not None:
                premises.append(self.keyed(literal, body, instance))
            elif isinstance(literal, r.Negated):
                premises.append(self.absent(body, literal, instance.words, self.wording.literal(literal, values)))
            elif not is_hidden(literal):
                chance = None
                if isinstance(literal, r.Generate) and predicate_of(literal.predicate).is_tagged:
                    chance = self.explainer._answer(body, literal, instance.words)[1]
                line, source = self.wording.line_of(literal.span)
                text = self.wording.literal(literal, values)
                premises.append(Proof("condition", text, None, None, None, line, source, {}, chance or 1.0))
        coin = body.chance(instance.words)
        if coin is not None:
            assert body.coin is not None
            line, source = self.wording.line_of(body.coin.span)
            premises.append(Proof("chance", "the rule's own probability", None, None, None, line, source, {}, coin[1]))
        return tuple(premises), random

    def absent(self, body: Body, literal: r.Negated, words: tuple[int, ...], text: str) -> Proof:
        row = body.values(literal.terms, words)
        line, source = self.wording.line_of(literal.span)
        is_absent = row not in self.model.rows(literal.relation)
        named = not literal.relation.startswith("#")
        return Proof(
            "absent",
            text,
            literal.relation if named else None,
            self.wording.values(literal.relation, row) if named else None,
            None,
            line,
            source,
            {},
            1.0 if is_absent else None,
        )

    def has_proof(self, target: Tuple) -> bool:
        """Have a proof of least height of a tuple that is no part of this one so far; false if there is none."""
        for one, way in self.explainer.derivations.least(target, self.deadline)[0].items():
            # What is chosen stays, so that nothing goes in a circle.
            self.choice.setdefault(one, way)
        return target in self.choice

    # Aggregates

    def aggregate(self, target: Tuple, way: Way, variables_of_way: Random) -> tuple[tuple[Proof, ...], Random]:
        model, row = self.model, target.row
        rule = model.aggregates[target.relation]
        if rule.operator == "disjunct":
            (option,) = way.tuples
            nodes, random = self.made[option]
            line, source = self.wording.line_of(rule.span)
            chance = self.explainer.probability(variables_of_way)
            node = Proof("chance", "the choice among the heads", None, None, None, line, source, {}, chance)
            return (*nodes, node), None if random is None or variables_of_way is None else random | variables_of_way
        rows = rows_of_group(model, rule, row[: rule.num_group])
        rows.sort(key=lambda other: other[rule.num_group :][-1:] != row[-1:])
        explained = []
        for other in rows[: self.explainer.most_rows]:
            tuple_ = self.explainer.derivations.tuple(rule.body, other)
            if self.has_proof(tuple_):
                explained.append(self.row_node(rule, other, self.parts(tuple_)))
        return (
            self.aggregate_node(rule, target.relation, row, explained, len(rows) - len(explained), variables_of_way),
        ), variables_of_way

    def row_node(self, rule: r.AggregateRule, row: Row, parts: tuple[Proof, ...]) -> Proof:
        if len(parts) == 1:
            return parts[0]
        types = self.model.rules.relations[rule.body].types
        shown = [self.wording.value(w, t) for w, t in zip(row[rule.num_group :], types[rule.num_group :])]
        return Proof("row", f"({', '.join(shown)})", premises=parts)

    def aggregate_node(
        self,
        rule: r.AggregateRule,
        relation: str,
        row: Row,
        explained: Iterable[Proof],
        more: int,
        variables_of_way: Random,
    ) -> Proof:
        types = self.model.rules.relations[relation].types[rule.num_group :]
        result = ", ".join(self.wording.value(w, t) for w, t in zip(row[rule.num_group :], types))
        line, source = self.wording.line_of(rule.span)
        written = self.wording.written(rule.span).strip() or rule.operator
        text = f"{result or 'true'} = {self.wording.aggregate(rule)}"
        chance = self.explainer.probability(variables_of_way)
        values = self.wording.values(relation, row)[rule.num_group :]
        return Proof("aggregate", text, None, values, written, line, source, {}, chance, tuple(explained), more)

    def keyed(self, literal: r.Generate, body: Body, instance: Instance) -> Proof:
        """An aggregate of a recursion, for the keys of one instance."""
        relation = literal.relation
        assert relation is not None
        rule, keys = self.model.aggregates[relation], self.model.rules.relations[relation].keys
        assert keys is not None
        inputs = [body.evaluator(e)(instance.words) for e in literal.inputs]
        outputs = [None if e is None else body.evaluator(e)(instance.words) for e in literal.outputs]
        row, others = [], iter(outputs)
        known = dict(zip(keys[1], inputs))
        for column in range(len(self.model.rules.relations[relation].types)):
            row.append(known[column] if column in known else next(others))
        explained: dict[Row, Proof] = {}
        count = 0
        for instance_row, one in keyed_instances(self.model, relation, inputs):  # type: ignore[arg-type]
            if instance_row in explained or list(instance_row[: rule.num_group]) != row[: rule.num_group]:
                continue
            count += 1
            if len(explained) < self.explainer.most_rows:
                for name, needed in one.body.atoms_of(one):
                    if name not in self.model.constructors:
                        tuple_ = self.explainer.derivations.tuple(name, needed)
                        self.has_proof(tuple_)
                        self.parts(tuple_)
                explained[instance_row] = self.row_node(rule, instance_row, self.premises(one)[0])
        words = tuple(word or 0 for word in row)
        return self.aggregate_node(rule, relation, words, explained.values(), count - len(explained), _NOTHING)
