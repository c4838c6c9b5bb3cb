"""Formulas that are made smaller before they are counted, by pyvitri (module `vitri`) where it is installed.

What is left has other models than the formula, whose number is that of what is left times a power of two. So it is for
counts: a circuit of it says nothing about single variables.
"""

from __future__ import annotations

import importlib.util

from derivable.circuit.compilation.compile_process import run_worker, work_folder
from derivable.circuit.formulas.cnf import Cnf
from derivable.circuit.formulas.dimacs import read_dimacs, write_dimacs
from derivable.core.progress import NEVER, Deadline

INPUT, OUTPUT, LIFT = "input.cnf", "reduced.cnf", "lift.txt"
# Milliseconds for its attempts: it reduces what it reduces in tenths of a second or not at all.
BUDGET = 10_000
# It needs nothing of this package.
PROGRAM = f"""
import sys
import vitri
with open(sys.argv[2] + "/{INPUT}", "rb") as file:
    made = vitri.prepare(file.read(), mode="mc", vtree="balanced", budget_ms={BUDGET})
with open(sys.argv[2] + "/{OUTPUT}", "w") as file:
    file.write(made.reduced_cnf)
with open(sys.argv[2] + "/{LIFT}", "w") as file:
    file.write(str(made.summary["lift"]["count_lift_pow2"]))
"""


def has_vitri() -> bool:
    return importlib.util.find_spec("vitri") is not None


def reduced(cnf: Cnf, deadline: Deadline = NEVER, progress: bool | None = None) -> tuple[Cnf, int]:
    """A formula without weights, whose number of models, times two to the power of the number returned, is that of a
    formula without weights.

    Raises CompileTimeout, CompilerError.
    """
    if not cnf.num_clauses:
        return cnf, 0
    with work_folder() as folder:
        write_dimacs(Cnf(cnf.num_variables, cnf.offsets, cnf.literals), folder / INPUT)
        run_worker(
            "reduce",
            folder,
            name="vitri",
            program=PROGRAM,
            deadline=deadline,
            progress=progress,
            size=f"{cnf.num_variables:,} variables and {cnf.num_clauses:,} clauses",
            hint="uninstall pyvitri to count the formula as it is",
            after_crash="uninstall pyvitri to count the formula as it is",
        )
        return read_dimacs(folder / OUTPUT), int((folder / LIFT).read_text())
