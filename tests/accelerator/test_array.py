"""The array, from one multiplier to instructions on all sub-arrays, simulated and compared with NumPy, cycle by cycle.

Two builds serve all cases: one has a multiplier and a sub-array, the other both units with their memories.
"""

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import benchmark_modules
from accelerator import column
from accelerator.player import Player
from derivable.accelerator.hardware import elaboration, resources, verilator
from derivable.accelerator.machine import machine
from derivable.accelerator.machine.instructions import Convolve, Gemm, Machine, encode
from derivable.accelerator.operators.runtime import Layer, layer_cycles

yosys = benchmark_modules.load("yosys")

needs_verilator = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
needs_yosys = pytest.mark.skipif(yosys.version() is None, reason="yosys is not installed")

H, W = 4, 4
PRODUCT = 4  # cycles from the operands to a product of the multiplier
SMALL = Machine(height=H, width=W, sub_arrays=2, lanes=4, line=16, a=256, b=128, k=16, c=128)
UNITS = f"""
module units (
    input wire clk, input wire nibbles, input wire split, input wire [7:0] a, input wire [7:0] b,
    output wire [31:0] product,
    input wire enable, input wire circular, input wire load,
    input wire [{8 * W - 1}:0] vertical, input wire [{8 * H - 1}:0] rows,
    output wire [{32 * W - 1}:0] sums, output wire [{32 * W - 1}:0] words
);
  wire [{8 * H - 1}:0] left;
  multiplier multiplier (.clk, .enable(1'b1), .nibbles, .split, .a, .b, .product);
  skew #(.LANES({H}), .BITS(8)) skew (.clk, .in(rows), .out(left));
  sub_array #(.H({H}), .W({W})) array (.clk, .enable, .circular, .nibbles, .split, .load, .vertical, .left, .sums);
  skew #(.LANES({W}), .BITS(32), .DESKEW(1'b1)) deskew (.clk, .in(sums), .out(words));
endmodule
"""


class Units(Player):
    def __init__(self):
        inputs = {"nibbles": 1, "split": 1, "a": 8, "b": 8, "enable": 1, "circular": 1, "load": 1}
        inputs |= {"vertical": 8 * W, "rows": 8 * H}
        outputs = {"product": 32, "sums": 32 * W, "words": 32 * W}
        super().__init__("units", {}, inputs, outputs, extra={"units.sv": UNITS})


@pytest.fixture(scope="module")
def units():
    return Units()


def numbers(nibbles: int, of: np.ndarray) -> np.ndarray:
    """The int8 of bytes [...], or the two int4 of each, low first [..., 2], as int64."""
    of = of.astype(np.int64)
    if not nibbles:
        return (of ^ 128) - 128
    return (np.stack([of & 15, of >> 4], -1) ^ 8) - 8


def draw(rng, *shape) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def drain(sums: np.ndarray) -> np.ndarray:
    return sums.view("<i4").astype(np.int64)


def halves(sums: np.ndarray) -> np.ndarray:
    """The two fields of sums of split products, the borrow given back: [..., 2]."""
    low = ((sums & 0xFFFF) ^ 0x8000) - 0x8000
    return np.stack([low, (sums - low) >> 16], -1)


@needs_verilator
@pytest.mark.parametrize(("nibbles", "split"), [(0, 0), (1, 0), (1, 1)])
def test_the_multiplier_is_exact_for_all_pairs_of_bytes(units, nibbles, split):
    pairs = np.arange(1 << 16)
    late = np.zeros(PRODUCT, np.int64)
    a, b = (np.append(of, late) for of in (pairs & 255, pairs >> 8))
    played = units.play(len(pairs) + PRODUCT, nibbles=nibbles, split=split, a=a, b=b)
    a, b = numbers(nibbles, pairs & 255), numbers(nibbles, pairs >> 8)
    expected = a * b if not nibbles else (a * b) @ np.array([1, 1 << 16 if split else 1])
    assert np.array_equal(drain(played["product"])[PRODUCT:, 0], expected)


