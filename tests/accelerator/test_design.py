"""Designs: from Python, in files, and from the command line."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import derivable as dv
from derivable.accelerator.designs import deployment
from derivable.accelerator.designs.deployment import cycles_of_nodes
from derivable.accelerator.designs.designs import parse_precision
from derivable.accelerator.designs.node_rows import node_rows
from derivable.accelerator.explore import dataflow, schedule
from derivable.accelerator.hardware import verilator
from derivable.accelerator.hardware.resources import generated
from derivable.accelerator.hardware.simulation import OffChip
from derivable.accelerator.lower import cycles
from derivable.accelerator.lower.emission import Emitter
from derivable.accelerator.machine import machine
from derivable.accelerator.machine.instructions import Gemm, Machine, Move, Transfer, Vector
from derivable.accelerator.numbers.quantisation import calibrate
from derivable.accelerator.operators import operators, runtime
from derivable.accelerator.trace.trace import flat_inputs
from reasoning.superposition import mimonet

from .networks import MLP, resnet18

STAGES = ("summary", "operators", "dataflow", "exploration", "memory", "resources", "nodes", "program")


@pytest.fixture(scope="module")
def panels():
    return torch.rand(1, 2, 1, 80, 80, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def made(panels):
    torch.manual_seed(0)
    return dv.accelerator.design(mimonet(blocks=2, length=8).eval(), panels, pes=256)


def test_a_design_is_one_that_holds_together(made, panels):
    assert made.height * made.width * made.sub_arrays <= 256
    assert made.sub_arrays <= 16
    assert sum(made.partition) in (made.sub_arrays, 2 * made.sub_arrays)
    assert made.cycles <= made.latency
    operators.check(made.graph)
    dataflow.check(made.flow, made.graph)
    schedule.check(made.exploration.schedule, made.exploration.costs)
    assert set(made.placed) == {node.name for node in made.flow if node.on_array}
    assert made.precision == {"neural": "int8", "symbolic": "int4"}
    assert made.seconds == made.cycles / 272e6
    # In the time of a pass among others, every sub-array works at most all the time.
    area = sum((place.end - place.start) * place.sub_arrays for place in made.placed.values())
    assert area <= made.cycles * made.sub_arrays
    assert all(part <= 1 for part in made.resources.shares(made.device).values())


def test_the_same_model_gives_the_same_design(panels, made):
    torch.manual_seed(0)
    again = dv.accelerator.design(mimonet(blocks=2, length=8).eval(), panels, 256, "u250", "int8/int4")
    assert again == made
    assert (again.exploration, again.memories, again.flow) == (made.exploration, made.memories, made.flow)


def test_more_elements_are_never_slower():
    cycles = [dv.accelerator.design(MLP((16, 64, 64, 4)), torch.rand(8, 16), pes=pes).cycles for pes in (64, 256, 1024)]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[-1] < cycles[0]


def test_small_formats_take_fewer_cycles_and_bytes():
    def at(precision):
        return dv.accelerator.design(MLP((64, 64, 4)), torch.rand(64, 64), pes=64, precision=precision)

    eight, four = at("int8"), at("int4")
    assert four.cycles < eight.cycles
    assert four.memories.a1.bytes * 2 == eight.memories.a1.bytes
    assert at({"neural": "int8", "symbolic": "fp16"}).cycles == eight.cycles


def test_resnet18():
    made = dv.accelerator.design(resnet18(width=8).eval(), torch.rand(1, 3, 64, 64), pes=512)
    assert made.exploration.mode == "sequential"
    assert len(made.flow.layers) == 21
    assert made.flow.vectors == ()
    # What every layer multiplies, by counting, does not take less than what all elements can do.
    macs = sum(node.work.macs for node in made.flow.layers)
    assert macs / 512 <= made.cycles


class Both(nn.Module):
    """Two layers, and two bindings that do not depend on them."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)
        self.register_buffer("keys", torch.softmax(torch.randn(16, 2, 32), -1))

    def forward(self, x, v):
        return self.two(self.one(x).relu()), dv.vsa.bind(dv.vsa.bind(v, self.keys), self.keys)


