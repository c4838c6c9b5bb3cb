"""The generated driver against a stub of XRT that drives the simulated device, end to end."""

import os
import re
import subprocess
import xml.etree.ElementTree as tree
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator import formats, host, verilator
from derivable.accelerator.lower import lower, simulate
from derivable.accelerator.simulation import library
from derivable.accelerator.trace import trace
from derivable.core.diagnostics import DerivableError

from .random_programs import SMALL

pytestmark = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
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


@pytest.fixture(scope="module")
def lowered():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Reasoner().eval()
    inputs = torch.randn(2, 1, 4, 4, generator=generator), torch.randn(2, 2, 4, generator=generator)
    graph = formats.prepare(trace(model, inputs))
    ranges = formats.calibrate(graph, [[tensor.double().numpy() for tensor in inputs]])
    return lower(graph, SMALL, formats.assign(graph, ranges), ranges)


@pytest.fixture(scope="module")
def driver(lowered, tmp_path_factory):
    """The folder of a driver that is compiled against the stub."""
    folder = tmp_path_factory.mktemp("driver")
    assert host.write(lowered, folder) == folder
    device = library(SMALL)
    command = ["g++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{STUB}", "driver.cpp", str(device)]
    command += [f"-Wl,-rpath,{device.parent}", "-pthread", "-o", "driver"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder


def run(folder, *arguments):
    environment = os.environ | {"STUB_LINE": str(SMALL.line)}
    command = [folder / "driver", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_outputs_of_the_driver_are_those_of_the_golden_machine(lowered, driver, tmp_path):
    rng = np.random.default_rng(0)
    # Three runs with one program: what earlier ones leave in the memories makes no difference.
    sets = {name: rng.normal(size=(3, *lowered.inputs[name].shape)).astype(np.float32) for name in lowered.graph.inputs}
    for name, values in sets.items():
        values.tofile(tmp_path / f"{name}.f32")
    (tmp_path / "out").mkdir()
    done = run(driver, "small.xclbin", tmp_path, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    expected = []
    for time in range(3):
        outputs, golden = simulate(lowered, [sets[name][time].astype(np.float64) for name in lowered.graph.inputs])
        expected.append(outputs)
        # Off-chip memory answers at random here, and no sooner than the model has it.
        assert int(done.stdout.splitlines()[time].split()[2]) >= golden.cycles
    for number, name in enumerate(lowered.graph.outputs):
        found = np.fromfile(tmp_path / "out" / f"{name}.f32", np.float32)
        wanted = np.stack([outputs[number] for outputs in expected]).astype(np.float32)
        np.testing.assert_array_equal(found, wanted.ravel(), err_msg=name)
        assert len(np.unique(wanted)) > 8


def test_what_is_wrong_with_files_is_said(lowered, driver, tmp_path):
    name, other = lowered.graph.inputs
    cases = {
        f"cannot read .*{other}.f32": {name: 32},
        "expected a multiple of 32": {name: 31, other: 16},
        "another number of runs": {name: 64, other: 16},
    }
    for wrong, sizes in cases.items():
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for each, size in sizes.items():
            np.zeros(size, np.float32).tofile(folder / f"{each}.f32")
        done = run(driver, "small.xclbin", folder, folder)
        assert done.returncode == 1
        assert re.search(wrong, done.stderr), done.stderr
    assert run(driver).returncode == 2


def test_a_folder_that_cannot_be_made_is_an_error(lowered, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DerivableError, match="cannot make the folder"):
        host.write(lowered, tmp_path / "file" / "host")


def test_the_kernel_is_described_as_the_top_is(lowered):
    root = tree.fromstring(host.files(lowered)["kernel.xml"])
    ports = {port.get("name"): port for port in root.iter("port")}
    assert ports["m_axi_memory"].get("dataWidth") == str(8 * SMALL.line)
    assert root.find(".//arg").get("offset") == "0x10"  # base in accelerator.sv
