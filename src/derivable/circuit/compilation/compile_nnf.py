"""The circuit of a d-DNNF file in a child process: what a compiler writes in seconds takes as long to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from derivable.circuit.compilation.compile_process import run_worker
from derivable.circuit.graph.circuit import Circuit
from derivable.core.progress import Deadline

NNF, NNF_OPTIONS, CIRCUIT = "output.nnf", "nnf.json", "circuit.npz"
ARRAYS = ("kind", "literal", "offsets", "children", "roots", "level_offsets")


def read_nnf(
    folder: Path, num_variables: int, deadline: Deadline, memory_limit: int | None, size: str, hint: str
) -> Circuit:
    """The circuit of the file `NNF` in a folder, by a process that is ended at the deadline; origin "decision"."""
    (folder / NNF_OPTIONS).write_text(json.dumps(num_variables))
    limits: dict[str, Any] = {"deadline": deadline, "memory_limit": memory_limit}
    run_worker("nnf", folder, name="D4", progress=False, size=size, hint=hint, **limits)
    with np.load(folder / CIRCUIT) as data:
        return Circuit(**{name: data[name] for name in ARRAYS}, num_variables=num_variables, origin="decision")


def work(folder: Path) -> None:
    """The job of the child process."""
    from derivable.circuit.files.nnf_file import parse_nnf

    num_variables = json.loads((folder / NNF_OPTIONS).read_text())
    circuit = parse_nnf((folder / NNF).read_bytes(), "<D4>", num_variables, origin="decision")
    np.savez(folder / CIRCUIT, **{name: getattr(circuit, name) for name in ARRAYS})
