"""Networks of files: values by enumeration of all assignments, and published posteriors."""

import contextlib
import itertools
import json

import numpy as np
import pytest

import derivable as dv
from data import data_path
from derivable.circuit.files.bif_file import parse_bif
from derivable.circuit.files.network import NetworkTables
from derivable.circuit.files.uai_file import parse_uai, parse_uai_evidence
from derivable.circuit.files.xmlbif_file import parse_xmlbif
from derivable.circuit.queries.network import Network
from derivable.cli.main import main
from derivable.core.diagnostics import DomainError

DOG = """// the dog problem, with what dialects do
network "dog problem" { property credit "a; b"; }
variable fo /* family out */ { type discrete[2]{ true false }; property position = (1, 2) ; }
variable "bowel problem" { type discrete [ 2 ] { "yes, some", no }; }
variable dog-out { type discrete [ 3 ] { <5, 5-10, >=10 }; }
probability ( dog-out | fo, "bowel problem" ) {
  (false, no) 2e-1, .3, +0.5;
  (true, "yes, some") 0.1 0.2 0.7;
  default 0.25 0.25 0.5;
}
probability ( fo ) { table 0.15, 0.85; }
probability ( "bowel problem" fo ) { table 0.01 0.2 0.99 0.8; }
"""


def enumerated(network: Network, evidence: dict[str, str]) -> tuple[float, dict[str, dict[str, float]]]:
    """(sum of the products that fit the evidence, posteriors), by all assignments."""
    tables = network.tables
    total, found = 0.0, {name: dict.fromkeys(states, 0.0) for name, states in network.states.items()}
    for assignment in itertools.product(*map(range, tables.cardinalities)):
        values = {n: s[i] for (n, s), i in zip(network.states.items(), assignment)}
        if any(values[name] != state for name, state in evidence.items()):
            continue
        p = float(np.prod([table[tuple(assignment[v] for v in scope)] for scope, table in tables.factors]))
        total += p
        for name, state in values.items():
            found[name][state] += p
    return total, {name: {state: p / total for state, p in row.items()} for name, row in found.items()}


def check(network: Network, evidence: dict[str, str]) -> None:
    total, expected = enumerated(network, evidence)
    assert network.probability(evidence) == pytest.approx(total, rel=1e-12)
    found = network.posteriors(evidence)
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        assert found[name] == pytest.approx(row, abs=1e-12)


def test_dialects_of_bif():
    network = Network(parse_bif(DOG))
    assert network.states["dog-out"] == ("<5", "5-10", ">=10")
    scope, table = network.tables.factors[1]
    assert scope == (0, 1)
    np.testing.assert_allclose(table, [[0.01, 0.99], [0.2, 0.8]])
    np.testing.assert_allclose(network.tables.factors[2][1][0, 1], [0.25, 0.25, 0.5])
    check(network, {})
    check(network, {"dog-out": ">=10", "bowel problem": "yes, some"})


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("0.15, 0.85", "0.15, -0.85", "11:34", "the probability -0.85 is not in [0, 1]"),
        ("0.15, 0.85", "0.15, 0.75", "11:22", "probabilities of `fo` add up to 0.9, not to 1"),
        ("0.15, 0.85", "0.15 x", "11:33", "`x` is no number"),
        ("0.15, 0.85", "0.15", "11:22", "this entry has 1 numbers, and should have 2"),
        ("default 0.25 0.25 0.5;", "", "6:15", "there is no probability of `dog-out` for (true, no)"),
        ("(false, no) 2e-1", "(no, false) 2e-1", "7:4", "`fo` has no value `no`"),
        ("(false, no) 2e-1", "(false) 2e-1", "7:3", "this entry has 1 values, and there are 2 parents"),
        ('(true, "yes, some")', "(false, no)", "8:3", "this entry is given twice"),
        ("[ 3 ]", "[ 4 ]", "5:36", "`dog-out` is said to have 4 values, and 3 are listed"),
        ("probability ( fo )", "probability ( of )", "11:15", "unknown variable `of`"),
        ("variable dog-out", "variable fo", "5:10", "the variable `fo` is declared twice"),
        ("probability ( fo ) { table 0.15, 0.85; }", "", "3:10", "there is no probability of `fo`"),
        (
            "probability ( fo ) { table 0.15, 0.85; }",
            "probability ( fo | dog-out ) { default 0.1 0.9; }",
            "3:10",
            "`fo` is in a cycle",
        ),
        ("/* family out */", "/* family out", "3:13", "this comment does not end"),
        ("type discrete[2]", "type continuous[2]", "3:37", "`fo` is `continuous`"),
        ("variable fo", "variables fo", "3:1", "expected `variable` or `probability`, not `variables`"),
    ],
)
def test_what_is_wrong_in_bif_has_its_place(old, new, place, message):
    assert old in DOG
    with pytest.raises(dv.DerivableError) as found:
        parse_bif(DOG.replace(old, new), "dog.bif")
    assert str(found.value).startswith(f"dog.bif:{place}: error: {message}"), str(found.value)