def test_the_program_gives_each_node_the_sub_arrays_of_the_schedule():
    torch.manual_seed(0)
    inputs = torch.randn(1, 8, 16, 16), torch.softmax(torch.randn(16, 2, 32), -1)
    made = dv.accelerator.design(Both(), inputs, pes=512, heights=[8], widths=[8], precision="int8")
    assert made.exploration.mode == "parallel"
    # Not one partition: what finds nothing beside it any more takes all.
    assert {name: place.sub_arrays for name, place in made.placed.items()} == {
        "conv2d_1": 6,
        "conv2d_2": 8,
        "bind_1": 2,
        "bind_2": 2,
    }
    lowered = made.lowered
    for one in lowered.program:
        if one.unit in ("nn", "vsa"):
            assert one.arrays == made.placed[one.node].sub_arrays
    nodes = {node.name: node for node in cycles.nodes(lowered) if node.unit}
    for name, place in made.placed.items():
        # As modelled, but for constants and, of layers, rows in pieces.
        assert nodes[name].equation == place.end - place.start
        assert nodes[name].busy[nodes[name].unit] <= 1.15 * nodes[name].equation
    begin, end = machine.timing(lowered.machine, lowered.program)
    spans = {
        name: [
            (begin[at], end[at])
            for at, one in enumerate(lowered.program)
            if one.node == name and one.unit in ("nn", "vsa")
        ]
        for name in nodes
    }

    def are_beside(layer, vectors):
        return any(a < d and c < b for a, b in spans[layer] for c, d in spans[vectors])

    assert are_beside("conv2d_1", "bind_1")
    assert not are_beside("conv2d_2", "bind_2")


def test_rows_of_nodes(made):
    rows = {row.node: row for row in node_rows(made)}
    assert list(rows) == [node.name for node in made.flow]
    for name, row in rows.items():
        place = made.placed.get(name)
        assert (row.start, row.end) == ((place.start, place.end) if place else (None, None))
        assert row.utilisation is None or 0 < row.utilisation <= 1


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_text(made, stage):
    assert len(made.explain(stage).splitlines()) > 2
    if stage == "nodes":
        assert len(made.explain(stage).splitlines()) == 1 + len(made.flow)


def test_saved_and_loaded(made, tmp_path):
    made.save(tmp_path / "new" / "design")
    loaded = dv.accelerator.load(tmp_path / "new" / "design")
    assert dv.accelerator.load(tmp_path / "new" / "design" / "design.yaml") == loaded
    for name in ("flow", "exploration", "memories", "lanes", "device", "precision"):
        assert getattr(loaded, name) == getattr(made, name)
    assert loaded.graph.operators == made.graph.operators
    for name, array in made.graph.constants.items():
        found = loaded.graph.constants[name]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    for kind in ("scales", "zeros", "biases", "ranges"):
        one, other = getattr(loaded.quantised, kind), getattr(made.quantised, kind)
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)
    loaded.save(tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "new" / "design").iterdir())
    assert len(files) == 2
    for name in files:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "new" / "design" / name).read_bytes()
    assert [loaded.explain(stage) for stage in STAGES] == [made.explain(stage) for stage in STAGES]


def test_a_new_design_takes_the_place_of_an_old_one(made, tmp_path):
    made.save(tmp_path)
    other = dv.accelerator.design(MLP(), torch.rand(2, 5), pes=64)
    other.save(tmp_path)
    assert dv.accelerator.load(tmp_path).flow == other.flow
    assert len(list(tmp_path.glob("constants-*"))) == 1


def test_the_file_is_yaml_that_others_read(made, tmp_path):
    small = dv.accelerator.design(lambda x: (x @ torch.ones(3, 2)).clamp(1e-6, 3e22).sum(-1), torch.rand(4, 3), pes=16)
    small.save(tmp_path)
    content = yaml.safe_load((tmp_path / "design.yaml").read_text())
    (clamp,) = [item for item in content["operators"] if item["kind"] == "clamp"]
    assert (clamp["attributes"]["low"], clamp["attributes"]["high"]) == (1e-6, 3e22)
    assert content["array"] == {"height": small.height, "width": small.width, "sub_arrays": small.sub_arrays}
    assert dv.accelerator.load(tmp_path).graph.operators == small.graph.operators


