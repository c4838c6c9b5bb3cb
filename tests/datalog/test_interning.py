"""Texts and their numbers, beside a dictionary; hashes of few bits, so that different texts have the same."""

import gc
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.policy.costs import under
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.text_arena import TextArena

# Characters of one to four bytes, none, half of a pair, and the one that texts are joined by.
TEXTS = st.lists(st.text("ab1 \0\xe9\u20ac\U0001d11e\ud800", max_size=11), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["all", "one", "find", "copy", "array"]), TEXTS), max_size=8)


@settings(deadline=None)
@example([("all", [" ", "1", "a"]), ("all", [" ", "1", "1", "a"])], 5, 0, 2)
@example([("array", ["a", ""]), ("array", ["abcdefghij", "abcdefghik", "a"])], 0, 0, 1)
@given(STEPS, st.sampled_from([0, 5, 1000]), st.sampled_from([0, 1 << 40, None]), st.sampled_from([1, 3, 100]))
def test_texts_have_the_numbers_of_a_dictionary(steps, many, mask, part):
    """With hashes of some bits the texts lie in an arena from the first one on."""
    with under(many=many, chunk=part):
        symbols, expected, left = SymbolTable(arena=None if mask is None else TextArena(mask)), {}, None
        for kind, texts in steps:
            if kind == "find":
                assert [symbols.find(text) for text in texts] == [expected.get(text) for text in texts]
                continue
            if kind == "copy":
                # What is entered in the copy from here on is not in the table that is left behind.
                left, symbols = (symbols, dict(expected)), symbols.copy()
                continue
            if kind == "array":
                # NumPy takes away characters 0 at the end.
                array = np.array(texts, str)
                texts, found = array.tolist(), symbols.intern_array(array)
            else:
                found = symbols.intern_all(texts) if kind == "all" else list(map(symbols.intern, texts))
            assert list(found) == [expected.setdefault(text, len(expected)) for text in texts]
            assert symbols.lookup(np.array(found, np.int64)).tolist() == texts
        for known, numbers in [(symbols, expected)] + ([] if left is None else [left]):
            assert known.lookup(np.arange(len(numbers))).tolist() == list(numbers)


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.text("ab1 \0\xe9\u20ac\U0001d11e\ud800\udd1e", max_size=9)] * 3), min_size=1, max_size=8),
    st.sampled_from([0, 5, 150, 1000]),
    st.sampled_from([1, 3, 100]),
    st.integers(1, 3),
)
def test_texts_one_behind_the_other_and_their_lengths(rows, many, part, number):
    with under(many=many, chunk=part):
        symbols = SymbolTable()
        columns = [symbols.intern_all(list(texts)) for texts in zip(*rows)][:number]
        expected = ["".join(row[:number]) for row in rows]
        ids = symbols.intern_joined(columns)
        assert symbols.lookup(ids).tolist() == expected
        assert symbols.intern_all(expected).tolist() == ids.tolist()
        lengths = [len(text.encode("utf-8", "surrogatepass")) for text in expected]
        assert symbols.lengths(ids).tolist() == lengths


def test_texts_of_other_classes_are_texts(costs):
    costs(many=2)
    colour = StrEnum("colour", [("RED", "red"), ("BLUE", "blue")])
    given_texts = [np.str_("red"), "blue", colour.RED, colour.BLUE, "green", np.str_("green"), colour.RED]
    found = dv.Program("type s(String)\nquery s").run({"s": given_texts})["s"]
    assert set(found) == {("red",), ("blue",), ("green",)}
    assert {type(text) for text in found.columns[0]} == {str}
    assert ("red",) in found
    assert ("yellow",) not in found


def test_rules_over_many_texts(costs):
    costs(many=10)
    program = dv.Program("""
        type s(String)
        rel t($string_concat(x, "!")) = s(x)
        rel u(x) = t(x), s(y), x == $string_concat(y, "!")
        rel known() = s("w7")
        rel unknown() = s("w7!")
        query u
        query known
        query unknown
    """)
    database = program.run({"s": [f"w{i}" for i in range(100)]}, keep=True)
    branch = database.fork()
    branch.add({"s": ["w7!", "a"]})
    assert set(database["u"]) == {(f"w{i}!",) for i in range(100)}
    assert set(branch["u"]) == {(f"w{i}!",) for i in range(100)} | {("w7!!",), ("a!",)}
    assert (len(database["known"]), len(database["unknown"]), len(branch["unknown"])) == (1, 0, 1)


