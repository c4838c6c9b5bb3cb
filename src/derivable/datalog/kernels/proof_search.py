"""A search by breadth for a proof of least height, backwards from a tuple, over rows that are numbered.

The instances of rules are joins of few rows: at each step the atom comes next that has the fewest rows for what is
bound, as sorted indexes say. An index that is missing is made by the caller, who also makes more room, and has the
instances of rules that no kernel reads; a tuple whose instances are not complete is begun again then.

Every array is of int64 words, or int32 ones where it grows with the search; the columns of records are named below.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import load, pointer_at

# A relation: the number of its first row among those of all relations; where the addresses of its columns begin, how
# far the words of each are from one another, and whether they have 32 bits; its clauses, first those that read facts
# alone; the relation that has its facts alone, or -1; where the first index of each set of columns is named.
BASE, SIZE, WIDTH, COLUMNS, STRIDE, IS_NARROW, CLAUSES, FIRST_END, CLAUSES_END, KIND, FACTS, INDEXES = range(12)
STEP, RELATION_WORDS = range(12, 14)
# What a relation is: a leaf, as its rows have no proofs; derived by clauses; or by instances that the caller has.
LEAF, DERIVED, ELSEWHERE = range(3)
# A clause: the terms of its head, its atoms and its tests.
HEAD, ATOMS, ATOMS_END, TESTS, TESTS_END, CLAUSE_WORDS = range(6)
# An atom: its terms; the variables, as bits, that something else has; whether each of its rows is as good as another.
RELATION, TERMS, SHARED, IS_ANY, ATOM_WORDS = range(5)
# A term: a variable, or -1 and a constant.
VARIABLE, CONSTANT, TERM_WORDS = range(3)
# A test: what is compared, with which operator, and the variables, as bits; or the relation of a tuple that is to be
# absent.
OPERATOR, LEFT, RIGHT, OF, ABSENT, TEST_WORDS = range(6)
EQUAL, UNEQUAL, LESS, AT_MOST, GREATER, AT_LEAST, NOT = range(7)
FAILS, PASSES, HAS_NO_INDEX = range(3)
# An index: the addresses of its keys and of the rows in their order, 0 if that is that of the rows; their number; the
# column and the word that they have, -1 if it has all rows, and the index over the same columns that is looked at next,
# -1 if there is none; the parts of a key, each a column with its least value, the number of values and a factor, or
# words that it is among.
KEYS, ORDER, COUNT, ONLY_COLUMN, ONLY_WORD, NEXT, PARTS, FIRST_PART = range(8)
COLUMN, LOW, SPAN, SCALE, WORDS, WORDS_COUNT, PART_WORDS = range(7)
# The state: how many of each there are, how many tuples have their ways from facts, how far the two fronts are, and
# what the caller has to do.
VISITED, WAYS, NEEDS, BEGUN, FRONT, FRONT_END, NEXT_END, LEVEL, LOOKED, MOST = range(10)
GOAL, WANTED, WANTED_MASK, STATE_WORDS = range(10, 14)
DONE, NO_INDEX, NO_ROOM, NO_WAYS, PAUSED = range(5)
# A tuple that is visited: its relation, the least height so far, the way of that, and the last need that it is.
OF_RELATION, HEIGHT, BEST, USERS, IS_QUEUED, VISIT_WORDS = range(6)
# A way: what it is for, its clause, and its needs; a need: what it is, the one before of the same tuple, and its way.
TARGET, CLAUSE, FIRST_NEED, WAY_WORDS = range(4)
NEED, BEFORE, WAY, NEED_WORDS = range(4)
UNKNOWN = 1 << 30
# Rows of an atom that are gone through rather than have an index made of another atom: as many, and one more for each
# ROWS_A_ROW rows of that.
FEW_ROWS, ROWS_A_ROW = 4, 1 << 15
# A frame of the join: an atom, its rows from where to where, their order, and what was bound and tested before.
ATOM, AT, STOP, IN_ORDER, BOUND, TESTED, FRAME_WORDS = range(7)
MOST_ATOMS, MOST_VARIABLES = 16, 60
# Columns of a relation that rules here read: each set of them may have an index, and of a wider one that of all has.
MOST_COLUMNS = 8
# The row of `scratch` with the values [column] of the key for which an index is wanted.
KEY = 2


def number_of(columns: Sequence[int]) -> int:
    """The number of a set of columns: bits, or all that there may be of one of more columns than MOST_COLUMNS."""
    return sum(1 << c for c in columns) if len(columns) <= MOST_COLUMNS else (1 << MOST_COLUMNS) - 1


def columns_of(number: int, width: int) -> tuple[int, ...]:
    """The set of columns of a relation that has a number."""
    return tuple(range(width)) if width > MOST_COLUMNS else tuple(c for c in range(width) if number >> c & 1)


@kernel
def _at_least(words, count, word):
    """The first position from which on words in order are not less than a word."""
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) >> 1
        if load(words, middle) < word:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _key(index, values):
    """The word that an index has for the values [column] of its columns, and whether any row may have them."""
    key = np.int64(0)
    for part in range(index[PARTS]):
        at = FIRST_PART + part * PART_WORDS
        word = values[index[at + COLUMN]]
        if index[at + WORDS] != 0:
            words = pointer_at(index[at + WORDS], np.int64)
            position = _at_least(words, index[at + WORDS_COUNT], word)
            if position == index[at + WORDS_COUNT] or load(words, position) != word:
                return np.int64(0), False
            word = position
        if index[at + SPAN] != 0:
            word -= index[at + LOW]
            if word < 0 or word >= index[at + SPAN]:
                return np.int64(0), False
        key += word * index[at + SCALE]
    return key, True


@kernel
def _index_of(relations, index_of, indexes, relation, mask, values):
    """The index of a relation by a set of columns that has the rows with these values; -1 if there is none."""
    index = index_of[relations[relation, INDEXES] + mask]
    while index >= 0 and indexes[index, ONLY_COLUMN] >= 0:
        if values[indexes[index, ONLY_COLUMN]] == indexes[index, ONLY_WORD]:
            break
        index = indexes[index, NEXT]
    return index


@kernel
def _range(index, values):
    """From where to where the rows with these values are in the order of an index."""
    key, may_be = _key(index, values)
    if not may_be:
        return np.int64(0), np.int64(0)
    keys, count = pointer_at(index[KEYS], np.int64), index[COUNT]
    start = _at_least(keys, count, key)
    if start == count or load(keys, start) != key:
        return np.int64(0), np.int64(0)
    if start + 1 == count or load(keys, start + 1) != key:
        return start, start + 1
    # Rows of one key are few as a rule: their end is looked for in steps that double.
    step = np.int64(1)
    while start + step < count and load(keys, start + step) == key:
        step *= 2
    low, high = start + step // 2, min(count, start + step)
    while low < high:
        middle = (low + high) >> 1
        if load(keys, middle) == key:
            low = middle + 1
        else:
            high = middle
    return start, low


@kernel
def _has(state, relations, index_of, indexes, relation, values):
    """Whether a relation has a tuple: FAILS, PASSES, or HAS_NO_INDEX, the index that is missing being wanted then."""
    width = relations[relation, WIDTH]
    if relations[relation, SIZE] == 0 or width == 0:
        return PASSES if relations[relation, SIZE] else FAILS
    mask = (np.int64(1) << min(width, MOST_COLUMNS)) - 1
    index = _index_of(relations, index_of, indexes, relation, mask, values)
    if index < 0:
        state[WANTED], state[WANTED_MASK] = relation, mask
        return HAS_NO_INDEX
    start, stop = _range(indexes[index], values)
    return PASSES if start < stop else FAILS


@kernel
def _value(terms, words, term):
    """The word of a term, whose variable is bound."""
    return terms[term, CONSTANT] if terms[term, VARIABLE] < 0 else words[terms[term, VARIABLE]]


@kernel
def _fill_key(relations, terms, words, relation, term, values):
    """Write the words of an atom's terms, from the number of the first one on, to `values` [column]; those of variables
    that are not bound have no meaning."""
    for column in range(relations[relation, WIDTH]):
        values[column] = _value(terms, words, term + column)


@kernel
def _tested(state, relations, tests, terms, index_of, indexes, words, values, k):
    """What a test of bound variables says, as `_has`."""
    operator = tests[k, OPERATOR]
    if operator == NOT:
        _fill_key(relations, terms, words, tests[k, ABSENT], tests[k, LEFT], values)
        has = _has(state, relations, index_of, indexes, tests[k, ABSENT], values)
        return has if has == HAS_NO_INDEX else PASSES - has
    return PASSES if _holds(tests, terms, words, k) else FAILS


@kernel
def _holds(tests, terms, words, k):
    """Whether a comparison of bound variables does."""
    operator = tests[k, OPERATOR]
    a, b = _value(terms, words, tests[k, LEFT]), _value(terms, words, tests[k, RIGHT])
    if operator == EQUAL:
        return a == b
    if operator == UNEQUAL:
        return a != b
    if operator == LESS:
        return a < b
    if operator == AT_MOST:
        return a <= b
    return a > b if operator == GREATER else a >= b


@kernel
def _visit(state, relations, numbers, visited, ids, relation, row):
    """The number of a tuple among those that are visited; there is room for one more."""
    id_of_row = relations[relation, BASE] + row
    number = np.int64(numbers[id_of_row]) - 1
    if number < 0:
        number = state[VISITED]
        state[VISITED] = number + 1
        numbers[id_of_row] = number + 1
        ids[number] = id_of_row
        visited[number, OF_RELATION] = relation
        visited[number, HEIGHT] = UNKNOWN
        visited[number, BEST] = -1
        visited[number, USERS] = -1
        visited[number, IS_QUEUED] = 0
    return number


@kernel
def _way(state, ways, target, clause):
    """Begin a way; its needs follow."""
    number = state[WAYS]
    ways[number, TARGET], ways[number, CLAUSE], ways[number, FIRST_NEED] = target, clause, state[NEEDS]
    state[WAYS] = number + 1
    ways[number + 1, FIRST_NEED] = state[NEEDS]


@kernel
def _need(state, ways, needs, number):
    """Add a need to the last way."""
    way, at = state[WAYS] - 1, state[NEEDS]
    needs[at, NEED], needs[at, WAY] = number, way
    state[NEEDS] = at + 1
    ways[way + 1, FIRST_NEED] = at + 1


@kernel
def _undo(state, numbers, ways, ids, first_visited, first_way):
    """Forget what a tuple's ways have brought so far."""
    for number in range(first_visited, state[VISITED]):
        numbers[ids[number]] = 0
    state[VISITED], state[WAYS], state[NEEDS] = first_visited, first_way, ways[first_way, FIRST_NEED]