@pytest.fixture
def saved(made, tmp_path):
    made.save(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "by", "message"),
    [
        (r"^format: .*", "format: 2", "the format is 2"),
        (r"^format: .*", "format: [", "this is no YAML"),
        (r"^mode: .*\n", "", "`mode` is missing"),
        (r"^lanes: .*", "lanes: many", "`lanes` is 'many'"),
        (r"^cycles: .*", "cycles: 3", "`cycles` is 3"),
        (r'"sub_arrays": \d+}$', '"sub_arrays": 1}', "not valid|schedule"),
        (r'"kind": "relu"', '"kind": "rely"', "(?s)no kind of operator 'rely'.*relu"),
        (r'"shape": \[1, 2, 1, 80, 80\]', '"shape": [1, 2]', "not valid"),
        (r'"sha256": "..', '"sha256": "zz', "not the constants of the design"),
        (r'"file": "constants', '"file": "other', "cannot read the constants"),
        (r'"dsp": \d+, ', "", "`device` misses `dsp`"),
        (r'"neural": "int8"', '"neural": "int9"', "(?s)'int9'.*int8"),
        (r'"lut": \d+', '"lut": "many"', "`device.lut` is 'many'"),
        (r'"clock": [\d.e+]+', '"clock": -1.0', "`device.clock` is -1.0, expected a positive number"),
        (r'"height": \d+', '"height": 0', "`array.height` is 0, expected 1 or more"),
        (r'"bytes": \d+', '"bytes": -1', "`memories.a1.bytes` is -1"),
        (r"^mapping: .*", "mapping: sideways", "`mapping` is 'sideways', expected temporal or spatial"),
        (r'"mapping": "\w+"', '"mapping": 3', r"`exploration.sequential.mapping` is 3"),
        (r"^  tuned: .*", "  tuned: -1", "`exploration.tuned` is -1, expected 1 or more"),
        (r"^  tiles: .*", "  tiles: [0]", r"`memories.tiles` is \[0\], expected a positive number for each"),
        (r'"height": \d+', '"height": 100000000000000000000', "`array.height` is 1.*, expected 64 or less"),
        (r"^lanes: .*", "lanes: 4096", "`lanes` is 4096, expected 128 or less"),
        (r"^outputs: .*", "outputs: []", "the graph has no output"),
        (r"^outputs: .*", "outputs: [[]]", "not valid: TypeError"),
        (r'"attributes": {"shape": \[', '"attributes": {"shape": 3, "and": [', "not valid"),
        (r'"work": "', '"work": "other', r"(?s)`schedule\[0\].work` is 'other.*, and the design has '"),
        (r"^pes:", "sep: 3\npes:", "`sep` is nothing that a design has"),
    ],
)
def test_damaged_files(saved, pattern, by, message):
    path = saved / "design.yaml"
    text = path.read_text()
    changed = re.sub(pattern, by, text, count=1, flags=re.M)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(dv.DerivableError, match=message) as caught:
        dv.accelerator.load(saved)
    assert str(caught.value.source).startswith(str(saved))


