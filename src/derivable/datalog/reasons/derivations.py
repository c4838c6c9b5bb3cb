"""What tuples follow from: a hypergraph of tuples and rule instances that grows backwards from a goal.

A proof of least height is found by breadth: once the tuples that lie up to k rules behind the goal have their
instances, every proof of at most k + 1 rules in a row is there, so that the search ends when the goal has one. Heights
are those of Knuth's generalisation of Dijkstra's algorithm, which never goes in a circle: a tuple follows from tuples
of less height.

The k most probable proofs are those of the whole hypergraph behind the goal, by the same algorithm on products of
probabilities, and by Lawler's partition for the next best: each proof chooses one instance for each tuple in it, and
the others differ from it in some first choice.

Source: Knuth, "A generalization of Dijkstra's algorithm", 1977; Lawler, "A procedure for computing the K best solutions
to discrete optimization problems", 1972.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from itertools import count

from derivable.core.progress import Deadline
from derivable.datalog.policy.costs import policy
from derivable.datalog.reasons.bodies import Body, Instance
from derivable.datalog.reasons.model import Model
from derivable.datalog.reasons.rows import Row
from derivable.datalog.rules import nodes as r

# Instances between two looks at the limits of time.
LOOKS = 1 << 10
# Proofs beyond the wanted number among which those with the largest probabilities are chosen.
SPARE = 16


class Tuple:
    """A ground atom.

    height  the least one of the proofs so far; 0 for a fact, and for what an aggregate has
    best    the way of that height
    ways    how it follows, once it is expanded
    users   the ways that need it
    is_begun  whether it has those ways that read facts alone, which are the first ones, and begun: their number
    is_least  whether no proof that is not there is lower
    step    what a rule adds to the height: parts of rules, which are relations of their own, add nothing
    """

    __slots__ = (
        "begun",
        "best",
        "height",
        "is_begun",
        "is_expanded",
        "is_least",
        "relation",
        "row",
        "step",
        "users",
        "ways",
    )

    def __init__(self, relation: str, row: Row):
        self.relation, self.row = relation, row
        self.step = int(not relation.startswith("#"))
        self.height: float = math.inf
        self.best: Way | None = None
        self.ways: list[Way] = []
        self.begun = 0
        self.users: list[Way] = []
        self.is_begun = self.is_expanded = self.is_least = False


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

    def tuple(self, relation: str, row: Row) -> Tuple:
        node = self.tuples.get((relation, row))
        if node is None:
            node = self.tuples[relation, row] = Tuple(relation, row)
            model = self.model
            if relation in model.aggregates:
                node.ways.append(self._of_aggregate(node))
                node.is_begun = node.is_expanded = True
            elif relation not in model.keys:
                variables = model.variables(relation, row)
                # The most probable fact comes first.
                for variable in sorted(variables, key=lambda v: -model.chance(v)):
                    node.ways.append(Way(node, variable))
            if node.ways and not node.ways[0].tuples:
                node.height, node.best, node.is_least = 0, node.ways[0], True
        return node

    def _of_aggregate(self, target: Tuple) -> Way:
        """How a row of an aggregate follows: a leaf, or, of a choice among rows, from the row that is chosen."""
        rule = self.model.aggregates[target.relation]
        if rule.operator != "disjunct":
            return Way(target)
        option = self.tuple(rule.body, target.row)
        way = Way(target, None, None, (option,))
        option.users.append(way)
        target.height, target.best = option.height, way
        return way

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

    def begin(self, target: Tuple, deadline: Deadline) -> None:
        """Have the ways in which a tuple follows from facts in one step."""
        if not target.is_begun:
            target.is_begun = True
            start = len(target.ways)
            self._add(target, self.bodies_of(target.relation)[0], deadline)
            target.begun = len(target.ways)
            for part in (need for way in target.ways[start:] for need in way.tuples if not need.step):
                self.expand(part, deadline)

    def expand(self, target: Tuple, deadline: Deadline) -> None:
        """Have all ways in which a tuple follows."""
        if not target.is_expanded:
            self.begin(target, deadline)
            # What `some` has is found again among all.
            del target.ways[target.begun :]
            target.is_expanded = True
            self._add(target, self.bodies_of(target.relation)[1], deadline)

    def _add(
        self,
        target: Tuple,
        bodies: list[Body],
        deadline: Deadline,
        is_kept: Callable[[tuple[Tuple, ...]], bool] = lambda needs: True,
    ) -> None:
        constructors, start = self.model.constructors, len(target.ways)
        ways = target.ways
        for body in bodies:
            for instance in body.instances(target.row):
                self.looked += 1
                if not self.looked % LOOKS:
                    deadline.remaining()
                needs = tuple(
                    [self.tuple(name, row) for name, row in body.atoms_of(instance) if name not in constructors]
                )
                if target not in needs and is_kept(needs):
                    ways.append(Way(target, None, instance, needs))
        waiting: list[tuple[float, int, Tuple]] = []
        for way in ways[start:]:
            for need in way.tuples:
                need.users.append(way)
            self._improve(way, waiting)
        while waiting:
            height, _, lower = heappop(waiting)
            if height == lower.height:
                for way in lower.users:
                    self._improve(way, waiting)

    def _improve(self, way: Way, waiting: list[tuple[float, int, Tuple]]) -> None:
        target = way.target
        height = target.step + max([need.height for need in way.tuples], default=0)
        if height < target.height:
            target.height, target.best = height, way
            heappush(waiting, (height, id(target), target))

    def least(self, goal: Tuple, deadline: Deadline) -> bool:
        """Find a proof of least height of a tuple; false if there is one, of which this is not known."""
        levels, seen, start = [[goal]], {goal}, self.looked
        self.begin(goal, deadline)
        # Every proof that is no higher than the number of levels that are expanded, and one, is there.
        while levels[-1] and goal.height > len(levels) and not goal.is_least:
            level, below = levels[-1], []
            for target in level:
                self.expand(target, deadline)
                if self.looked - start > policy().most_instances:
                    return False
                for way in target.ways:
                    for need in way.tuples:
                        if need not in seen and not need.is_least:
                            seen.add(need)
                            (below if need.step else level).append(need)
                            if need.step and goal.height > len(levels) + 1:
                                self.begin(need, deadline)
                if goal.height == len(levels) + 1:
                    goal.is_least = True
                    break
            levels.append(below)
        for passed, targets in enumerate(levels):
            for target in targets:
                # What lies so far behind has all its proofs up to here.
                target.is_least |= target.height < len(levels) - passed
        goal.is_least |= goal.best is not None
        return True

    def some(self, goal: Tuple, deadline: Deadline) -> None:
        """Find a proof, maybe not of least height, where there are too many instances for that: of rules all of whose
        tuples but the last one follow from facts in one step, as in proofs of linear rules."""

        def is_linear(needs: tuple[Tuple, ...]) -> bool:
            for need in needs[:-1]:
                self.begin(need, deadline)
            return all(need.height <= 1 for need in needs[:-1])

        waiting, seen, start = [goal], {goal}, self.looked
        for target in waiting:
            self.begin(target, deadline)
            if goal.best is not None or self.looked - start > policy().most_instances:
                return
            if not target.is_expanded:
                self._add(target, self.bodies_of(target.relation)[1], deadline, is_linear)
            for way in target.ways[target.begun :]:
                if way.tuples and is_linear(way.tuples) and way.tuples[-1] not in seen:
                    seen.add(way.tuples[-1])
                    waiting.append(way.tuples[-1])

    # The most probable

    def cone(self, goal: Tuple, deadline: Deadline) -> tuple[list[Tuple], bool]:
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
        self, goal: Tuple, tuples: list[Tuple], cost: Callable[[Way], float], is_sum: bool, deadline: Deadline
    ) -> Iterator[Choice]:
        """The proofs of a goal, in the order of their costs: of each way its cost and those of what it needs added up,
        or the largest of these.

        tuples  those behind the goal, see `cone`
        """
        number = count()
        first = _best(tuples, goal, cost, is_sum, {}, {})
        heap: list[tuple[float, int, Choice, dict[Tuple, Way], dict[Tuple, frozenset[int]]]] = []
        if first is not None:
            heappush(heap, (first[0], next(number), first[1], {}, {}))
        while heap:
            _, _, choice, fixed, barred = heappop(heap)
            yield choice
            # The others of this part of all proofs differ from it in some first choice.
            fixed = dict(fixed)
            for target in _in_order(goal, choice):
                deadline.remaining()
                if target not in fixed:
                    # Its ways without this one.
                    others = {**barred, target: barred.get(target, frozenset()) | {id(choice[target])}}
                    if len(others[target]) < len(target.ways):
                        best = _best(tuples, goal, cost, is_sum, fixed, others)
                        if best is not None:
                            heappush(heap, (best[0], next(number), best[1], dict(fixed), others))
                    fixed[target] = choice[target]


def _in_order(goal: Tuple, choice: Choice) -> list[Tuple]:
    """The tuples of a proof, from the goal on."""
    tuples, seen = [goal], {goal}
    for target in tuples:
        for need in choice[target].tuples:
            if need not in seen:
                seen.add(need)
                tuples.append(need)
    return tuples


def _best(
    tuples: list[Tuple],
    goal: Tuple,
    cost: Callable[[Way], float],
    is_sum: bool,
    fixed: dict[Tuple, Way],
    barred: dict[Tuple, frozenset[int]],
) -> tuple[float, Choice] | None:
    """The proof of least cost that makes some choices and does not make others; None if there is none."""
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
            return total, {t: choice[t] for t in _in_order(goal, choice)}
        for user in uses.get(target, ()):
            waiting[id(user)] -= 1
            if not waiting[id(user)] and user.target not in costs:
                below = [costs[need] for need in user.tuples]
                heappush(heap, (cost(user) + (sum(below) if is_sum else max(below)), next(number), user))
    return None