def test_mutated_files_are_errors_of_ours():
    chosen = np.random.default_rng(0)
    for _ in range(200):
        i, j = sorted(chosen.integers(0, len(DOG), 2).tolist())
        text = DOG[:i] + DOG[j : j + 5] + DOG[min(len(DOG), i + int(chosen.integers(1, 6))) :]
        with contextlib.suppress(dv.DerivableError):
            parse_bif(text)


XML = """<?xml version="1.0"?>
<!DOCTYPE BIF [ <!ELEMENT BIF ( NETWORK )*> ]>
<BIF VERSION="0.3"><NETWORK><NAME>Dog</NAME>
<VARIABLE TYPE="nature"><NAME>bp</NAME><OUTCOME>true</OUTCOME><OUTCOME>false</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>fo</NAME><OUTCOME>true</OUTCOME><OUTCOME>false</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>do</NAME><OUTCOME>true</OUTCOME><OUTCOME>false</OUTCOME></VARIABLE>
<DEFINITION><FOR>bp</FOR><TABLE>0.01 0.99</TABLE></DEFINITION>
<DEFINITION><FOR>fo</FOR><TABLE>0.15 0.85</TABLE></DEFINITION>
<DEFINITION><FOR>do</FOR><GIVEN>bp</GIVEN><GIVEN>fo</GIVEN>
<TABLE>0.99 0.01 <!-- bp, not fo --> 0.97 0.03 0.9 0.1 0.3 0.7</TABLE></DEFINITION>
</NETWORK></BIF>
"""


def test_xmlbif():
    """P(do) = 0.01 * (0.15 * 0.99 + 0.85 * 0.97) + 0.99 * (0.15 * 0.9 + 0.85 * 0.3)."""
    network = Network(parse_xmlbif(XML))
    assert network.posteriors()["do"]["true"] == pytest.approx(0.01 * 0.973 + 0.99 * 0.39)
    check(network, {"do": "false"})
    with pytest.raises(dv.DerivableError, match=r"x.xml:9:26: error: unknown variable `bq`"):
        parse_xmlbif(XML.replace("<GIVEN>bp", "<GIVEN>bq"), "x.xml")
    with pytest.raises(dv.DerivableError, match=r"x.xml:11:3: error: this is no XML"):
        parse_xmlbif(XML.replace("</NETWORK>", ""), "x.xml")
    cyclic = "<FOR>bp</FOR><GIVEN>do</GIVEN><TABLE>0.01 0.99 0.1 0.9</TABLE>"
    with pytest.raises(dv.DerivableError, match=r"x.xml:4:1: error: `bp` is in a cycle of parents"):
        parse_xmlbif(XML.replace("<FOR>bp</FOR><TABLE>0.01 0.99</TABLE>", cyclic), "x.xml")
    with pytest.raises(dv.DerivableError, match="entities are not read"):
        parse_xmlbif(XML.replace("<!ELEMENT BIF ( NETWORK )*>", '<!ENTITY a "b">'))


