"""Hash-consing: what is merged, what is simplified, what is not; linear and iterative."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.random_circuits import (
    AND,
    LITERAL,
    OR,
    assert_same_circuit,
    circuit_arrays,
    random_arrays,
    root_tables,
    truth_tables,
)
from derivable.circuit.graph import builder as builder_module
from derivable.circuit.graph.builder import CircuitBuilder, circuit_from_arrays
from derivable.core.diagnostics import LayoutError, ShapeError
from derivable.device.cpu import threads


def test_equal_nodes_are_one_node():
    b = CircuitBuilder()
    x, y, z = b.literal(1), b.literal(-2), b.literal(3)
    assert b.literal(1) == x
    assert len({x, y, z, b.literal(-1), b.literal(2)}) == 5
    both = b.conjunction([x, y])
    assert b.conjunction([y, x]) == both
    assert b.conjunction([y, x, y]) == both
    assert b.disjunction([x, y]) != both
    assert b.conjunction([both, z]) == b.conjunction([z, both])
    assert b.conjunction([x, y, z]) not in (both, b.conjunction([both, z]))


def test_constants_and_single_children():
    b = CircuitBuilder()
    x, y = b.literal(1), b.literal(2)
    true, false = b.true(), b.false()
    assert b.conjunction([]) == true
    assert b.disjunction([]) == false
    assert b.conjunction([x]) == b.disjunction([x]) == b.conjunction([x, x]) == x
    assert b.conjunction([x, true]) == b.disjunction([x, false]) == x
    assert b.conjunction([x, false, y]) == false
    assert b.disjunction([x, true, y]) == true
    assert b.conjunction([x, b.disjunction([y, b.conjunction([])])]) == x


def test_a_literal_and_its_negation():
    b = CircuitBuilder()
    x, not_x, y = b.literal(1), b.literal(-1), b.literal(2)
    assert b.conjunction([x, not_x]) == b.conjunction([not_x, x, not_x]) == b.false()
    either = b.disjunction([x, not_x])
    assert either > 1
    assert b.build([either]).num_edges == 2
    three = b.conjunction([x, not_x, y])
    assert b.build([three]).num_edges == 3


def test_order_and_roots():
    b = CircuitBuilder()
    x, y, z = b.literal(3), b.literal(-1), b.literal(1)
    deep = b.disjunction([b.conjunction([b.disjunction([x, y]), z]), x])
    b.conjunction([deep, y])
    circuit = b.build([deep, z, deep, b.true()])
    circuit.check()
    assert circuit.literal.tolist() == [0, 1, -1, 3, 0, 0, 0]
    assert circuit.level_offsets.tolist() == [0, 4, 5, 6, 7]
    assert circuit.roots.tolist() == [6, 1, 6, 0]
    assert (circuit.num_variables, circuit.num_roots, circuit.num_levels) == (3, 4, 4)


def test_no_roots_and_constant_roots():
    b = CircuitBuilder()
    empty = b.build([])
    empty.check()
    assert (empty.num_nodes, empty.num_levels, empty.num_variables) == (0, 0, 0)
    constant = b.build([1, 0], num_variables=2)
    constant.check()
    assert root_tables(constant).tolist() == [[True] * 4, [False] * 4]


def test_wide_nodes_are_sorted_and_merged():
    rng = np.random.default_rng(0)
    b = CircuitBuilder()
    literals = [b.literal(v) for v in range(1, 400)]
    ids = [b.conjunction(rng.permutation(literals)) for _ in range(3)]
    assert len(set(ids)) == 1
    assert b.conjunction(literals[:-1]) != ids[0]
    other = b.disjunction([ids[0], *rng.permutation(literals[100:200])])
    circuit = b.build([other])
    circuit.check()
    assert circuit.num_edges == 399 + 101


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_children_ascend_and_nodes_keep_their_order_whatever_moves_them(monkeypatch, num_threads):
    """Nodes of all widths, some unreachable, in one chunk and in several, against sorting in Python."""
    monkeypatch.setattr(builder_module, "_WORTH_A_THREAD", 50)
    rng = np.random.default_rng(1)
    b = CircuitBuilder()
    made = {b.literal(v): None for v in range(1, 801)}
    for width in [2, 3, 15, 16, 17, 31, 32, 33, 255, 256, 257, 700] * 20:
        kind = AND if rng.random() < 0.5 else OR
        row = rng.choice(list(made), width, replace=False)
        made[(b.conjunction if kind == AND else b.disjunction)(row)] = kind, row.tolist()
    roots = rng.choice(list(made)[800:], 60, replace=False).tolist()
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(num_threads)
        circuit = b.build(roots)
    finally:
        threads.set_num_threads(before)
    circuit.check()
    height, below = {}, set(roots)
    for node, entry in made.items():
        height[node] = 0 if entry is None else 1 + max(height[child] for child in entry[1])
    for node, entry in reversed(made.items()):
        if entry is not None and node in below:
            below.update(entry[1])
    # Literals were made in the order of variables; ids are in the order of insertion.
    order = sorted(below, key=lambda node: (height[node], 0 if made[node] is None else made[node][0], node))
    position = {node: i for i, node in enumerate(order)}
    assert circuit.num_nodes == len(order)
    assert circuit.roots.tolist() == [position[root] for root in roots]
    for node, new in position.items():
        row = circuit.children[circuit.offsets[new] : circuit.offsets[new + 1]].tolist()
        assert row == ([] if made[node] is None else sorted(position[child] for child in made[node][1]))
        assert circuit.kind[new] == (LITERAL if made[node] is None else made[node][0])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 60), st.sampled_from([None, 3]))
def test_same_function_and_invariants(seed, num_variables, num_inner, local):
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, num_variables, num_inner, local=local)
    roots = rng.integers(0, len(arrays[0]), 3)
    circuit = circuit_from_arrays(*arrays, roots, num_variables)
    circuit.check()
    expected = truth_tables(*arrays, num_variables)[roots]
    np.testing.assert_array_equal(root_tables(circuit), expected)
    assert_same_circuit(circuit, circuit_from_arrays(*circuit_arrays(circuit), circuit.roots, num_variables))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 40))
def test_bulk_and_single_insertion_agree(seed, num_variables, num_inner):
    kind, literal, offsets, children = random_arrays(np.random.default_rng(seed), num_variables, num_inner)
    b = CircuitBuilder()
    bulk = b.add_nodes(kind, literal, offsets, children)
    single = []
    for node, this in enumerate(kind):
        row = [single[child] for child in children[offsets[node] : offsets[node + 1]]]
        if this == LITERAL:
            single.append(b.literal(literal[node]))
        else:
            single.append(
                (b.false, b.true)[this]() if this < LITERAL else (b.conjunction, b.disjunction)[this - AND](row)
            )
    assert single == bulk.tolist()
    np.testing.assert_array_equal(b.add_nodes(kind, literal, offsets, children), bulk)


def obvious_cons(kind, literal, offsets, children):
    """The same simplifications with Python sets in a dictionary; returns one key per node."""
    ids, keys = {}, []
    for node, this in enumerate(kind):
        row = frozenset(keys[child] for child in children[offsets[node] : offsets[node + 1]])
        if this < LITERAL:
            keys.append(int(this))
            continue
        if this == LITERAL:
            key = ("literal", int(literal[node]))
        else:
            neutral = 1 if this == AND else 0
            if 1 - neutral in row:
                keys.append(1 - neutral)
                continue
            row -= {neutral}
            if len(row) < 2:
                keys.append(next(iter(row), neutral))
                continue
            parts = [ids_key for ids_key in ids if ids[ids_key] in row]
            leaves = this == AND and len(row) == 2 and all(part[0] == "literal" for part in parts)
            if leaves and parts[0][1] == -parts[1][1]:
                keys.append(0)
                continue
            key = (int(this), row)
        keys.append(ids.setdefault(key, len(ids) + 2))
    return keys


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 80))
def test_merges_what_a_dictionary_of_sets_merges(seed, num_variables, num_inner):
    arrays = random_arrays(np.random.default_rng(seed), num_variables, num_inner, max_children=3)
    assert CircuitBuilder().add_nodes(*arrays).tolist() == obvious_cons(*arrays)


KERNELS = [
    "pair_key",
    "wide_key",
    "literal_key",
    "first_slot",
    "find",
    "simplified_pair",
    "pointers",
    "write_node",
    "add_node",
    "place_literal",
    "place_pair",
    "place_wide",
    "place_node",
    "next_stamp",
    "distinct",
    "insert_nodes",
    "move_table",
]


def test_colliding_hashes_do_not_merge(monkeypatch):
    """With a hash that is the same for everything, only the comparison of children tells nodes apart."""
    from derivable.circuit.kernels import hashcons

    def constant_mix(value):
        return np.uint64(7)

    # The kernel and all that it calls, in plain Python, where an array serves as the pointer to its elements.
    for name in KERNELS:
        monkeypatch.setattr(hashcons, name, getattr(hashcons, name).py_func)
    monkeypatch.setattr(hashcons, "pointer", lambda array: array)
    monkeypatch.setattr(hashcons, "mix", constant_mix)
    arrays = random_arrays(np.random.default_rng(5), 3, 60)
    with np.errstate(over="ignore"):
        assert CircuitBuilder().add_nodes(*arrays).tolist() == obvious_cons(*arrays)


def test_two_children_have_exact_keys_whatever_their_ids():
    """Kind, order and ids of two children: a node is found again exactly if the set and the kind are the same."""
    rng = np.random.default_rng(3)
    b = CircuitBuilder()
    literals = [b.literal(v) for v in range(1, 2001)]
    pairs = {tuple(sorted(rng.choice(literals, 2, replace=False).tolist())) for _ in range(3000)}
    ids = {}
    for x, y in pairs:
        ids["and", x, y], ids["or", x, y] = b.conjunction([x, y]), b.disjunction([y, x])
    assert len(set(ids.values())) == len(ids) == 2 * len(pairs)
    for (kind, x, y), node in ids.items():
        insert = b.conjunction if kind == "and" else b.disjunction
        # By the way of two children, and by that of any number.
        assert insert([y, x]) == insert([x, y, x]) == insert([x, b.true() if kind == "and" else b.false(), y]) == node
    # The largest variables are as exact as the smallest; no literal is taken for a pair.
    ends = [b.literal(sign * v) for v in (1, 2, 2**31 - 1) for sign in (1, -1)]
    assert len(set(ends)) == 6
    assert set(ends).isdisjoint(ids.values())


def chain(depth):
    """x1 or (x2 and (x1 or (x2 and ...))), alternating, over two variables; as `circuit_from_arrays` takes it."""
    kind = np.concatenate([[LITERAL, LITERAL], np.tile([AND, OR], depth // 2)]).astype(np.uint8)
    literal = np.zeros(depth + 2, np.int32)
    literal[:2] = [1, 2]
    children = np.stack([np.arange(1, depth + 1), np.tile([0, 1], depth // 2)], 1)
    children[0] = [0, 1]
    return kind, literal, np.r_[0, 0, np.arange(0, 2 * depth + 1, 2)], children.ravel(), [depth + 1], 2


def test_a_chain_of_two_million_nodes():
    circuit = circuit_from_arrays(*chain(2_000_000))
    assert circuit.num_levels == 2_000_001
    assert circuit.num_nodes == 2_000_002


def test_million_node_random_circuit(capsys):
    rng = np.random.default_rng(0)
    nodes, variables = 1_000_000, 1000
    kind = np.r_[np.full(2 * variables, LITERAL), rng.integers(AND, OR + 1, nodes - 2 * variables)].astype(np.uint8)
    literal = np.zeros(nodes, np.int32)
    literal[: 2 * variables] = np.r_[1 : variables + 1, -variables:0]
    sizes = np.where(kind > LITERAL, rng.integers(2, 4, nodes), 0)
    parents = np.repeat(np.arange(nodes), sizes)
    children = (rng.random(len(parents)) * parents).astype(np.int32)
    circuit_from_arrays(kind[:1], literal[:1], [0, 0], [], [0], 1)
    start = time.perf_counter()
    circuit = circuit_from_arrays(kind, literal, np.r_[0, np.cumsum(sizes)], children, np.arange(nodes), variables)
    elapsed = time.perf_counter() - start
    with capsys.disabled():
        print(f"\n{circuit!r}: built in {elapsed:.2f} s, {nodes / elapsed / 1e6:.1f} M nodes/s")
    circuit.check()
    assert circuit.num_nodes > 0.99 * nodes


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        (([5], [0], [0, 0], []), LayoutError, "node 0 has kind 5; kinds are 0 to 4"),
        (([2], [0], [0, 0], []), LayoutError, "node 0 is literal 0"),
        (([2, 3], [1, 0], [0, 0, 2], [0, 1]), LayoutError, "node 1 of 2 has child 1, which does not come before it"),
        (([2, 3], [1, 0], [0, 0, 2], [0, 7]), LayoutError, "child 7 at position 1 is not in 0 to 1"),
        (([3, 3], [0, 0], [0, 2, 1], [0]), LayoutError, "the offsets of node 0 are not monotone"),
        (([2], [1], [0, 0, 0], []), ShapeError, "1 kinds need 1 literals and 2 offsets, got 1 and 3"),
        (([2], [2**31], [0, 0], []), LayoutError, "literal 2147483648 at position 0"),
        (([2], [1], [0, 1], []), LayoutError, "offsets run from 0 to 1, not from 0 to 0 edges"),
    ],
)
def test_bad_arrays(arrays, error, message):
    kind, literal, offsets, children = arrays
    arrays = np.array(kind, np.uint8), np.array(literal, np.int64), offsets, np.array(children, np.int64)
    with pytest.raises(error) as caught:
        CircuitBuilder().add_nodes(*arrays)
    assert message in str(caught.value)


def test_bad_single_insertions():
    b = CircuitBuilder()
    with pytest.raises(LayoutError, match="0 is not a literal"):
        b.literal(0)
    with pytest.raises(LayoutError, match="child 2 at position 1 is not in 0 to 1"):
        b.conjunction([1, 2])
    with pytest.raises(LayoutError, match="root 9 is not a node: there are 2 nodes"):
        b.build([9])
    x = b.literal(4)
    with pytest.raises(LayoutError, match="mentions variable 4, but num_variables is 3"):
        b.build([x], num_variables=3)
    with pytest.raises(ShapeError, match=r"weights have shape \(3,\), the circuit has 4 variables"):
        b.build([x], weights=(np.ones(3), np.ones(4)))


def test_weights_and_origin_are_kept():
    b = CircuitBuilder()
    circuit = b.build([b.literal(1)], 2, (np.array([1, 2]), np.array([3, 4])), origin="sdd")
    assert circuit.origin == "sdd"
    assert circuit.weights is not None
    assert circuit.weights[1].tolist() == [3.0, 4.0]
    circuit.check()


def test_a_circuit_of_strided_arrays_has_the_same_plan():
    from derivable.circuit.fold.plan import make_plan

    arrays = random_arrays(np.random.default_rng(1), 5, 60)
    circuit = circuit_from_arrays(*arrays, [len(arrays[0]) - 1, len(arrays[0]) - 2], 5)
    names = ("kind", "literal", "offsets", "children")
    strided = replace(circuit, **{name: np.repeat(getattr(circuit, name), 2)[::2] for name in names})
    assert not strided.children.flags.c_contiguous
    plan, other = make_plan(circuit), make_plan(strided)
    np.testing.assert_array_equal(plan.terms, other.terms)
    np.testing.assert_array_equal(plan.runs, other.runs)


@pytest.mark.parametrize("num_threads", [2, 3])
def test_a_plan_does_not_depend_on_the_threads_that_make_it(monkeypatch, num_threads):
    from derivable.circuit.fold.plan import make_plan
    from derivable.circuit.kernels import levels_plan

    rng = np.random.default_rng(2)
    arrays = random_arrays(rng, 6, 400)
    circuit = circuit_from_arrays(*arrays, rng.integers(0, len(arrays[0]), 20), 6)
    expected = make_plan(circuit)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(num_threads)
        monkeypatch.setattr(levels_plan, "_WORTH_A_THREAD", 20)
        plan = make_plan(circuit)
    finally:
        threads.set_num_threads(before)
    for name in ("runs", "terms", "positive", "negative", "root_slots"):
        np.testing.assert_array_equal(getattr(plan, name), getattr(expected, name))
    for name in ("num_slots", "degree", "count_bits", "operations", "num_levels", "longest"):
        assert getattr(plan, name) == getattr(expected, name)
