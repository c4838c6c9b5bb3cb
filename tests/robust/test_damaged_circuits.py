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
from derivable.tensor.values.matrix_market import read_matrix_market
from derivable.tensor.values.values import Coordinates
from robust.damage import changes, cuts, outcome
from robust.lines import line_changes, line_cuts, rewritten

pytestmark = pytest.mark.filterwarnings("ignore::derivable.core.diagnostics.DerivableWarning")
CLAUSES = [[1, 2], [-2, 3, 4], [-4, 5], [6, 7], [-7, 8, -9], [9, 10, -1], [-10, 11]]
WEIGHTED = b"c t wmc\np cnf 12 2\nc p weight 1 0.25 0\nc p weight -1 0.5 0\n1 -12 0\n2 3 0\nc p weight 10 0.75 0\n"
SHOWN = b"p cnf 2 1\n1 -2 0\nc p show 1 2 0\n"
INDEPENDENT = b"p cnf 2 1\n1 -2 0\nc ind 1 2 0\n"
CACHET = b"p cnf 12 2\n1 -12 0\n2 3 0\nw 10 0.75\nw 11 0.25\n"


NETWORKS = {
    "n.bif": b"""network rain { property a b; }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 3 ] { dry, damp, wet }; }
probability ( rain ) { table 0.2, 0.8; }
probability ( wet | rain ) {
 default 0.5, 0.25, 0.25;
 (yes) 0.1, 0.3, 0.6;
}
""",
    "n.xmlbif": b"""<?xml version="1.0"?>
<BIF VERSION="0.3"><NETWORK><NAME>rain</NAME>
<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>wet</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>
<DEFINITION><FOR>rain</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>
<DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><TABLE>
0.1 0.9
0.5 0.5
</TABLE></DEFINITION>
</NETWORK></BIF>
""",
    "n.uai": b"BAYES\n2\n2 3\n2\n1 0\n2 0 1\n\n2\n0.2 0.8\n\n6\n0.1 0.3 0.6\n0.9 0.05 0.05\n",
}
MATRICES = {
    "m.mtx": b"%%MatrixMarket matrix coordinate real general\n% a comment\n4 5 3\n1 1 1.5\n2 3 -2\n4 5 3e2\n",
    "s.mtx": b"%%MatrixMarket matrix coordinate integer symmetric\n3 3 3\n1 1 1\n2 1 5\n3 2 -4\n",
    "a.mtx": b"%%MatrixMarket matrix array real general\n2 3\n1\n2\n3.5\n-4\n5\n6e1\n",
}


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
        if isinstance(thing, dv.circuit.Network):
            tables = thing.tables
            return Meaning((tables.names, tables.states, [(of, table.tolist()) for of, table in tables.factors]))
        if isinstance(thing, Coordinates):
            return Meaning((thing.shape, thing.indices.tolist(), thing.values.tolist()))
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
    content |= (
        NETWORKS | MATRICES | {"w.cnf": WEIGHTED, "show.cnf": SHOWN, "ind.cnf": INDEPENDENT, "cachet.cnf": CACHET}
    )
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


# Of which the last number may be cut to another one, as the newline at the end may be missing.
ENDS_IN_A_NUMBER = ("n.uai", *MATRICES)
READERS = {"cnf": read_dimacs, "vtree": load_vtree, "mtx": read_matrix_market}
READERS |= dict.fromkeys(("bif", "xmlbif", "uai"), dv.circuit.load_network)


def reader(name):
    return READERS.get(name.partition(".")[2], dv.circuit.load)


@pytest.mark.parametrize("name", [*NAMES, *NETWORKS, *MATRICES])
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
    if name in ENDS_IN_A_NUMBER:
        last = content.split()[-1]
        allowed += [content.rstrip()[: -len(last)] + last[:length] for length in range(1, len(last))]
    assert {cut.rstrip(b"\n") for cut in others} <= {cut.rstrip(b"\n") for cut in allowed}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*NAMES, *NETWORKS, *MATRICES])
def test_a_changed_file_is_refused_or_read(name, seed, files, tmp_path):
    read = reader(name)
    for changed in (*changes(files[name], 1500, seed), *line_changes(files[name], 700, seed)):
        found = outcome(read, tmp_path / name, changed)
        if found is not None:
            Meaning.of(found)


@pytest.mark.parametrize("name", ["d4.nnf", "c2d.nnf", "c.sdd", "w.cnf", "show.cnf", *NETWORKS, *MATRICES])
def test_a_file_that_is_cut_at_a_line_or_written_otherwise(name, files, tmp_path):
    """What is blank at the ends of lines, and the mark in front, says nothing."""
    content, read = files[name], reader(name)
    whole = Meaning.of(outcome(read, tmp_path / name, content))
    for same in (b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), content.replace(b"\n", b" \n")):
        assert Meaning.of(outcome(read, tmp_path / name, same)) == whole
    cut = [outcome(read, tmp_path / name, each) for each in line_cuts(content)]
    others = [each for each in cut if each is not None and Meaning.of(each) != whole]
    assert len(others) <= 2 * LOSES_LINES.get(name, 0)
    for each in rewritten(content):
        outcome(read, tmp_path / name, each)
