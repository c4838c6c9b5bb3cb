"""Devices, the analytic estimate, whether it fits, and what yosys makes of a module."""

from pathlib import Path

import pytest

import benchmark_modules
from derivable.accelerator.explore import sizing
from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.hardware import resources
from derivable.accelerator.hardware.resources import DEVICES, Resources, device, estimate
from derivable.accelerator.machine.instructions import Machine
from derivable.accelerator.operators.runtime import Layer, Vectors
from derivable.core.diagnostics import CompileTimeout, DomainError, LimitError, MissingDependencyError, ParseError

yosys = benchmark_modules.load("yosys")

MULTIPLIERS = Path(__file__).parent / "multipliers.sv"
needs_yosys = pytest.mark.skipif(yosys.version() is None, reason="yosys is not installed")


@pytest.mark.parametrize(
    ("name", "megabits_of_bram", "megabits_of_uram"), [("u250", 94.5, 360), ("u55c", 70.9, 270), ("zcu104", 11, 27)]
)
def test_memory_of_devices_is_that_of_their_data_sheets(name, megabits_of_bram, megabits_of_uram):
    found = DEVICES[name]
    assert found.bram * 18 / 1024 == pytest.approx(megabits_of_bram, abs=0.05)
    assert found.uram * 288 / 1024 == pytest.approx(megabits_of_uram, abs=0.05)


def test_an_element_is_a_slice_in_every_precision_of_integers():
    for neural, symbolic in (("int8", "int8"), ("int8", "int4"), ("int4", "int4")):
        assert estimate((8, 4, 3), neural=neural, symbolic=symbolic).dsp == 96


def test_an_estimate_is_the_sum_of_its_parts():
    found = estimate((8, 4, 3))
    tree, left_out = 2 * 4 * 32, 4 * 32
    # Of 8 rows in each of 3 sub-arrays 5 are late by 3 cycles and more, of 4 columns one; others have flip-flops.
    skew = Resources(lut=3 * 5 * 8 + 32, ff=3 * 3 * 8 + 3 * 32)
    assert found == Resources(dsp=96, lut=96 * 110 + tree + left_out, ff=96 * 164 + tree) + skew
    assert estimate((8, 4, 3), simd=5) == found + resources.lane() * 5 + resources.control(4, 3)
    memories = sizing.memories(Workload([Layer(100, 27, 64)], [Vectors(12, 64)]), (8, 4, 3))
    with_memories = estimate((8, 4, 3), stores=memories)
    assert (with_memories.bram, with_memories.uram) == (memories.bram, memories.uram)
    assert memories.bram > 0


# What yosys 0.23 (`xcup`) makes of the generated array, and of whole accelerators, whose last number is that of lanes,
# before products had a second register. Of the first row it makes 5,520 flip-flops since: 25 more for each element.
SECOND_REGISTER = 25
SYNTHESISED = {
    (4, 4, 2, 0): Resources(32, 3840, 4720),
    (8, 8, 2, 0): Resources(128, 14864, 18192),
    (8, 8, 4, 0): Resources(256, 29824, 36544),
    (16, 16, 2, 0): Resources(512, 58032, 71824),
    (32, 16, 4, 0): Resources(2048, 229312, 286432),
    (32, 32, 8, 0): Resources(8192, 915680, 1146240),
    (8, 8, 2, 8): Resources(232, 50318, 39515),
    (16, 16, 2, 16): Resources(720, 123634, 111362),
    (32, 16, 4, 16): Resources(2256, 297621, 331261),
}


@pytest.mark.parametrize("size", SYNTHESISED)
def test_estimates_are_near_what_yosys_makes(size):
    found, made = estimate(size[:3], simd=size[3]), SYNTHESISED[size]
    assert found.dsp == made.dsp
    elements = size[0] * size[1] * size[2]
    assert found.ff == pytest.approx(made.ff + SECOND_REGISTER * elements, rel=0.01)
    assert found.lut == pytest.approx(made.lut, rel=0.07 if size[3] else 0.01)


# Blocks of 18 Kb of the generated accelerator, by yosys 0.23 (`xcup`).
@pytest.mark.parametrize(
    ("of", "bram"),
    [
        (Machine(), 340),
        (Machine(16, 16, 2, lanes=16, line=64), 544),
        (Machine(32, 16, 4, lanes=16, line=64), 888),
    ],
)
def test_memories_of_generated_accelerators_are_in_the_blocks_that_yosys_takes(of, bram):
    found = resources.generated(of)
    assert found.bram == bram
    assert found == estimate((of.height, of.width, of.sub_arrays), simd=of.lanes) + Resources(bram=bram)


def test_floating_point_takes_more():
    assert estimate((8, 8, 1), neural="fp16").lut > estimate((8, 8, 1)).lut
    assert estimate((8, 8, 1), neural="fp16").ff > estimate((8, 8, 1)).ff


