"""What a format can tell: numbers that are none, references to nothing, bytes behind the end, and parts said twice."""

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.accelerator.designs.samples import read
from derivable.accelerator.hardware.resources import read_device
from derivable.cli.fit import _read
from derivable.core.diagnostics import DerivableError, ParseError
from derivable.tensor.values.matrix_market import parse_matrix_market

NO_NUMBERS = ["1_0", "\u0663", "0x10", "1e"]


@pytest.mark.parametrize("word", [*NO_NUMBERS, "1_0/3", "1/1_0", "1e-400"])
def test_weights_of_formulas(word, tmp_path):
    (tmp_path / "c.cnf").write_text(f"p cnf 2 1\nc p weight 1 {word} 0\n1 2 0\n", encoding="utf-8")
    with pytest.raises(ParseError, match=f"`{word}` is not a weight|too small"):
        dv.circuit.read_dimacs(tmp_path / "c.cnf")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("n.uai", "MARKOV\n1\n2\n1\n1 0\n2\nWORD 0.5\n"),
        ("n.bif", "variable a { type discrete [ 2 ] { y, n }; }\nprobability ( a ) { table WORD, 0.5; }"),
        ("n.xmlbif", "<BIF><NETWORK><VARIABLE><NAME>a</NAME><OUTCOME>y</OUTCOME><OUTCOME>n</OUTCOME></VARIABLE>"
         "<DEFINITION><FOR>a</FOR><TABLE>WORD 0.5</TABLE></DEFINITION></NETWORK></BIF>"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("word", [*NO_NUMBERS, "5_0e-2", "0.\u0665"])
def test_entries_of_networks(name, text, word, tmp_path):
    (tmp_path / name).write_text(text.replace("WORD", "0.5"))
    assert dv.circuit.load_network(tmp_path / name).tables.factors[0][1].tolist() == [0.5, 0.5]
    (tmp_path / name).write_text(text.replace("WORD", word), encoding="utf-8")
    with pytest.raises(ParseError, match="no number"):
        dv.circuit.load_network(tmp_path / name)


@pytest.mark.parametrize(("name", "text"), [
    ("n.bif", ""), ("n.bif", "network x { }\n"), ("n.xmlbif", "<BIF><NETWORK></NETWORK></BIF>"),
])  # fmt: skip
def test_networks_without_variables(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ParseError, match="has no `"):
        dv.circuit.load_network(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "rel 1e-400::a()\nrel b() = not a()\nquery b",
        "rel a(1e-400)\nquery a",
        "".join(f"rel 0.5::a({i})\n" for i in range(300)) + "rel 1e-400::a(7000)\nquery a",
        "rel a = {" + "".join(f"0.5::({i},), " for i in range(300)) + "0.0e3::(301,), 2e-330::(7000,)}\nquery a",
    ],
)
def test_numbers_of_programs_that_would_be_zero(text):
    with pytest.raises(ParseError, match=r"2?1?e-4?3?\d0 is too small for 64 bits"):
        dv.Program(text)
    dv.Program(text.replace("1e-400", "0.0").replace("2e-330", "0.0"))


def test_numbers_of_problog_that_would_be_zero():
    with pytest.raises(ParseError, match="1e-400 is too small"):
        dv.Program.from_problog("1e-400::a.\nb :- \\+ a.\nquery(b).")


@pytest.mark.parametrize(
    ("kind", "entries", "message"),
    [
        ("coordinate integer general", "1 1 1.5", "1.5 is no integer"),
        ("coordinate integer general", "1 1 nan", "nan is no integer"),
        ("coordinate real general", "1 1 1e400", "1e400 is too large"),
        ("coordinate real general", "1 1 5 # x", "`1 1 5 # x` is not"),
        ("coordinate real general", "1 1 1_0", "`1 1 1_0` is not"),
        ("coordinate real skew-symmetric", "1 1 2", "zeros on its diagonal"),
        ("array integer general", "1\n2.5\n3\n4", "2.5 is no integer"),
        ("array real general", "1\ninf\n3\n-1e999", "-1e999 is too large"),
    ],
)
def test_entries_of_matrices(kind, entries, message):
    sizes = "2 2" if kind.startswith("array") else "2 2 1"
    with pytest.raises(ParseError, match=message):
        parse_matrix_market(f"%%MatrixMarket matrix {kind}\n{sizes}\n{entries}\n")