def test_missing_files(saved, tmp_path):
    with pytest.raises(dv.DerivableError, match="cannot read the design"):
        dv.accelerator.load(tmp_path / "nowhere")
    for path in saved.glob("constants-*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(dv.DerivableError, match="not the constants"):
        dv.accelerator.load(saved)


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(dv.DerivableError, match=r"(?s)needs torch.*pip install 'derivable\[torch\]'"):
        dv.accelerator.design(len, [1.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pes": 8}, "(?s)pes is 8, expected an integer from 16 on.*at least 16"),
        ({"pes": "many"}, "pes is 'many'"),
        ({"device": "u520"}, "(?s)no device 'u520'.*did you mean 'u250'"),
        ({"precision": "int7"}, "(?s)no precision 'int7'.*did you mean"),
        ({"precision": "int8/int4/int4"}, "precision is 'int8/int4/int4'"),
        ({"precision": {"neural": "int8"}}, "no format of the symbolic part"),
        ({"precision": {"neuronal": "int8", "symbolic": "int4"}}, "(?s)a part 'neuronal'.*did you mean `neural`"),
        ({"precision": 8}, "precision is 8"),
        ({"heights": [12]}, "a height is 12, expected a power of two"),
        ({"heights": [64], "pes": 16}, "no array of the heights"),
        ({"pes": 1 << 20, "device": "zcu104", "heights": [64], "widths": [64]}, "zcu104 has"),
        ({"calibration": []}, "no sample"),
        ({"calibration": 3}, "calibration is 3, expected a list"),
        ({"calibration": torch.rand(2, 5)}, r"(?s)calibration is Tensor.*such as calibration=\[inputs\]"),
        ({"calibration": [torch.rand(3, 5)]}, r"%x is \[3, 5\], expected \[2, 5\]"),
        ({"heights": 8}, r"(?s)heights is 8, expected a list.*such as heights=\[8, 16\]"),
        ({"widths": []}, "(?s)widths has no width to try.*leave widths out"),
        ({"symbolic": "rules"}, r"(?s)symbolic is 'rules', expected paths.*symbolic=\[\"rules\"\]"),
        ({"symbolic": None}, "symbolic is None, expected paths"),
        ({"example_inputs": np.array([["a"] * 5] * 2)}, "an array of <U1, expected real numbers"),
        ({"example_inputs": torch.rand(2, 5).to_sparse()}, "(?s)input is torch.sparse_coo.*give a dense tensor"),
        ({"example_inputs": torch.rand(2, 5, device="meta")}, "input is on the meta device"),
        ({"example_inputs": [[1.0, 2.0]]}, "(?s)without a tensor.*a mapping of names"),
        ({"example_inputs": torch.full((2, 5), float("nan"))}, "%x is not finite"),
    ],
)
def test_arguments(changes, message):
    with pytest.raises(dv.DerivableError, match=message):
        dv.accelerator.design(MLP(), **({"example_inputs": torch.rand(2, 5)} | changes))


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return dv.accelerator.design(MLP(), torch.rand(2, 5), pes=16)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (torch.rand(3, 5), {}, r"(?s)%x is \[3, 5\], expected \[2, 5\].*whole multiples along the first axis"),
        (torch.rand(0, 5), {}, r"%x is \[0, 5\]"),
        ({"y": torch.rand(2, 5)}, {}, r"(?s)inputs \['y'\] are given, the model takes \['x'\].*by its name"),
        ({"x": torch.rand(2, 5), 3: torch.rand(2)}, {}, r"inputs \['3', 'x'\] are given"),
        ([[1.0] * 5] * 2, {}, "(?s)0 inputs are given, the model takes 1.*arrays or tensors for x"),
        (None, {}, "an input is NoneType"),
        (np.full((2, 5), np.nan), {}, r"%x is nan at \[0, 0\], expected finite numbers"),
        (np.array([[0, 0, 0, 0, 0], [0, 0, 0, np.inf, 0]]), {}, r"%x is inf at \[1, 3\]"),
        (torch.rand(2, 5) + 1j, {}, "ndarray of complex64, expected|Tensor of complex64, expected"),
        (np.array([["a"] * 5] * 2), {}, "ndarray of <U1, expected"),
        (torch.rand(2, 5).to_sparse(), {}, "(?s)no dense tensor.*give a dense tensor"),
        (torch.rand(2, 5, device="meta"), {}, "no dense tensor"),
        (torch.rand(2, 5), {"backend": "pithon"}, "(?s)no backend 'pithon'.*did you mean `python`"),
        (torch.rand(2, 5), {"backend": None}, "no backend None"),
        (torch.rand(2, 5), {"off_chip": 3}, "off_chip is 3"),
    ],
)
def test_arguments_of_simulations(small, inputs, options, message):
    with pytest.raises(dv.DerivableError, match=message):
        small.simulate(inputs, **({"backend": "python"} | options))


def test_outputs_are_flat_in_the_order_of_the_model():
    x = torch.rand(2, 3)

    def returned(x):
        y = x @ torch.ones(3, 4)
        return {"z": [y, None, (y[:, :1], {"b": y > 1})], "a": y.sum()}

    run = dv.accelerator.design(returned, x, pes=16, precision="int8").simulate(x, "python")
    assert [(each.shape, each.dtype) for each in run.outputs] == [
        ((2, 4), np.float64),
        ((2, 1), np.float64),
        ((2, 4), np.bool_),
        ((), np.float64),
    ]
    np.testing.assert_array_equal(run.outputs[0][:, :1], run.outputs[1])


@pytest.mark.parametrize("wrong", [{"latency": -1}, {"latency": "a"}, {"interval": 0}, {"latency": 1.5}, {"seed": -1}])
def test_off_chip_memory_has_whole_cycles(wrong):
    with pytest.raises(
        dv.DerivableError, match=rf"the {next(iter(wrong))} of off-chip memory is .*, expected an integer"
    ):
        OffChip(**wrong)


@pytest.mark.parametrize("place", ["a\0b", "x" * 300, 3, None])
def test_places_that_no_file_can_have(small, place):
    with pytest.raises(dv.DerivableError):
        small.save(place)
    with pytest.raises(dv.DerivableError):
        dv.accelerator.load(place)


