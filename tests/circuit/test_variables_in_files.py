"""Files keep the number of variables, free ones too, and are in the order that other readers rely on."""

import itertools

import numpy as np
import pytest

from circuit.random_circuits import assert_same_structure
from derivable.circuit import compile, load
from derivable.circuit.files.nnf_file import parse_nnf, write_nnf
from derivable.circuit.files.sdd_file import write_sdd
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.cli.main import main
from derivable.core.diagnostics import ParseError

# Clauses and the number of variables, of which the last, a middle one, all or none are free.
FORMULAS = [
    ([[1, 2], [-2, 3]], 9),
    ([[1, 2], [-2, 3]], 3),
    ([[1, 4], [-4, 2]], 4),
    ([[2], [-3, 4]], 6),
    ([[3]], 5),
    ([[-1]], 1),
    ([], 4),
    ([[1], [-1]], 3),
    ([[1, 2, 3], [-1, -2], [3, 5], [-5, 6, 7], [6, -7]], 12),
]
WRITERS = {
    "d4": lambda circuit, path: write_nnf(circuit, path, "d4"),
    "c2d": lambda circuit, path: write_nnf(circuit, path, "c2d"),
    "sdd": write_sdd,
    "dvc": lambda circuit, path: circuit.save(path),
}
ENDINGS = {"d4": "nnf", "c2d": "nnf", "sdd": "sdd", "dvc": "dvc"}


def models(clauses, num_variables):
    """By enumeration, which no code of ours takes part in."""
    worlds = itertools.product((False, True), repeat=num_variables)
    return sum(all(any(world[abs(x) - 1] == (x > 0) for x in clause) for clause in clauses) for world in worlds)


def d4_words(path):
    return [line.split() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("compiler", ["sdd", "d4"])
@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize(("clauses", "num_variables"), FORMULAS)
def test_every_format_keeps_the_number_of_variables(clauses, num_variables, form, compiler, tmp_path):
    if compiler == "d4":
        pytest.importorskip("py_d4")
    circuit = compile(clauses, compiler, num_variables=num_variables)
    path = tmp_path / f"c.{ENDINGS[form]}"
    WRITERS[form](circuit, path)
    back = load(path)
    assert back.num_variables == num_variables
    assert back.model_count() == models(clauses, num_variables)
    if form != "sdd":
        assert_same_structure(back, circuit)
    # And from there into every other format.
    for other, write in WRITERS.items():
        again = tmp_path / f"again.{ENDINGS[other]}"
        write(back, again)
        assert (load(again).num_variables, load(again).model_count()) == (num_variables, circuit.model_count())


def test_counts_of_written_files_are_those_of_ganak(tmp_path):
    pyganak = pytest.importorskip("pyganak")
    rng = np.random.default_rng(5)
    for number in range(6):
        clauses = [[int(v) * int(rng.choice([-1, 1])) for v in rng.choice(20, 3, replace=False) + 1] for _ in range(25)]
        counter = pyganak.Counter()
        for clause in clauses:
            counter.add_clause(clause)
        expected = int(counter.count()) << (30 - max(abs(x) for clause in clauses for x in clause))
        write_nnf(compile(clauses, num_variables=30), path := tmp_path / f"{number}.nnf")
        assert load(path).model_count() == expected


def test_the_commands_keep_free_variables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.cnf").write_text("p cnf 9 2\n1 2 0\n-2 3 0\n")
    for ending in ("nnf", "sdd", "dvc"):
        for compiler in ("sdd", "d4"):
            assert main(["compile", "one.cnf", "-o", f"x.{ending}", "--compiler", compiler]) == 0
            capsys.readouterr()
            assert main(["count", f"x.{ending}"]) == 0
            assert capsys.readouterr().out.startswith("models: 256\nvariables: 9\n")


@pytest.mark.parametrize(("clauses", "num_variables"), FORMULAS)
def test_the_order_of_lines_is_that_of_d4(clauses, num_variables, tmp_path):
    """What klaycircuits' reader needs: ids count the declarations, which stand before their use; the root is node 1;
    a node that is used is complete, so its edges come before those that lead to it."""
    circuit = compile(clauses, num_variables=num_variables)
    write_nnf(circuit, path := tmp_path / "c.nnf")
    declared, used = 0, set()
    for word, *numbers in d4_words(path):
        if word in "oatf":
            declared += 1
            assert numbers == [str(declared), "0"]
            continue
        source, target = int(word), int(numbers[0])
        assert max(source, target) <= declared
        assert source not in used
        assert numbers[-1] == "0"
        used.add(target)
    assert used == set(range(2, declared + 1))


@pytest.mark.parametrize(("clauses", "num_variables"), FORMULAS)
def test_a_d4_file_that_is_cut_is_no_other_circuit(clauses, num_variables, tmp_path):
    circuit = compile(clauses, num_variables=num_variables)
    write_nnf(circuit, path := tmp_path / "c.nnf")
    content = path.read_bytes()
    assert_same_structure(parse_nnf(content[:-1]), circuit)
    for length in range(len(content) - 1):
        with pytest.raises(ParseError):
            parse_nnf(content[:length])


def test_a_file_of_d4_that_is_cut_is_no_other_circuit():
    py_d4 = pytest.importorskip("py_d4")
    lines = py_d4.Solver([[1, 2], [3, 4], [-1, -3, 5]], 5).compile().getNNFString().splitlines(True)
    lines = [line for line in lines if line.strip() and not line.startswith("c")]
    parse_nnf("".join(lines).encode())
    for count in range(len(lines)):
        with pytest.raises(ParseError):
            parse_nnf("".join(lines[:count]).encode())


@pytest.mark.parametrize("letter", ["o", "a"])
def test_an_inner_node_without_edges_is_refused(letter):
    for text in (f"{letter} 1 0\n", f"o 1 0\n{letter} 2 0\nt 3 0\n1 2 1 0\n1 3 -1 0\n"):
        with pytest.raises(ParseError, match=r"node [12] has no edges"):
            parse_nnf(text.encode())
    with pytest.raises(ParseError, match="no edge leads to node 3, and the root is node 1"):
        parse_nnf(f"o 1 0\nt 2 0\n{letter} 3 0\n3 2 4 0\n1 2 1 0\n".encode())


def test_constants_that_no_edge_leads_to_are_no_roots():
    root = parse_nnf(b"t 3 0\nf 4 0\no 1 0\n1 3 -2 0\n")
    assert root.literal.tolist() == [-2]
    assert parse_nnf(b"f 1 0\nt 2 0\n").model_count() == 0


def test_a_vtree_of_fewer_variables_loses_none(tmp_path):
    """The vtree of an SDD that was read with more variables than it has leaves."""
    b = CircuitBuilder()
    write_sdd(b.build([b.conjunction([b.literal(1), b.literal(-2)])]), tmp_path / "two.sdd")
    circuit = load(tmp_path / "two.sdd", num_variables=7)
    assert circuit.model_count() == 32
    write_sdd(circuit, tmp_path / "again.sdd")
    assert load(tmp_path / "again.sdd").model_count() == 32