def gemm_stimulus(rng, tiles: int, rows: int, period: int):
    """Tiles one after the other, `period` cycles each: weights for H cycles, then the rows."""
    held, streamed = draw(rng, tiles, H, W), draw(rng, tiles, rows, H)
    cycles = tiles * period + H + W + 3 + PRODUCT
    load, vertical, left = np.zeros(cycles), draw(rng, cycles, W), draw(rng, cycles, H)
    for tile in range(tiles):
        start = tile * period
        load[start : start + H] = 1
        vertical[start : start + H] = held[tile, ::-1]
        left[start + H : start + H + rows] = streamed[tile]
    return held, streamed, cycles, {"load": load, "vertical": vertical, "rows": left}


@needs_verilator
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 12), st.booleans())
def test_a_tile_takes_the_cycles_of_equation_1(units, seed, tiles, rows, nibbles):
    rng = np.random.default_rng(seed)
    period = int(layer_cycles(Layer(rows, H, W), H, W, 1))
    held, streamed, cycles, stimulus = gemm_stimulus(rng, tiles, rows, period)
    words = drain(units.play(cycles, enable=1, nibbles=int(nibbles), **stimulus)["words"])
    for tile in range(tiles):
        a, b = numbers(nibbles, streamed[tile]), numbers(nibbles, held[tile])
        expected = np.einsum("mhe,hwe->mw", a, b) if nibbles else a @ b
        first = tile * period + H + H + W + PRODUCT
        assert np.array_equal(words[first : first + rows], expected)


@needs_verilator
def test_a_tile_cannot_start_earlier(units):
    held, streamed, cycles, stimulus = gemm_stimulus(np.random.default_rng(1), 2, 5, 2 * H + W + 5 - 3)
    words = drain(units.play(cycles, enable=1, **stimulus)["words"])
    first = 2 * H + W + PRODUCT
    found = words[first : first + 5]
    expected = numbers(0, streamed[0]) @ numbers(0, held[0])
    # Only the last row's product in the last element meets the weight of the next tile.
    assert np.argwhere(found != expected).tolist() == [[4, W - 1]]