def test_large_integers_of_matrices():
    text = "%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 1 9007199254740993\n"
    with pytest.warns(dv.DerivableWarning, match="9007199254740993 may be rounded"):
        parse_matrix_market(text)


@pytest.mark.parametrize("count", [1, 3000])
@pytest.mark.parametrize("field", ['"a"b"', '"5" pipe"', '"a" b'])
def test_what_stands_behind_a_quoted_field(field, count, tmp_path):
    (tmp_path / "r.csv").write_text('1,"x ""y"""\n' * count + f"2,{field}\n")
    with pytest.raises(ParseError, match="expected after"):
        dv.Program("type r(a: i32, b: String)\nquery r").run({"r": tmp_path / "r.csv"})
    (tmp_path / "r.csv").write_text('1,"x ""y"""\n' * count + '2,5" pipe\n')
    found = dv.Program("type r(a: i32, b: String)\nquery r").run({"r": tmp_path / "r.csv"})["r"]
    assert set(found) == {(1, 'x "y"'), (2, '5" pipe')}


def test_a_parameter_with_another_name(tmp_path):
    (tmp_path / "c.cnf").write_text("p cnf 2 1\nc p weigth 1 0.3 0\n1 2 0\nc p is no parameter\nc pages\n")
    with pytest.warns(dv.DerivableWarning, match="did you mean `weight`") as warned:
        dv.circuit.read_dimacs(tmp_path / "c.cnf")
    assert len(warned) == 1


def test_bytes_behind_an_array(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
    content = (tmp_path / "x.npy").read_bytes()
    assert read(tmp_path / "x.npy", {"x": (1, 3)})["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    for changed in (content + b"\0", content[:-20] + b"\0" + content[-20:]):
        (tmp_path / "x.npy").write_bytes(changed)
        with pytest.raises(DerivableError, match="goes on behind its array"):
            read(tmp_path / "x.npy", {"x": (1, 3)})


def test_numbers_of_an_item_memory_have_a_checksum(tmp_path):
    dv.vsa.ItemMemory((2, 8), generator=0).add_all(["a", 7, "c"]).save(tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    vectors = dv.vsa.ItemMemory.load(tmp_path / "m").vectors
    at = content.index(vectors.numpy().tobytes())
    for bit in range(8):
        (tmp_path / "m").write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        with pytest.raises(ParseError, match="damaged"):
            dv.vsa.ItemMemory.load(tmp_path / "m")


def test_results_of_onnx_that_no_node_makes(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnx_ir")
    from onnx import TensorProto, helper

    from derivable.accelerator.trace.onnx_file import module_of_onnx

    def file(read, output):
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", output)]
        graph = helper.make_graph([helper.make_node("Relu", [read], ["y"], name="r")], "g", values[:1], values[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        return tmp_path / "m.onnx"

    assert module_of_onnx(file("x", "y"))(torch.tensor([[-1.0, 2.0]]))[0].tolist() == [[0, 2]]
    for names, message in ((("z", "y"), "node 'r' reads %z"), (("x", "w"), "an output of the graph reads %w")):
        with pytest.raises(ParseError, match=message):
            module_of_onnx(file(*names))


PROGRAM = dv.Program("rel 0.3::alarm()\nquery alarm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"alarm": true, "alarm": false}]', 'has the key "alarm" twice'),
        ('{"alarm": true}\n{"alarm": true, "alarm": false}', 'line 2: an object has the key "alarm" twice'),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
    ],
)
def test_interpretations(text, message, tmp_path):
    (tmp_path / "i.json").write_text(text)
    with pytest.raises(ParseError, match=message):
        _read(str(tmp_path / "i.json"), PROGRAM)


@pytest.mark.parametrize(("of", "text"), [
    ("IO=json", "[" * 100_000), ("IO=json", '[[{"h": 1, "h": 2, "t": null}]]'), ("IO=file", "[1," * 100_000),
])  # fmt: skip
def test_facts_of_souffle(of, text, tmp_path):
    (tmp_path / "r.facts").write_text(text)
    text = f'.type L = [h: number, t: L]\n.decl r(a: L)\n.input r({of}, filename="r.facts")\n.output r\n'
    with pytest.raises(ParseError, match=r"nested too deep|twice"):
        dv.Program.from_souffle(text).read(tmp_path)


def test_files_of_devices_that_are_nested(tmp_path):
    (tmp_path / "d.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(ParseError, match="this is no TOML"):
        read_device(tmp_path / "d.toml")
