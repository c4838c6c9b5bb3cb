"""Texts and their numbers, beside a dictionary; hashes of few bits, so that different texts have the same."""

from enum import StrEnum
from zlib import crc32

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.values import hashed_texts, values
from derivable.datalog.values.values import SymbolTable

TEXTS = st.lists(st.text("ab1 ", max_size=3), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["all", "one", "find", "copy"]), TEXTS), max_size=8)


@settings(deadline=None)
@example([("all", [" ", "1", "a"]), ("all", [" ", "1", "1", "a"])], 5, 3)
@given(STEPS, st.sampled_from([0, 5, 1000]), st.sampled_from([1, 3, 1 << 60]))
def test_texts_have_the_numbers_of_a_dictionary(steps, many, differ):
    def few_hashes(texts, turn):
        # Python's own hashes differ from one process to the next.
        rows = [
            turn * 1000 + crc32(text.encode()) % differ if turn < 9 else crc32(f"{turn} {text}".encode())
            for text in texts
        ]
        return np.array(rows, np.int64).reshape(-1, 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "MANY_TEXTS", many)
        patch.setattr(hashed_texts, "_hashes", few_hashes)
        symbols, expected, left = SymbolTable(), {}, None
        for kind, texts in steps:
            if kind == "find":
                assert [symbols.find(text) for text in texts] == [expected.get(text) for text in texts]
                continue
            if kind == "copy":
                # What is entered in the copy from here on is not in the table that is left behind.
                left, symbols = (symbols, dict(expected)), symbols.copy()
                continue
            numbers = [expected.setdefault(text, len(expected)) for text in sorted(texts)]
            found = symbols.intern_all(sorted(texts)) if kind == "all" else list(map(symbols.intern, sorted(texts)))
            if kind == "one" or differ > 3 or symbols.hashed is None:
                assert list(found) == numbers
            else:
                # The first of those with one hash come first.
                expected = {text: number for number, text in enumerate(symbols.texts)}
                assert len(expected) == len(symbols.texts)
                assert [symbols.texts[place] for place in found] == sorted(texts)
            assert symbols.lookup(np.array(found, np.int64)).tolist() == sorted(texts)
        if left is not None:
            assert left[0].texts == list(left[1])


def test_texts_of_other_classes_are_texts(monkeypatch):
    monkeypatch.setattr(values, "MANY_TEXTS", 2)
    colour = StrEnum("colour", [("RED", "red"), ("BLUE", "blue")])
    given_texts = [np.str_("red"), "blue", colour.RED, colour.BLUE, "green", np.str_("green"), colour.RED]
    found = dv.Program("type s(String)\nquery s").run({"s": given_texts})["s"]
    assert set(found) == {("red",), ("blue",), ("green",)}
    assert {type(text) for text in found.columns[0]} == {str}
    assert ("red",) in found
    assert ("yellow",) not in found


def test_rules_over_many_texts(monkeypatch):
    monkeypatch.setattr(values, "MANY_TEXTS", 10)
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
