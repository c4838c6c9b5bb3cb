"""Bayesian networks that are written as rules, as tables of their nodes before anything is grounded.

A relation is a node of a network if at most one of its rows holds in each world: its facts are one choice, or its rule

    alarm(s) = burglary(b), earthquake(e), alarm_table(b, e, s)

joins nodes with random facts that nothing else reads, those for the same rows of the nodes being one choice. Then the
facts are the table of the node given those that it reads. To ground and compile such rules row by row finds the same
tables again, after many times their size in derivations. Facts that have probability zero are no entries.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.circuit.compilation.blocks import eliminated
from derivable.circuit.compilation.clause_tables import MOST_LABELLED
from derivable.circuit.compilation.eliminate import Elimination, cost_of, literals_of, memory_of, ones_of, room_of
from derivable.circuit.compilation.orders import best_order
from derivable.circuit.compilation.planner import HOPED, MOST_ENTRIES, MOST_TRIED, Compilation, made_of
from derivable.circuit.compilation.tables import Space, TooLarge
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import described
from derivable.core.and_or import FALSE, OR, TRUE
from derivable.core.graph import offsets_of
from derivable.core.progress import Deadline
from derivable.datalog.exact.evidence import impossible
from derivable.datalog.exact.exact import absences, posteriors_of
from derivable.datalog.facts.store import FactStore
from derivable.datalog.ram.nodes import Ram, Store
from derivable.datalog.rules.nodes import Atom, Clause, Evidence
from derivable.datalog.run.limits import Watch
from derivable.datalog.scalars.nodes import Var
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import word_of


def network_run(
    ram: Ram, facts: FactStore, outputs: Sequence[str], items: tuple[Evidence, ...], watch: Watch
) -> tuple[dict[str, Table], NetworkCircuit] | None:
    """The rows of the outputs, and the circuit of their probabilities given the items; None of no network, or of one
    that is too wide."""
    shape = Shape.of(ram, [*outputs, *(item.relation for item in items)]) if facts.random.probabilities else None
    if shape is None:
        return None
    try:
        network = Network(ram, facts, shape, watch)
        circuit = network.compiled(outputs, unseen(items, outputs), watch)
    except (NoNetwork, TooLarge):
        return None
    tables: dict[str, Table] = {}
    for name in outputs:
        node, types = network.nodes[name], ram.relations[name].types
        tables[name] = Table(name, types)
        tables[name].insert(node.columns, node.num_rows)
    nodes = {name: network.nodes[name] for name in outputs}
    is_exclusive = facts.random.group_of() >= 0
    return tables, NetworkCircuit(circuit, is_exclusive, ram, nodes, facts.symbols, items)


def unseen(items: Sequence[Evidence], outputs: Container[str]) -> tuple[Evidence, ...]:
    """The items that are about no output: they decide on the circuit."""
    return tuple(item for item in items if item.relation not in outputs)


@dataclass(frozen=True, eq=False)
class NetworkCircuit:
    """The circuit of a network, and what was observed.

    Its variables are the random facts, an indicator of each item that is about no output, and one of each row of the
    outputs. An observation is the weights of an indicator: (1, 0) for a row that holds, (0, 1) for one that does not.
    So other observations of outputs are other weights of the same circuit.

    is_exclusive  [random fact] whether it is one of a choice, whose negative literal has weight one
    nodes         output -> its node
    items         the evidence
    """

    circuit: Circuit
    is_exclusive: np.ndarray
    ram: Ram
    nodes: Mapping[str, NetworkNode]
    symbols: SymbolTable
    items: tuple[Evidence, ...]

    def shown(self, probabilities: Sequence[float]) -> tuple[np.ndarray, np.ndarray, float]:
        """As `Conditioned.shown`; the logarithm of the probability of no evidence is 0.0."""
        weights, negative = self._weights(probabilities, self.items)
        count = sum(node.num_rows for node in self.nodes.values())
        posteriors, possible, log_evidence = posteriors_of(self.circuit, weights, negative, count)
        if log_evidence == -np.inf or not self._has_rows(self.items):
            numbers = range(len(self.items))
            first = next(n for n in numbers if not self._is_possible(probabilities, self.items[: n + 1]))
            item = self.items[first]
            raise impossible(item, self._is_possible(probabilities, [item]))
        # A row that was observed not to hold has a derivative too.
        may_hold = weights[len(weights) - count :] > 0.0
        return posteriors * may_hold, possible & may_hold, log_evidence if self.items else 0.0

    def _has_rows(self, items: Sequence[Evidence]) -> bool:
        """Whether there is a row for each item of an output that is to hold."""
        return all(self._row(item) >= 0 for item in items if item.is_true and item.relation in self.nodes)

    def _is_possible(self, probabilities: Sequence[float], items: Sequence[Evidence]) -> bool:
        weights, negative = self._weights(probabilities, items)
        return self._has_rows(items) and bool(self.circuit.evaluate(weights > 0.0, negative > 0.0, "boolean")[0])

    def _weights(self, probabilities: Sequence[float], items: Sequence[Evidence]) -> tuple[np.ndarray, np.ndarray]:
        """The weights [variable] of both literals where some of the items were observed."""
        facts = np.asarray(probabilities, np.float64)
        ones = np.ones(self.circuit.num_variables - len(facts))
        pair = np.append(absences(facts, self.is_exclusive), ones), np.append(facts, ones)
        starts, start = {}, len(facts) + len(unseen(self.items, self.nodes))
        for name, node in self.nodes.items():
            starts[name] = start
            start += node.num_rows
        indicator = {item: len(facts) + n for n, item in enumerate(unseen(self.items, self.nodes))}
        for item in items:
            row = self._row(item) if item.relation in self.nodes else 0
            if row >= 0:
                pair[not item.is_true][indicator.get(item, starts.get(item.relation, 0) + row)] = 0.0
        return pair[1], pair[0]

    def _row(self, item: Evidence) -> int:
        return self.nodes[item.relation].row(item, self.ram, self.symbols)


_NO_FACTS = np.empty(0, np.int64)


class NoNetwork(Exception):
    """The relations of a program are not all nodes of a network."""


@dataclass(frozen=True)
class Shape:
    """Which relations are nodes, as far as rules say it.

    tables  node -> the nodes that it reads and the atom of its table, those that it reads first
    read    the relations without rules that are nodes
    """

    tables: Mapping[str, tuple[tuple[Atom, ...], Atom, Clause]]
    read: tuple[str, ...]

    @staticmethod
    def of(ram: Ram, wanted: Sequence[str]) -> Shape | None:
        """wanted: the relations that are outputs, or observed; None if rules are of another form."""
        others = any(one.lattice or one.keys or one.is_certain for one in ram.relations.values())
        if ram.demand is not None or others:
            return None
        clauses: dict[str, Clause] = {}
        for stratum in ram.strata:
            if stratum.is_recursive or stratum.timed is not None:
                return None
            for store in stratum.full:
                if not isinstance(store, Store) or store.origin is None or store.relation in clauses:
                    return None
                clauses[store.relation] = store.origin.clause
        atoms = [atom for clause in clauses.values() for atom in clause.body]
        if not clauses or not all(isinstance(atom, Atom) for atom in atoms):
            return None
        times: dict[str, int] = dict.fromkeys(wanted, 2)
        for atom in atoms:
            assert isinstance(atom, Atom)
            times[atom.relation] = times.get(atom.relation, 0) + 1
        tables, read = {}, dict.fromkeys(name for name in wanted if name not in clauses)
        for name, clause in clauses.items():
            body = [atom for atom in clause.body if isinstance(atom, Atom)]
            candidates = [atom for atom in body if atom.relation not in clauses and times[atom.relation] == 1]
            table = max(candidates, key=lambda atom: len(atom.terms), default=None)
            parents = tuple(atom for atom in body if atom is not table)
            if table is None or not _fits(clause, parents, table):
                return None
            tables[name] = parents, table, clause
            read |= dict.fromkeys(atom.relation for atom in parents if atom.relation not in clauses)
        return Shape(tables, tuple(read))


def _fits(clause: Clause, parents: Sequence[Atom], table: Atom) -> bool:
    """Whether the terms are variables, those of each node others, and the table has those of the head."""
    columns = [term.name for term in table.terms if isinstance(term, Var)]
    of_parents = [term.name for atom in parents for term in atom.terms if isinstance(term, Var)]
    terms = [term for atom in (*parents, table) for term in atom.terms]
    return (
        all(term is None or isinstance(term, Var) for term in terms)
        and len(set(columns)) == len(columns)
        and len(set(of_parents)) == len(of_parents)
        and len({atom.relation for atom in parents}) == len(parents)
        and all(isinstance(term, Var) and term.name in columns for term in clause.terms)
    )


@dataclass(frozen=True, eq=False)
class NetworkNode:
    """A relation of which at most one row holds: a variable whose values are its rows, behind "none" if that can be.

    columns   [column] words [row], all rows different
    has_none  whether no row may hold
    """

    number: int
    columns: list[np.ndarray]
    num_rows: int
    has_none: bool

    @property
    def size(self) -> int:
        return self.num_rows + self.has_none

    def row(self, item: Evidence, ram: Ram, symbols: SymbolTable) -> int:
        """The row that an item is about, -1 if there is none."""
        same = np.ones(self.num_rows, bool)
        for value, t, words in zip(item.row, ram.relations[item.relation].types, self.columns):
            same &= words == word_of(value, t, symbols)
        return int(np.argmax(same)) if same.any() else -1


@dataclass(frozen=True, eq=False)
class _Rows:
    """Facts of a relation that have a probability.

    columns    [column] words [fact]
    variables  [fact] its random fact, -1 of certain ones
    choices    [fact] the choice that it is a value of
    literals   [fact] the circuit node of that it holds
    """

    columns: list[np.ndarray]
    variables: np.ndarray
    choices: np.ndarray
    literals: np.ndarray

    def chosen(self, rows: np.ndarray) -> _Rows:
        arrays = (one[rows] for one in (self.variables, self.choices, self.literals))
        return _Rows([column[rows] for column in self.columns], *arrays)


class Network:
    """A program as a network: its nodes, and a table of circuit nodes over those that it reads and itself for each.

    Raises NoNetwork.

    facts   the random facts are the variables of the circuit
    """

    def __init__(self, ram: Ram, facts: FactStore, shape: Shape, deadline: Deadline):
        self.ram, self.facts = ram, facts
        self.nodes: dict[str, NetworkNode] = {}
        self.builder, self.tables = CircuitBuilder(), list[tuple[list[int], np.ndarray]]()
        random = facts.random
        self.is_possible = np.asarray(random.probabilities, np.float64) > 0.0
        self.group = random.group_of()
        is_alone = self.group < 0
        # An independent fact is a choice of two values.
        self.group[is_alone] = len(random.groups) + np.arange(int(is_alone.sum()))
        self.is_alone = is_alone
        num_groups = len(random.groups) + int(is_alone.sum())
        self.members = np.bincount(self.group[self.is_possible], minlength=num_groups)
        self.members[self.group[is_alone & (np.asarray(random.probabilities) < 1.0)]] += 1
        # Whatever is alone among the values of a choice that have a probability is certain.
        self.literals = literals_of(self.builder, np.arange(1, len(random.probabilities) + 1))
        self.literals[self.members[self.group] == 1] = TRUE
        sources = [*shape.read, *(table.relation for _, table, _ in shape.tables.values())]
        self.rows = self._rows(sources)
        for name in shape.read:
            self._add(name, (), name, list(range(len(ram.relations[name].types))), {})
        for name, (parents, table, clause) in shape.tables.items():
            deadline.remaining()
            column = {term.name: c for c, term in enumerate(table.terms) if isinstance(term, Var)}
            head = [column[term.name] for term in clause.terms if isinstance(term, Var)]
            self._add(name, parents, table.relation, head, column)

    def _rows(self, sources: Sequence[str]) -> dict[str, _Rows]:
        """The facts of some relations. Raises NoNetwork if a choice is of several."""
        relations, types = self.facts.relations, self.ram.relations
        joined = [(name, *relations[name].joined(len(types[name].types))) for name in sources if name in relations]
        starts = offsets_of([len(variables) for _, _, variables in joined])
        variables = np.concatenate([_NO_FACTS, *(variables for _, _, variables in joined)])
        is_random, count = variables >= 0, len(self.members)
        choices, literals = count + np.arange(len(variables)), np.full(len(variables), TRUE, np.int32)
        choices[is_random] = self.group[variables[is_random]]
        literals[is_random] = self.literals[variables[is_random]]
        # A certain fact is a choice of one value.
        self.members = np.concatenate([self.members, np.ones(len(variables), np.int64)])
        stays = np.ones(len(variables), bool)
        stays[is_random] = self.is_possible[variables[is_random]]
        relation = np.arange(len(joined)).repeat(np.diff(starts))
        owner = np.empty(len(self.members), np.int64)
        owner[choices] = relation
        if (owner[choices] != relation).any():
            raise NoNetwork
        rows: dict[str, _Rows] = {}
        for (name, columns, _), start, stop in zip(joined, starts[:-1].tolist(), starts[1:].tolist()):
            mine = _Rows(columns, *(one[start:stop] for one in (variables, choices, literals)))
            there = stays[start:stop]
            rows[name] = mine if there.all() else mine.chosen(there)
        return rows

    def _add(
        self, name: str, parents: Sequence[Atom], source: str, head: Sequence[int], column: Mapping[str, int]
    ) -> None:
        """Make a node of the facts of a relation.

        head    the columns of these facts that are those of the node
        column  name of a variable -> the column of these facts that has it
        """
        if source not in self.rows or (source != name and name in self.facts.relations):
            raise NoNetwork
        facts = self.rows[source]
        count = len(facts.choices)
        key, shape, spread = np.zeros(count, np.int64), list[int](), list[np.ndarray | None]()
        matches = None
        for atom in parents:
            node = self.nodes[atom.relation]
            shared = [(c, column[t.name]) for c, t in enumerate(atom.terms) if isinstance(t, Var) and t.name in column]
            digits, classes, size = _matched(node, shared, facts.columns, count)
            matches = digits >= 0 if matches is None else matches & (digits >= 0)
            key = key * size + digits
            shape.append(size)
            spread.append(classes)
        if matches is not None and not matches.all():
            facts, key = facts.chosen(matches), key[matches]
        rows, which, num_rows = _distinct([facts.columns[c] for c in head], len(key))
        sizes = [max(self.nodes[atom.relation].size, size) for atom, size in zip(parents, shape)]
        if not num_rows or math.prod(sizes) * (num_rows + 1) > MOST_LABELLED:
            raise NoNetwork
        num_keys = math.prod(shape)
        entries = self._entries(key * num_rows + which, facts.literals, num_keys * num_rows)
        none = self._rest(facts, key, num_keys)
        has_none = none is not None or any(self.nodes[atom.relation].has_none for atom in parents)
        table = entries.reshape(num_keys, num_rows)
        if has_none:
            # The last class of each parent is that nothing of it matches: no row holds.
            none = np.full(num_keys, FALSE, np.int32) if none is None else none
            table = np.concatenate([none[:, None], table], axis=1)
        table = table.reshape(*shape, num_rows + has_none)
        for axis, classes in enumerate(spread):
            if classes is not None:
                fails = np.zeros([1 if a == axis else n for a, n in enumerate(table.shape)], table.dtype)
                fails[..., 0] = TRUE
                table = np.concatenate([table, fails], axis=axis).take(classes, axis=axis)
        node = NetworkNode(len(self.nodes), [facts.columns[c][rows] for c in head], num_rows, has_none)
        self.tables.append(([*(self.nodes[atom.relation].number for atom in parents), node.number], table))
        self.nodes[name] = node

    def _entries(self, cell: np.ndarray, nodes: np.ndarray, count: int) -> np.ndarray:
        """The circuit node [cell] of the facts of each cell, one of which holds, from the node [fact] of each."""
        entries = np.zeros(count, np.int32)
        entries[cell] = nodes
        several = np.bincount(cell, minlength=count)
        if several.max(initial=0) > 1:
            order = np.argsort(cell, kind="stable")
            entries[several > 0] = self.builder.add_gates(OR, offsets_of(several[several > 0]), nodes[order])
        return entries

    def _rest(self, facts: _Rows, key: np.ndarray, num_keys: int) -> np.ndarray | None:
        """The circuit node [key] of that no fact of a key holds: the other values of its choice; None if one always
        holds. Raises NoNetwork if the facts of a key are of several choices."""
        choice = np.zeros(num_keys, np.int64)
        choice[key] = facts.choices
        if (choice[key] != facts.choices).any():
            raise NoNetwork
        there = np.bincount(key, minlength=num_keys)
        may_fail = (there == 0) | (there < self.members[choice])
        if not may_fail.any():
            return None
        rest = np.where(there == 0, np.int32(TRUE), np.int32(FALSE))
        keys = (may_fail & (there > 0)).nonzero()[0]
        # A key of an independent fact has that fact alone.
        variable = np.zeros(num_keys, np.int64)
        variable[key] = facts.variables
        is_alone = self.is_alone[variable[keys]]
        rest[keys[is_alone]] = literals_of(self.builder, -1 - variable[keys[is_alone]])
        keys = keys[~is_alone]
        groups = [self.facts.random.groups[number] for number in choice[keys].tolist()]
        others, of_key = np.concatenate([_NO_FACTS, *groups]), keys.repeat([*map(len, groups)])
        count = len(self.is_possible)
        is_other = self.is_possible[others] & ~np.isin(of_key * count + others, key * count + facts.variables)
        sizes = np.bincount(of_key[is_other], minlength=num_keys)[keys]
        rest[keys] = self.builder.add_gates(OR, offsets_of(sizes), self.literals[others[is_other]])
        return rest

    def compiled(self, outputs: Sequence[str], items: Sequence[Evidence], watch: Watch) -> Circuit:
        """The circuit of the evidence, and of that each row of the outputs equals an indicator of its own; variables
        behind the random facts: those of the items, then those of the rows. Raises TooLarge, NoNetwork."""
        sizes = [node.size for node in self.nodes.values()]
        order = best_order([scope for scope, _ in self.tables], sizes, watch)
        if order.cost > HOPED or memory_of(min(order.cost, float(MOST_TRIED))) > room_of(watch.bytes_left):
            raise NoNetwork
        most = None if order.cost <= MOST_ENTRIES else MOST_TRIED
        space, builder = Space.of(order.order, sizes, most, watch), self.builder
        tables = [space.table(scope, table) for scope, table in self.tables]
        first, constant = len(self.is_possible) + 1, list[int]()
        for indicator, item in enumerate(items, first):
            holds, fails = builder.literal(indicator), builder.literal(-indicator)
            node = self.nodes[item.relation]
            row = node.row(item, self.ram, self.facts.symbols)
            if row < 0:
                constant.append(fails)
                continue
            values = np.full(node.size, fails, np.int32)
            values[row + node.has_none] = holds
            tables.append(space.table([node.number], values))
        start, groups = first + len(items), list[range]()
        for name in outputs:
            groups.append(range(start, start + self.nodes[name].num_rows))
            start = groups[-1].stop
        for name, (rows, none) in zip(outputs, ones_of(builder, groups)):
            node = self.nodes[name]
            tables.append(space.table([node.number], np.append(np.full(int(node.has_none), none, np.int32), rows)))
        if most is None:
            tables += [space.table((), np.array(node)) for node in constant]
            limit = watch.bytes_left
            circuit = eliminated(
                builder, tables, space, order, start - 1, origin="", memory_limit=limit, is_smooth=False
            )
        else:
            root = Elimination(builder, tables, space, order, watch, most).root()
            circuit = builder.build([builder.conjunction([root, *constant])], start - 1)
        row = ("elimination", cost_of(order), f"taken: {made_of(circuit)}")
        what = f"elimination, a network of {len(self.nodes):,} relations before grounding"
        return described(circuit, compilation=Compilation(what, (row,)))


def _matched(
    node: NetworkNode, shared: Sequence[tuple[int, int]], columns: Sequence[np.ndarray], num_facts: int
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Which rows of a node agree with facts on some columns.

    shared   (column of the node, column of the facts)
    returns  the class [fact] of the rows that agree, -1 if none does, the class [value] of each value, that of no row
             being behind the others, or None if each value is one, and how many there are
    """
    is_whole = len(shared) == len(node.columns) == 1
    if is_whole:
        # Its rows are different, and in order.
        first = which = np.arange(node.num_rows)
        count = node.num_rows
    else:
        first, which, count = _distinct([node.columns[c] for c, _ in shared], node.num_rows)
    if len(shared) == 1:
        words, wanted = node.columns[shared[0][0]][first], columns[shared[0][1]]
        digits = np.minimum(np.searchsorted(words, wanted), count - 1)
        digits = np.where(words[digits] == wanted, digits, -1)
    else:
        both = [np.concatenate([node.columns[c][first], columns[other]]) for c, other in shared]
        _, codes, total = _distinct(both, count + num_facts)
        class_of = np.full(total, -1)
        class_of[codes[:count]] = np.arange(count)
        digits = class_of[codes[count:]]
    is_in_order = is_whole or (count == node.num_rows and bool((which == np.arange(count)).all()))
    is_identity = is_in_order and not node.has_none
    return digits, None if is_identity else np.append([count] * node.has_none, which).astype(np.int64), count


def _distinct(columns: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(the first of each distinct row, the distinct row [row], how many) of columns [row], in order."""
    if not columns:
        return np.zeros(min(count, 1), np.int64), np.zeros(count, np.int64), min(count, 1)
    order = np.lexsort(columns[::-1])
    is_first = np.zeros(count, bool)
    is_first[:1] = True
    for column in columns:
        ordered = column[order]
        is_first[1:] |= ordered[1:] != ordered[:-1]
    which = np.empty(count, np.int64)
    which[order] = np.cumsum(is_first) - 1
    first = order[is_first]
    return first, which, len(first)
