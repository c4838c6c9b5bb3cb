"""And-or graphs over random choices as tables over discrete variables, for variable elimination.

Each formula is a table: given the variables that it mentions, whether it holds, as a formula over choices that nothing
else mentions. Formulas that share such choices and exclude each other are the values of one variable: the states of a
node of a Bayesian network that is written as rules. Which these are is found from the choices alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from derivable.circuit.compilation.eliminate import Elimination
from derivable.circuit.compilation.frontier import Bundle, Leaving, Step, TooWide, run_frontier
from derivable.circuit.compilation.graph_definitions import FAILS, HOLDS, Choices, Definition, Entry, Nodes, Rows
from derivable.circuit.compilation.orders import Order, best_order
from derivable.circuit.compilation.tables import Space, Table
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.and_or import components
from derivable.core.and_or import AND, LITERAL, OR, TRUE
from derivable.core.diagnostics import LimitError
from derivable.core.graph import connected_components, from_edges, strongly_connected_components
from derivable.core.progress import NEVER, Deadline

# Entries of one table: of a formula that could be cut, and of several formulas that are values of one variable.
MOST_OF_ONE, MOST_OF_SEVERAL = 1 << 9, 1 << 20

# A formula by what is known of it: a constant, or the values of a discrete variable under which it holds.
Known = bool | tuple[int, np.ndarray]
# Conjuncts: signed nodes of the graph, ~n for the negation of n.
Alternative = list[int]


class Unsuited(LimitError):
    """A graph has cycles that are not of the kind that a frontier is for."""


class GraphTables:
    """The tables of a graph's roots and observed nodes.

    graph     has no nodes that are not needed; children, roots and observed nodes may be negated, but not in cycles
    observed  [item] signed nodes; item k has the variable `first_indicator` + k, which equals it
    """

    def __init__(
        self,
        graph: AndOrGraph,
        choices: Choices,
        observed: Sequence[int] = (),
        first_indicator: int = 0,
        deadline: Deadline = NEVER,
    ):
        self.kind, self.literal = graph.kind.tolist(), graph.literal.tolist()
        offsets, children = graph.offsets.tolist(), graph.children.tolist()
        self.rows = [children[first:last] for first, last in pairwise(offsets)]
        self.choices, self.deadline, self.first_indicator = choices, deadline, first_indicator
        component, _ = components(graph.offsets, graph.children)
        self.height = component.tolist()
        self.is_cyclic = (np.bincount(component)[component] > 1).tolist()
        self.roots = [self._followed(root) for root in graph.roots.tolist()]
        self.observed = [self._followed(node) for node in observed]
        self.cardinalities: list[int] = []
        self.definitions: list[Definition | Rows] = []
        self.has_frontier = False
        self.variable_of_choice: dict[int, int] = {}
        self.known: dict[int, Known] = {}
        self._define_all()

    def _followed(self, signed: int) -> int:
        """The signed node that one stands for, through nodes of one child."""
        while True:
            node = max(signed, ~signed)
            is_atom = self.kind[node] == OR and self.is_cyclic[node]
            if self.kind[node] < AND or len(self.rows[node]) != 1 or is_atom:
                return signed
            child = self.rows[node][0]
            signed = child if signed >= 0 else ~child

    def _counted(self) -> dict[int, int]:
        """How often each node is used by others that are needed; roots are used from outside."""
        uses = {max(signed, ~signed): 2 for signed in (*self.roots, *self.observed)}
        stack = list(uses)
        while stack:
            node = stack.pop()
            for child in map(self._followed, self.rows[node]):
                other = max(child, ~child)
                if other not in uses:
                    uses[other] = 0
                    stack.append(other)
                uses[other] += 1
        return uses

    def _parts(self, signed: int, kind: int, uses: dict[int, int]) -> list[int]:
        """What a conjunction (kind AND) or disjunction is of, through others of the kind that only it uses."""
        found, stack = list[int](), [(signed, True)]
        while stack:
            one, is_top = stack.pop()
            node = max(one, ~one)
            opposite = OR if kind == AND else AND
            same = self.kind[node] == (kind if one >= 0 else opposite)
            is_inner = uses[node] == 1 and not self.is_cyclic[node] and not (kind == AND and self._has_value(node))
            if same and (is_top or is_inner):
                for child in map(self._followed, self.rows[node]):
                    stack.append((child if one >= 0 else ~child, False))
            else:
                found.append(one)
        return found

    def _has_value(self, node: int) -> bool:
        """Whether a conjunction has a value of a choice that joins formulas: it may be a value of a variable too."""
        literals = (self.literal[max(one, ~one)] for one in map(self._followed, self.rows[node]))
        return any(self.choices.choice_of[abs(literal)] in self.joining for literal in literals if literal)

    def _define_all(self) -> None:
        uses = self._counted()
        # Choices of several values each of which is mentioned once: the numbers of one row of a table.
        self.joining = {choice for choice, literals in enumerate(self.choices.literals) if literals[0] > 0} - {
            self.choices.choice_of[abs(self.literal[node])]
            for node, count in uses.items()
            if self.kind[node] == LITERAL and count > 1
        }
        alternatives: dict[int, list[Alternative]] = {}
        stack = [max(signed, ~signed) for signed in (*self.roots, *self.observed)]
        while stack:
            node = stack.pop()
            if node in alternatives or self.kind[node] < AND:
                continue
            if self._is_atom(node):
                rows = [self._rule(child) for child in self.rows[node]]
            else:
                parts = self._parts(node, OR, uses) if self.kind[node] == OR else [node]
                rows = [
                    self._parts(one, AND, uses) if one == node or uses[max(one, ~one)] == 1 else [one] for one in parts
                ]
            alternatives[node] = rows
            stack += [max(one, ~one) for row in rows for one in row]
        # Choices that roots and observations mention have variables of their own, and so have those of two families.
        self.is_open = self._choices_in([[*self.roots, *self.observed]])
        for family in self._families(alternatives):
            self.deadline.remaining()
            if self._is_atom(family[0]):
                self._define_cycle(family, alternatives)
            else:
                self._define([alternatives[node] for node in family], family)
        # Choices that they mention become variables here.
        self.known_roots = [self._of(signed) for signed in self.roots]
        self.known_observed = [self._of(signed) for signed in self.observed]

    def _is_atom(self, node: int) -> bool:
        """Whether a node is a disjunction in a cycle."""
        return self.kind[node] == OR and self.is_cyclic[node]

    def _rule(self, child: int) -> Alternative:
        """The conjuncts of a derivation of an atom: atoms, and what is outside of the cycle."""
        found, stack = list[int](), [self._followed(child)]
        while stack:
            one = stack.pop()
            if one >= 0 and self.kind[one] == AND and self.is_cyclic[one]:
                if len(found) + len(stack) > 1000:
                    raise Unsuited("conjunctions derive each other")
                stack += map(self._followed, self.rows[one])
            else:
                found.append(one)
        return found

    def _define_cycle(self, atoms: list[int], alternatives: dict[int, list[Alternative]]) -> None:
        """Make a chain of variables of atoms that derive each other; see `frontier`."""
        inside = set(atoms)
        rules: dict[tuple[int, ...], set[tuple[int, int]]] = {}
        for head in atoms:
            for row in alternatives[head]:
                bodies = {one for one in row if max(one, ~one) in inside}
                if len(bodies) > 1 or any(one < 0 for one in bodies):
                    raise Unsuited("a rule has two atoms of its cycle")
                if bodies != {head}:
                    key, body = tuple(sorted(set(row) - bodies)), next(iter(bodies), -1)
                    rules.setdefault(key, set()).add((body, head))
        mentions = [(key, choice) for key in rules for choice in self._choices_in([list(key)])]
        seen = Counter(choice for _, choice in mentions)
        self.is_open |= {choice for key, choice in mentions if seen[choice] > 1 or len(key) > 1}
        bundles, facts = list[Bundle](), list[Known | tuple[str, int, np.ndarray]]()
        for key, pairs in rules.items():
            node = max(key[0], ~key[0]) if len(key) == 1 else -1
            fact: Known | tuple[str, int, np.ndarray] = True
            if node >= 0 and self.kind[node] == LITERAL and not self._choices_in([list(key)]) & self.is_open:
                choice, holds = self.choices.holds(self.literal[node])
                fact = ("choice", choice, holds if key[0] >= 0 else ~holds)
            elif key:
                fact = self._of(key[0] if len(key) == 1 else self._named([list(key)]))
            if fact is not False:
                bundles.append(Bundle(tuple(sorted(pairs))))
                facts.append(fact)
        outside = {one for node, rows in alternatives.items() if node not in inside for row in rows for one in row}
        outside |= {*self.roots, *self.observed}
        wanted = {max(one, ~one) for one in outside} & inside
        steps = run_frontier(bundles, atoms, wanted, self.deadline.remaining)
        self.has_frontier = True
        truth = np.array([False, True])
        for step in steps:
            if isinstance(step, Leaving):
                self.known[step.atom] = (self._variable(2), truth)
        for atom in wanted - self.known.keys():
            self.known[atom] = False
        state: tuple[int, ...] = ()
        for step in steps:
            if isinstance(step, Step):
                state = (self._advance(state, step, facts[step.bundle]),)
            else:
                state = (self._leave(state, step),)

    def _variable(self, cardinality: int) -> int:
        self.cardinalities.append(cardinality)
        return len(self.cardinalities) - 1

    def _advance(self, state: tuple[int, ...], step: Step, fact: Any) -> int:
        """The variable of the states after a bundle, whose rules hold if the fact does."""
        after = self._variable(step.num_after)
        before = np.arange(len(step.changed))
        earlier = [before] if state else []
        if fact is True:
            digits, labels = np.stack([*earlier, step.changed], 1), np.ones(len(before), np.int32)
            self.definitions.append(Rows(state, after, digits, labels))
        elif isinstance(fact[0], str):
            both = step.changed == step.unchanged
            rows = np.stack([*earlier, step.unchanged], 1), np.stack([*earlier, step.changed], 1)[~both]
            labels = np.concatenate([np.where(both, TRUE, FAILS), np.full(len(rows[1]), HOLDS)])
            self.definitions.append(Rows(state, after, np.concatenate(rows), labels, fact[1], fact[2]))
        else:
            variable, holds = fact
            digits = [
                np.stack([*earlier, np.full(len(before), value), step.changed if held else step.unchanged], 1)
                for value, held in enumerate(holds.tolist())
            ]
            labels = np.ones(len(before) * len(holds), np.int32)
            self.definitions.append(Rows((*state, variable), after, np.concatenate(digits), labels))
        return after

    def _leave(self, state: tuple[int, ...], step: Leaving) -> int:
        """The variable of the states without an atom, whose truth follows from the state and those that stay."""
        count, size = len(step.derives), 1 << len(step.others)
        if count * size > MOST_OF_SEVERAL:
            raise TooWide(f"a frontier has {count:,} states of {len(step.others)} atoms")
        worlds = np.arange(size)[:, None] >> np.arange(len(step.others)) & 1 == 1
        before, world = np.divmod(np.arange(count * size), size)
        follows = (step.derives[before, 1:] & worlds[world]).any(axis=1)
        variables = [self._of(other) for other in step.others]
        scope = [known[0] for known in variables if not isinstance(known, bool)]
        known = self.known[step.atom]
        assert len(scope) == len(variables)
        assert not isinstance(known, bool)
        columns = [worlds[world].astype(np.int64), (step.derives[before, 0] | follows).astype(np.int64)[:, None]]
        earlier = [before[:, None]] if state else []
        digits = np.concatenate([*earlier, *columns], axis=1)
        self.definitions.append(Rows((*state, *scope), known[0], digits, np.ones(len(digits), np.int32)))
        after = self._variable(step.num_after)
        earlier = [np.arange(count)] if state else []
        self.definitions.append(Rows(state, after, np.stack([*earlier, step.after], 1), np.ones(count, np.int32)))
        return after

    def _families(self, alternatives: dict[int, list[Alternative]]) -> list[list[int]]:
        """Formulas that share a choice of several values together, those that others mention first."""
        nodes = sorted(alternatives)
        place = {node: number for number, node in enumerate(nodes)}
        first_of: dict[int, int] = {}
        edges, shared = list[tuple[int, int]](), list[tuple[int, int]]()
        for node in nodes:
            for row in alternatives[node]:
                for signed in row:
                    other = max(signed, ~signed)
                    if other in place:
                        edges.append((place[node], place[other]))
                    elif self.kind[other] == LITERAL:
                        choice = self.choices.choice_of[abs(self.literal[other])]
                        if choice in self.joining and not self._is_atom(node):
                            shared.append((place[node], first_of.setdefault(choice, place[node])))
        groups = connected_components(len(nodes), shared)
        group = groups.tolist()
        parents, children = groups[np.array(edges, np.int64).reshape(-1, 2)].T
        graph = from_edges(len(nodes), parents, children)
        component, count = strongly_connected_components(*graph)
        members: dict[int, list[int]] = {}
        for number, node in enumerate(nodes):
            members.setdefault(int(component[group[number]]), []).append(node)
        broken = {int(component[one]) for one in parents[parents == children]}
        broken |= {number for number, one in members.items() if len({group[place[node]] for node in one}) > 1}
        found = list[list[int]]()
        for number in range(count - 1, -1, -1):
            family = members.get(number, [])
            is_atom = set(map(self._is_atom, family))
            if len(is_atom) > 1:
                raise Unsuited("a cycle shares choices with what is outside")
            if number in broken and is_atom == {False}:
                found += [[node] for node in sorted(family, key=lambda node: self.height[node])]
            elif family:
                found.append(family)
        self._open_shared(found, alternatives)
        return found

    def _open_shared(self, families: list[list[int]], alternatives: dict[int, list[Alternative]]) -> None:
        owner: dict[int, int] = {}
        for number, family in enumerate(families):
            for node in family:
                for choice in self._choices_in(alternatives[node]):
                    if owner.setdefault(choice, number) != number:
                        self.is_open.add(choice)

    def _choices_in(self, rows: Iterable[Alternative]) -> set[int]:
        nodes = {max(signed, ~signed) for row in rows for signed in row}
        return {self.choices.choice_of[abs(self.literal[n])] for n in nodes if self.kind[n] == LITERAL}

    def _define(self, formulas: list[list[Alternative]], names: Sequence[int]) -> None:
        """Make a variable of formulas that exclude each other, or one of each."""
        if len(formulas) > 1:
            made = self._definition(formulas, MOST_OF_SEVERAL)
            if made is None:
                for choice in set.union(*map(self._choices_in, formulas)):
                    if sum(choice in self._choices_in(rows) for rows in formulas) > 1:
                        self.is_open.add(choice)
                for rows, name in zip(formulas, names):
                    self._define([rows], [name])
                return
        else:
            made = self._definition(formulas, MOST_OF_ONE)
            if made is None:
                made = self._definition([self._cut(formulas[0])], 1 << 62)
        assert made is not None
        if isinstance(made, bool):
            self.known[names[0]] = made
            return
        for number, name in enumerate(names):
            values = np.zeros(self.cardinalities[made.variable], bool)
            values[number + made.has_none] = True
            self.known[name] = (made.variable, values)

    def _cut(self, rows: list[Alternative]) -> list[Alternative]:
        """Alternatives that say the same with fewer conjuncts each, by formulas that are made."""
        # The literals come last: a choice that nothing else mentions stays out of the formulas that are made.
        rows = [self._shortened(sorted(row, key=lambda one: self.kind[max(one, ~one)] == LITERAL)) for row in rows]
        if len(rows) < 3:
            return rows
        first, position = [self._named(rows[:2])], 2
        # Counted once: to look at all rows again after each step took minutes for ten thousand of them.
        variables = [self._variables(row) for row in rows]
        uses = Counter(variable for of_row in variables[2:] for variable in of_row)
        entries = 2 * math.prod(self.cardinalities[variable] for variable in uses)
        while position < len(rows) - 1:
            self.deadline.remaining()
            others = self._variables(first) - uses.keys()
            if entries * math.prod(self.cardinalities[variable] for variable in others) <= MOST_OF_ONE:
                break
            first = [self._named([first, rows[position]])]
            for variable in variables[position]:
                uses[variable] -= 1
                if not uses[variable]:
                    entries //= self.cardinalities[variable]
                    del uses[variable]
            position += 1
        return [first, *rows[position:]]

    def _shortened(self, row: Alternative) -> Alternative:
        while len(row) > 2:
            row = [self._named([row[:2]]), *row[2:]]
        return row

    def _variables(self, row: Alternative) -> set[int]:
        return {known[0] for known in map(self._of, row) if not isinstance(known, bool)}

    def _named(self, rows: list[Alternative]) -> int:
        """A formula that is made, as a node."""
        self.is_open |= self._choices_in(rows)
        node = len(self.kind)
        self.kind.append(OR)
        self.literal.append(0)
        self.rows.append([])
        made = self._definition([rows], 1 << 62)
        assert made is not None
        one = np.array([False, True])
        self.known[node] = made if isinstance(made, bool) else (made.variable, one if made.has_none else one[1:])
        return node

    def _of(self, signed: int) -> Known:
        """What is known of a signed node; a choice that it mentions becomes a variable."""
        node = max(signed, ~signed)
        if self.kind[node] <= TRUE:
            return (self.kind[node] == TRUE) == (signed >= 0)
        if self.kind[node] == LITERAL:
            choice, values = self.choices.holds(self.literal[node])
            if choice not in self.variable_of_choice:
                self.variable_of_choice[choice] = len(self.cardinalities)
                self.cardinalities.append(len(values))
            known: Known = (self.variable_of_choice[choice], values)
        else:
            known = self.known[node]
        if signed >= 0:
            return known
        return not known if isinstance(known, bool) else (known[0], ~known[1])

    def _definition(self, formulas: list[list[Alternative]], most: float) -> Definition | bool | None:
        """The definition of a new variable; None if it has too many entries, or formulas that hold together."""
        absorbed = self._absorbed(formulas)
        rows: list[tuple[int, dict[int, np.ndarray], int, np.ndarray]] = []
        for number, alternatives in enumerate(formulas):
            for row in alternatives:
                parts = self._context(row, absorbed)
                if parts is not None:
                    rows.append((number, *parts))
        scope = tuple(sorted({variable for _, context, _, _ in rows for variable in context}))
        shape = [self.cardinalities[variable] for variable in scope]
        if float(np.prod(shape, dtype=np.float64)) * (len(formulas) + 1) > most:
            return None
        entries: dict[int, Entry] = {}
        for number, context, choice, values in rows:
            axes = [np.flatnonzero(context.get(v, np.ones(size, bool))) for v, size in zip(scope, shape)]
            cells = np.ravel_multi_index(np.ix_(*axes), shape).reshape(-1) if scope else np.zeros(1, np.int64)
            for cell in cells.tolist():
                entries.setdefault(cell, Entry()).reasons.append((number, choice, values))
        if not all(entry.excludes() for entry in entries.values()):
            return None
        size = int(np.prod(shape)) if shape else 1
        has_none = len(entries) < size or any(entry.can_fail() for entry in entries.values())
        if len(formulas) == 1 and not entries:
            return False
        made = Definition(scope, len(self.cardinalities), entries, len(formulas), has_none)
        self.cardinalities.append(len(formulas) + has_none)
        self.definitions.append(made)
        return made

    def _absorbed(self, formulas: list[list[Alternative]]) -> set[int]:
        """Choices that nothing else mentions, one at most in each alternative."""
        absorbed = set.union(set(), *map(self._choices_in, formulas)) - self.is_open
        for alternatives in formulas:
            for row in alternatives:
                here = sorted(
                    self._choices_in([row]) & absorbed,
                    key=lambda choice: (choice not in self.joining, -len(self.choices.literals[choice])),
                )
                for choice in here[1:]:
                    self.is_open.add(choice)
                    absorbed.discard(choice)
        return absorbed

    def _context(self, row: Alternative, absorbed: set[int]) -> tuple[dict[int, np.ndarray], int, np.ndarray] | None:
        """The values of other variables that an alternative needs, its own choice, and the values of that; None if it
        never holds."""
        context: dict[int, np.ndarray] = {}
        chosen, values = -1, np.ones(0, bool)
        for signed in row:
            node = max(signed, ~signed)
            if self.kind[node] == LITERAL:
                choice, holds = self.choices.holds(self.literal[node])
                if choice in absorbed:
                    holds = holds if signed >= 0 else ~holds
                    chosen, values = choice, holds if chosen < 0 else values & holds
                    continue
            known = self._of(signed)
            if isinstance(known, bool):
                if not known:
                    return None
                continue
            variable, holds = known
            context[variable] = context.get(variable, True) & holds
        if any(not holds.any() for holds in context.values()) or (chosen >= 0 and not values.any()):
            return None
        return context, chosen, values

    # What it costs, and the circuit.

    def components(self) -> list[list[int]]:
        """The variables that depend on each other together."""
        pairs = ((variable, definition.variable) for definition in self.definitions for variable in definition.scope)
        least = connected_components(len(self.cardinalities), pairs)
        parts: dict[int, list[int]] = {}
        for variable, first in enumerate(least.tolist()):
            parts.setdefault(first, []).append(variable)
        return list(parts.values())

    def orders(self, deadline: Deadline = NEVER) -> list[Order]:
        """The best order of each component, of the variables of the whole."""
        orders, parts = list[Order](), self.components()
        home = {v: number for number, part in enumerate(parts) for v in part}
        scopes: dict[int, list[list[int]]] = {}
        for definition in self.definitions:
            scopes.setdefault(home[definition.variable], []).append([*definition.scope, definition.variable])
        for number, part in enumerate(parts):
            place = {variable: position for position, variable in enumerate(part)}
            local = [[place[v] for v in scope] for scope in scopes.get(number, [])]
            best = best_order(local, [self.cardinalities[v] for v in part], deadline)
            orders.append(replace(best, order=tuple(part[v] for v in best.order)))
        return orders

    def compiled(
        self, orders: Sequence[Order], num_variables: int, deadline: Deadline, most_nodes: int | None = None
    ) -> Circuit:
        """The circuit; with observed nodes its first root is their conjunction, and each other is in conjunction with
        it. Raises TooLarge."""
        position = np.zeros(len(self.cardinalities), np.int64)
        home = np.zeros(len(self.cardinalities), np.int64)
        for number, order in enumerate(orders):
            position[list(order.order)] = np.arange(len(order.order))
            home[list(order.order)] = number
        space = Space(position, np.array(self.cardinalities, np.int64), most_nodes, deadline)
        builder = CircuitBuilder()
        tables: list[list[Table]] = [[] for _ in orders]
        for choice, variable in self.variable_of_choice.items():
            nodes = np.array([builder.literal(literal) for literal in self.choices.literals[choice]], np.int32)
            tables[home[variable]].append(space.table([variable], nodes))
        nodes = Nodes(builder, self.choices)
        for definition in self.definitions:
            shape = [self.cardinalities[variable] for variable in (*definition.scope, definition.variable)]
            if isinstance(definition, Rows):
                tables[home[definition.variable]].append(nodes.rows(definition, space))
                continue
            table = nodes.table(definition, shape)
            tables[home[definition.variable]].append(space.table([*definition.scope, definition.variable], table))
        has_evidence, constant = set[int](), list[int]()
        for item, known in enumerate(self.known_observed):
            indicator = self.first_indicator + item
            holds, fails = builder.literal(indicator), builder.literal(-indicator)
            if isinstance(known, bool):
                constant.append(holds if known else fails)
                continue
            has_evidence.add(int(home[known[0]]))
            tables[home[known[0]]].append(space.table([known[0]], np.where(known[1], holds, fails).astype(np.int32)))
        parts = [
            Elimination(builder, tables[number], space, order, deadline, most_nodes)
            for number, order in enumerate(orders)
        ]
        # Without evidence a component sums to one.
        sums = {number: parts[number].root() for number in has_evidence}
        roots = [builder.conjunction([*constant, *sums.values()])] if self.observed else []
        values: dict[int, np.ndarray] = {}
        for known in self.known_roots:
            if isinstance(known, bool):
                roots.append(roots[0] if known and self.observed else int(known))
                continue
            variable, number = known[0], int(home[known[0]])
            if variable not in values:
                values[variable] = parts[number].roots(variable)
            here = builder.disjunction(values[variable][known[1]])
            others = [node for other, node in sums.items() if other != number]
            roots.append(builder.conjunction([here, *constant, *others]))
        return builder.build(roots, num_variables + len(self.observed))
