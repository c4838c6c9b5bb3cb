"""CNF to d-DNNF by D4 (Lagniez and Marquis 2017), through the authors' package d4Solver, in a child process."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np

from derivable.circuit.compilation.compile_nnf import NNF, read_nnf
from derivable.circuit.compilation.compile_process import run_worker, work_folder
from derivable.circuit.files.nnf_file import parse_nnf
from derivable.circuit.formulas.cnf import Cnf
from derivable.circuit.formulas.dimacs import write_dimacs
from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import MissingDependencyError
from derivable.core.progress import NEVER, Deadline

CNF = "input.cnf"
# Bytes of a d-DNNF that are read in well under a second; more are read in a process that ends in time.
MOST_READ = 8 << 20
HINT = "try compiler='auto', or another encoding"


def require_d4() -> None:
    if importlib.util.find_spec("py_d4") is None:
        raise MissingDependencyError(
            "the D4 compiler is not installed", hint="pip install 'derivable[d4]', or use compiler='sdd'"
        )


def compile_d4(
    cnf: Cnf, deadline: Deadline = NEVER, progress: bool | None = None, memory_limit: int | None = None
) -> Circuit:
    """The d-DNNF of a CNF with at least one clause, none of them empty; origin "decision".

    Variables that D4 leaves free on a branch do not occur there: the circuit is not smooth.
    Raises CompileTimeout, CompilerError, MissingDependencyError.
    """
    require_d4()
    # D4 takes memory for each variable that the header announces.
    variables, compact = cnf.compacted()
    circuit = _compiled(compact, deadline, progress, memory_limit)
    if len(variables) < cnf.num_variables:
        named = np.concatenate([[0], variables]).astype(np.int32)
        literal = np.sign(circuit.literal) * named[np.abs(circuit.literal)]
        circuit = replace(circuit, literal=literal, num_variables=cnf.num_variables)
    return circuit


def _compiled(cnf: Cnf, deadline: Deadline, progress: bool | None, memory_limit: int | None) -> Circuit:
    size = f"{cnf.num_variables:,} variables and {cnf.num_clauses:,} clauses"
    with work_folder() as folder:
        write_dimacs(cnf, folder / CNF)
        run_worker(
            "d4",
            folder,
            name="D4",
            deadline=deadline,
            progress=progress,
            memory_limit=memory_limit,
            size=size,
            hint=HINT,
            after_crash="try compiler='sdd'",
        )
        has_limit = deadline.end is not None or memory_limit is not None
        if has_limit and (folder / NNF).stat().st_size > MOST_READ:
            return read_nnf(folder, cnf.num_variables, deadline, memory_limit, size, HINT)
        return parse_nnf((folder / NNF).read_bytes(), "<D4>", cnf.num_variables, origin="decision")


def work(folder: Path) -> None:
    """The job of the child process: input.cnf to output.nnf."""
    import py_d4

    solver = py_d4.Solver(str(folder / CNF))
    (folder / NNF).write_text(solver.compile().getNNFString())
