"""Counts of a CNF alone, without a circuit, by tididi-cnf where it is installed.

It simplifies the formula and compiles what is left to a tree decision diagram, in a process that can be stopped.
"""

from __future__ import annotations

import importlib.util
import marshal
import math
from fractions import Fraction
from typing import Any

import numpy as np

from derivable.circuit.compilation.compile_process import run_worker, work_folder
from derivable.circuit.formulas.cnf import Cnf, without_repeats
from derivable.core.diagnostics import MissingDependencyError
from derivable.core.progress import NEVER, Deadline

INPUT, OUTPUT = "input.bin", "output.txt"
# It prints to the file that is the process's stderr, and needs nothing of this package.
PROGRAM = f"""
import marshal, sys
import tididi_cnf
with open(sys.argv[2] + "/{INPUT}", "rb") as file:
    task = marshal.load(file)
answer = tididi_cnf.count(task.pop("clauses"), **task)
with open(sys.argv[2] + "/{OUTPUT}", "w") as file:
    file.write(hex(answer.count) if isinstance(answer.count, int) else str(answer.count))
"""


def has_tididi() -> bool:
    return importlib.util.find_spec("tididi_cnf") is not None


def count_by_tididi(cnf: Cnf, deadline: Deadline = NEVER, progress: bool | None = None) -> tuple[int, float | None]:
    """The number of models of a CNF, over the variables that it shows if it does; their weighted number if it has
    weights, else None.

    Raises CompileTimeout, CompilerError, MissingDependencyError.
    """
    if not has_tididi():
        raise MissingDependencyError("tididi-cnf is not installed", hint="pip install tididi-cnf, or --compiler sdd")
    # Variables that no clause mentions are counted here: a header may announce two billion.
    mentioned, compact = without_repeats(cnf, deadline.remaining).compacted()
    is_shown = np.ones(cnf.num_variables, bool)
    if cnf.shown is not None:
        is_shown[:] = False
        is_shown[np.array(cnf.shown, np.int64) - 1] = True
    task: dict[str, Any] = {"clauses": compact.clauses(), "num_vars": len(mentioned), "mode": "mc"}
    if cnf.shown is not None:
        task |= {"show": (np.flatnonzero(is_shown[mentioned - 1]) + 1).tolist(), "mode": "pmc"}
    others = is_shown.copy()
    others[mentioned - 1] = False
    count = int(_answer(task, deadline, progress)) << int(others.sum())
    if cnf.weights is None:
        return count, None
    weights = {
        sign * number: float(column[variable - 1])
        for number, variable in enumerate(mentioned.tolist(), start=1)
        for sign, column in zip((1, -1), cnf.weights)
        if is_shown[variable - 1]
    }
    task |= {"weights": weights, "mode": "wmc" if cnf.shown is None else "pwmc"}
    value = _answer(task, deadline, progress)
    try:
        weighted = float(value)
    except OverflowError:
        weighted = math.inf if value > 0 else -math.inf
    return count, weighted * float(np.prod((cnf.weights[0] + cnf.weights[1])[others]))


def _answer(task: dict[str, Any], deadline: Deadline, progress: bool | None) -> Fraction:
    if not task["clauses"] or not all(task["clauses"]):
        # No clause mentions a variable, or one is false.
        return Fraction(0 if task["clauses"] else 1)
    with work_folder() as folder:
        (folder / INPUT).write_bytes(marshal.dumps(task))
        run_worker(
            "count",
            folder,
            name="tididi",
            program=PROGRAM,
            deadline=deadline,
            progress=progress,
            size=f"{task['num_vars']:,} variables and {len(task['clauses']):,} clauses",
            hint="try --compiler d4",
            after_crash="try --compiler d4",
        )
        text = (folder / OUTPUT).read_text()
    return Fraction(int(text, 16)) if text.startswith(("0x", "-0x")) else Fraction(text)