@kernel
def _word(relations, columns, relation, column, row):
    """The word of a row in a column."""
    address, at = columns[relations[relation, COLUMNS] + column], row * relations[relation, STRIDE]
    if relations[relation, IS_NARROW]:
        return np.int64(load(pointer_at(address, np.int32), at))
    return load(pointer_at(address, np.int64), at)


@kernel
def _fill(relations, columns, relation, row, values):
    """Write the words of a row to `values` [column]."""
    for column in range(relations[relation, WIDTH]):
        values[column] = _word(relations, columns, relation, column, row)


@kernel
def _instances(
    state, relations, columns, clauses, atoms, terms, tests, index_of, indexes, numbers, visited, ids, ways, needs,
    frames, rows, words, values, head, heights, target, clause,
):  # fmt: skip
    """Add the ways in which one clause derives a tuple, whose words are in `head`; 0, or why it cannot.

    Where heights are known, it is one way at most, of the tuple's height.
    """
    relation, first_atom = visited[target, OF_RELATION], clauses[clause, ATOMS]
    most = np.int64(UNKNOWN)
    if len(heights):
        most = heights[ids[target]] - relations[relation, STEP]
    bound = tested = np.int64(0)
    for column in range(relations[relation, WIDTH]):
        term = clauses[clause, HEAD] + column
        variable = terms[term, VARIABLE]
        if variable < 0:
            if terms[term, CONSTANT] != head[column]:
                return 0
        elif bound >> variable & 1:
            if words[variable] != head[column]:
                return 0
        else:
            words[variable] = head[column]
            bound |= np.int64(1) << variable
    num_atoms = clauses[clause, ATOMS_END] - first_atom
    remaining = (np.int64(1) << num_atoms) - 1
    first_test, num_tests = clauses[clause, TESTS], clauses[clause, TESTS_END] - clauses[clause, TESTS]
    depth, goes_on = 0, True
    while True:
        if goes_on:
            goes_on = False
            for k in range(num_tests):
                if not tested >> k & 1 and tests[first_test + k, OF] & ~bound == 0:
                    tested |= np.int64(1) << k
                    said = _tested(
                        state, relations, tests, terms, index_of, indexes, words, values, first_test + k
                    )  # fmt: skip
                    if said == HAS_NO_INDEX:
                        return NO_INDEX
                    if said == FAILS:
                        break
            else:
                if remaining == 0:
                    state[LOOKED] += 1
                    if state[VISITED] + num_atoms > len(ids):
                        state[WANTED] = VISITED
                        return NO_ROOM
                    if state[WAYS] + 2 > len(ways):
                        state[WANTED] = WAYS
                        return NO_ROOM
                    if state[NEEDS] + num_atoms > len(needs):
                        state[WANTED] = NEEDS
                        return NO_ROOM
                    for atom in range(num_atoms):
                        if relations[atoms[first_atom + atom, RELATION], BASE] + rows[atom] == ids[target]:
                            # Nothing follows from itself.
                            break
                    else:
                        _way(state, ways, target, clause)
                        for atom in range(num_atoms):
                            of = atoms[first_atom + atom, RELATION]
                            _need(state, ways, needs, _visit(state, relations, numbers, visited, ids, of, rows[atom]))
                        if most < UNKNOWN:
                            return 0
                else:
                    best, best_start, best_stop, best_index = -1, np.int64(0), np.int64(0), np.int64(-1)
                    missing, missing_mask, is_empty = -1, np.int64(0), False
                    for atom in range(num_atoms):
                        if not remaining >> atom & 1:
                            continue
                        of, at = atoms[first_atom + atom, RELATION], atoms[first_atom + atom, TERMS]
                        mask, free = np.int64(0), np.int64(0)
                        for column in range(relations[of, WIDTH]):
                            variable = terms[at + column, VARIABLE]
                            if variable < 0:
                                values[column] = terms[at + column, CONSTANT]
                                mask |= np.int64(1) << column
                            elif bound >> variable & 1:
                                values[column] = words[variable]
                                mask |= np.int64(1) << column
                            else:
                                free |= np.int64(1) << variable
                        start, stop, index = np.int64(0), relations[of, SIZE], np.int64(-1)
                        if mask != 0 and stop:
                            index = _index_of(relations, index_of, indexes, of, mask, values)
                            if index < 0:
                                if missing < 0 or stop < relations[atoms[first_atom + missing, RELATION], SIZE]:
                                    missing, missing_mask = atom, mask
                                continue
                            start, stop = _range(indexes[index], values)
                        if start == stop:
                            is_empty = True
                            break
                        if atoms[first_atom + atom, IS_ANY] and free & atoms[first_atom + atom, SHARED] == 0:
                            stop = start + 1
                        if best < 0 or stop - start < best_stop - best_start:
                            best, best_start, best_stop, best_index = atom, start, stop, index
                    if not is_empty:
                        few = np.int64(FEW_ROWS)
                        if missing >= 0:
                            few += relations[atoms[first_atom + missing, RELATION], SIZE] // ROWS_A_ROW
                        if missing >= 0 and (best < 0 or best_stop - best_start > few):
                            of, at = atoms[first_atom + missing, RELATION], atoms[first_atom + missing, TERMS]
                            state[WANTED], state[WANTED_MASK] = of, missing_mask
                            _fill_key(relations, terms, words, of, at, values)
                            return NO_INDEX
                        frames[depth, ATOM], frames[depth, AT], frames[depth, STOP] = best, best_start, best_stop
                        frames[depth, IN_ORDER] = 0 if best_index < 0 else indexes[best_index, ORDER]
                        frames[depth, BOUND], frames[depth, TESTED] = bound, tested
                        remaining &= ~(np.int64(1) << best)
                        depth += 1
        elif depth == 0:
            return 0
        else:
            frame = depth - 1
            bound, tested, atom = frames[frame, BOUND], frames[frame, TESTED], frames[frame, ATOM]
            if frames[frame, AT] == frames[frame, STOP]:
                remaining |= np.int64(1) << atom
                depth -= 1
                continue
            row = frames[frame, AT]
            frames[frame, AT] = row + 1
            if frames[frame, IN_ORDER] != 0:
                row = load(pointer_at(frames[frame, IN_ORDER], np.int64), row)
            rows[atom] = row
            of, at = atoms[first_atom + atom, RELATION], atoms[first_atom + atom, TERMS]
            if most < UNKNOWN and heights[relations[of, BASE] + row] > most:
                continue
            goes_on = True
            for column in range(relations[of, WIDTH]):
                variable = terms[at + column, VARIABLE]
                word = _word(relations, columns, of, column, row)
                if variable < 0:
                    goes_on &= word == terms[at + column, CONSTANT]
                elif bound >> variable & 1:
                    goes_on &= word == words[variable]
                else:
                    words[variable] = word
                    bound |= np.int64(1) << variable