UAI = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 1.0 2.5\n 0.5 4.0\n\n6\n 0.1 0.2 3\n 0.4 0.0 2.0\n"


def test_uai(tmp_path):
    network = Network(parse_uai(UAI))
    np.testing.assert_array_equal(network.tables.factors[1][1], [[0.1, 0.2, 3], [0.4, 0.0, 2.0]])
    check(network, {})
    check(network, {"2": "1", "0": "1"})
    for text in ("2 2 1 0 1\n", "1\n2 2 1 0 1\n"):
        assert parse_uai_evidence(text, network.tables) == {2: 1, 0: 1}
    (tmp_path / "m.uai").write_text(UAI)
    (tmp_path / "m.uai.evid").write_text("2 2 1 0 1\n")
    total, _ = enumerated(network, {"2": "1", "0": "1"})
    loaded = dv.circuit.load_network(tmp_path / "m.uai", evidence=tmp_path / "m.uai.evid")
    assert loaded.probability() == pytest.approx(total)
    circuit = dv.circuit.from_uai(tmp_path / "m.uai", evidence=tmp_path / "m.uai.evid")
    np.testing.assert_allclose(circuit.weighted_count(*circuit.weights), total)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("MARKOV", "LIMID", r"1:1: error: `LIMID` is no kind"),
        ("2 1 2\n", "2 1 3\n", r"6:5: error: `3` is not the number of a variable"),
        ("4\n 1.0", "5\n 1.0", r"8:1: error: the table is said to have 5 entries, and its variables have 4"),
        (" 0.4 0.0 2.0\n", " 0.4", r"error: the file ends inside a table"),
        ("2.5", "x", r"9:6: error: `x` is no number"),
        ("2.5", "-2.5", r"9:6: error: the entry -2.5 is not a number of at least 0"),
    ],
)
def test_what_is_wrong_in_uai_has_its_place(old, new, message):
    with pytest.raises(dv.DerivableError, match=message):
        parse_uai(UAI.replace(old, new), "m.uai")


@pytest.mark.parametrize("name", ["asia", "cancer", "survey", "sachs", "win95pts"])
def test_published_posteriors(name):
    """Those of the file were computed from tables in single precision."""
    reference = json.loads(data_path("bayesnets/reference_posteriors.json").read_text())[name]
    network = dv.circuit.load_network(data_path(f"bayesnets/{name}.bif.gz"))
    for which, evidence in (("prior", {}), ("posterior", reference["evidence_state_index"])):
        found = network.posteriors(evidence)
        for variable, expected in reference[which].items():
            row = [found[variable][state] for state in reference["states"][variable]]
            np.testing.assert_allclose(row, expected, atol=2e-6)
    assert network.probability(reference["evidence_state_index"]) == pytest.approx(reference["p_evidence"], rel=2e-6)


def test_the_program_of_a_network():
    network = Network(parse_bif(DOG))
    database = dv.Program(network.program()).run(evidence={"value": [("dog-out", "5-10")]})
    for name, row in enumerated(network, {"dog-out": "5-10"})[1].items():
        for state, p in row.items():
            assert database["value"].get((name, state), 0.0) == pytest.approx(p, abs=1e-9)
    with pytest.raises(dv.DerivableError, match="no choices"):
        Network(parse_uai(UAI)).program()


def test_the_circuit_has_names():
    path = data_path("bayesnets/asia.bif.gz")
    circuit = dv.circuit.from_bif(path)
    found = np.ravel(circuit.condition(["xray=yes", "dysp=yes"]).marginals())
    expected = dv.circuit.load_network(path).posteriors({"xray": "yes", "dysp": "yes"})
    assert found[circuit.names.index("lung=yes")] == pytest.approx(expected["lung"]["yes"])


