"""Programs, facts, memories, designs and texts of tensors that are cut or changed: an error of ours, or a result.

Circuits are in `test_damaged_circuits`.
"""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.accelerator.designs.samples import read_named
from derivable.accelerator.hardware.resources import read_device
from robust.damage import changes, cuts, outcome
from robust.lines import line_changes, line_cuts, rewritten

pytestmark = pytest.mark.filterwarnings("ignore::derivable.core.diagnostics.DerivableWarning")
FACTS = "type r(a: i32, b: String, c: f64, d: bool)\nrel s(a, c) = r(a, _, c, true)\nquery s"
ROWS = {(1, 'a "b"', 0.5, True): 0.25, (-2, "c,;d", 1e300, False): 1.0, (3, "ü", -0.0, True): 0.5}
PROGRAM = b"""// A program with most of the language.
import "other.scl"
type Tree = Leaf() | Node(i32, Tree, Tree)
type edge(x: i32, y: i32), name(x: i32, n: String), distance(x: i32, min d: i32)
const ROOT = 0, TREE = Node(1, Leaf(), Leaf())
rel edge = {(0, 1), 0.5::(1, 2), (2, 0)}
rel edge = {0.25::(3, 4); 0.5::(4, 5)}
rel 0.25::name(1, "a\\tb")
rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y) and not edge(y, x))
rel distance(ROOT, 0)
rel distance(y, d + 1) = distance(x, d), edge(x, y), d < 9
rel count_of(x, n) = n := count(y: path(x, y) where x: edge(x, _))
rel best(x) = x := argmax[n](x: count_of(x, n))
rel size(n as f64 / 2.0) = n := sum(x: edge(x, _)), case t is Node(n, _, _)
rel text($string_concat(n, "!")) = name(_, n), n != "b", $string_length(n) > 2
@demand("bf") rel reach(bound x: i32, y) = path(x, y)
query path(0, x)
query distance
"""
TENSOR = (
    "let t = sum(<i, a> in A) { i -> a * 2.5 } in sum(<i, r> in B) { i -> sum(<j, v> in r)"
    " if (j < 3 & v != 0) then v * t(j) + maximum(v, log(C(i, j))) }"
)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """Ending -> the content of a file of facts."""
    from derivable.datalog.api.fact_output import write_facts

    folder = tmp_path_factory.mktemp("facts")
    rows = {row: tag for row, tag in ROWS.items() if "," not in row[1]}
    view = dv.Program("type r(a: i32, b: String, c: f64, d: bool)\nquery r").run({"r": rows})["r"]
    content = {}
    for ending in (".csv", ".parquet", ".arrow", ".feather"):
        write_facts(view, folder / f"r{ending}")
        content[ending] = (folder / f"r{ending}").read_bytes()
    content[".tsv"] = content[".facts"] = content[".txt"] = b"1\ta b\t0.5\ttrue\n-2\tc\t1e300\tfalse\n"
    content[".csv.gz"] = gzip.compress(content[".csv"], mtime=0)
    return content


def run_on(path: Path):
    return len(dv.Program(FACTS).run({"r": path}, tuple_limit=10_000, memory_limit="1 GB", time_limit=20)["s"])


ENDINGS = [".csv", ".tsv", ".facts", ".txt", ".csv.gz", ".parquet", ".arrow", ".feather"]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv"])
def test_facts_that_are_cut(facts, tmp_path, ending):
    for cut in cuts(facts[ending]):
        outcome(run_on, tmp_path / f"r{ending}", cut)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("seed", range(2))
def test_facts_that_are_changed(facts, tmp_path, ending, seed):
    if seed == 0:
        for cut in cuts(facts[ending]):
            outcome(run_on, tmp_path / f"r{ending}", cut)
    lines = [*line_changes(facts[ending], 500, seed), *rewritten(facts[ending])]
    for changed in (*changes(facts[ending], 1000, seed), *lines):
        outcome(run_on, tmp_path / f"r{ending}", changed)


def read_program(path: Path):
    program = dv.Program.from_file(path)
    for stage in ("syntax", "types", "ram"):
        program.explain(stage)
    return program


@pytest.fixture
def program_path(tmp_path):
    (tmp_path / "other.scl").write_bytes(b"rel other = {1}")
    return tmp_path / "p.scl"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_programs_that_are_cut_or_changed(program_path, seed):
    if seed == 0:
        for cut in cuts(PROGRAM):
            outcome(read_program, program_path, cut)
    for changed in (*changes(PROGRAM, 600, seed), *line_changes(PROGRAM, 300, seed)):
        outcome(read_program, program_path, changed)


