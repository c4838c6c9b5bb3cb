"""Circuit files that are cut or changed: an error of ours, or a circuit; where they are cut, no other circuit."""

import gzip
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.files.nnf_file import write_nnf
from derivable.circuit.files.sdd_file import write_sdd
from derivable.circuit.files.vtree_file import load_vtree
from derivable.circuit.formulas.dimacs import read_dimacs
from robust.damage import changes, cuts, outcome

CLAUSES = [[1, 2], [-2, 3, 4], [-4, 5], [6, 7], [-7, 8, -9], [9, 10, -1], [-10, 11]]
WEIGHTED = b"c t wmc\np cnf 12 2\nc p weight 1 0.25 0\nc p weight -1 0.5 0\n1 -12 0\n2 3 0\nc p weight 10 0.75 0\n"
SHOWN = b"p cnf 2 1\n1 -2 0\nc p show 1 2 0\n"
INDEPENDENT = b"p cnf 2 1\n1 -2 0\nc ind 1 2 0\n"
CACHET = b"p cnf 12 2\n1 -12 0\n2 3 0\nw 10 0.75\nw 11 0.25\n"


@dataclass
class Meaning:
    """What two circuits, formulas or vtrees that mean the same have in common."""

    parts: tuple[Any, ...]

    @staticmethod
    def of(thing):
        if isinstance(thing, dv.circuit.Cnf):
            weights = None if thing.weights is None else np.array(thing.weights).tolist()
            return Meaning((thing.num_variables, thing.clauses(), weights))
        if isinstance(thing, dv.circuit.Circuit):
            thing.check()
            return Meaning((thing.num_variables, thing.kind.tolist(), thing.literal.tolist(), thing.children.tolist()))
        return Meaning((thing.text(),))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Name to content; numbers of nodes have two digits."""
    folder = tmp_path_factory.mktemp("whole")
    circuit = dv.circuit.compile(CLAUSES, num_variables=13)
    assert circuit.num_nodes > 30
    write_nnf(circuit, folder / "d4.nnf")
    write_nnf(circuit, folder / "c2d.nnf", "c2d")
    write_sdd(circuit, folder / "c.sdd")
    circuit.save(folder / "c.dvc")
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    content |= {"w.cnf": WEIGHTED, "show.cnf": SHOWN, "ind.cnf": INDEPENDENT, "cachet.cnf": CACHET}
    return content | {"zipped.nnf.gz": gzip.compress(content["c2d.nnf"], mtime=0)}


NAMES = [
    "d4.nnf",
    "c2d.nnf",
    "c.sdd",
    "c.vtree",
    "c.dvc",
    "w.cnf",
    "show.cnf",
    "ind.cnf",
    "cachet.cnf",
    "zipped.nnf.gz",
]
# Where a line is missing, and what is left says nothing of it.
LOSES_LINES = {"w.cnf": 1, "show.cnf": 1, "ind.cnf": 1, "cachet.cnf": 2}


def reader(name):
    return read_dimacs if name.endswith(".cnf") else load_vtree if name.endswith(".vtree") else dv.circuit.load


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_file_is_refused_or_means_the_same(name, files, tmp_path):
    content, read = files[name], reader(name)
    whole, others = Meaning.of(outcome(read, tmp_path / name, content)), []
    for cut in cuts(content):
        found = outcome(read, tmp_path / name, cut)
        if found is not None and Meaning.of(found) != whole:
            others.append(cut)
    allowed = [content[: content.rstrip(b"\n").rfind(b"\n") + 1]]
    allowed += [allowed[0][: allowed[0].rstrip(b"\n").rfind(b"\n") + 1]]
    allowed = allowed[: LOSES_LINES.get(name, 0)]
    assert {cut.rstrip(b"\n") for cut in others} <= {cut.rstrip(b"\n") for cut in allowed}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_file_is_refused_or_read(name, seed, files, tmp_path):
    read = reader(name)
    for changed in changes(files[name], 1500, seed):
        found = outcome(read, tmp_path / name, changed)
        if found is not None:
            Meaning.of(found)