def _as_arrow(texts, kind="string", parts=1):
    arrow = pytest.importorskip("pyarrow")
    size = -(-len(texts) // parts)
    return arrow.table({"x": arrow.chunked_array([texts[k * size : (k + 1) * size] for k in range(parts)], kind)})


KINDS = {
    "list": lambda texts: {"x": texts},
    "tuples": lambda texts: [(text,) for text in texts],
    "plain": list,
    "objects": lambda texts: {"x": np.array(texts, object)},
    "one width": lambda texts: {"x": np.array(texts)},
    "one width, other bytes": lambda texts: {"x": np.array(texts).astype(np.array(texts).dtype.newbyteorder())},
    "every second": lambda texts: {"x": np.repeat(np.array(texts), 2)[::2]},
    "any width": lambda texts: {"x": np.array(texts, np.dtypes.StringDType())},
    "Arrow": _as_arrow,
    "Arrow, chunks": lambda texts: _as_arrow(texts, parts=3),
    "Arrow, a slice": lambda texts: _as_arrow(["no", *texts, "no"]).slice(1, len(texts)),
    "Arrow, large": lambda texts: _as_arrow(texts, "large_string"),
    "Arrow, dictionary": lambda texts: (
        _as_arrow(texts).select([]).append_column("x", _as_arrow(texts)["x"].dictionary_encode())
    ),
    "pandas": lambda texts: pytest.importorskip("pandas").DataFrame({"x": texts}),
}


@pytest.mark.parametrize("many", [0, 1 << 30])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_every_kind_of_column_are_those_of_a_list(costs, kind, many):
    costs(many=many)
    texts = [f"w{i % 7}" + "x" * (i % 5) for i in range(40)] + ["", "\xe9t\xe9", "\u20ac\U0001d11e", ""]
    found = dv.Program("type s(x: String)\nquery s").run({"s": KINDS[kind](texts)})["s"]
    assert list(found) == sorted({(text,) for text in texts})
    assert ("\u20ac\U0001d11e",) in found
    assert ("w",) not in found


@pytest.mark.parametrize("many", [0, 1 << 30])
@pytest.mark.parametrize("kind", ["list", "tuples", "objects"])
def test_a_number_among_texts_is_an_error_with_its_row(costs, kind, many):
    costs(many=many)
    with pytest.raises(dv.DerivableError, match=r"row 2.*expected String, found 7"):
        dv.Program("type s(x: String)\nquery s").run({"s": KINDS[kind](["a", "b", 7])})


@pytest.mark.parametrize("many", [0, 1 << 30])
def test_a_dictionary_without_a_text_is_an_error(costs, many):
    arrow = pytest.importorskip("pyarrow")
    costs(many=many)
    column = arrow.DictionaryArray.from_arrays(arrow.array([0, 1]), arrow.array(["a", None]))
    with pytest.raises(dv.DerivableError, match="the value is missing"):
        dv.Program("type s(x: String)\nquery s").run({"s": arrow.table({"x": column})})


@pytest.mark.parametrize(
    "terms", ["", "type Tree = Leaf(String) | Node(Tree, Tree)\nrel u(new Leaf(x)) = s(x)\nquery u"]
)
def test_texts_go_with_the_run_that_has_them(terms):
    """No cycle keeps them until Python looks for cycles."""
    program = dv.Program(f"type s(String)\nrel t(x) = s(x)\nquery t\n{terms}")

    def tables():
        return {id(thing) for thing in gc.get_objects() if type(thing) is SymbolTable}

    gc.collect()
    gc.disable()
    try:
        before = tables()
        answer = program.run(facts={"s": [("a",), ("b",)]}, provenance="unit")
        assert set(answer["t"]) == {("a",), ("b",)}
        assert len(tables() - before) == 1
        del answer
        assert not tables() - before
    finally:
        gc.enable()
