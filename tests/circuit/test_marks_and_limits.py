"""What editors and generators of files leave in them: the mark of UTF-8 at the beginning, and literals that have no
absolute value in 64 bits."""

import gzip

import numpy as np
import pytest

import derivable as dv

FILES = {
    "a.cnf": "p cnf 2 1\n1 2 0\n",
    "c2d.nnf": "nnf 5 4 2\nL 1\nL -1\nL 2\nA 2 1 2\nO 1 2 0 3\n",
    "d4.nnf": "o 1 0\nt 2 0\n1 2 1 0\n1 2 -1 2 0\n",
}
LEAST = -(2**63)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_files_with_a_mark(tmp_path, name, compressed):
    """Three of the four assignments are models: enumeration of `1 or 2`."""
    content = b"\xef\xbb\xbf" + FILES[name].encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if compressed else content)
    assert dv.circuit.load(tmp_path / name).model_count() == 3


def test_an_sdd_and_its_vtree_with_marks(tmp_path):
    (tmp_path / "s.sdd").write_text("\ufeffsdd 1\nL 0 0 1\n", encoding="utf-8")
    (tmp_path / "s.vtree").write_text("\ufeffvtree 1\nL 0 1\n", encoding="utf-8")
    assert dv.circuit.load(tmp_path / "s.sdd").model_count() == 1
    assert dv.circuit.compile([[1]], compiler="sdd", vtree=tmp_path / "s.vtree").model_count() == 1


@pytest.mark.parametrize("options", [{}, {"strict": False}])
@pytest.mark.parametrize("literal", [LEAST, LEAST + 1, -(2**31)])
def test_literals_without_an_absolute_value_in_files(tmp_path, literal, options):
    (tmp_path / "a.cnf").write_text(f"p cnf 1 1\n{literal} 0\n")
    with pytest.raises(dv.DerivableError, match=rf"literal {literal} is out of range.*declares"):
        dv.circuit.load(tmp_path / "a.cnf", **options)


@pytest.mark.parametrize("clauses", [[[LEAST]], np.array([[LEAST, 1]]), [[1], [LEAST + 1]]])
def test_literals_without_an_absolute_value(clauses):
    for count in (None, 3):
        with pytest.raises(dv.DerivableError, match=r"clause \d .*-922337203685477580"):
            dv.circuit.compile(clauses, num_variables=count)