@needs_verilator
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 13), st.booleans())
def test_a_pass_takes_the_cycles_of_the_column(units, seed, length, split):
    """Passes of T cycles each give what the oracle of one column gives, which needs one cycle more, a register."""
    rng = np.random.default_rng(seed)
    a, b = draw(rng, length, W), draw(rng, length, W)
    passes, period = -(-length // H), 3 * H + length - 1
    cycles = passes * period + 3 + PRODUCT
    load, vertical = np.zeros(cycles), draw(rng, cycles, W)
    for number in range(passes):
        start = number * period
        rows = np.pad(a[number * H : number * H + H], ((0, H), (0, 0)))[:H]
        load[start : start + H] = 1
        vertical[start : start + H] = rows[::-1]
        stream = np.arange(-(H - 1), length) - number * H
        vertical[start + H : start + 2 * H - 1 + length] = b[stream % length]
    modes = {"enable": 1, "circular": 1, "nibbles": int(split), "split": int(split)}
    played = drain(units.play(cycles, **modes, load=load, vertical=vertical)["sums"])
    found = 0
    for number in range(passes):
        first = number * period + H + H - 1 + H + 2 + PRODUCT
        sums = played[first : first + length]
        found = found + (halves(sums) if split else sums)
    for lane in range(W):
        for part in range(1 + split):
            vectors = [numbers(split, v[:, lane])[..., part] if split else numbers(0, v[:, lane]) for v in (a, b)]
            expected, spent = column.convolution(*vectors, H)
            assert spent == passes * (period + 1)
            assert np.array_equal(found[:, lane, part] if split else found[:, lane], expected)


@needs_icarus
def test_icarus_agrees(units, tmp_path):
    rng = np.random.default_rng(2)
    held, streamed, cycles, stimulus = gemm_stimulus(rng, 2, 6, 2 * H + W + 6 - 2)
    words = drain(units.play_icarus(tmp_path, cycles, enable=1, **stimulus)["words"])
    for tile in range(2):
        first = tile * (2 * H + W + 4) + H + H + W + PRODUCT
        assert np.array_equal(words[first : first + 6], numbers(0, streamed[tile]) @ numbers(0, held[tile]))


class Engine(Player):
    """The units nn and vsa with their memories, driven as the controller and MOVE do."""

    def __init__(self, of: Machine):
        self.machine = of
        bits = {name: max(1, (getattr(of, name) - 1).bit_length()) for name in "abkc"}
        inputs = {"rst": 1, "nn_valid": 1, "nn_instruction": 512, "vsa_valid": 1, "vsa_instruction": 512}
        for name, size in (("a", 8 * of.width), ("b", 8 * of.height), ("k", 24)):
            inputs |= {
                f"{name}_write": of.sub_arrays,
                f"{name}_address": bits[name],
                f"{name}_words": size * of.sub_arrays,
            }
        inputs |= {"c_bank": max(1, (of.sub_arrays - 1).bit_length()), "c_address": bits["c"]}
        outputs = {"nn_ready": 1, "nn_done": 1, "vsa_ready": 1, "vsa_done": 1, "c_word": 32 * of.width}
        super().__init__("array_engine", elaboration.parameters_of("array_engine", of), inputs, outputs)

    def run(self, state: machine.State, *groups, play=None):
        """Fill the memories as `state` has them, give the instructions, those of a group at once, and read C.

        A group is given when the one before is done. Returns C [bank, word, width], and of each instruction of the last
        group the cycles from when it is taken until it is done.
        """
        of = self.machine
        starts = [max(of.a, of.b, of.k) * of.sub_arrays + 2]
        for group in groups:
            starts.append(starts[-1] + max(expected_cycles(of, instruction) for instruction in group))
        read = starts[-1] + 2
        cycles = read + of.c * of.sub_arrays + 6
        values: dict[str, np.ndarray] = {"rst": np.arange(cycles) == 0}
        for name, memory in (("a", state.a), ("b", state.b), ("k", state.k)):
            words = getattr(of, name)
            size = 3 if name == "k" else memory.shape[2]
            values[f"{name}_write"], values[f"{name}_address"] = np.zeros(cycles), np.zeros(cycles)
            values[f"{name}_words"] = np.zeros((cycles, of.sub_arrays, size), np.uint8)
            for bank in range(of.sub_arrays):
                part = slice(1 + bank * words, 1 + (bank + 1) * words)
                values[f"{name}_write"][part] = 1 << bank
                values[f"{name}_address"][part] = np.arange(words)
                found = memory[bank] if name != "k" else memory[bank].astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3]
                values[f"{name}_words"][part] = found[:, None]
            values[f"{name}_words"] = values[f"{name}_words"].reshape(cycles, -1)
        for unit in ("nn", "vsa"):
            values[f"{unit}_valid"] = np.zeros(cycles)
            values[f"{unit}_instruction"] = np.zeros((cycles, 64), np.uint8)
        for start, group in zip(starts, groups):
            for instruction in group:
                values[f"{instruction.unit}_valid"][start] = 1
                values[f"{instruction.unit}_instruction"][start] = encode(instruction).view(np.uint8)
        values["c_bank"], values["c_address"] = np.zeros(cycles), np.zeros(cycles)
        for bank in range(of.sub_arrays):
            part = slice(read + bank * of.c, read + (bank + 1) * of.c)
            values["c_bank"][part] = bank
            values["c_address"][part] = np.arange(of.c)
        played = (play or self.play)(cycles, **values)
        spent = []
        for instruction in groups[-1]:
            ready, done = (played[f"{instruction.unit}_{name}"][starts[-2] :, 0] for name in ("ready", "done"))
            assert ready[0]
            spent.append(int(np.flatnonzero(done[1:])[0]) + 1)
            assert np.flatnonzero(ready[1:])[0] + 1 == spent[-1]
        c = drain(played["c_word"][read + 5 : read + 5 + of.c * of.sub_arrays])
        return c.reshape(of.sub_arrays, of.c, of.width), spent


