"""Facts go from the face to storage through few modules, and to none of them twice."""

import sys
from pathlib import Path

import numpy as np
import pytest

import derivable as dv
from derivable.datalog.facts.columns import FactColumns
from derivable.datalog.facts.inputs import taken
from derivable.datalog.facts.load import load_python_facts
from derivable.datalog.tables.storage import Table

ROOT = str(Path(dv.__file__).parent)
ROWS = [(0, 1), (1, 2), (2, 3)]
# Between the face and storage.
MOST_MODULES = 8


def walk(call):
    """The modules, in turn, whose functions are called while facts are read, loaded and handed to their table."""
    steps = {f.__code__ for f in (taken, load_python_facts, FactColumns.as_stored)}
    modules, depth, is_stored = [], 0, False

    def see(frame, event, argument):
        nonlocal depth, is_stored
        code = frame.f_code
        if event == "call" and not is_stored:
            depth += code in steps
            is_stored = code is Table.insert.__code__
            name = code.co_filename.removeprefix(ROOT)
            # What every engine reads numbers and arguments by is no module of facts.
            is_of_facts = name != code.co_filename and not name.startswith("/core/")
            if (depth or is_stored) and is_of_facts and modules[-1:] != [name]:
                modules.append(name)
        elif event == "return" and code in steps:
            depth -= 1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    return modules


def frame(**columns):
    return pytest.importorskip("pandas").DataFrame(columns)


SOURCES, TARGETS, CHANCES = [0, 1, 2], [1, 2, 3], [0.5, 0.25, 0.75]
FORMS = {
    "tuples": lambda: ROWS,
    "tagged tuples": lambda: [(chance, row) for chance, row in zip(CHANCES, ROWS)],
    "mapping": lambda: dict(zip(ROWS, CHANCES)),
    "array": lambda: np.array(ROWS),
    "columns": lambda: {"source": SOURCES, "target": np.array(TARGETS)},
    "frame": lambda: frame(source=SOURCES, target=TARGETS),
    "frame with probabilities": lambda: frame(target=TARGETS, source=SOURCES, probability=CHANCES),
    "torch": lambda: dv.independent(ROWS, pytest.importorskip("torch").tensor(CHANCES)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", ["u32", "String"])
def test_facts_pass_each_module_once(form, target, costs):
    # A second small run is one call, which writes facts elsewhere.
    costs(has_small_runs=False)
    facts = FORMS[form]()
    if target == "String":
        if form not in ("tuples", "frame"):
            pytest.skip("texts come in tuples and frames")
        facts = frame(source=SOURCES, target=list("abc")) if form == "frame" else [(0, "a"), (1, "b")]
    program = dv.Program(f"type edge(source: u32, target: {target})\nrel path(x, y) = edge(x, y)\nquery path")
    has_tags = form in ("tagged tuples", "mapping", "frame with probabilities", "torch")

    def run():
        return program.run({"edge": facts}, "minmaxprob" if has_tags else "unit")

    # What is found once a process, such as the properties of a type, is found here.
    assert len(run()["path"]) == len(facts["source"] if form == "columns" else facts)
    modules = walk(run)
    assert modules[0].endswith("inputs.py")
    assert modules[-1].endswith("storage.py")
    assert len(modules) == len(set(modules)), modules
    assert len(modules) - 1 <= MOST_MODULES, modules
