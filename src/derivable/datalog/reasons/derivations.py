"""What tuples follow from: a hypergraph of tuples and rule instances that grows backwards from a goal.

A proof of least height is looked for by breadth (`search`): once the tuples that lie up to k rules behind the goal have
their instances, every proof of at most k + 1 rules in a row is there, so that the search ends when the goal has one.
Heights never go in a circle: a tuple follows from tuples of less height.

The k most probable proofs are those of the whole hypergraph behind the goal, by Knuth's generalisation of Dijkstra's
algorithm on products of probabilities, and by Lawler's partition for the next best: each proof chooses one instance for
each tuple in it, and the others differ from it in some first choice.

Source: Knuth, "A generalization of Dijkstra's algorithm", 1977; Lawler, "A procedure for computing the K best solutions
to discrete optimization problems", 1972.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from itertools import count

from derivable.datalog.policy.costs import policy
from derivable.datalog.reasons.bodies import Body, Instance
from derivable.datalog.reasons.model import FACTS, Model
from derivable.datalog.reasons.rows import Row
from derivable.datalog.reasons.search import Needs, Search, Step
from derivable.datalog.reasons.unfold import Unfolded, unfolded
from derivable.datalog.rules import nodes as r
from derivable.datalog.run.limits import Watch

# Instances between two looks at the limits of time.
LOOKS = 1 << 10
# Proofs beyond the wanted number among which those with the largest probabilities are chosen.
SPARE = 16


class Tuple:
    """A ground atom.

    ways  how it follows: the facts that it is, and once it is expanded the instances of its rules; of these `begun`
          are facts or follow from facts in one step
    step  what a rule adds to the height: parts of rules, which are relations of their own, add nothing
    """

    __slots__ = ("begun", "is_expanded", "relation", "row", "step", "ways")

    def __init__(self, relation: str, row: Row):
        self.relation, self.row = relation, row
        self.step = int(not relation.startswith("#"))
        self.ways: list[Way] = []
        self.begun: int | None = None
        self.is_expanded = False


class Way:
    """One way in which a tuple follows: a fact (a variable, -1 if it is certain), or an instance of a rule, or, with
    neither, an aggregate.

    tuples   what it needs
    factors  (what is random, its probability), of the way alone
    """

    __slots__ = ("factors", "instance", "target", "tuples", "variable")

    def __init__(
        self,
        target: Tuple,
        variable: int | None = None,
        instance: Instance | None = None,
        tuples: tuple[Tuple, ...] = (),
    ):
        self.target, self.variable, self.instance, self.tuples = target, variable, instance, tuples
        self.factors: tuple[tuple[Hashable, float], ...] | None = None

    @property
    def is_fact(self) -> bool:
        return self.variable is not None


Choice = dict[Tuple, Way]


class Derivations:
    """The hypergraph so far; questions share it."""

    def __init__(self, model: Model):
        self.model = model
        self.tuples: dict[tuple[str, Row], Tuple] = {}
        self.bodies: dict[str, tuple[list[Body], list[Body]]] = {}
        self.looked = 0
        self.search = Search(model, self.bodies_of, self._ways_of)
        self.linear = Search(model, self._linear_bodies, self._ways_of, may_have_heights=False)
        # The bodies of unfolded clauses: what was unfolded, and the body of that.
        self.forms: dict[Body, tuple[Unfolded, Body]] = {}
        self.proofs: dict[Tuple, tuple[Choice, bool]] = {}

    def tuple(self, relation: str, row: Row) -> Tuple:
        node = self.tuples.get((relation, row))
        if node is None:
            node = self.tuples[relation, row] = Tuple(relation, row)
            model = self.model
            if relation in model.aggregates:
                node.ways.append(self._of_aggregate(node))
                node.begun, node.is_expanded = 0, True
            elif relation not in model.keys:
                variables = model.variables(relation, row)
                # The most probable fact comes first.
                for variable in sorted(variables, key=lambda v: -model.chance(v)):
                    node.ways.append(Way(node, variable))
        return node

    def _of_aggregate(self, target: Tuple) -> Way:
        """How a row of an aggregate follows: a leaf, or, of a choice among rows, from the row that is chosen."""
        rule = self.model.aggregates[target.relation]
        if rule.operator != "disjunct":
            return Way(target)
        return Way(target, None, None, (self.tuple(rule.body, target.row),))

    def bodies_of(self, relation: str) -> tuple[list[Body], list[Body]]:
        """The rules of a relation that read facts alone, and the others."""
        bodies = self.bodies.get(relation)
        if bodies is None:
            bodies = self.bodies[relation] = [], []
            for clause in self.model.clauses.get(relation, ()):
                bodies[not self._reads_facts(clause)].append(Body(clause, self.model))
        return bodies

    def _reads_facts(self, clause: r.Clause) -> bool:
        """Whether the atoms of a clause have no rules, but for those of parts of rules that read facts as well."""
        clauses = self.model.clauses
        names = [literal.relation for literal in clause.body if isinstance(literal, r.Atom)]
        return all(
            name not in clauses or (name.startswith("#") and all(map(self._reads_facts, clauses[name])))
            for name in names
        )

    def expand(self, target: Tuple, deadline: Watch) -> None:
        """Have all ways in which a tuple follows."""
        if not target.is_expanded:
            self.begin(target, deadline)
            target.is_expanded = True
            self._add(target, self.bodies_of(target.relation)[1], deadline)

    def begin(self, target: Tuple, deadline: Watch) -> None:
        """Have the ways in which a tuple follows from facts in one step."""
        if target.begun is None:
            self._add(target, self.bodies_of(target.relation)[0], deadline)
            target.begun = len(target.ways)

    def _add(self, target: Tuple, bodies: list[Body], deadline: Watch) -> None:
        constructors = self.model.constructors
        for body in bodies:
            for instance in body.instances(target.row):
                self.looked += 1
                if not self.looked % LOOKS:
                    deadline.remaining()
                atoms = body.atoms_of(instance)
                needs = tuple([self.tuple(name, row) for name, row in atoms if name not in constructors])
                if target not in needs:
                    target.ways.append(Way(target, None, instance, needs))

    def least(self, goal: Tuple, deadline: Watch) -> tuple[Choice, bool]:
        """A proof of least height of a tuple, or some proof where its instances are too many, nothing if none is known;
        and whether none is lower."""
        proof = self.proofs.get(goal)
        if proof is None:
            self.deadline = deadline
            choice, is_least = self._least(goal, deadline)
            if not choice and not is_least:
                choice = self.some(goal, deadline)
            proof = self.proofs[goal] = choice, is_least
        return proof

    def _least(self, goal: Tuple, deadline: Watch) -> tuple[Choice, bool]:
        steps, is_least = self.search.least(goal.relation, goal.row, deadline)
        return {self.tuple(*one): self._way(one, step) for one, step in steps.items()}, is_least

    def _way(self, one: tuple[str, Row], step: Step) -> Way:
        target = self.tuple(*one)
        if step.body is None:
            return target.ways[max(0, step.way)]
        instance = step.body.of_rows(target.row, [row for _, row in step.needs])
        return Way(target, None, instance, tuple(self.tuple(*need) for need in step.needs))

    def _ways_of(self, relation: str, row: Row, is_first: bool) -> tuple[int, list[Needs]]:
        target = self.tuple(relation, row)
        self.begin(target, self.deadline)
        start, stop = 0, target.begun
        if not is_first:
            self.expand(target, self.deadline)
            start, stop = target.begun or 0, None
        return start, [tuple((need.relation, need.row) for need in way.tuples) for way in target.ways[start:stop]]

    def some(self, goal: Tuple, deadline: Watch) -> Choice:
        """A proof, maybe not of least height, nothing if there is none: of rules all of whose tuples but the last one
        follow from facts in one step, as in proofs of linear rules, of which there are fewer."""
        self.deadline = deadline
        steps, _ = self.linear.least(goal.relation, goal.row, deadline)
        chosen: Choice = {}
        parts: list[Tuple] = []
        for one, step in steps.items():
            if one[0].startswith(FACTS):
                continue
            target = self.tuple(*one)
            if step.body is None or step.body not in self.forms:
                chosen[target] = self._way(one, step)
                continue
            form, body = self.forms[step.body]
            words, slots = step.body.of_rows(target.row, [row for _, row in step.needs]).words, step.body.slots
            rows = {position: row for position, (_, row) in zip(form.origin, step.needs) if position >= 0}
            rows |= {position: step.body.values(terms, words) for position, terms in form.terms.items()}
            instance = Instance(body, tuple(words[slots[name]] for name in body.slots), tuple(sorted(rows.items())))
            needs = [self.tuple(*atom) for atom in body.atoms_of(instance)]
            parts += [need for need, (position, _) in zip(needs, instance.rows) if position in form.terms]
            chosen[target] = Way(target, None, instance, tuple(needs))
        for part in parts:
            for target, way in self._least(part, deadline)[0].items():
                chosen.setdefault(target, way)
        return chosen

    def _linear_bodies(self, relation: str) -> tuple[list[Body], list[Body]]:
        """The rules of a relation, those that read several recursive atoms in their unfolded forms."""
        first, others = self.bodies_of(relation)
        bodies = []
        for body in others:
            for form in unfolded(self.model, body.clause, self._one_step):
                bodies.append(Body(form.clause, self.model) if form.terms else body)
                if form.terms:
                    self.forms[bodies[-1]] = form, body
        return first, bodies

    def _one_step(self, relation: str) -> list[r.Clause] | None:
        if relation not in self.model.clauses:
            return None
        first, others = self.bodies_of(relation)
        return [body.clause for body in first] if others else None

    # The most probable

    def cone(self, goal: Tuple, deadline: Watch) -> tuple[list[Tuple], bool]:
        """All tuples behind a goal, and whether these are all."""
        tuples, start = [goal], self.looked
        seen = {goal}
        for target in tuples:
            self.expand(target, deadline)
            if self.looked - start > policy().most_instances:
                return [t for t in tuples if t.is_expanded], False
            for way in target.ways:
                for need in way.tuples:
                    if need not in seen:
                        seen.add(need)
                        tuples.append(need)
        return tuples, True

    def by_cost(
        self, goal: Tuple, tuples: list[Tuple], cost: Callable[[Way], float], is_sum: bool, deadline: Watch
    ) -> Iterator[Choice]:
        """The proofs of a goal, in the order of their costs: of each way its cost and those of what it needs added up,
        or the largest of these.

        tuples  those behind the goal, see `cone`
        """
        number = count()
        inside, easiest = _best(tuples, None, cost, is_sum, {}, {})
        if goal not in inside:
            return
        first = _Part(inside[goal], {}, {})
        first.choice, first.costs = {t: easiest[t] for t in _in_order(goal, easiest)}, inside
        heap = [(first.bound, next(number), first)]
        while heap:
            deadline.remaining()
            bound, _, part = heappop(heap)
            if part.choice is None:
                # The best choice for each tuple may be one for all together.
                guess = easiest | part.fixed | part.guess
                costs = _costs(goal, guess, cost, is_sum)
                if costs is None or costs[goal] > bound + 1e-12 * abs(bound):
                    costs, guess = _best(tuples, goal, cost, is_sum, part.fixed, part.barred)
                if goal not in costs:
                    continue
                part.choice, part.costs = {t: guess[t] for t in _in_order(goal, guess)}, costs
                if heap and costs[goal] > heap[0][0]:
                    heappush(heap, (costs[goal], next(number), part))
                    continue
            yield part.choice
            # The others of this part of all proofs differ from it in some first choice.
            total, fixed = part.costs[goal], dict(part.fixed)
            for target, way in part.choice.items():
                if target not in fixed:
                    without = part.barred.get(target, frozenset()) | {id(way)}
                    others = [other for other in target.ways if id(other) not in without]
                    least, _, other = min(
                        ((_of(w, cost, is_sum, inside), k, w) for k, w in enumerate(others)), default=(math.inf, 0, way)
                    )
                    if least < math.inf:
                        # No tuple costs less than where nothing is fixed.
                        bound = max(total, total - part.costs[target] + least) if is_sum else total
                        made = _Part(bound, dict(fixed), {target: without})
                        made.guess = {target: other}
                        heappush(heap, (bound, next(number), made))
                    fixed[target] = way


class _Part:
    """The proofs that make some choices, and for one tuple do not make others.

    bound   none of them costs less
    guess   what may reach it for that tuple
    choice  the proof of least cost, from the goal on, once it is known; costs: of its tuples
    """

    def __init__(self, bound: float, fixed: Choice, barred: dict[Tuple, frozenset[int]]):
        self.bound, self.fixed, self.barred = bound, fixed, barred
        self.guess: Choice = {}
        self.choice: Choice | None = None
        self.costs: dict[Tuple, float] = {}


def _in_order(goal: Tuple, choice: Choice) -> list[Tuple]:
    """The tuples of a proof, from the goal on."""
    tuples, seen = [goal], {goal}
    for target in tuples:
        for need in choice[target].tuples:
            if need not in seen:
                seen.add(need)
                tuples.append(need)
    return tuples


def _of(way: Way, cost: Callable[[Way], float], is_sum: bool, costs: dict[Tuple, float]) -> float:
    """What a way costs with what it needs."""
    below = [costs.get(need, math.inf) for need in way.tuples]
    return cost(way) + (sum(below) if is_sum else max(below, default=0.0))


def _costs(goal: Tuple, choice: Choice, cost: Callable[[Way], float], is_sum: bool) -> dict[Tuple, float] | None:
    """The costs of the tuples of a proof; None if it goes in a circle, or lacks a choice."""
    costs: dict[Tuple, float] = {}
    begun: set[Tuple] = set()
    waiting = [goal]
    while waiting:
        target = waiting[-1]
        way = choice.get(target)
        if way is None:
            return None
        if target in begun:
            waiting.pop()
            if target not in costs:
                costs[target] = _of(way, cost, is_sum, costs)
            continue
        begun.add(target)
        for need in way.tuples:
            if need not in costs:
                if need in begun:
                    return None
                waiting.append(need)
    return costs


def _best(
    tuples: list[Tuple],
    goal: Tuple | None,
    cost: Callable[[Way], float],
    is_sum: bool,
    fixed: Choice,
    barred: dict[Tuple, frozenset[int]],
) -> tuple[dict[Tuple, float], Choice]:
    """The proofs of least cost of tuples that make some choices and do not make others: of all, or until a goal's."""
    waiting: dict[int, int] = {}
    uses: dict[Tuple, list[Way]] = {}
    heap: list[tuple[float, int, Way]] = []
    number = count()
    for target in tuples:
        only, without = fixed.get(target), barred.get(target, frozenset())
        for way in target.ways if only is None else [only]:
            if id(way) in without:
                continue
            if not way.tuples:
                heappush(heap, (cost(way), next(number), way))
                continue
            needs = set(way.tuples)
            waiting[id(way)] = len(needs)
            for need in needs:
                uses.setdefault(need, []).append(way)
    costs: dict[Tuple, float] = {}
    choice: Choice = {}
    while heap:
        total, _, way = heappop(heap)
        target = way.target
        if target in costs:
            continue
        costs[target], choice[target] = total, way
        if target is goal:
            break
        for user in uses.get(target, ()):
            waiting[id(user)] -= 1
            if not waiting[id(user)] and user.target not in costs:
                heappush(heap, (_of(user, cost, is_sum, costs), next(number), user))
    return costs, choice
