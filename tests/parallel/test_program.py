"""The column program: nodes are checked, printed, and mean the same by the reference, the CPU's kernels and torch."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from derivable.algebra import semirings
from derivable.core.diagnostics import LayoutError, ShapeError, TypeMismatchError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.check import check_program
from derivable.parallel.program.execute import execute
from derivable.parallel.program.graph import Graph
from derivable.parallel.program.numpy_columns import NumPy
from derivable.parallel.program.text import program_text

torch = pytest.importorskip("torch")

from derivable.bridge.torch_columns import Torch  # noqa: E402

LIBRARIES = {"torch": Torch("cpu")}
FAR = 1 << 61


def run(results, given_, arrays):
    found = execute(
        results, {k: [arrays.constant(x, str(x.dtype), len(x)) for x in v] for k, v in given_.items()}, arrays
    )
    return [arrays.to_host(column) for column in found]


def assert_equal_everywhere(results, given_):
    check_program(results)
    meaning = run(results, given_, NumPy())
    for name, arrays in LIBRARIES.items():
        for column, found in zip(meaning, run(results, given_, arrays)):
            np.testing.assert_allclose(found, column, err_msg=name)
    return meaning


def columns_of(values, rows):
    return st.lists(hnp.arrays(np.int64, rows, elements=values), min_size=2, max_size=2)


VALUES = st.one_of(
    st.just(st.integers(-3, 3)),
    # Two columns whose ranges are no one key.
    st.just(st.sampled_from([-FAR, 0, 1, FAR])),
)


def known_rows(columns):
    """The distinct rows, in order."""
    return np.unique(np.stack(columns, 1), axis=0).T


@given(st.data())
def test_rows(data):
    """Sort, unique, join, find, what is absent, and sets, of keys that are packed, have ranges, or are ranked."""
    values, bits = data.draw(
        st.sampled_from([(st.integers(-3, 3), 32), (st.integers(-3, 3), 64)]) | VALUES.map(lambda v: (v, 64))
    )
    left, right = (data.draw(columns_of(values, data.draw(st.integers(0, 8)))) for _ in range(2))
    graph = Graph()
    type_ = n.Type("int64", bits=bits)
    a, b = (graph(n.Given, name, (type_, type_)) for name in ("a", "b"))
    i, j = graph(n.Join, a, graph.one(n.Build, b, b[0].size), a[0].size)
    pairs, others = graph(n.Join, a[:1], graph.one(n.Build, b[:1], b[0].size), a[0].size)
    results = [i, j, pairs, others]
    tables = []
    for table in (a, b):
        order = graph.one(n.Sort, table, table[0].size)
        ordered = tuple(graph.one(n.Gather, c, order) for c in table)
        first, group = graph(n.Unique, ordered, order.size)
        tables.append(tuple(graph.one(n.Gather, c, first) for c in ordered))
        results += [order, first, group]
    distinct, known = tables
    rows = graph.one(n.Find, distinct, graph.one(n.Build, known, known[0].size, True), distinct[0].size)
    zero = graph.one(n.Constant, 0, n.Type("int64", rows.size))
    absent = graph.one(n.Compact, graph.one(n.Apply, "less", (rows, zero), rows.size, None, n.Type("bool")))
    new = tuple(graph.one(n.Gather, c, absent) for c in distinct)
    # Rows of sets are in no certain order.
    first, *_ = graph(n.Insert, b, b[0].size, None)
    both, *fresh = graph(n.Insert, a, a[0].size, first)
    elements = [graph(n.Elements, both, (type_, type_), is_earlier) for is_earlier in (True, False)]
    places = graph.one(n.Locate, a, a[0].size, both)
    again = [graph.one(n.Gather, c, places) for c in elements[1]]
    came = graph.one(n.IsNew, places, both)
    by_first = graph.one(n.BuildOf, both, elements[1][0].node, (0,))
    probe, partner = graph(n.Join, a[:1], by_first, a[0].size)
    joined = [probe, *(graph.one(n.Gather, c, partner) for c in elements[1])]
    sets = [
        graph.one(n.Gather, c, graph.one(n.Sort, tuple(table), table[0].size))
        for table in (joined, fresh, *elements)
        for c in table
    ]
    *meaning, is_new = assert_equal_everywhere([*results, rows, *new, *again, *sets, came], {"a": left, "b": right})
    there = set(zip(*(c.tolist() for c in right)))
    assert is_new.tolist() == [row not in there for row in zip(*(c.tolist() for c in left))]
    union = sorted({*zip(*(c.tolist() for c in left)), *zip(*(c.tolist() for c in right))})
    partners = [(k, *row) for k, x in enumerate(left[0].tolist()) for row in union if row[0] == x]
    assert list(zip(*(c.tolist() for c in meaning[-9:-6]))) == partners
    found_new = meaning[-13:-11]
    for ours, expected in zip(
        [*meaning[-11:-9], *meaning[-6:-2]], [*left, *found_new, *known_rows(right)], strict=True
    ):
        assert ours.tolist() == expected.tolist()
    by_hand = [(x, y) for x in range(len(left[0])) for y in range(len(right[0])) if left[0][x] == right[0][y]]
    assert list(zip(*meaning[2:4])) == by_hand
    assert list(zip(*(c.tolist() for c in meaning[-2:]))) == union


@pytest.mark.parametrize("semiring", ["real", "minmaxprob", "max_product", "min_plus", "log", "addmultprob", "boolean"])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_folds_with_any_operator(semiring, is_sorted):
    plus = semirings.get(semiring).typed("float64").plus
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 7, 40)
    rows = np.sort(rows) if is_sorted else rows
    dtype = str(plus.neutral[0].dtype)
    values = rng.random(40) > 0.5 if dtype == "bool" else rng.random(40)
    graph = Graph()
    by, given_values = graph(n.Given, "x", (n.Type("int64", 40), n.Type(dtype, 40)), False)
    folded = graph(n.Fold, (given_values,), by, 8, plus, is_sorted)
    (meaning,) = assert_equal_everywhere(folded, {"x": [rows, values]})
    for row in range(8):
        found = plus.neutral[0]
        for value in values[rows == row]:
            (found,) = plus.apply((found,), (value,))
        np.testing.assert_allclose(meaning[row], found)


def counting(to):
    """A loop that counts a column of one row up to a number; its step is static."""
    graph = Graph()
    step = graph.one(n.Apply, "add", (ONE, ZERO), 1, None, n.Type("int64"))
    state = graph(n.Given, "number", (n.Type("int64"),))
    end = graph.one(n.Constant, to, n.Type("int64", state[0].size))
    mask = graph.one(n.Apply, "less", (state[0], end), state[0].size, None, n.Type("bool"))
    kept = graph.one(n.Gather, state[0], graph.one(n.Compact, mask))
    more = graph.one(n.Constant, 0, n.Type("int64", kept.size))
    steps = graph.one(n.Gather, step, more)
    body = graph.one(n.Apply, "add", (kept, steps), kept.size, None, n.Type("int64"))
    return graph(n.Loop, "number", (ONE,), state, (body,), (0,))


ONE = n.Column(n.Constant(1, n.Type("int64", 1)))
ZERO = n.Column(n.Constant(0, n.Type("int64", 1)))


def test_loops_compute_what_does_not_change_once():
    (last,) = counting(5)
    loop = last.node
    assert [type(column.node) for column in loop.static] == [n.Apply]
    rounds = []
    for arrays in (NumPy(), *LIBRARIES.values()):
        (found,) = execute([last], {}, arrays, lambda loop, number, rows: rounds.append((number, rows)) or True)
        assert len(found) == 0
    assert rounds == [(k, 1) for k in range(5)] * 2


@pytest.mark.parametrize("arrays", [NumPy(), *LIBRARIES.values()], ids=["reference", *LIBRARIES])
@pytest.mark.parametrize("is_read", [False, True])
def test_other_nodes_run_only_where_a_function_gives_nothing(arrays, is_read):
    """Rows below 3: at once, or by a mask; what both read is computed before."""
    graph = Graph()
    (x,) = graph(n.Given, "x", (n.Type("int64"),))
    doubled = graph.one(n.Apply, "add", (x, x), x.size, None, n.Type("int64"))
    end = graph.one(n.Constant, 3, n.Type("int64", x.size))
    mask = graph.one(n.Apply, "less", (doubled, end), x.size, None, n.Type("bool"))
    other = graph.one(n.Gather, doubled, graph.one(n.Compact, mask))
    given_ = {"x": (arrays.constant(np.array([0, 1, 2, 5]), "int64", 4),)}
    for gives in (True, False):
        seen, rows, counts = [], [], Counter()

        def below(library, columns, watch, gives=gives, seen=seen):
            seen.append(library.to_host(columns[0]).tolist())
            watch(2)
            return [columns[0][:2]] if gives else None

        found = graph.one(n.Otherwise, "small", below, (doubled,), (other,))
        result = graph.one(n.Apply, "add", (found, found), found.size, None, n.Type("int64")) if is_read else found
        check_program([result])
        goes_on = lambda node, *of, rows=rows: rows.append((node.text, *of)) or True  # noqa: E731
        (column,) = execute([result], given_, arrays, goes_on, counts)
        assert arrays.to_host(column).tolist() == ([0, 4] if is_read else [0, 2])
        assert seen == [[0, 2, 4, 10]]
        assert rows == [("small", 0, 2)]
        assert counts[n.Compact] == (not gives)
    assert program_text([found], ["end"]) == (
        "i0 = given x [rows(x)]\n"
        "i1 = add i0 i0 [rows(x)]\n"
        "i2 = small by i1, otherwise [found(i2)]\n"
        "  i3 = constant 3 [rows(x)]\n"
        "  m4 = less i1 i3 [rows(x)]\n"
        "  i5 = compact m4 [found(i5)]\n"
        "  i6 = gather i1 at i5 [found(i5)]\n"
        "  then i6\n"
        "end = i2"
    )


def test_torch_keeps_constants_of_static_sizes():
    arrays, x = Torch("cpu"), torch.arange(3.0, dtype=torch.float64).requires_grad_()
    graph = Graph()
    (given_,) = graph(n.Given, "x", (n.Type(n.VALUE, 3),), False)
    rows = graph.one(n.Constant, np.array([2, 0]), n.Type("int64", 2))
    taken = graph.one(n.Gather, given_, rows)
    # Neither what is made for inference nor what is made inside torch.func may serve in place of them.
    with torch.inference_mode():
        execute([taken], {"x": (x,)}, arrays)
    torch.func.jacrev(lambda x: execute([taken], {"x": (x,)}, Torch("cpu"))[0])(x)
    kept = arrays._constants[rows.node]
    (found,) = execute([taken], {"x": (x,)}, arrays)
    found.sum().backward()
    assert x.grad.tolist() == [1.0, 0.0, 1.0]
    assert arrays._constants[rows.node] is kept
    loose = Torch("cpu")
    execute(counting(3)[:1], {}, loose)
    assert all(isinstance(node.type.size, int) for node in loose._constants)


def test_a_graph_tells_zeros_apart():
    graph = Graph()
    zeros = [graph.one(n.Constant, zero, n.Type(n.VALUE)) for zero in (0.0, -0.0, False, 0)]
    assert len(set(zeros)) == 4
    assert graph.one(n.Constant, -0.0, n.Type(n.VALUE)) is not zeros[0]
    assert graph.one(n.Constant, -0.0, n.Type(n.VALUE)) == zeros[1]


@pytest.mark.parametrize("who_reads", ["the next round", "a node", "another column of the state"])
def test_a_column_of_a_loop_grows_in_place_if_only_the_next_round_reads_it(who_reads):
    """A round doubles two columns, and puts one less than the first number of the first one in its place."""
    graph = Graph()
    begin, state = (graph(n.Given, name, (n.Type("int64"),) * 2) for name in ("begin", "state"))
    row, one = (graph.one(n.Constant, number, n.Type("int64", 1)) for number in (0, 1))
    whole, other = (graph.one(n.Concatenate, (column, column)) for column in state)
    number = n.Type("int64")
    less = graph.one(n.Apply, "subtract", (graph.one(n.Gather, whole, row), one), 1, None, number)
    after = graph.one(n.Put, less, row, whole, whole.size)
    others = {"a node": graph.one(n.Apply, "add", (after, other), other.size, None, number)}
    others |= {"another column of the state": whole}
    loop = n.Loop("doubling", begin, state, (after, others.get(who_reads, other)), (0,))
    assert bool(loop.growing) == (who_reads == "the next round")
    check_program([n.Column(loop)])
    expected = np.array([3, 5]), np.array([7, 8])
    for _ in range(3):
        wide = np.tile(expected[0], 2)
        put = np.concatenate([wide[:1] - 1, wide[1:]])
        second = {"the next round": np.tile(expected[1], 2), "a node": put + np.tile(expected[1], 2)}.get(
            who_reads, wide
        )
        expected = put, second
    for arrays in (NumPy(), Torch("cpu")):
        given_ = [arrays.constant(np.array(x), "int64", 2) for x in ([3, 5], [7, 8])]
        with torch.no_grad():
            found = execute(
                [n.Column(loop, k) for k in range(2)], {"begin": given_}, arrays, lambda _, rounds, __: rounds < 3
            )
        assert [x.tolist() for x in found] == [x.tolist() for x in expected]
        assert [x.tolist() for x in given_] == [[3, 5], [7, 8]]


def test_the_printed_form():
    assert program_text([counting(5)[0]], ["end"]) == (
        "i0 = constant 1 [1]\n"
        "i1 = constant 0 [1]\n"
        "i2 = add i0 i1 [1]\n"
        "i3 = loop number with i4 from i0\n"
        "  i5 = constant 5 [rows(number)]\n"
        "  m6 = less i4 i5 [rows(number)]\n"
        "  i7 = compact m6 [found(i7)]\n"
        "  i8 = gather i4 at i7 [found(i7)]\n"
        "  i9 = constant 0 [found(i7)]\n"
        "  i10 = gather i2 at i9 [found(i7)]\n"
        "  i11 = add i8 i10 [found(i7)]\n"
        "  next i11\n"
        "end = i3"
    )


THREE, FOUR, MASK = (
    n.Column(n.Given(name, (n.Type(dtype, size),), False))
    for name, dtype, size in (("three", "int64", 3), ("four", "int64", 4), ("mask", "bool", 3))
)
ROWS = n.Column(n.Constant(np.array([0, 4]), n.Type("int64", 2)))
SHORT = n.Column(n.Given("short", (n.Type("int64", 4, bits=8),), False))
INDEX = n.Column(n.Build((FOUR,), 4))
PLUS = semirings.get("real").typed("float64").plus


@pytest.mark.parametrize(
    ("node", "error", "message"),
    [
        (n.Gather(THREE, ROWS), LayoutError, "rows 0 to 4 of 3"),
        (n.Gather(THREE, MASK), TypeMismatchError, "is bool where int64 is wanted"),
        (n.Gather(THREE, THREE, FOUR), ShapeError, "has 4 rows where 3 are wanted"),
        (n.Apply("add", (THREE, FOUR), 3), ShapeError, "has 4 rows where 3 are wanted"),
        (n.Compact(THREE), TypeMismatchError, "is int64 where bool is wanted"),
        (n.Join((MASK,), INDEX, 3), TypeMismatchError, "is bool where int64 is wanted"),
        (n.Find((THREE, THREE), INDEX, 3), ShapeError, "2 key columns meet 1"),
        (n.Find((THREE,), FOUR, 3), TypeMismatchError, "is int64 where index is wanted"),
        (n.Fold((THREE,), FOUR, 2, PLUS), ShapeError, "has 3 rows where 4 are wanted"),
        (n.Fold((THREE, THREE), THREE, 2, PLUS), ShapeError, "1 components, and 2 are given"),
        (n.FoldLanes(THREE), ShapeError, "without lanes"),
        (n.Reshape(THREE, 2, 2), ShapeError, "3 numbers are not reshaped to 4"),
        (n.Bits(MASK), TypeMismatchError, "no 64 bits"),
        (n.Concatenate((THREE, MASK)), TypeMismatchError, "is bool where int64 is wanted"),
        (n.Sort((THREE, FOUR), 3), ShapeError, "has 4 rows where 3 are wanted"),
        (n.Insert((THREE, FOUR), 3), ShapeError, "has 4 rows where 3 are wanted"),
        (n.Insert((THREE,), 3, FOUR), TypeMismatchError, "is int64 where index is wanted"),
        (n.Locate((THREE,), 3, FOUR), TypeMismatchError, "is int64 where index is wanted"),
        (n.Elements(FOUR, (), False), TypeMismatchError, "is int64 where index is wanted"),
        (n.IsNew(THREE, FOUR), TypeMismatchError, "is int64 where index is wanted"),
        (n.Put(THREE, FOUR, THREE, 3), ShapeError, "has 3 rows where 4 are wanted"),
        (n.Put(MASK, THREE, FOUR, 4), TypeMismatchError, "is bool where int64 is wanted"),
        (n.Constant(np.zeros(2), n.Type("float64", 3)), ShapeError, "2 numbers stand for 3 rows"),
        (n.Loop("x", (THREE,), (THREE,), (), (0,)), ShapeError, "other columns before it"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, n.Node) else None,
)
def test_the_validator_finds(node, error, message):
    with pytest.raises(error, match=message):
        check_program([n.Column(node)])


@pytest.mark.parametrize("semiring", ["real", "max_product", "log", "addmultprob"])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_jax_means_the_same(semiring, is_sorted):
    jax = pytest.importorskip("jax")
    from derivable.bridge.jnp_columns import Jnp

    rng, ring = np.random.default_rng(0), semirings.get(semiring)
    rows = rng.integers(0, 7, 40)
    given_ = {"x": [np.sort(rows) if is_sorted else rows, rng.random(40), rng.integers(-1, 9, 40)]}
    graph = Graph()
    types = (n.Type("int64", 40), n.Type("float64", 40), n.Type("int64", 40))
    by, values, places = graph(n.Given, "x", types, False)
    (folded,) = graph(n.Fold, (values,), by, 9, ring.typed("float64").plus, is_sorted)
    chosen = graph.one(n.Gather, folded, places, values)
    lanes = graph.one(n.Reshape, graph.one(n.Apply, "times", (chosen, values), 40), 10, 4)
    halves = graph(n.Split, graph.one(n.Concatenate, (values, chosen)), (30, 50))
    results = [folded, chosen, graph.one(n.FoldLanes, lanes), *halves, graph.one(n.Bits, values)]
    check_program(results)
    with jax.enable_x64(True):
        meaning, found = (run(results, given_, arrays) for arrays in (NumPy(ring), Jnp(ring)))
    for mine, theirs in zip(meaning, found, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-12)