@kernel
def _improve(relations, visited, ways, needs, way):
    """Whether a way gives its tuple a lesser height than it has; it has that then."""
    height = np.int64(0)
    for at in range(ways[way, FIRST_NEED], ways[way + 1, FIRST_NEED]):
        height = max(height, visited[needs[at, NEED], HEIGHT])
    if height == UNKNOWN:
        return False
    target = ways[way, TARGET]
    height += relations[visited[target, OF_RELATION], STEP]
    if height >= visited[target, HEIGHT]:
        return False
    visited[target, HEIGHT], visited[target, BEST] = height, way
    return True


@kernel
def _knows_facts(state, relations, columns, index_of, indexes, visited, ids, values, first_visited):
    """Whether there are indexes that say which of the tuples from `first_visited` on are facts of derived relations."""
    for number in range(first_visited, state[VISITED]):
        of = visited[number, OF_RELATION]
        if relations[of, KIND] != LEAF and relations[of, FACTS] != -1:
            _fill(relations, columns, of, ids[number] - relations[of, BASE], values)
            if _has(state, relations, index_of, indexes, relations[of, FACTS], values) == HAS_NO_INDEX:
                return False
    return True


@kernel
def _accept(
    state, relations, columns, index_of, indexes, visited, ids, ways, needs, fronts, queue, values, first_visited,
    first_way,
):  # fmt: skip
    """Have what the ways of a tuple, which are complete, say: new tuples in the fronts, and heights."""
    for number in range(first_visited, state[VISITED]):
        of = visited[number, OF_RELATION]
        is_leaf = relations[of, KIND] == LEAF
        if not is_leaf and relations[of, FACTS] != -1:
            _fill(relations, columns, of, ids[number] - relations[of, BASE], values)
            is_leaf = _has(state, relations, index_of, indexes, relations[of, FACTS], values) == PASSES
        if is_leaf:
            visited[number, HEIGHT] = 0
        elif relations[of, STEP]:
            fronts[1, state[NEXT_END]] = number
            state[NEXT_END] += 1
        else:
            # A part of a rule lies as far behind as that.
            fronts[0, state[FRONT_END]] = number
            state[FRONT_END] += 1
    first, last = 0, 0
    for way in range(first_way, state[WAYS]):
        for at in range(ways[way, FIRST_NEED], ways[way + 1, FIRST_NEED]):
            number = needs[at, NEED]
            needs[at, BEFORE] = visited[number, USERS]
            visited[number, USERS] = at
        target = ways[way, TARGET]
        if _improve(relations, visited, ways, needs, way) and visited[target, IS_QUEUED] == 0:
            visited[target, IS_QUEUED], queue[last] = 1, target
            last = last + 1 if last + 1 < len(queue) else 0
    while first != last:
        number = queue[first]
        first = first + 1 if first + 1 < len(queue) else 0
        visited[number, IS_QUEUED] = 0
        at = visited[number, USERS]
        while at >= 0:
            way = needs[at, WAY]
            target = ways[way, TARGET]
            if _improve(relations, visited, ways, needs, way) and visited[target, IS_QUEUED] == 0:
                visited[target, IS_QUEUED], queue[last] = 1, target
                last = last + 1 if last + 1 < len(queue) else 0
            at = needs[at, BEFORE]


