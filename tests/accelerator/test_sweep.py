"""Sweeps of designs: what they count is what the hardware takes, by other routes; and what bounds a program."""

import csv
import io
import itertools
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator.designs import designs
from derivable.accelerator.explore.exploration import finalists
from derivable.accelerator.hardware.simulation import OffChip
from derivable.accelerator.kernels.clock import NEED
from derivable.accelerator.lower import energy
from derivable.accelerator.lower.bounds import Bounds, bounds
from derivable.accelerator.lower.emission import Section, Written
from derivable.accelerator.machine import machine as golden
from derivable.accelerator.machine.instructions import Convolve, End, Gemm, Machine, Move, Program, Transfer, Vector
from derivable.accelerator.machine.machine import Latencies
from derivable.core.diagnostics import DomainError, LimitError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")


class Mixed(nn.Module):
    """A convolution, a layer, and vectors that are unbound and compared."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.layer = nn.Linear(4 * 4 * 4, 2 * 8)
        self.register_buffer("key", dv.vsa.random(2, 8, generator=0))
        self.register_buffer("book", dv.vsa.codebook(5, 2, 8, generator=1))

    def forward(self, pictures):
        codes = self.layer(self.convolution(pictures).relu().flatten(1)).unflatten(-1, (2, 8)).softmax(-1)
        return dv.vsa.match_probabilities(dv.vsa.unbind(codes, self.key), self.book)


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    return dv.accelerator.design(Mixed().eval(), torch.rand(2, 1, 8, 8), pes=64, precision="int8")


@pytest.fixture(scope="module")
def swept(made):
    return made.sweep(ports=[2, 3, 4], bandwidths=[None, 2e9])


def inputs():
    torch.manual_seed(1)
    return torch.rand(2, 1, 8, 8)


def interval(point):
    """Cycles between two lines, in words: 64 bytes at most, and what the memory gives."""
    if point.bandwidth is None:
        return 1
    line = point.design.lower().machine.line
    return max(1, -(-line // 64), int(np.ceil(line * point.design.device.clock / point.bandwidth)))


def test_cycles_of_points_are_those_of_runs(swept):
    assert len(swept) == 6 * len({(id(point.design)) for point in swept})
    for point in [point for point in swept if point.ports == 2][::7]:
        run = point.design.simulate(inputs(), "python", off_chip=OffChip(interval=interval(point)))
        assert run.cycles == point.cycles
        assert point.cycles >= point.bound


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
def test_cycles_of_points_are_those_of_the_hardware(swept):
    """The SystemVerilog counts its cycles itself: no point differs from it."""
    chosen = [point for point in swept if point.ports == 2 and point.design.lanes <= 8][::4]
    assert len(chosen) >= 5
    for point in chosen:
        run = point.design.simulate(inputs(), "icarus", off_chip=OffChip(interval=interval(point)))
        assert run.cycles == point.cycles


def test_points_are_all_arrays_and_lanes(made, swept):
    found = {
        (p.design.height, p.design.width, p.design.sub_arrays, p.design.lanes)
        for p in swept
        if p.design.exploration.mode == "sequential"
    }
    sides = [4, 8, 16, 32, 64]
    expected = {
        (height, width, min(64 // (height * width), 16), lanes)
        for height, width in itertools.product(sides, sides)
        if height * width <= 64 and 0.25 <= height / width <= 16
        for lanes in (4, 8, 16, 32, 64, 128)
        if lanes >= width
    }
    assert found == expected
    assert {p.design.exploration.mode for p in swept} == {"sequential", "parallel"}


def test_ports_and_bandwidth_only_make_a_difference_one_way(swept):
    by_design = {}
    for point in swept:
        by_design.setdefault(id(point.design), {})[point.ports, point.bandwidth] = point
    for points in by_design.values():
        for bandwidth in (None, 2e9):
            assert points[3, bandwidth].cycles <= 1.02 * points[2, bandwidth].cycles
            assert points[4, bandwidth].cycles <= 1.02 * points[2, bandwidth].cycles
        # Loads of what comes next may be hidden.
        assert points[2, 2e9].cycles >= points[2, None].cycles
        assert points[4, None].resources.bram > points[2, None].resources.bram
        assert len({point.energy for point in points.values()}) == 1
    listed = list(by_design.values())
    assert any(points[2, 2e9].cycles > points[2, None].cycles for points in listed)


def test_ports_are_shared_by_those_who_read():
    """Lanes that read twice, a move and a store, 200 times each: 800 reads, of which a cycle has as many as ports."""
    program = Program(
        [
            Vector(operation="add", n2=200, a2=8, b_from="X", b2=8, y=8192, y2=8),
            Move(operation="A", n3=200, x3=8, to3=1, valid=8),
            Transfer(operation="store", x=16384, far=0, lines=200),
            End(),
        ]
    )
    cycles = {ports: golden.timing(MACHINE, program, Latencies(ports=ports))[1][-1] for ports in (2, 3, 4)}
    assert 400 <= cycles[2] <= 440
    # The lanes read in each of 200 cycles, the others in turns until then.
    assert 300 <= cycles[3] <= 340
    assert 200 <= cycles[4] <= 240


def test_points_that_no_other_beats(swept):
    for names in (("cycles", "energy", "share"), ("cycles", "lut"), ("energy",)):
        front = swept.pareto(*names)
        values = [tuple(point.value(name) for name in names) for point in swept if point.share <= 1]
        expected = {
            one
            for one in values
            if not any(other != one and all(x <= y for x, y in zip(other, one)) for other in values)
        }
        assert {tuple(point.value(name) for name in names) for point in front} == expected
        assert len(front) == len(expected)
        assert [point.value(names[0]) for point in front] == sorted(point.value(names[0]) for point in front)
    assert swept.best.cycles == min(point.cycles for point in swept)


def test_the_design_is_the_best_array_by_programs(made):
    """Every array is lowered here, with the lanes that it is tried with; the equations alone choose none."""
    listed = finalists(made.flow.workload(), 64, most_sub_arrays=16, largest_side=64, in_turns=None)
    cycles = []
    for each in listed:
        one = designs.sized(made.graph, made.flow, each, made.device, made.precision)
        cycles.append(replace(one, quantised=made.quantised).pass_cycles(2))
    assert made.pass_cycles(2) <= designs.MORE_CYCLES * min(cycles)


def test_lanes_that_are_given_are_taken():
    torch.manual_seed(0)
    for lanes in (8, 32):
        found = dv.accelerator.design(Mixed().eval(), inputs(), pes=64, precision="int8", lanes=[lanes])
        assert found.lanes == lanes


# Bounds


def test_no_program_goes_below_its_bounds(made):
    for passes in (1, 2, 3):
        lowered = made.lower(passes)
        of = bounds(lowered)
        begin, end = golden.timing(lowered.machine, lowered.program)
        busy = golden.busy(lowered.program, begin, end)
        assert of.best[1] == max(of.reasons.values()) <= end[-1]
        assert all(of.units[unit] <= cycles for unit, cycles in busy.items())
        # The array waits for nothing while it works.
        assert (of.units["nn"], of.units["vsa"]) == (busy["nn"], busy["vsa"])
        assert of.sub_arrays <= busy["nn"] + busy["vsa"]
        reads = Latencies(ports=4)
        assert bounds(lowered, reads).ports <= of.ports


def test_the_chain_is_a_path_of_instructions_that_wait(made):
    """Instructions that touch the same memory, pair by pair, and the longest path by recursion over all of them."""
    from derivable.accelerator.machine.hazards import regions

    lowered = made.lower()
    listed = [of for of in lowered.program if of.unit != "end"]
    touched = [[region for region in regions(lowered.machine, of) if region.memory != "sub-array"] for of in listed]
    lengths = [golden.cycles_of(golden.demand(lowered.machine, of, Latencies())) for of in listed]
    ends = []
    for number, length in enumerate(lengths):
        before = [
            # A unit goes on with its next instruction at once.
            ends[other] + 2 * (listed[other].unit != listed[number].unit)
            for other in range(number)
            if any(x.meets(y) for x in touched[number] for y in touched[other])
        ]
        ends.append(max(before, default=0) + length)
    assert lowered.chain == max(ends)


def _fewest_cycles(written):
    """Of all orders in which instructions can be done, with units that begin each as soon as they may."""

    def rest(ends, idle):
        if len(ends) == len(written):
            return max(ends.values(), default=0)
        found = []
        for number, of in enumerate(written):
            if number not in ends and of.after <= ends.keys():
                ready = (ends[other] + NEED * (written[other].unit != of.unit) for other in of.after)
                end = max([idle.get(of.unit, 0), *ready]) + of.length
                found.append(rest(ends | {number: end}, idle | {of.unit: end}))
        return min(found)

    return rest({}, {})


def test_units_and_chains_together_bound_all_orders():
    rng = np.random.default_rng(0)
    equal = 0
    for _ in range(60):
        written = []
        for number in range(int(rng.integers(1, 8))):
            after = {other for other in range(number) if rng.random() < 0.35}
            unit, length = int(rng.integers(0, 3)), int(rng.integers(1, 30))
            written.append(Written(End(), "", 0, unit, after, frozenset(), (0,) * 9, length))
        found = Bounds({}, 0, 0, 0, (Section(written, 3),)).least
        fewest = 3 * _fewest_cycles(written)
        assert found <= fewest
        equal += found == fewest
        by_unit = Counter[int]()
        for of in written:
            by_unit[of.unit] += of.length
        assert found >= 3 * max(by_unit.values())
    assert equal >= 40


def test_a_program_of_one_chain_takes_its_bound():
    torch.manual_seed(0)
    found = dv.accelerator.design(nn.Linear(8, 4), torch.rand(4, 8), pes=16, precision="int8")
    reason, least = found.bounds().best
    assert reason == "chain"
    assert least <= found.pass_cycles() <= 1.25 * least


# Energy


MACHINE = Machine(8, 8, 2, lanes=8, line=32, a=1024, b=1024, k=256, c=1024, p=64, x=1 << 16)
BYTE = {8: 1.25, 32: 2.5}  # pJ, of memories of 8 and 32 KB


def test_energy_of_instructions_by_hand():
    load = energy.of_instruction(MACHINE, Transfer(operation="load", x=0, far=0, lines=3))
    # 64 KB is a fifth of the way of 32 KB to 1 MB, in logarithms.
    of_cache = 2.5 * 5 ** (1 / 5)
    assert astuple(load) == pytest.approx((0, 0, 0, 96 * of_cache, 96 * 243.75))
    product = energy.of_instruction(MACHINE, Gemm(arrays=2, tiles=3, columns=2, n1=5, n2=4))
    rows, cells = 20, 64
    assert product.array == pytest.approx(2 * 3 * 2 * rows * cells * (0.2 + 0.1))
    words = 2 * 3 * 2 * (8 * 8 + rows * 8) * BYTE[8]
    assert product.banks == pytest.approx(words + 2 * rows * 5 * 32 * BYTE[32])
    bound = energy.of_instruction(MACHINE, Convolve(first=1, arrays=1, b=64, groups=2, length=16))
    assert bound.array == pytest.approx(2 * 2 * 16 * cells * 0.3)
    assert bound.banks == pytest.approx(2 * 2 * (8 + 16) * 8 * BYTE[8] + 2 * 16 * 3 * 32 * BYTE[32])
    moved = energy.of_instruction(MACHINE, Move(operation="A", banks=2, spread=2, n3=8, x3=16, to3=1, valid=16))
    assert astuple(moved) == pytest.approx((0, 0, 8 * 2 * 8 * BYTE[8], 8 * 32 * of_cache, 0))
    added = energy.of_instruction(MACHINE, Vector(operation="add", n2=4, b_from="X", y_type="i16"))
    assert added.lanes == pytest.approx(4 * 8 * (0.1 + 3.1 + 0.1))
    assert added.cache == pytest.approx((4 * 2 * 32 + 4 * 8 * 2) * of_cache)


def test_energy_of_memories_is_that_of_the_source():
    for size, of_word in ((8 << 10, 10), (32 << 10, 20), (1 << 20, 100)):
        assert 8 * energy.of_byte(size) == pytest.approx(of_word)


def test_passes_take_as_much_energy_each(made):
    one, both = (energy.energy(made.lower(passes)) for passes in (1, 2))
    assert one.array * 2 == pytest.approx(both.array)
    assert both.total < 2.05 * one.total
    assert made.energy() == one


# Texts and files


def test_the_csv_has_all_points(swept, tmp_path):
    rows = list(csv.DictReader(io.StringIO(swept.csv())))
    assert len(rows) == len(swept)
    for row, point in zip(rows, swept):
        assert float(row["cycles"]) == point.cycles
        assert int(row["equation_cycles"]) == point.design.cycles
        assert (row["bandwidth"] == "") == (point.bandwidth is None)
    assert swept.write_csv(tmp_path / "sweep.csv").read_text() == swept.csv()


def test_the_picture_has_all_points(swept, tmp_path):
    tree = ElementTree.parse(swept.plot(tmp_path / "sweep.svg", "cycles", "lut"))
    circles = [each for each in tree.iter() if each.tag.endswith("circle")]
    assert len(circles) == len(swept)
    kinds = [each.get("class") for each in circles]
    assert kinds.count("best") == len(swept.pareto("cycles", "lut"))
    for circle in circles:
        assert 0 <= float(circle.get("cx")) <= 720
        assert 0 <= float(circle.get("cy")) <= 460


def test_the_text_names_what_bounds(swept):
    lines = str(swept).splitlines()
    front = swept.pareto()
    assert lines[0] == f"{len(front)} of {len(swept)} designs that no other beats in cycles and energy and share"
    assert f"{front[0].cycles:,.0f}" in lines[2]
    assert len(lines) == 2 + len(front) + len(swept.left)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lanes": []}, "lanes has no number of lanes to try"),
        ({"lanes": [12]}, "a number of lanes is 12, expected a power of two from 4 to 128"),
        ({"ports": [1]}, "a number of ports is 1, expected an integer from 2 to 4"),
        ({"ports": []}, "ports has nothing to try"),
        ({"bandwidths": [0]}, "a bandwidth is 0, expected bytes a second"),
        ({"heights": [5]}, "a height is 5, expected a power of two"),
        ({"passes": 0}, "passes is 0"),
    ],
)
def test_errors(made, options, message):
    with pytest.raises(DomainError, match=message):
        made.sweep(**options)


def test_errors_of_what_cannot_be(made, swept):
    with pytest.raises(DomainError, match="there is no objective 'area'"):
        swept.pareto("area")
    with pytest.raises(LimitError, match="no room for any design"):
        replace(swept, points=tuple(replace(p, resources=replace(p.resources, dsp=10**9)) for p in swept)).pareto()
    torch.manual_seed(0)
    half = dv.accelerator.design(nn.Linear(8, 4), torch.rand(4, 8), pes=16, precision="fp16")
    with pytest.raises(UnsupportedError, match="fp16"):
        half.sweep()
    assert half.bounds() is None
    assert half.energy() is None