def test_table_of_shares():
    text = Resources(512, 21504, 29696, 70, 1).table(DEVICES["u250"])
    assert text.splitlines()[0].split() == ["DSP", "512", "4.2%"]
    assert [row.split()[0] for row in text.splitlines()] == ["DSP", "LUT", "FF", "BRAM", "URAM"]


def test_what_fits_fits():
    resources.check_fit(Resources(1728, 230400, 460800, 624, 96), DEVICES["zcu104"])


def test_what_does_not_fit_names_what_lacks_and_what_would_fit():
    needed = estimate((32, 16, 4), simd=32)
    with pytest.raises(LimitError) as caught:
        resources.check_fit(needed, DEVICES["zcu104"], smaller=lambda count: estimate((32, 16, count), simd=32), most=4)
    assert "2464 DSP of 1728, 736 too many" in caught.value.message
    assert caught.value.hint == "1 sub-array of this size would fit"
    fitting = resources.largest_fit(lambda count: estimate((32, 16, count)), DEVICES["u250"], 64)
    assert fitting == 24  # 12,288 DSP: 512 for 32 x 16 elements
    with pytest.raises(LimitError) as caught:
        resources.check_fit(needed, DEVICES["zcu104"], smaller=lambda count: needed, most=4)
    assert caught.value.hint == "give a smaller pes=, a lower precision= or a larger device="


def test_memories_are_cut_until_they_fit():
    workload = Workload([Layer(25600, 576, 512)], [Vectors(4096, 256)])
    small, large = (resources.fit_memories(workload, (8, 8, 8), DEVICES[name]) for name in ("zcu104", "u55c"))
    for found, name in ((small, "zcu104"), (large, "u55c")):
        assert found.bram <= DEVICES[name].bram
        assert found.uram <= DEVICES[name].uram
    assert small.tiles[0] > large.tiles[0] > 1
    tiny = Workload([Layer(9, 9, 9)])
    assert resources.fit_memories(tiny, (8, 8, 8), DEVICES["zcu104"]) == sizing.memories(tiny, (8, 8, 8))
    with pytest.raises(LimitError, match="the memories of 64 sub-arrays of 8 x 64 need at least"):
        resources.fit_memories(workload, (8, 64, 64), DEVICES["zcu104"])


def test_a_resource_that_a_device_has_not():
    without = resources.read_device(written := _file("own", uram=0))
    assert without.name == "own"
    assert Resources(uram=1).shares(without)["uram"] == float("inf")
    assert Resources().shares(without)["uram"] == 0
    with pytest.raises(LimitError, match="own has: 1 URAM of 0, 1 too many"):
        resources.check_fit(Resources(uram=1), device(str(written)))


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _file(name, **changed):
    values = {"title": "t", "part": "p", "bandwidth": 1.0, "clock": 1e6, **dict.fromkeys(resources.KINDS, 1), **changed}
    path = Path(f"{name}.toml")
    path.write_text("".join(f"{key} = {value!r}\n" for key, value in values.items() if value is not None))
    return path


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: device("u520"), DomainError, "there is no device 'u520'"),
        (lambda: device("none.toml"), DomainError, "the device file none.toml cannot be read"),
        (lambda: device(_file("a", dsp=None)), DomainError, "a.toml does not name `dsp`"),
        (lambda: device(_file("a", dps=2)), DomainError, "a.toml names `dps`"),
        (lambda: device(_file("a", dsp=-1)), DomainError, "`dsp` in a.toml is -1, expected a non-negative integer"),
        (lambda: device(_file("a", clock="fast")), DomainError, "`clock` in a.toml is 'fast', expected a positive"),
        (lambda: device(_broken()), ParseError, "this is no TOML"),
    ],
)
def test_errors_of_devices(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def _broken():
    Path("b.toml").write_text("dsp = \n")
    return "b.toml"


@needs_yosys
def test_yosys_counts_what_a_module_has():
    found = yosys.synthesise([MULTIPLIERS], "multipliers", {"COUNT": 3}, family="xc7")
    assert found.resources == Resources(dsp=3)
    assert found.tool.startswith("Yosys ")
    assert found.tool.endswith(", xc7")
    assert dict(found.cells)["DSP48E1"] == 3


@needs_yosys
def test_what_yosys_refuses():
    with pytest.raises(DomainError, match="yosys does not synthesise `nothing`: "):
        yosys.synthesise([MULTIPLIERS], "nothing")
    with pytest.raises(CompileTimeout, match="yosys did not finish `multipliers` within 0"):
        yosys.synthesise([MULTIPLIERS], "multipliers", time_limit=0.01)


def test_without_yosys(monkeypatch):
    monkeypatch.setenv("PATH", "")
    yosys.version.cache_clear()
    with pytest.raises(MissingDependencyError, match="yosys is not installed"):
        yosys.synthesise([MULTIPLIERS], "multipliers")
    yosys.version.cache_clear()