def test_the_command(tmp_path, capsys):
    (tmp_path / "dog.bif").write_text(DOG)
    file = str(tmp_path / "dog.bif")
    assert main(["run", file, "-e", "dog-out=>=10", "-q", "fo"]) == 0
    expected = enumerated(Network(parse_bif(DOG)), {"dog-out": ">=10"})[1]["fo"]
    assert capsys.readouterr().out == "".join(f"{p:.9g}::fo={state}\n" for state, p in expected.items())
    assert main(["run", file, "--json", "-e", "fo=true"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["evidence"] == pytest.approx(0.15)
    assert document["posteriors"]["fo"] == {"true": 1.0, "false": 0.0}
    for wrong, message in (
        (["-e", "of=true"], "the network has no variable 'of'"),
        (["-e", "fo=yes"], "'fo' has no value 'yes'"),
        (["-e", "fo"], "this is no evidence"),
        (["-e", "fo=true", "-e", "fo=false"], "'fo' was observed to be 'true' and 'false'"),
    ):
        assert main(["run", file, *wrong]) == 1
        assert message in capsys.readouterr().err


def test_impossible_evidence():
    text = DOG.replace("0.15, 0.85", "0, 1")
    with pytest.raises(dv.DerivableError, match="the evidence is impossible"):
        Network(parse_bif(text)).posteriors({"fo": "true"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BAYES 2 2 2 2 1 0 2 0 1  2 .5 .5  4 .2 .8 .6 .6", "table 1, of variable 1, is no distribution.* up to 1.2"),
        ("BAYES 2 2 2 2 1 0 2 0 1  2 .5 .7  4 .2 .8 .4 .6", "table 0, of variable 0, is no distribution.* up to 1.2"),
        ("BAYES 2 2 2 2 1 0 2 1 0  2 .5 .5  4 .2 .8 .4 .6", "not each variable once"),
        ("BAYES 2 2 2 2 2 1 0 2 0 1  4 .5 .5 .5 .5  4 .2 .8 .4 .6", "variable 0 depends on itself"),
        ("BAYES 1 2 2 1 0 0  2 .5 .5  1 .5", "table 1 is no distribution"),
    ],
)
def test_tables_of_uai_that_are_no_distributions(text, message):
    with pytest.warns(dv.DerivableWarning, match=message):
        network = Network(parse_uai(text))
    # It means the product of its tables, as a Markov random field does.
    assert not network.tables.is_bayesian
    check(network, {})
    with pytest.raises(DomainError, match="no choices"):
        network.program()


def test_names_of_any_text_are_names_in_the_program():
    name, states = 'a "b"\\ \n\r\t\0', ("x\ny", "\\n")
    network = Network(NetworkTables((name,), (states,), (((0,), np.array([0.25, 0.75])),)))
    rows = dv.Program(network.program()).run()["value"]
    shown = dict(zip(zip(*(column.tolist() for column in rows.columns)), rows.tags.tolist()))
    assert shown == pytest.approx({(name, states[0]): 0.25, (name, states[1]): 0.75})


@pytest.mark.parametrize("limit", [0, -1, 2.5, "2 GB", True])
def test_limits_of_memory_of_tables_are_numbers_of_bytes(limit):
    with pytest.raises(DomainError, match="memory_limit is"):
        dv.circuit.from_factors([((0,), [0.5, 0.5])], [2], memory_limit=limit)


@pytest.mark.parametrize("option", ["-F folder", "-o folder", "-p exact", "--seed 3", "--time-limit 2", "--samples 3"])
def test_options_that_say_nothing_of_a_network_are_refused(option, tmp_path, capsys):
    path = tmp_path / "dog.bif"
    path.write_text(DOG)
    assert main(["run", str(path), *option.split()]) == 1
    assert "is not for a network" in capsys.readouterr().err
    assert main(["run", str(path), "-q", "fo", "-e", "dog-out=<5", "--json"]) == 0