@pytest.fixture(scope="module")
def engine():
    return Engine(SMALL)


def filled(of: Machine, rng) -> machine.State:
    state = machine.State(of, np.zeros(0, np.uint8))
    state.a[:], state.b[:] = draw(rng, *state.a.shape), draw(rng, *state.b.shape)
    return state


def gemm(draw_integer, of: Machine, state: machine.State, arrays: int, c: int) -> Gemm:
    """An instruction whose tiles lie anywhere in B; `draw_integer(low, high)`, both included."""
    n0, n1, n2 = draw_integer(1, 2), draw_integer(1, 3), draw_integer(1, 5)
    tiles, columns = draw_integer(1, 3), draw_integer(1, 2)
    b0, b1, b2 = draw_integer(0, 20), draw_integer(0, 9), draw_integer(-1, 3)
    least = min(0, (n2 - 1) * b2)
    most = (n0 - 1) * b0 + (n1 - 1) * b1 + max(0, (n2 - 1) * b2)
    k, b = draw_integer(0, of.k - tiles), draw_integer(0, 10)
    for bank in range(of.sub_arrays):
        for tile in range(tiles):
            state.k[bank, k + tile] = draw_integer(-least, of.b - 1 - b - most)
    return Gemm(
        arrays=arrays, a=draw_integer(0, of.a - tiles * columns * of.height), b=b, k=k, c=c, tiles=tiles,
        columns=columns, n0=n0, n1=n1, n2=n2, b0=b0, b1=b1, b2=b2, nibbles=draw_integer(0, 1),
    )  # fmt: skip


def convolve(draw_integer, of: Machine, first: int, arrays: int) -> Convolve:
    length, groups = draw_integer(1, 19), draw_integer(1, 3)
    a0, b0 = draw_integer(0, 1) * length, draw_integer(0, 1) * length
    most = of.a - 3 * length
    return Convolve(
        first=first, arrays=arrays, a=draw_integer(0, most), b=draw_integer(0, most), c=draw_integer(0, of.c - 57),
        groups=groups, length=length, a0=a0, b0=b0, reverse=draw_integer(0, 1), split=draw_integer(0, 1),
    )  # fmt: skip


def agree(engine: Engine, state: machine.State, together, found: np.ndarray, taken: list[int]) -> None:
    for instruction, cycles in zip(together, taken):
        machine.execute(state, instruction)
        assert cycles == expected_cycles(engine.machine, instruction)
        rows = instruction.columns * instruction.n0 * instruction.n1 * instruction.n2 if instruction.unit == "nn" else 0
        part = slice(instruction.c, instruction.c + (rows or instruction.groups * instruction.length))
        banks = [0] if rows else range(instruction.first, instruction.first + instruction.arrays)
        for bank in banks:
            assert np.array_equal(found[bank, part], state.c[bank, part]), str(instruction)


