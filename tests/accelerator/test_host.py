"""The generated driver against a stub of XRT whose card is the simulated kernel, end to end; how Vitis packages it."""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as tree
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
import golden_files
from accelerator import card
from accelerator.networks import calibrated
from accelerator.random_programs import SMALL
from derivable.accelerator.hardware import elaboration, host, verilator
from derivable.accelerator.lower.lower import lower, simulate
from derivable.core.diagnostics import DerivableError

needs_verilator = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
STUB = Path(__file__).with_name("xrt_stub")


class Reasoner(nn.Module):
    """A layer on pictures, and a vector that is bound to what it says: all units have work."""

    def __init__(self):
        super().__init__()
        self.picture = nn.Conv2d(1, 4, 3, padding=1)
        self.top = nn.Linear(16, 8)

    def forward(self, x, key):
        seen = nn.functional.max_pool2d(torch.relu(self.picture(x)), 2).flatten(1)
        found = self.top(seen)
        return torch.softmax(found, -1), dv.vsa.bind(found.reshape(-1, 2, 4), key)


def quantised():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Reasoner().eval()
    inputs = torch.randn(2, 1, 4, 4, generator=generator), torch.randn(2, 2, 4, generator=generator)
    return calibrated(model, inputs, {"symbolic": "int4"})[0]


@pytest.fixture(scope="module")
def lowered():
    return lower(quantised(), SMALL)