@kernel
def _is_skipped(relations, visited, ids, heights, target, begins):
    """Whether the ways of a tuple from facts in one step, or the others, are not needed."""
    if begins and visited[target, HEIGHT] == 0:
        return True
    if len(heights) == 0:
        return False
    least = heights[ids[target]]
    if begins:
        return least > relations[visited[target, OF_RELATION], STEP]
    return visited[target, HEIGHT] <= least


@kernel(
    "int64[] int64[,] int64[] int64[,] int64[,] int64[,] int64[,] int64[] int64[,] int32[] int32[,] int64[] int32[,]"
    " int32[,] int32[,] int32[] int64[,] int32[]"
)
def search(
    state, relations, columns, clauses, atoms, terms, tests, index_of, indexes, numbers, visited, ids, ways, needs,
    fronts, queue, scratch, heights,
):  # fmt: skip
    """Go on with a search until the goal has a proof of least height or nothing is left, or the caller is needed.

    numbers  [row of all relations] 1 + the number of a tuple that is visited, 0 for others
    ids     [visited] the row of each
    fronts  [2, visited] the tuples of this level, which are expanded from `state[FRONT]` on, and of the next one
    queue   [visited + 1] and scratch [3 + MOST_ATOMS, 64]: for use here
    heights [row of all relations] the least height of each, or none if they are not known
    """
    rows, words, values, frames = scratch[0], scratch[1], scratch[KEY], scratch[3:]
    stop = state[LOOKED] + state[MOST]
    # Once the levels before this one are expanded, all proofs are there that have one rule more in a row than these are
    # levels; what is a part of a rule begins no level.
    ahead = 1 + relations[visited[state[GOAL], OF_RELATION], STEP]
    while visited[state[GOAL], HEIGHT] > state[LEVEL] + ahead:
        if state[LOOKED] >= stop:
            return PAUSED
        begins = state[BEGUN] < state[VISITED]
        if begins:
            target = state[BEGUN]
            if _is_skipped(relations, visited, ids, heights, target, True):
                state[BEGUN] += 1
                continue
        elif state[FRONT] < state[FRONT_END]:
            target = np.int64(fronts[0, state[FRONT]])
            if _is_skipped(relations, visited, ids, heights, target, False):
                state[FRONT] += 1
                continue
        elif state[NEXT_END] == 0:
            return DONE
        else:
            for k in range(state[NEXT_END]):
                fronts[0, k] = fronts[1, k]
            state[FRONT], state[FRONT_END], state[NEXT_END] = 0, state[NEXT_END], 0
            state[LEVEL] += 1
            continue
        relation = visited[target, OF_RELATION]
        if relations[relation, KIND] == ELSEWHERE:
            state[WANTED] = target
            return NO_WAYS
        first_visited, first_way, looked = state[VISITED], state[WAYS], state[LOOKED]
        head = frames[MOST_ATOMS]
        _fill(relations, columns, relation, ids[target] - relations[relation, BASE], head)
        first = relations[relation, CLAUSES if begins else FIRST_END]
        last = relations[relation, FIRST_END if begins else CLAUSES_END]
        for clause in range(first, last):
            reason = _instances(
                state, relations, columns, clauses, atoms, terms, tests, index_of, indexes, numbers, visited, ids, ways,
                needs, frames, rows, words, values, head, heights, target, clause,
            )  # fmt: skip
            if reason != 0:
                _undo(state, numbers, ways, ids, first_visited, first_way)
                state[LOOKED] = looked
                return reason
        if not _knows_facts(state, relations, columns, index_of, indexes, visited, ids, values, first_visited):
            _undo(state, numbers, ways, ids, first_visited, first_way)
            state[LOOKED] = looked
            return NO_INDEX
        state[BEGUN if begins else FRONT] += 1
        _accept(
            state, relations, columns, index_of, indexes, visited, ids, ways, needs, fronts, queue, values,
            first_visited, first_way,
        )  # fmt: skip
    return DONE


