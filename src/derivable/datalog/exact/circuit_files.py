"""Circuits on disk by the derivations that they are compiled from: a process that finds one compiles nothing.

A program over the same facts and a layer with the same inputs have the same derivations in each process, and to compile
them may take minutes. A file has how its circuit was compiled in the first line, then the circuit as `circuit.save`
writes it. Probabilities are in none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from derivable.circuit.compilation.planner import Compilation
from derivable.circuit.files import store
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.circuit import Circuit
from derivable.core.cache import cache_directory, sources_digest
from derivable.core.diagnostics import DerivableError
from derivable.core.files import atomic_write

# Nodes of derivations below which to compile takes as long as to look for a file. Bytes of a file and of all files, and
# their number, at most: those that were not read for longest go.
LEAST_NODES, MOST_BYTES, MOST_OF_ALL, MOST_FILES = 256, 1 << 26, 1 << 29, 1000
# What makes circuits, so that another version of the library makes its own.
MODULES = ("circuit/compilation/*.py", "circuit/graph/*.py", "circuit/kernels/*.py", "datalog/exact/*.py")


def stored_circuit(
    graph: AndOrGraph, others: Sequence[int], groups: Sequence[np.ndarray], make: Callable[[], Circuit]
) -> Circuit:
    """The circuit that `make` compiles of a graph, by an earlier process if there was one.

    others, groups  what else the circuit depends on: numbers, and variables
    """
    if graph.num_nodes < LEAST_NODES:
        return make()
    digest = hashlib.sha256(f"{_stamp()} {list(others)} {graph.kind.dtype}".encode())
    for array in (*graph.arrays, *groups):
        digest.update(f"{len(array)} {array.dtype}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    path = cache_directory() / "circuits" / digest.hexdigest()[:40]
    circuit = _read(path)
    if circuit is None:
        circuit = make()
        _write(path, circuit)
    return circuit


@cache
def _stamp() -> str:
    return sources_digest(MODULES)


def _read(path: Path) -> Circuit | None:
    with suppress(OSError, ValueError, DerivableError):
        said, _, content = path.read_bytes().partition(b"\n")
        circuit = store.parse(content, os.fspath(path))
        compiler, rows = json.loads(said)
        os.utime(path)
        return replace(circuit, compilation=Compilation(compiler, tuple(map(tuple, rows))))
    return None


def _write(path: Path, circuit: Circuit) -> None:
    done = circuit.compilation
    if done is None or circuit.num_edges > MOST_BYTES:
        return
    content = json.dumps([done.compiler, done.rows]).encode() + b"\n" + store.content(circuit)
    # Where nothing can be written, each process compiles. A file that is cut short is read as none.
    with suppress(OSError, DerivableError):
        path.parent.mkdir(exist_ok=True)
        if len(content) <= MOST_BYTES:
            with atomic_write(path, "wb", is_durable=False) as file:
                file.write(content)
        _forget(path.parent)


def _forget(folder: Path) -> None:
    """Delete the files that were not read for longest, beyond what there may be."""
    sizes = sorted(((one.stat().st_mtime, one.stat().st_size, one) for one in folder.iterdir()), reverse=True)
    total = 0
    for number, (_, size, path) in enumerate(sizes):
        total += size
        if total > MOST_OF_ALL or number >= MOST_FILES:
            path.unlink()