def compiled(lowered, folder):
    """The folder of a driver that is compiled against the stub, with inputs in `in` and an xclbin."""
    assert host.write(lowered, folder) == folder
    device = card.build(SMALL)
    command = ["g++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{STUB}", "driver.cpp", str(device)]
    command += [f"-Wl,-rpath,{device.parent}", "-pthread", "-o", "driver"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    shutil.copy(folder / "kernel.xml", folder / "small.xclbin")
    (folder / "in").mkdir()
    for name, values in sets(lowered).items():
        values.tofile(folder / "in" / f"{name}.f32")
    return folder


@pytest.fixture(scope="module")
def driver(lowered, tmp_path_factory):
    return compiled(lowered, tmp_path_factory.mktemp("driver"))


def sets(lowered):
    """Three runs with one program, with numbers beyond those of the calibration, by name of input."""
    rng = np.random.default_rng(0)
    return {
        name: 2 * rng.normal(size=(3, *lowered.inputs[name].shape)).astype(np.float32) for name in lowered.graph.inputs
    }


def run(folder, *arguments, options="seed=3 latency=20 late=40 refuse=30 initial=3"):
    environment = {name: value for name, value in os.environ.items() if name != "CARD"}
    if options is not None:
        environment["CARD"] = f"port={card.PORT} {options}"
    command = [folder / "driver", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@needs_verilator
@pytest.mark.parametrize(
    "options", ["seed=3 latency=20 late=40 refuse=30 initial=3", "seed=4 latency=90 order=1 bursts=2 initial=4"]
)
def test_outputs_of_the_driver_are_those_of_the_golden_machine(lowered, driver, tmp_path, options):
    # What earlier runs leave in the memories makes no difference.
    done = run(driver, "small.xclbin", "in", tmp_path / "new" / "out", options=options)
    assert done.returncode == 0, done.stderr
    expected = []
    for time in range(3):
        given = [sets(lowered)[name][time].astype(np.float64) for name in lowered.graph.inputs]
        outputs, golden = simulate(lowered, given)
        expected.append(outputs)
        # Off-chip memory answers at random here, and no sooner than the model has it.
        assert int(done.stdout.splitlines()[time].split()[2]) >= golden.cycles
    for number, name in enumerate(lowered.graph.outputs):
        found = np.fromfile(tmp_path / "new" / "out" / f"{name}.f32", np.float32)
        wanted = np.stack([outputs[number] for outputs in expected]).astype(np.float32)
        np.testing.assert_array_equal(found, wanted.ravel(), err_msg=name)
        assert len(np.unique(wanted)) > 8


@needs_verilator
def test_a_run_of_several_passes(lowered, tmp_path):
    """Each pass has inputs, outputs and formats of its own places; as many runs as it takes."""
    several = lower(quantised(), SMALL, passes=3)
    driver = compiled(several, tmp_path / "driver")
    done = run(driver, "small.xclbin", "in", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    given = [[sets(lowered)[name][time].astype(np.float64) for name in lowered.graph.inputs] for time in range(3)]
    expected = [simulate(lowered, each)[0] for each in given]
    for number, name in enumerate(lowered.graph.outputs):
        found = np.fromfile(tmp_path / "out" / f"{name}.f32", np.float32)
        wanted = np.stack([outputs[number] for outputs in expected]).astype(np.float32)
        np.testing.assert_array_equal(found, wanted.ravel(), err_msg=name)
    for name, values in sets(lowered).items():
        values[:2].tofile(driver / "in" / f"{name}.f32")
    done = run(driver, "small.xclbin", "in", tmp_path / "out")
    assert done.returncode == 1
    assert "has numbers for 2 passes, and a run does 3: give a multiple" in done.stderr


@needs_verilator
def test_what_is_wrong_is_said(lowered, driver, tmp_path):
    name, other = lowered.graph.inputs
    at, (one, two) = Path("small.xclbin"), (lowered.inputs[key].shape for key in (name, other))
    one, two = int(np.prod(one)), int(np.prod(two))

    def inputs(**sizes):
        folder = driver / f"in{len(list(driver.iterdir()))}"
        folder.mkdir()
        for each, values in sizes.items():
            np.broadcast_to(np.float32(0), values).tofile(folder / f"{each}.f32")
        return folder

    (driver / "no.xclbin").write_text("text")
    (driver / "other.xclbin").write_text((driver / "kernel.xml").read_text().replace('name="acc', 'name="other_acc'))
    unknown = inputs(**{name: one, other: two})
    np.full(two, np.nan, np.float32).tofile(unknown / f"{other}.f32")
    cases = {
        "no arguments": run(driver),
        "seconds that are no number": run(driver, at, "in", "out", "1x"),
        "no card": run(driver, at, "in", "out", options=None),
        "no such xclbin": run(driver, "none.xclbin", "in", "out"),
        "a file that is no xclbin": run(driver, "no.xclbin", "in", "out"),
        "an xclbin with another kernel": run(driver, "other.xclbin", "in", "out"),
        "a card with another design": run(driver, at, "in", "out", options="identity=5"),
        "inputs that are missing": run(driver, at, inputs(**{name: one}), "out"),
        "too few numbers": run(driver, at, inputs(**{name: one - 1, other: two}), "out"),
        "other numbers of runs": run(driver, at, inputs(**{name: 2 * one, other: two}), "out"),
        "no number": run(driver, at, unknown, "out"),
        "a folder that cannot be made": run(driver, at, "in", "design.h/out"),
        "a memory that does not answer": run(driver, at, "in", "out", 1, options="silent=1"),
        "a memory that refuses a read": run(driver, at, "in", "out", options="fail_read=3"),
        "a memory that refuses a write": run(driver, at, "in", "out", options="fail_write=1"),
    }
    constants = (driver / "memory.bin").read_bytes()
    (driver / "memory.bin").write_bytes(constants[:-1])
    cases["files of another design"] = run(driver, at, "in", "out")
    (driver / "memory.bin").write_bytes(constants)
    found = ""
    for what, done in cases.items():
        assert done.returncode == (2 if "usage" in done.stderr else 1)
        found += f"# {what}\n{done.stderr}"
    found = re.sub(r"\bin\d+/", "in/", found.replace(f"{driver}/", ""))
    # How long the program is and how large its memory is, is the lowering's to say, and the driver's to repeat.
    words, size = lowered.program.words.size, len(lowered.image)
    for number, what in ((size - 1, "SIZE - 1"), (size, "SIZE"), (words, "WORDS")):
        found = re.sub(rf"\b{number}\b", what, found)
    golden_files.compare("accelerator/driver", found)


def test_a_folder_that_cannot_be_made_is_an_error(lowered, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DerivableError, match="cannot make the folder"):
        host.write(lowered, tmp_path / "file" / "host")


def test_the_kernel_is_described_as_the_top_is(lowered):
    root = tree.fromstring(host.files(lowered)["kernel.xml"])
    ports = {port.get("name"): port for port in root.iter("port")}
    text = elaboration.hardware("kernel").files["kernel.sv"]
    assert set(ports) == {"s_axi_control", "m_axi_memory"}
    assert ports["m_axi_memory"].get("dataWidth") == str(8 * SMALL.line)
    assert ports["s_axi_control"].get("dataWidth") == "32"
    bits = int(re.search(r"\[(\d+):0\]\s+s_axi_control_awaddr", text)[1]) + 1
    assert int(ports["s_axi_control"].get("range"), 16) == 1 << bits
    (argument,) = root.iter("arg")
    assert (argument.get("port"), argument.get("size")) == ("m_axi_memory", "0x8")


def test_registers_are_at_one_address_for_all(lowered):
    """What is written, in the comment and the statement of the hardware, in kernel.xml and in the driver."""
    top = elaboration.hardware("kernel").files
    code = dict(re.findall(r"8'h(\w\w): (\w+)", top["accelerator.sv"]))
    code |= dict(re.findall(r"12'h0(\w\w): .*?(\w+)\}?;", top["kernel.sv"]))
    written = {int(at, 16) for at in re.findall(r"host_address == 8'h(\w\w)", top["accelerator.sv"])}
    there = {int(at, 16) for at in code} | written
    listed = "".join(
        line for line in (top["accelerator.sv"] + top["kernel.sv"]).splitlines(True) if line.startswith("//   0x")
    )
    first = {int(at, 16) for at in re.findall(r"0x(\w\w)\b", listed)}
    assert first <= there
    assert len(re.findall(r"five words|three words", listed)) == 2
    # The words that are not listed follow those that are: five of busy, three of waits.
    assert there - first == {0x28 + 4 * n for n in range(1, 5)} | {0x3C + 4 * n for n in range(1, 3)}
    files = host.files(lowered)
    argument = tree.fromstring(files["kernel.xml"]).find(".//arg")
    assert code[argument.get("offset")[2:]] == "base"
    driver = dict(re.findall(r"(\w+) = 0x(\w\w)\b", files["driver.cpp"].decode()))
    assert code[driver["CYCLES"]] == "host_read_data"
    assert code[driver["PROGRAM_INDEX"]] == "program_index"
    assert int(driver["PROGRAM_WORD"], 16) in written
    assert (code[driver["ERRORS"]], code[driver["IDENTIFICATION"]]) == ("errors", "IDENTITY")


# Commands of Vivado (UG835) that print themselves; another is an error, as is a file that is not there.
VIVADO = """
foreach name {create_project set_property update_compile_order ipx::package_project ipx::remove_user_parameter
              ipx::associate_bus_interfaces ipx::create_xgui_files ipx::update_checksums ipx::check_integrity
              ipx::save_core package_xo close_project} {
  if {[string match ipx::* $name]} {namespace eval ipx {}}
  proc $name args "puts \\"$name \\$args\\""
}
proc add_files {option files} {
  foreach file $files {if {![file isfile $file]} {error "no file $file"}; puts "add [file tail $file]"}
}
proc get_files pattern {return $pattern}
proc current_fileset {} {return sources_1}
proc ipx::current_core {} {return core}
proc ipx::get_user_parameters {option core} {return {H W}}
proc get_property {what of} {return $of}
source host/package.tcl
"""


# yosys has Tcl in it.
TCL = next((command for command in (["tclsh"], ["yosys", "-q", "-c"]) if shutil.which(command[0])), None)


@pytest.mark.skipif(TCL is None, reason="neither tclsh nor yosys is installed")
def test_vivado_is_asked_for_what_is_there(lowered, tmp_path):
    """It is not asked in earnest: the order and the meaning of its commands are not checked here."""
    host.write(lowered, tmp_path / "host")
    made = elaboration.kernel(SMALL)
    elaboration.write(made, tmp_path / "rtl")
    (tmp_path / "vivado.tcl").write_text(VIVADO)
    done = subprocess.run([*(TCL or ()), "vivado.tcl"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    asked = done.stdout.splitlines()
    assert sorted(line[4:] for line in asked if line.startswith("add ")) == sorted(made.files)
    assert f"set_property top {made.top} sources_1" in asked
    text = (tmp_path / "rtl" / "kernel.sv").read_text()
    ports = re.findall(r"(?:input|output)\s+logic\s+(?:\[.*?\])?\s*(\w+)", text)
    for line in asked:
        if line.startswith("ipx::associate_bus_interfaces"):
            options = dict(zip(line.split()[1:-1:2], line.split()[2:-1:2]))
            assert {options["-clock"], options.get("-reset", "ap_clk")} <= set(ports)
            if "-busif" in options:
                signals = {
                    port.removeprefix(f"{options['-busif']}_") for port in ports if port.startswith(options["-busif"])
                }
                # By these Vivado knows the bus; all but those of bursts are of AXI4-Lite, too.
                lite = {f"{way}{what}" for way in ("ar", "aw") for what in ("valid", "ready", "addr")}
                lite |= {f"{way}{what}" for way in "rwb" for what in ("valid", "ready")}
                lite |= {"rdata", "rresp", "wdata", "wstrb", "bresp"}
                bursts = {f"{way}{what}" for way in ("ar", "aw") for what in ("len", "size", "burst")} | {
                    "rlast",
                    "wlast",
                }
                assert signals == (lite | bursts if options["-busif"] == "m_axi_memory" else lite)
    root = tree.fromstring((tmp_path / "host" / "kernel.xml").read_text())
    kernel = root.find("kernel")
    packaged = next(line for line in asked if line.startswith("ipx::package_project")).split()
    properties = dict(line.split()[1:3] for line in asked if line.startswith("set_property") and line.endswith(" core"))
    names = [packaged[packaged.index(option) + 1] for option in ("-vendor", "-library")]
    assert kernel.get("vlnv") == ":".join([*names, properties["name"], properties["version"]])
    exported = asked[-2].split()
    assert exported[exported.index("-kernel_name") + 1] == kernel.get("name")
    assert Path(exported[exported.index("-kernel_xml") + 1]) == tmp_path / "host" / "kernel.xml"