def test_a_program_of_the_whole_language_is_a_program_but_for_one_rule(program_path):
    """What is changed is near to what is right, so that the checks behind the parser are reached."""
    lines = PROGRAM.decode().splitlines(keepends=True)
    program_path.write_text("".join(line for line in lines if "size(" not in line and "reach(" not in line))
    assert read_program(program_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_item_memories_that_are_cut_or_changed(tmp_path, seed):
    dv.vsa.ItemMemory((2, 8), generator=0).add_all(["a", 7, "c"]).save(tmp_path / "memory")
    content = (tmp_path / "memory").read_bytes()
    damaged = cuts(content) if seed == 0 else changes(content, 2000, seed)
    for each in damaged:
        outcome(dv.vsa.ItemMemory.load, tmp_path / "memory", each)


def parsed(path: Path):
    return dv.tensor.parse(path.read_bytes().decode("latin-1"), {"A": 1, "B": 2, "C": 2})


def test_the_text_of_a_tensor_program_is_one(tmp_path):
    assert outcome(parsed, tmp_path / "t", TENSOR.encode()) is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_texts_of_tensor_programs_that_are_cut_or_changed(tmp_path, seed):
    for each in cuts(TENSOR.encode()) if seed == 0 else changes(TENSOR.encode(), 1500, seed):
        outcome(parsed, tmp_path / "t", each)


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    """The files of a design."""
    folder = tmp_path_factory.mktemp("design")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    dv.accelerator.design(model, torch.rand(1, 4), pes=16).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_designs_that_are_cut_or_changed(design, tmp_path, seed):
    for name, content in design.items():
        (tmp_path / name).write_bytes(content)

    def load(path):
        return dv.accelerator.load(tmp_path)

    for name, content in design.items():
        assert outcome(load, tmp_path / name, content) is not None
        step = max(1, len(content) // 150)
        for each in [*cuts(content)][::step] if seed == 0 else changes(content, 150, seed):
            outcome(load, tmp_path / name, each)
        (tmp_path / name).write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_files_of_devices_that_are_cut_or_changed(tmp_path, seed):
    content = (Path(dv.accelerator.__file__).parent / "hardware" / "devices" / "u250.toml").read_bytes()
    for each in cuts(content) if seed == 0 else changes(content, 2000, seed):
        outcome(read_device, tmp_path / "d.toml", each)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_samples_that_are_cut_or_changed(tmp_path, seed):
    np.savez(tmp_path / "s.npz", x=np.arange(6.0), y=np.ones((2, 2), np.int8))
    content = (tmp_path / "s.npz").read_bytes()
    for each in cuts(content) if seed == 0 else changes(content, 2000, seed):
        outcome(lambda path: read_named(str(path)), tmp_path / "s.npz", each)


PROBLOG = b"""% a program
0.3::burglary.
0.5::heads(X); 0.25::tails(X) :- coin(X).
coin(c1). coin(c2).
0.7::calls(X) :- burglary, coin(X).
p(X, Y) :- coin(X), coin(Y), X \\= Y, Z is 3 * 2 + 1, Z > 4.
len([], 0).
len([_|T], N) :- len(T, M), N is M + 1.
evidence(calls(c1), true).
query(burglary).
query(p(_, _)).
query(len([a, b], N)).
"""
SOUFFLE = b""".type List = [h: number, t: List]
.decl edge(x: number, y: number)
.decl path(x: number, y: number) brie
.decl name(x: number, s: symbol)
edge(0, 1). edge(1, 2).
name(1, "a\\"b").
path(x, z) :- path(x, y), edge(y, z), x != 5, !edge(z, x).
path(s + 1, s) :- s = sum x : { edge(x, _) }, s < 100.
.output path
.printsize name
"""
INTERPRETATIONS = b"""{"alarm": true, "calls": [["john"]]}
{"not alarm": true}
["alarm()", "not calls(\\"mary\\")"]
"""
FITTED = 'rel 0.3::burglary()\nrel alarm() = burglary()\nrel 0.5::calls(x) = alarm(), person(x)\nrel person = {"john"}'


def run_program(path: Path):
    return dict(dv.Program.from_file(path).run(tuple_limit=10_000, memory_limit="1 GB", time_limit=20))


def interpretations(path: Path):
    from derivable.cli.fit import _read

    return _read(str(path), dv.Program(FITTED))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("name", "content", "read"),
    [("p.pl", PROBLOG, run_program), ("p.dl", SOUFFLE, run_program), ("i.json", INTERPRETATIONS, interpretations)],
)
def test_other_texts_that_are_cut_or_changed(name, content, read, seed, tmp_path):
    assert outcome(read, tmp_path / name, content)
    damaged = [*line_cuts(content), *rewritten(content)] if seed == 0 else [*line_changes(content, 150, seed)]
    for each in (*damaged, *changes(content, 150, seed)):
        outcome(read, tmp_path / name, each)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_files_of_onnx_that_are_cut_or_changed(tmp_path, seed):
    pytest.importorskip("onnx_ir")
    onnx = pytest.importorskip("onnx")
    from derivable.accelerator.trace.onnx_file import module_of_onnx

    helper, shape, weight = onnx.helper, [1, 1, 4, 4], np.ones((2, 1, 3, 3), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="/a/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [onnx.numpy_helper.from_array(weight, "w")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8).SerializeToString()
    assert outcome(module_of_onnx, tmp_path / "m.onnx", content) is not None
    for each in cuts(content) if seed == 0 else changes(content, 1500, seed):
        outcome(module_of_onnx, tmp_path / "m.onnx", each)