def test_a_design_is_no_file(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(dv.DerivableError, match=r"(?s)cannot make the folder.*name one that is not there"):
        small.save(tmp_path / "file")
    with pytest.raises(dv.DerivableError, match="cannot read the design"):
        dv.accelerator.load(tmp_path / "file")


def test_numbers_without_end_are_told_with_their_line():
    mask = torch.full((4, 4), float("-inf")).triu(1)
    with pytest.raises(
        dv.DerivableError,
        match=r"(?s)test_design.py:\d+: error: %\w+ is not finite on the samples.*-1000 in the place of -inf",
    ):
        dv.accelerator.design(lambda x: (x @ x.T + mask).exp().log() @ x, torch.rand(4, 4), pes=64)
    # Below a softmax a mask is one, however large.
    x = torch.rand(4, 4)
    made = dv.accelerator.design(lambda x: (x @ x.T + mask).softmax(-1) @ x, x, pes=64, precision="int8")
    (found,) = made.simulate(x, backend="python").outputs
    assert np.abs(found - ((x @ x.T + mask).softmax(-1) @ x).numpy()).max() < 0.03


def test_precision_has_many_forms():
    assert parse_precision("int8") == {"neural": "int8", "symbolic": "int8"}
    assert parse_precision("fp16/int4") == {"neural": "fp16", "symbolic": "int4"}


def test_a_design_on_one_line(made):
    assert re.fullmatch(r"<Design \d+ x \d+ x \d+, \w+ \d+ : \d+, \w+/\w+ on u250, \d+ cycles per pass>", repr(made))


def test_stages_have_names(made):
    with pytest.raises(dv.DerivableError, match=r"(?s)no stage 'memry'.*did you mean `memory`"):
        made.explain("memry")
    with pytest.raises(dv.DerivableError, match=r"no stage \['memory'\]"):
        made.explain(["memory"])


def test_calibration_is_what_the_scales_come_from():
    model, x = MLP(), torch.rand(4, 5)
    large = dv.accelerator.design(model, x, pes=16, calibration=[10 * x, 5 * x])
    expected = calibrate(large.graph, [flat_inputs(model, 10 * x), flat_inputs(model, 5 * x)], large.precision)
    for place, scale in expected.scales.items():
        np.testing.assert_array_equal(large.quantised.scales[place], scale)
    small = dv.accelerator.design(model, x, pes=16)
    assert small.quantised.scales["linear_1", 0] < large.quantised.scales["linear_1", 0]


# On the generated hardware


@pytest.fixture(scope="module")
def eight(panels):
    torch.manual_seed(0)
    model = mimonet(blocks=2, length=8).eval()
    return model, dv.accelerator.design(model, panels, pes=256, precision="int8")


def test_the_hardware_gives_what_the_model_gives(eight, panels, tmp_path):
    model, made = eight
    found = made.simulate(panels, backend="python")
    with torch.no_grad():
        expected = model(panels).numpy()
    assert found.outputs[0].shape == expected.shape
    assert np.abs(found.outputs[0] - expected).max() < 0.02 * np.abs(expected).max()
    assert found.cycles == found.modelled > 0
    machine = made.lowered.machine
    assert (machine.height, machine.width, machine.sub_arrays) == (made.height, made.width, made.sub_arrays)
    assert machine.lanes >= made.lanes
    # Inputs of other forms, and a design that was saved, are the same to the bit.
    made.save(tmp_path)
    again = dv.accelerator.load(tmp_path)
    for one, inputs in ((made, [panels.numpy()]), (made, {"panels": panels.double()}), (again, panels)):
        other = one.simulate(inputs, backend="python")
        assert other.cycles == found.cycles
        np.testing.assert_array_equal(other.outputs[0], found.outputs[0])


def test_the_stage_of_the_program(eight, panels):
    _, made = eight
    head, *lines = made.explain("program").splitlines()
    cycles = made.simulate(panels, backend="python").cycles
    assert str(made.lowered.machine) in head
    assert int(re.search(r"latency ([\d,]+) cycles", head)[1].replace(",", "")) == pytest.approx(
        cycles, rel=0.05
    )  # off-chip memory is another
    assert len(lines) > len(made.placed)


def test_every_node_of_the_array_is_in_the_simulation(eight, panels):
    _, made = eight
    cycles = cycles_of_nodes(made, made.simulate(panels, backend="python"))
    assert set(made.placed) <= set(cycles) <= set(made.flow.by_name)
    # A unit is never quicker than the equations on all sub-arrays, but for what is done as a layer.
    (bound, unbound) = made.flow.vectors
    assert {bound.name} == {made.flow.lowered_in(name) for name in made.lowered.as_layers}
    for node in (unbound,):
        assert cycles[node.name] >= runtime.temporal_cycles(node.work, made.height, made.width, made.sub_arrays)


def test_formats_of_the_parts_reach_the_hardware(made, eight, panels):
    model, whole = eight
    with torch.no_grad():
        expected = model(panels).numpy()
    mixed, alike = (one.simulate(panels, backend="python") for one in (made, whole))
    errors = [np.abs(found.outputs[0] - expected).max() for found in (mixed, alike)]
    assert errors[1] < errors[0] < 0.3 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
def test_generated_hardware_is_bit_exact(eight, panels):
    _, made = eight
    found, expected = (made.simulate(panels, backend=backend) for backend in ("verilator", "python"))
    np.testing.assert_array_equal(found.outputs[0], expected.outputs[0])
    assert abs(found.cycles / found.modelled - 1) <= 0.05


def test_what_no_hardware_is_generated_for(panels):
    x = torch.rand(4, 5)
    half = dv.accelerator.design(MLP(), x, pes=16, precision="fp16")
    with pytest.raises(dv.DerivableError, match=r"(?s)no fp16, which is the format of the neural part.*int8"):
        half.simulate(x, backend="python")
    weights = torch.rand(2, 1, 1, 1)
    pair = (torch.rand(1, 1, 3, 3), weights)
    with pytest.raises(dv.DerivableError, match=r"%conv2d_1: its weights are computed"):
        dv.accelerator.design(lambda x, w: torch.nn.functional.conv2d(x, w), pair, pes=16, precision="int8")
    assert half.pass_cycles() is None
    assert "no hardware is generated" in str(half)
    whole = dv.accelerator.design(MLP(), x, pes=16, precision="int8")
    for inputs, message in (
        (torch.rand(3, 5), r"is \[3, 5\], expected \[4, 5\]"),
        ({"y": x}, "the model takes"),
        ("text", "an input is str"),
    ):
        with pytest.raises(dv.DerivableError, match=message):
            whole.simulate(inputs, backend="python")
    with pytest.raises(dv.DerivableError, match="did you mean `python`"):
        whole.simulate(x, backend="pyton")
    cycles = whole.simulate(x, backend="python").cycles
    assert whole.pass_cycles() == cycles
    assert f"whole pass  {cycles:,} cycles" in str(whole)


def test_hardware_has_no_more_memory_than_its_program_touches():
    large = Machine(8, 8, 2, lanes=8, line=32, a=65536, b=4096, c=32768, x=1 << 22)
    listed = [
        Transfer(operation="load", x=0, far=0, lines=6000),
        Move(operation="A", banks=2, n3=1500, x3=8, to=600, to3=1, valid=8),
        Move(operation="B", banks=2, n3=10, x3=8, to3=1, valid=8),
        Gemm(arrays=2, tiles=1, columns=1, n2=10, b2=1),
        Vector(operation="first", a_from="C", a_type="i32", a=9000, y=0),
    ]

    def smallest():
        emitter = Emitter(large)
        for instruction in listed:
            emitter.add(instruction)
        return deployment._smallest(large, emitter.reach, len(listed) + 1)

    found = smallest()
    # K may lead a product to any word of B, where the program does not say how far.
    assert (found.a, found.b, found.c, found.x) == (2560, 4096, 10240, 3 * 65536)
    assert found == replace(large, a=2560, c=10240, x=3 * 65536, program=8)
    listed[3] = replace(listed[3], reach=10)
    assert smallest().b == 1024


def test_resources_of_what_is_generated_are_told_where_they_do_not_fit(eight):
    _, made = eight
    found = made.generated_resources
    assert found == generated(made.lowered.machine)
    assert found.uram == 0
    assert found.bram > made.resources.bram
    shares = found.shares(made.device)
    assert f"as generated {max(shares.values()):.1%} of the " in str(made)
    assert "does not fit" not in str(made)
    assert found.table(made.device) in made.explain("resources")
    small = replace(made, device=replace(made.device, bram=found.bram - 1))
    assert "of the BRAM, which it does not fit" in str(small)
    floats = dv.accelerator.design(MLP((4, 4)), torch.rand(2, 4), pes=64, precision="fp16")
    assert floats.generated_resources is None
    assert "generated" not in floats.explain("resources")
