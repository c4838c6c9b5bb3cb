"""The words of the machine's memory have names, in one module, which no module outside of the machine names."""

import ast
from pathlib import Path

import pytest

import derivable
from derivable.datalog.kernels.row_sets import SetForm, SetParameters
from derivable.datalog.machine import words
from derivable.kernel.build import Builder

DATALOG = Path(derivable.__file__).parent / "datalog"


def knows_words(text):
    """Whether a module imports the module of words, or names of it."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    return any(f"{name}.".startswith("derivable.datalog.machine.words.") for name in names)


def test_no_module_outside_of_the_machine_names_a_word():
    assert knows_words("from derivable.datalog.machine import words as w")
    paths = {path.relative_to(DATALOG).as_posix(): path.read_text() for path in DATALOG.rglob("*.py")}
    outside = {name for name, text in paths.items() if not name.startswith("machine/") and knows_words(text)}
    assert outside == set()


GROUPS = {"TABLE_WORDS": "START", "INDEX_WORDS": "OF", "STORE_WORDS": "ENTRY", "STRATUM_WORDS": "FIRST_TABLE"}
GROUPS |= {"CONTROL_WORDS": "STRATUM", "PART_WORDS": "TAGS", "FIRST_FREE": "LEFT"}


@pytest.mark.parametrize("end", GROUPS)
def test_words_of_one_thing_are_different(end):
    """From the first word of a table, an index and so on to their number."""
    names = [name for name in vars(words) if name.isupper()]
    own = [getattr(words, name) for name in names[names.index(GROUPS[end]) : names.index(end)]]
    if end in ("TABLE_WORDS", "STORE_WORDS"):
        # The first one of several, and how many there may be.
        own = [value for value in own if value not in (words.SETS_END, words.MOST_NOTES)]
    assert len(set(own)) == len(own)
    assert max(own) < getattr(words, end)


def test_there_is_room_for_all_that_a_kernel_reads_of_sets():
    k = Builder("sets")
    SetParameters(k, SetForm(3, True))
    assert words.SETS + len(k.parameters) <= words.SETS_END