def expected_cycles(of: Machine, instruction) -> int:
    """Equations (1) and (4), and what pipelines add to an instruction."""
    if instruction.unit == "nn":
        rows = instruction.n0 * instruction.n1 * instruction.n2
        tile = int(layer_cycles(Layer(rows, of.height, of.width), of.height, of.width, 1))
        return instruction.columns * instruction.tiles * tile + 9 + PRODUCT + (of.sub_arrays - 1).bit_length()
    passes = instruction.groups * -(-instruction.length // of.height)
    return passes * (3 * of.height + instruction.length - 1) + 9 + PRODUCT


@needs_verilator
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.integers(0, 2**32))
def test_instructions_do_what_the_machine_says_in_the_cycles_of_the_equations(engine, data, seed):
    rng = np.random.default_rng(seed)
    state = filled(SMALL, rng)

    def integer(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    match integer(0, 2):
        case 0:
            together = [gemm(integer, SMALL, state, integer(1, 2), integer(0, 60))]
        case 1:
            first = integer(0, 1)
            together = [convolve(integer, SMALL, first, integer(1, 2 - first))]
        case _:
            together = [gemm(integer, SMALL, state, 1, integer(0, 60)), convolve(integer, SMALL, 1, 1)]
    agree(engine, state, together, *engine.run(state, together))


@needs_verilator
def test_instructions_follow_each_other_and_accumulate(engine):
    """Instructions into the same words of C, each given in the cycle in which the one before is done."""
    state = filled(SMALL, np.random.default_rng(3))
    product, bound = Gemm(arrays=2, tiles=2, n2=5, b2=1, c=3), Convolve(first=1, a=7, b=30, c=60, length=9, split=1)
    groups = [
        (product, bound),
        (replace(product, a=40, accumulate=1), replace(bound, a=90, reverse=1, accumulate=1)),
        (replace(product, a=80, b=50, accumulate=1, nibbles=1),),
        (Convolve(first=0, arrays=2, length=5, c=20),),
        (replace(product, arrays=1, c=40),),
    ]
    # Sub-array 1 is with both units only if they come at different times.
    groups[0] = (replace(product, arrays=1), bound)
    groups[1] = (replace(groups[1][0], arrays=1), groups[1][1])
    found, _ = engine.run(state, *groups)
    for instruction in (instruction for group in groups for instruction in group):
        machine.execute(state, instruction)
    for bank, start, stop in ((0, 3, 8), (1, 60, 69), (0, 20, 25), (1, 20, 25), (0, 40, 45)):
        assert np.array_equal(found[bank, start:stop], state.c[bank, start:stop])


@needs_icarus
def test_icarus_runs_instructions_of_both_units_at_once(engine, tmp_path):
    state = filled(SMALL, np.random.default_rng(4))
    together = [Gemm(tiles=2, n1=2, n2=3, b1=5, b2=1, nibbles=1), Convolve(first=1, b=30, c=60, length=9, split=1)]
    found, spent = engine.run(
        state, together, play=lambda cycles, **values: engine.play_icarus(tmp_path, cycles, **values)
    )
    agree(engine, state, together, found, spent)


@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
@pytest.mark.parametrize("values", [{}, {"H": 4, "W": 4, "N": 1}, {"H": 16, "W": 4, "N": 3}], ids=str)
def test_verilator_has_nothing_to_warn_of(tmp_path, values):
    folder = elaboration.write(elaboration.hardware("array_engine", values), tmp_path / "rtl")
    command = ["verilator", "--lint-only", "-Wall", "--top-module", "array_engine", "-F", "files.f"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@needs_yosys
@pytest.mark.parametrize(
    ("height", "width", "sub_arrays"),
    [
        (4, 4, 2),
        pytest.param(8, 8, 4, marks=pytest.mark.slow),
        pytest.param(16, 4, 3, marks=pytest.mark.slow),
        pytest.param(32, 16, 4, marks=pytest.mark.slow),
        pytest.param(32, 32, 8, marks=pytest.mark.slow),
    ],
)
def test_an_element_is_one_dsp_and_the_rest_is_as_estimated(tmp_path, height, width, sub_arrays):
    made = elaboration.hardware("ad_array", {"H": height, "W": width, "N": sub_arrays})
    folder = elaboration.write(made, tmp_path / "rtl")
    found = yosys.synthesise([folder / name for name in made.sources], "ad_array").resources
    expected = resources.estimate((height, width, sub_arrays))
    assert found.dsp == expected.dsp == height * width * sub_arrays
    assert found.lut == pytest.approx(expected.lut, rel=0.05)
    assert found.ff == pytest.approx(expected.ff, rel=0.05)
    assert (found.bram, found.uram) == (0, 0)