@kernel(
    "int64[] int64[,] int64[] int64[] int64[,] int32[] int32[,] int64[] int32[,] int32[,] int32[,] int32[] int64[,]"
    " int64[] int64[] int64[,]"
)
def add_ways(
    state, relations, columns, index_of, indexes, numbers, visited, ids, ways, needs, fronts, queue, scratch, names,
    ends, needed,
):  # fmt: skip
    """Add the ways of the tuple whose ways are wanted, for all of which there is room, and indexes of facts.

    names  [way] the clauses; ends [way] where the needs of each end among `needed` [need, 2]: relations and rows
    """
    target, first_visited, first_way = state[WANTED], state[VISITED], state[WAYS]
    state[BEGUN if state[BEGUN] < state[VISITED] else FRONT] += 1
    begin = np.int64(0)
    for k in range(len(names)):
        _way(state, ways, target, names[k])
        for at in range(begin, ends[k]):
            number = _visit(state, relations, numbers, visited, ids, needed[at, 0], needed[at, 1])
            _need(state, ways, needs, number)
        begin = ends[k]
    _accept(
        state, relations, columns, index_of, indexes, visited, ids, ways, needs, fronts, queue, scratch[KEY],
        first_visited, first_way,
    )  # fmt: skip


@kernel(
    "int64[] int64[,] int64[] int64[] int64[,] int32[] int32[,] int64[] int32[,] int32[,] int32[,] int32[] int64[,]"
    " int64"
)
def begin(
    state, relations, columns, index_of, indexes, numbers, visited, ids, ways, needs, fronts, queue, scratch, row
):  # fmt: skip
    """Make a row of the relation `state[WANTED]` the goal of a search that has nothing so far."""
    ways[0, FIRST_NEED] = 0
    state[GOAL] = _visit(state, relations, numbers, visited, ids, state[WANTED], row)
    _accept(
        state, relations, columns, index_of, indexes, visited, ids, ways, needs, fronts, queue, scratch[KEY], 0, 0
    )  # fmt: skip
    if state[NEXT_END] == 1:
        fronts[0, 0] = fronts[1, 0]
        state[FRONT_END], state[NEXT_END] = 1, 0
