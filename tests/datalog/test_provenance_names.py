"""Names of provenances, as papers, Scallop's code and people write them, at every door; and what k is for.

Expected: the tables of provenances of the papers of Scallop and Lobster.
"""

import warnings

import pytest
import torch

import derivable as dv
from derivable.cli.main import main
from derivable.compat import scallopy
from derivable.core.diagnostics import DerivableWarning, DomainError, UnsupportedError
from derivable.core.registry import one_letter_off
from derivable.datalog.tags.provenance import PROVENANCES, proofs_per_tag, provenance_of, scallop_name

# name -> (the record, k)
NAMES = {
    "max-min-prob": ("godel", 3),
    "min-max-prob": ("godel", 3),
    "diff-max-min-prob": ("godel", 3),
    "Min-Max-Prob": ("godel", 3),
    "dmmp": ("godel", 3),
    "add-mult-prob": ("addmultprob", 3),
    "diff-add-mult-prob": ("addmultprob", 3),
    "diff-nand-mult-prob": ("nandmultprob", 3),
    "diff-max-mult-prob": ("maxmultprob", 3),
    "top-1-proof": ("topkproofs", 1),
    "top-1-proofs": ("topkproofs", 1),
    "prob-top-1-proofs": ("topkproofs", 1),
    "diff-top-1-proofs": ("topkproofs", 1),
    "difftop1proof": ("topkproofs", 1),
    "top-k-proofs": ("topkproofs", 3),
    "top-5-proofs": ("topkproofs", 5),
    "diff-top-k-proofs": ("topkproofs", 3),
    "diff-top-k-proofs-debug": ("topkproofsdebug", 3),
    "top-bottom-k-clauses": ("topbottomkclauses", 3),
    "diff-top-bottom-2-clauses": ("topbottomkclauses", 2),
    "sample-k-proofs": ("samplekproofs", 3),
    "Unit": ("boolean", 3),
    "real_tropical": ("min_plus", 3),
}
# Two proofs of 0.5 each; the best one alone has 0.5, both together 0.75.
PROGRAM = "rel a = {0.5::1, 0.5::2} rel q() = a(1) or a(2) query q"


@pytest.mark.parametrize("name", NAMES)
def test_names_of_papers(name):
    record = provenance_of(name)
    assert (record.name, proofs_per_tag(name, record, None)) == NAMES[name]


@pytest.mark.parametrize("name", PROVENANCES.known())
def test_names_that_are_known_stay(name):
    assert scallop_name(name) == (name, None)


@pytest.mark.parametrize(("name", "expected"), [("top-1-proof", 0.5), ("diff-top-2-proofs", 0.75)])
def test_the_number_in_a_name_counts_at_every_door(name, expected, tmp_path, capsys):
    assert dv.Program(PROGRAM).run(provenance=name)["q"][()] == pytest.approx(expected)
    layer = dv.nn.Logic("rel q() = a(1) or a(2)", {"a": dv.independent([1, 2])}, {"q": ()}, provenance=name)
    assert float(layer(a=torch.tensor([0.5, 0.5]))) == pytest.approx(expected)
    varying = dv.nn.Logic("type a(i32) rel q() = a(1) or a(2)", {"a": dv.varying()}, {"q": ()}, provenance=name)
    assert float(varying(a=[([1, 2], torch.tensor([0.5, 0.5]))])) == pytest.approx(expected)
    (tmp_path / "p.scl").write_text(PROGRAM)
    assert main(["run", "-p", name, str(tmp_path / "p.scl")]) == 0
    assert capsys.readouterr().out == f"{expected}::q()\n"
    context = scallopy.ScallopContext(provenance=name.removeprefix("diff-"))
    context.import_file(str(tmp_path / "p.scl"))
    context.run()
    assert [tag for tag, _ in context.relation("q")] == pytest.approx([expected])


def test_the_names_of_functions_of_jax():
    pytest.importorskip("jax")
    function = dv.nn.logic_function("rel q() = a(1) or a(2)", {"a": dv.independent([1, 2])}, {"q": ()}, "max-min-prob")
    assert float(function(a=[0.25, 0.5])) == 0.5


@pytest.mark.parametrize("name", ["min-mult-prob", "add-min-prob", "nand-max-prob", "max-min-mult", "nosuch", "bot"])
def test_another_semantics_is_never_meant(name):
    with pytest.raises(DomainError, match=f"no provenance {name!r}\nhelp: known are "):
        dv.Program(PROGRAM).run(provenance=name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("exat", "exact"),
        ("minmaxpob", "minmaxprob"),
        ("topkprofs", "topkproofs"),
        ("topkporofs", "topkproofs"),
        ("logs", None),
    ],
)
def test_a_letter_may_be_wrong(name, meant):
    assert one_letter_off(name, PROVENANCES.known()) == meant
    with pytest.raises(DomainError, match=f"did you mean {meant!r}" if meant else "known are"):
        provenance_of(name)


def test_k_where_it_has_no_meaning():
    program = dv.Program(PROGRAM)
    for given in ({"provenance": "exact"}, {"provenance": "minmaxprob"}, {}):
        with pytest.warns(DerivableWarning, match="k = 5 has no effect under"):
            program.run(k=5, **given)
    with pytest.warns(DerivableWarning, match="k = 5 has no effect under 'exact'"):
        dv.nn.Logic("rel q() = a(1)", {"a": dv.independent([1])}, {"q": ()}, k=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run(provenance="topkproofs", k=5)
        program.run(provenance="top-1-proof", k=1)
        program.run(provenance="exact")
    with pytest.raises(DomainError, match="keeps 1 proof, and k is 5"):
        program.run(provenance="top-1-proof", k=5)
    with pytest.raises(DomainError, match="'top-0-proofs' keeps 0 proofs"):
        program.run(provenance="top-0-proofs")


def test_the_column_program_shows_tags():
    program = dv.Program("type edge(i32, i32) rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y)) query path")
    plain = program.explain("apm")
    assert program.explain("apm", provenance="unit") == plain
    for name, operation in (("max-min-prob", "= times "), ("add-mult-prob", "= discard "), ("top-1-proof", ", 4]")):
        text = program.explain("apm", provenance=name)
        assert "path.2 = " in text
        assert "path.2 = " not in plain
        assert operation in text
        assert operation not in plain
    with pytest.raises(DomainError, match="no provenance 'nosuch'"):
        program.explain("apm", provenance="nosuch")
    with pytest.raises(DomainError, match="no provenance 'nosuch'"):
        program.explain("ram", provenance="nosuch")
    with pytest.raises(UnsupportedError, match="exact has no column program"):
        program.explain("apm", provenance="exact")
