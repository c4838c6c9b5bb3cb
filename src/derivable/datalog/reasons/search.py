"""Proofs of least height: the rules and rows of a model as arrays for the kernel that searches, and what it finds.

What a kernel cannot read, as expressions, foreign predicates and negation over rows that are there in some worlds only,
is had from `bodies`, one tuple at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, count

import numpy as np

from derivable.datalog.kernels import proof_search as k
from derivable.datalog.policy.costs import policy
from derivable.datalog.reasons.bodies import Body
from derivable.datalog.reasons.heights import heights
from derivable.datalog.reasons.model import Model
from derivable.datalog.reasons.rows import Index, Row, Rows
from derivable.datalog.reasons.scalar import are_words_compared
from derivable.datalog.rules import nodes as r
from derivable.datalog.run.limits import Watch
from derivable.datalog.values.values import word_of
from derivable.device.cpu.memory import longer, next_length

# The tuples that one way needs.
Needs = tuple[tuple[str, Row], ...]

_OPERATORS = {"==": k.EQUAL, "!=": k.UNEQUAL, "<": k.LESS, "<=": k.AT_MOST, ">": k.GREATER, ">=": k.AT_LEAST}
# Tuples and ways that a search has room for at first.
_FIRST_ROOM = 1 << 10
# How many instances a kernel looks at where Python looks at one.
LOOKED_AT = 10
# How many rows a run derives in the time in which a search looks at an instance.
DERIVED_AT = 64
# Instances between two looks at the limits of time.
_LOOKS = 1 << 16
_NO_HEIGHTS = np.empty(0, np.int32)


@dataclass(frozen=True)
class Step:
    """How one tuple of a proof follows.

    body  the clause whose positive atoms have the rows of `needs`, in their order; None for a leaf, and for `way`
    way   the number of one of `Search.ways_of`, negative if it is none of these
    """

    body: Body | None
    way: int
    needs: Needs


class Search:
    """The rules behind some relations as arrays; searches share it.

    bodies_of  the clauses of a relation that read facts alone, and the others
    ways_of    the ways in which a tuple of a relation follows whose clauses no kernel reads, of the one or the others:
               the number of the first of them, and what they need
    looked     instances of clauses so far, and `looked_long` those of long searches beyond their first ones
    heights    the least height [row of all relations] of each, once they are known
    """

    def __init__(
        self,
        model: Model,
        bodies_of: Callable[[str], tuple[list[Body], list[Body]]],
        ways_of: Callable[[str, Row, bool], tuple[int, list[Needs]]],
        may_have_heights: bool = True,
    ):
        self.model, self.bodies_of, self.ways_of = model, bodies_of, ways_of
        self.looked = self.looked_long = 0
        self.heights = _NO_HEIGHTS
        self.may_have_heights = may_have_heights
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []
        self.all_rows: list[Rows] = []
        self.total = 0
        self.relations: list[list[int]] = []
        self.columns: list[int] = []
        self.bodies: list[Body] = []
        self.clauses: list[list[int]] = []
        self.atoms: list[list[int]] = []
        self.terms: list[list[int]] = []
        self.tests: list[list[int]] = []
        self.index_of: list[int] = []
        self.indexes: list[list[int]] = []
        # (index, which set of columns of which relation it is for); the addresses belong to these indexes.
        self.made_for: set[tuple[Index, int]] = set()
        self.arrays: tuple[np.ndarray, ...] = ()

    # Arrays

    def number(self, relation: str) -> int:
        """The number of a relation; it and all that lie behind it have one then."""
        if relation not in self.numbers:
            added = [relation]
            self._number(relation)
            for name in added:
                for other in self._behind(name):
                    if other not in self.numbers:
                        self._number(other)
                        added.append(other)
            for name in added:
                self._add_clauses(name)
            self.heights = _NO_HEIGHTS
            self._pack()
        return self.numbers[relation]

    def _number(self, name: str) -> None:
        model = self.model
        self.numbers[name] = self._add_rows(name, model.rows(name))
        record = self.relations[-1]
        if name in model.aggregates:
            record[k.KIND] = k.ELSEWHERE if model.aggregates[name].operator == "disjunct" else k.LEAF
        elif name in model.keys:
            record[k.KIND] = k.ELSEWHERE
        elif name not in model.clauses and name not in model.tables:
            record[k.KIND] = k.LEAF
        else:
            is_narrow = record[k.WIDTH] <= k.MOST_COLUMNS
            reads = is_narrow and all(map(self._reads, chain(*self.bodies_of(name))))
            record[k.KIND] = k.DERIVED if reads else k.ELSEWHERE
            facts = model.facts_of(name)[0]
            if facts.size:
                record[k.FACTS] = self._add_rows(name, facts)

    def _add_rows(self, name: str, rows: Rows) -> int:
        """Number the rows of a relation, or some of them."""
        record = [0] * k.RELATION_WORDS
        record[k.BASE], record[k.SIZE], record[k.WIDTH] = self.total, rows.size, len(rows.columns)
        record[k.STEP] = int(not name.startswith("#"))
        record[k.COLUMNS], record[k.INDEXES], record[k.FACTS] = len(self.columns), len(self.index_of), -1
        record[k.STRIDE], record[k.IS_NARROW] = rows.stride, int(rows.is_narrow)
        self.columns += [column.ctypes.data for column in rows.columns]
        self.index_of += [-1] * (1 << min(len(rows.columns), k.MOST_COLUMNS))
        self.total += rows.size
        self.relations.append(record)
        self.names.append(name)
        self.all_rows.append(rows)
        return len(self.relations) - 1

    def _behind(self, name: str) -> list[str]:
        """The relations whose tuples those of a relation may need."""
        aggregate = self.model.aggregates.get(name)
        if aggregate is not None:
            return [aggregate.body] if aggregate.operator == "disjunct" else []
        clauses = (body.clause for body in chain(*self.bodies_of(name))) if name in self.model.clauses else ()
        clauses = (*clauses, *self.model.clauses.get(name, ()))
        atoms = (one for clause in clauses for one in clause.body if isinstance(one, r.Atom))
        return [atom.relation for atom in atoms if atom.relation not in self.model.constructors]

    def _reads(self, body: Body) -> bool:
        """Whether a kernel reads a clause."""
        model, atoms = self.model, [literal for literal in body.whole if isinstance(literal, r.Atom)]
        bound = {v.name for node in (*atoms, *body.clause.terms) for v in r.variables(node)}
        variables = len(body.slots) + sum(term is None for atom in atoms for term in atom.terms)
        if len(body.whole) > len(body.literals) or len(atoms) > k.MOST_ATOMS or variables > k.MOST_VARIABLES:
            return False
        for literal in body.whole:
            match literal:
                case r.Atom(relation=relation, terms=terms):
                    reads = relation not in model.constructors and relation not in model.keys
                case r.Negated(terms=terms):
                    reads = model.is_boolean
                case r.Filter(condition=condition):
                    terms, reads = (), are_words_compared(condition) and r.names(literal) <= bound
                case _:
                    return False
            if not reads or len(terms) > k.MOST_COLUMNS:
                return False
        return True

    def _add_clauses(self, name: str) -> None:
        record = self.relations[self.numbers[name]]
        record[k.CLAUSES] = len(self.clauses)
        first, others = self.bodies_of(name) if record[k.KIND] == k.DERIVED else ([], [])
        record[k.FIRST_END] = len(self.clauses) + len(first)
        for body in (*first, *others):
            self._add_clause(body)
        record[k.CLAUSES_END] = len(self.clauses)

    def _add_clause(self, body: Body) -> None:
        self.unnamed = count(len(body.slots))
        record = [0] * k.CLAUSE_WORDS
        record[k.HEAD], record[k.ATOMS], record[k.TESTS] = (
            self._add_terms(body, body.clause.terms),
            len(self.atoms),
            len(self.tests),
        )
        for position, literal in enumerate(body.whole):
            if isinstance(literal, r.Atom):
                atom = [0] * k.ATOM_WORDS
                atom[k.RELATION], atom[k.TERMS] = self.numbers[literal.relation], self._add_terms(body, literal.terms)
                atom[k.SHARED] = sum(1 << body.slots[name] for name in r.names(literal) & body.elsewhere(position))
                # Of a row with a variable twice it is not known that it fits.
                is_plain = len(r.names(literal)) == sum(isinstance(term, r.Var) for term in literal.terms)
                atom[k.IS_ANY] = int(is_plain and self.model.is_flat(literal.relation))
                self.atoms.append(atom)
                continue
            test = [0] * k.TEST_WORDS
            test[k.OF] = sum(1 << body.slots[name] for name in r.names(literal))
            if isinstance(literal, r.Negated):
                test[k.OPERATOR], test[k.LEFT] = k.NOT, self._add_terms(body, literal.terms)
                test[k.ABSENT] = self._add_rows(literal.relation, self.model.rows(literal.relation))
            else:
                assert isinstance(literal, r.Filter)
                assert isinstance(literal.condition, r.Apply)
                test[k.OPERATOR] = _OPERATORS[literal.condition.operator]
                test[k.LEFT] = self._add_terms(body, literal.condition.operands)
                test[k.RIGHT] = test[k.LEFT] + 1
            self.tests.append(test)
        record[k.ATOMS_END], record[k.TESTS_END] = len(self.atoms), len(self.tests)
        self.clauses.append(record)
        self.bodies.append(body)

    def _add_terms(self, body: Body, terms: Iterable[r.Expr | None]) -> int:
        at = len(self.terms)
        for term in terms:
            if isinstance(term, r.Const):
                self.terms.append([-1, word_of(term.value, term.type, self.model.symbols)])
            elif isinstance(term, r.Var):
                self.terms.append([body.slots[term.name], 0])
            else:
                # A column that nobody reads is a variable of its own.
                self.terms.append([next(self.unnamed), 0])
        return at

    def _pack(self) -> None:
        def packed(records: list[list[int]], width: int) -> np.ndarray:
            return np.array(records, np.int64).reshape(-1, width)

        index_words = max(map(len, self.indexes), default=k.FIRST_PART)

        self.arrays = (
            packed(self.relations, k.RELATION_WORDS),
            np.array(self.columns, np.int64),
            packed(self.clauses, k.CLAUSE_WORDS),
            packed(self.atoms, k.ATOM_WORDS),
            packed(self.terms, k.TERM_WORDS),
            packed(self.tests, k.TEST_WORDS),
            np.array(self.index_of, np.int64),
            packed([one + [0] * (index_words - len(one)) for one in self.indexes], index_words),
        )

    def add_index(self, relation: int, columns: tuple[int, ...], key: Row) -> None:
        """Have an index over some columns of a relation that has the rows of a key."""
        rows = self.all_rows[relation]
        if not rows.size or not columns:
            return
        index, at = rows.index(columns, key), self.relations[relation][k.INDEXES] + k.number_of(columns)
        if (index, at) in self.made_for:
            return
        self.made_for.add((index, at))
        record = [0] * k.FIRST_PART
        record[k.KEYS], record[k.COUNT], record[k.PARTS] = index.sorted.ctypes.data, len(index.sorted), len(columns)
        record[k.ORDER] = 0 if index.order is None else index.order.ctypes.data
        record[k.ONLY_COLUMN], record[k.ONLY_WORD] = (-1, 0) if index.only is None else index.only
        record[k.NEXT] = self.index_of[at]
        for column, words, (low, span, scale) in zip(columns, index.words, index.scales):
            part = [0] * k.PART_WORDS
            part[k.COLUMN], part[k.LOW], part[k.SPAN], part[k.SCALE] = column, low, span, scale
            if words is not None:
                part[k.WORDS], part[k.WORDS_COUNT] = np.asarray(words).ctypes.data, len(words)
            record += part
        self.index_of[at] = len(self.indexes)
        self.indexes.append(record)
        self._pack()

    def add_facts_index(self, relation: int, row: Row) -> None:
        """Have an index that says whether a tuple of a relation is a fact."""
        facts = self.relations[relation][k.FACTS]
        if facts >= 0:
            self.add_index(facts, self.all_rows[facts].all_columns, row)

    # Searches

    def least(self, relation: str, row: Row, watch: Watch) -> tuple[dict[tuple[str, Row], Step], bool]:
        """The tuples of a proof of least height, none if there is no proof, and whether it is known to be the least."""
        number = self.number(relation)
        numbers = self.all_rows[number].find(row)
        if not numbers:
            return {}, True
        # Once more when heights have become known, and once more if these do not lead to a proof.
        while (answer := _Run(self, number, numbers[0]).least(watch)) is None:
            pass
        return answer

    @property
    def looked_before_heights(self) -> int:
        """Instances that long searches look at before heights of all rows are worth a run."""
        return max(policy().many, self.total // policy().layer_times)

    def height_of(self, name: str, row: Row) -> int:
        """The least height of a tuple, once that of all is known."""
        number = self.numbers[name]
        return int(self.heights[self.relations[number][k.BASE] + self.all_rows[number].find(row)[0]])

    def add_heights(self, watch: Watch) -> bool:
        """Have the heights of all rows, if rules can be run for them."""
        self.may_have_heights = False
        names = [name for name, number in self.numbers.items() if self.relations[number][k.KIND] != k.LEAF]
        known = heights(self.model, names, DERIVED_AT * LOOKED_AT * policy().most_instances, watch)
        if known is None:
            return False
        self.heights = np.zeros(self.total, np.int32)
        for name, of in known.items():
            base = self.relations[self.numbers[name]][k.BASE]
            self.heights[base : base + len(of)] = of
        return True


class _Run:
    """One search, from one goal."""

    def __init__(self, search: Search, relation: int, row: int):
        self.search = search
        self.state = np.zeros(k.STATE_WORDS, np.int64)
        # Most of it is never touched.
        self.numbers = np.zeros(search.total, np.int32)
        most_columns = max(len(rows.columns) for rows in search.all_rows)
        self.scratch = np.empty((k.MOST_ATOMS + 4, max(64, most_columns)), np.int64)
        self.visited = np.empty((_FIRST_ROOM, k.VISIT_WORDS), np.int32)
        self.ids = np.empty(_FIRST_ROOM, np.int64)
        self.ways = np.empty((_FIRST_ROOM, k.WAY_WORDS), np.int32)
        self.needs = np.empty((2 * _FIRST_ROOM, k.NEED_WORDS), np.int32)
        self.fronts = np.empty((2, _FIRST_ROOM), np.int32)
        self.queue = np.empty(_FIRST_ROOM + 1, np.int32)
        self.elsewhere: list[Needs] = []
        self.limit = LOOKED_AT * policy().most_instances
        self.state[k.WANTED] = relation
        self.state[k.MOST] = min(_LOOKS, self.limit, policy().few + 1 + search.looked_before_heights)
        search.add_facts_index(relation, search.all_rows[relation].row(row))
        k.begin(self.state, *self._few_arrays(), *self._room(), row)

    def _few_arrays(self) -> tuple[np.ndarray, ...]:
        relations, columns, *_, index_of, indexes = self.search.arrays
        return relations, columns, index_of, indexes

    def _room(self) -> tuple[np.ndarray, ...]:
        return (
            self.numbers,
            self.visited,
            self.ids,
            self.ways,
            self.needs,
            self.fronts,
            self.queue,
            self.scratch,
        )

    def _make_room(self, of: int, more: int = 1) -> None:
        """Have room for more tuples, ways or needs (`k.VISITED`, `k.WAYS`, `k.NEEDS`), for `more` at least."""
        if of == k.VISITED:
            before = len(self.ids)
            length = next_length(before, before + more)
            self.visited, self.ids = longer(self.visited, length, before), longer(self.ids, length, before)
            fronts = np.empty((2, length), np.int32)
            fronts[:, :before] = self.fronts
            self.fronts, self.queue = fronts, np.empty(length + 1, np.int32)
        elif of == k.WAYS:
            self.ways = longer(self.ways, next_length(len(self.ways), len(self.ways) + more), len(self.ways))
        else:
            self.needs = longer(self.needs, next_length(len(self.needs), len(self.needs) + more), len(self.needs))

    def least(self, watch: Watch) -> tuple[dict[tuple[str, Row], Step], bool] | None:
        """As `Search.least`; None where heights have become known meanwhile."""
        search, state = self.search, self.state
        is_least = True
        while (reason := k.search(state, *search.arrays, *self._room(), search.heights)) != k.DONE:
            if reason == k.NO_INDEX:
                relation, mask = int(state[k.WANTED]), int(state[k.WANTED_MASK])
                columns = k.columns_of(mask, len(search.all_rows[relation].columns))
                search.add_index(relation, columns, tuple(self.scratch[k.KEY, list(columns)].tolist()))
            elif reason == k.NO_ROOM:
                self._make_room(int(state[k.WANTED]))
            elif reason == k.NO_WAYS:
                self._ways_elsewhere(int(state[k.WANTED]))
            watch.remaining()
            looked = search.looked_long + int(state[k.LOOKED]) - policy().few
            if search.may_have_heights and looked > search.looked_before_heights and search.add_heights(watch):
                return None
            if state[k.LOOKED] >= self.limit:
                is_least = False
                break
        search.looked += int(state[k.LOOKED])
        search.looked_long += max(0, int(state[k.LOOKED]) - policy().few)
        goal = int(state[k.GOAL])
        if self.visited[goal, k.HEIGHT] == k.UNKNOWN and len(search.heights):
            # The run for heights has instances of rules that a search does not have.
            search.heights = _NO_HEIGHTS
            return None
        return ({} if self.visited[goal, k.HEIGHT] == k.UNKNOWN else self._steps(goal)), is_least

    def _ways_elsewhere(self, target: int) -> None:
        """Have the ways of a tuple that no kernel has."""
        search, state = self.search, self.state
        numbers = search.numbers
        relation, row = self._tuple(target)
        needed, ends = [], []
        number, ways = search.ways_of(relation, row, bool(state[k.BEGUN] < state[k.VISITED]))
        looked = len(ways)
        if len(search.heights):
            of = search.relations[numbers[relation]]
            most = search.heights[self.ids[target]] - of[k.STEP]
            fits = (at for at, needs in enumerate(ways) if all(search.height_of(*need) <= most for need in needs))
            first = next(fits, looked)
            number, ways = number + first, ways[first : first + 1]
        for needs in ways:
            for name, need in needs:
                needed.append((numbers[name], search.all_rows[numbers[name]].find(need)[0]))
                search.add_facts_index(numbers[name], need)
            ends.append(len(needed))
        for of, more, length in (
            (k.VISITED, len(needed), len(self.ids)),
            (k.WAYS, len(ends) + 1, len(self.ways)),
            (k.NEEDS, len(needed), len(self.needs)),
        ):
            if state[of] + more > length:
                self._make_room(of, more)
        state[k.LOOKED] += LOOKED_AT * looked
        k.add_ways(
            state,
            *self._few_arrays(),
            *self._room(),
            -1 - number - np.arange(len(ends), dtype=np.int64),
            np.array(ends, np.int64),
            np.array(needed, np.int64).reshape(-1, 2),
        )

    def _tuple(self, visited: int) -> tuple[str, Row]:
        relation = int(self.visited[visited, k.OF_RELATION])
        base = self.search.relations[relation][k.BASE]
        return self.search.names[relation], self.search.all_rows[relation].row(int(self.ids[visited]) - base)

    def _steps(self, goal: int) -> dict[tuple[str, Row], Step]:
        """How the tuples of the proof follow that the goal has."""
        steps: dict[tuple[str, Row], Step] = {}
        waiting, seen = [goal], {goal}
        for number in waiting:
            way = int(self.visited[number, k.BEST])
            if way < 0:
                steps[self._tuple(number)] = Step(None, -1, ())
                continue
            first, last = self.ways[way : way + 2, k.FIRST_NEED].tolist()
            below, clause = self.needs[first:last, k.NEED].tolist(), int(self.ways[way, k.CLAUSE])
            waiting += [need for need in dict.fromkeys(below) if need not in seen]
            seen.update(below)
            body = self.search.bodies[clause] if clause >= 0 else None
            steps[self._tuple(number)] = Step(body, -1 - clause, tuple(map(self._tuple, below)))
        return steps
