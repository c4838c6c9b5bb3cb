"""The golden machine against sums written out, torch's convolutions and float64."""

import numpy as np
import pytest

from derivable.accelerator.machine import machine
from derivable.accelerator.machine.instructions import Convolve, End, Gemm, Machine, Move, Program, Transfer, Vector
from derivable.accelerator.machine.machine import Latencies, State, execute
from derivable.core.diagnostics import DomainError, LayoutError

SMALL = Machine(4, 4, 2, lanes=8, line=32, a=256, b=256, k=32, c=256, p=4, x=8192, program=64)


def _state(of=SMALL):
    return State(of, np.zeros(1024, np.uint8))


def _int4(low, high):
    return (low & 15 | (high & 15) << 4).astype(np.uint8)


@pytest.mark.parametrize("nibbles", [0, 1])
def test_gemm_is_a_product_of_matrices(nibbles):
    rng = np.random.default_rng(nibbles)
    state, (h, w) = _state(), (4, 4)
    arrays, tiles, columns, m = 2, 3, 2, 5
    most = 7 if nibbles else 127
    shape = (arrays, tiles, h, 2) if nibbles else (arrays, tiles, h)
    x = rng.integers(-most, most + 1, (m, *shape))
    weights = rng.integers(-most, most + 1, (*shape, columns * w))
    offsets = rng.permutation(tiles) * 10
    state.k[:arrays, 2 : 2 + tiles] = offsets
    for n, t, row, c in np.ndindex(arrays, tiles, m, columns):
        b, a = x[row, n, t], weights[n, t, ..., c * w : c * w + w]
        state.b[n, 1 + offsets[t] + 2 * row] = _int4(b[:, 0], b[:, 1]) if nibbles else b.astype(np.int8).view(np.uint8)
        place = 3 + (c * tiles + t) * h
        state.a[n, place : place + h] = _int4(a[:, 0], a[:, 1]) if nibbles else a.astype(np.int8).view(np.uint8)
    before = rng.integers(-99, 99, (2, 10, 4))
    state.c[:, :10] = before
    of = {"arrays": arrays, "a": 3, "b": 1, "k": 2, "tiles": tiles, "columns": columns, "n2": m, "b2": 2}
    execute(state, Gemm(**of, nibbles=nibbles))
    expected = x.reshape(m, -1) @ weights.reshape(-1, columns * w)
    np.testing.assert_array_equal(state.c[0, :10], expected.reshape(m, columns, w).swapaxes(0, 1).reshape(10, w))
    execute(state, Gemm(**of, nibbles=nibbles, accumulate=1))
    np.testing.assert_array_equal(state.c[0, :10].reshape(columns, m, w).swapaxes(0, 1).reshape(m, -1), 2 * expected)
    np.testing.assert_array_equal(state.c[1, :10], before[1])


def test_convolution_without_copies_is_torchs():
    """Offsets in K are taps: a tile is one (ky, kx, channel block) of a picture with borders."""
    import torch

    rng = np.random.default_rng(5)
    of = Machine(4, 4, 2, lanes=8, line=32, a=256, b=256, k=32, c=256, x=8192)
    state = _state(of)
    channels, side, outputs = 8, 5, 4
    x = rng.integers(-127, 128, (channels, side, side))
    weights = rng.integers(-127, 128, (outputs, channels, 3, 3))
    padded = np.zeros((side + 2, side + 2, channels), np.int8)
    padded[1:-1, 1:-1] = x.transpose(1, 2, 0)
    taps = [(y, x) for y in range(3) for x in range(3)]
    for bank in range(2):  # each bank has its block of channels
        block = slice(4 * bank, 4 * bank + 4)
        state.b[bank, : (side + 2) ** 2] = padded[:, :, block].reshape(-1, 4).view(np.uint8)
        for t, (dy, dx) in enumerate(taps):
            state.k[bank, t] = dy * (side + 2) + dx
            state.a[bank, 4 * t : 4 * t + 4] = weights[:, block, dy, dx].T.astype(np.int8).view(np.uint8)
    execute(state, Gemm(arrays=2, tiles=9, n1=3, n2=3, b1=2 * (side + 2), b2=2))
    expected = torch.nn.functional.conv2d(
        torch.tensor(x[None], dtype=torch.float64), torch.tensor(weights, dtype=torch.float64), stride=2, padding=1
    )
    np.testing.assert_array_equal(state.c[0, :9].T.reshape(4, 3, 3), expected[0].numpy())


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize("length", [1, 6, 8])
def test_convolve_is_the_definition(reverse, split, length):
    rng = np.random.default_rng(length)
    state, groups, w = _state(), 3, 4
    most = 7 if split else 127
    a, b = (rng.integers(-most, most + 1, (2, count, length, w, 1 + split)) for count in (groups, 1))
    for start, array in ((5, a), (100, b)):
        words = _int4(array[..., 0], array[..., 1]) if split else array[..., 0].astype(np.int8).view(np.uint8)
        state.a[:, start : start + array.shape[1] * length] = words.reshape(2, -1, w)
    execute(
        state,
        Convolve(arrays=2, a=5, b=100, c=7, groups=groups, length=length, a0=length, reverse=reverse, split=split),
    )
    expected = np.zeros((2, groups, length, w, 1 + split), np.int64)
    for i in range(length):
        for j in range(length):
            expected[:, :, i] += a[:, :, j] * b[:, :, (i + j if reverse else i - j) % length]
    found = state.c[:, 7 : 7 + groups * length]
    found = np.stack([(found & 0xFFFF).astype(np.int16), found >> 16], -1) if split else found[..., None]
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_moves_are_nested_loops():
    state = _state()
    state.x[:] = np.random.default_rng(0).integers(0, 256, len(state.x))
    of = Move(operation="B", first=0, bank_loop=1, n0=2, n1=2, n2=3, n3=4, x=7, x0=100, x1=9, x2=-2, x3=30, to=40,
              to0=50, to2=13, to3=-3, valid=3)  # fmt: skip
    execute(state, of)
    for i0, i1, i2, i3 in np.ndindex(2, 2, 3, 4):
        source = 7 + 100 * i0 + 9 * i1 - 2 * i2 + 30 * i3
        expected = [*state.x[source : source + 3], 0]
        assert list(state.b[i1, 40 + 50 * i0 + 13 * i2 - 3 * i3]) == expected
    # Two words of a line, each to its own bank: the last has two bytes less.
    execute(state, Move(operation="A", banks=2, spread=2, n3=3, x=21, x3=11, to=9, to3=2, valid=6))
    for i, bank in np.ndindex(3, 2):
        source = 21 + 11 * i + 4 * bank
        expected = [*state.x[source : source + 4]] if bank == 0 else [*state.x[source : source + 2], 0, 0]
        assert list(state.a[bank, 9 + 2 * i]) == expected
    execute(state, Move(operation="K", banks=2, spread=2, x=100, to=20))
    np.testing.assert_array_equal(state.k[:, 20], state.x[100:108].view("<u4") & 0xFFFFFF)
    execute(state, Move(operation="K", banks=2, n3=3, x=64, x3=4, to=1, to3=1))
    np.testing.assert_array_equal(state.k[:, 1:4], [state.x[64:76].view("<u4") & 0xFFFFFF] * 2)
    execute(state, Move(operation="P", n3=2, x=128, x3=32, to=1, to3=1))
    np.testing.assert_array_equal(state.added[1:3], state.x[128:192].view("<i4").reshape(2, 8)[:, :4])
    np.testing.assert_array_equal(state.multiplied[1:3], state.x[128:192].view("<i4").reshape(2, 8)[:, 4:])


def _element(state, byte, kind, lane):
    if kind == "i4":
        found = int(state.x[byte + lane // 2]) >> 4 * (lane % 2) & 15
        return found - 16 if found > 7 else found
    size = int(kind[1:]) // 8
    return int.from_bytes(state.x[byte + lane * size : byte + lane * size + size].tobytes(), "little", signed=True)


_SCALAR = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
    "first": lambda a, b: a,
}


def _vector(state, of):
    """One lane after the other, in Python's integers: {byte: value} of what is written."""
    count, before, found = 8, state, {}

    def step(i0, i1, i2):
        last = i2 == of.n2 - 1 if of.tail_inner else i1 == of.n1 - 1
        used = of.tail if of.tail and last else count
        listed = []
        for lane in range(used):
            a = _element(before, of.a + i0 * of.a0 + i1 * of.a1 + i2 * of.a2, of.a_type, 0 if of.a_one else lane)
            b = of.b
            if of.b_from == "X":
                b = _element(before, of.b + i0 * of.b0 + i1 * of.b1 + i2 * of.b2, of.b_type, 0 if of.b_one else lane)
            listed.append(_SCALAR[of.operation](a, b))
        return listed

    fold = sum if of.reduction == "sum" else max
    for i0, i1 in np.ndindex(of.n0, of.n1):
        steps = [step(i0, i1, i2) for i2 in range(of.n2)]
        if of.along:
            longest = max(map(len, steps))
            steps = [[fold([s[lane] for s in steps if lane < len(s)]) for lane in range(longest)]]
        for i2, values in enumerate(steps):
            values = [fold(values)] if of.across else values
            for lane, v in enumerate(values):
                y = v * of.multiplier
                y = y + (1 << of.shift >> 1) >> of.shift
                y = min(max(y, of.low), of.high) if of.is_clamped else y
                bits = int(of.y_type[1:])
                most = 2 ** (bits - 1) - 1
                y = min(max(y, -most - 1), most)
                found[of.y + i0 * of.y0 + i1 * of.y1 + i2 * of.y2, lane] = y
    return found


@pytest.mark.parametrize("seed", range(60))
def test_vector_is_lane_by_lane(seed):
    rng = np.random.default_rng(seed)
    state = _state()
    state.x[:] = rng.integers(0, 256, len(state.x))
    types = ("i4", "i8", "i16", "i32")
    kinds = [types[k] for k in rng.integers(0, 4, 3)]
    n0, n1, n2 = (int(n) for n in rng.integers(1, 4, 3))
    along, across, inner = (int(n) for n in rng.integers(0, 2, 3))
    step = {"i4": 4, "i8": 8, "i16": 16, "i32": 32}[kinds[2]]
    of = Vector(
        operation=list(_SCALAR)[seed % 6], n0=n0, n1=n1, n2=n2, a_type=kinds[0], b_type=kinds[1], y_type=kinds[2],
        a_one=int(rng.integers(2)), b_one=int(rng.integers(2)), b_from=("value", "X")[rng.integers(2)],
        a=100, a0=int(rng.integers(-30, 99)), a1=3, a2=17, b=1000, b0=5, b1=int(rng.integers(-30, 99)), b2=1,
        y=4096, y0=step * n1 * n2, y1=step * n2, y2=step, multiplier=int(rng.integers(-300, 300)),
        shift=int(rng.integers(0, 12)), is_clamped=int(rng.integers(2)), low=-50, high=60,
        reduction=("sum", "max")[rng.integers(2)], along=along, across=across, tail=int(rng.integers(0, 9)),
        tail_inner=inner,
    )  # fmt: skip
    expected = _vector(state, of)
    before = state.x.copy()
    execute(state, of)
    for (byte, lane), value in expected.items():
        assert _element(state, byte, kinds[2], lane) == value
    lanes = {"i4": 1, "i8": 1, "i16": 2, "i32": 4}[kinds[2]]
    written = {
        byte + (lane // 2 if kinds[2] == "i4" else lane * lanes) + k for byte, lane in expected for k in range(lanes)
    }
    kept = np.array(sorted(set(range(len(before))) - written))
    np.testing.assert_array_equal(state.x[kept], before[kept])


@pytest.mark.parametrize(("tail", "passes", "deep"), [(0, 1, 8), (3, 2, 5), (1, 1, 1), (7, 3, 8)])
def test_turned_results_leave_lane_by_lane(tail, passes, deep):
    """Three strips of eight lanes, of which the last has a tail: what stood in rows stands in columns."""
    rng = np.random.default_rng(deep)
    state = _state()
    state.x[:] = rng.integers(0, 256, len(state.x))
    wide = 16 + (tail or 8)
    rows = rng.integers(-200, 200, (passes * deep, wide)).astype("<i4")
    state.x[: rows.nbytes] = rows.ravel().view(np.uint8)
    of = Vector(
        operation="first", n0=passes, n1=3, n2=deep, a_type="i32", a0=4 * wide * deep, a1=32, a2=4 * wide,
        y=4097, y0=deep, y1=8 * 31, y2=31, tail=tail, turned=1,
    )  # fmt: skip
    before = state.x.copy()
    execute(state, of)
    columns = before[4097 : 4097 + 31 * wide].reshape(wide, 31)
    columns[:, : passes * deep] = np.clip(rows, -128, 127).T.astype(np.int8).view(np.uint8)
    np.testing.assert_array_equal(state.x, before)
    assert machine.cycles(SMALL, of) == (3 * passes - 1) * 8 + deep + 8 + Latencies().vec + Latencies().turn


def test_draining_adds_and_multiplies_by_column():
    state = _state()
    rng = np.random.default_rng(1)
    state.c[0, :12] = rng.integers(-30000, 30000, (12, 4))
    state.added[1:3], state.multiplied[1:3] = rng.integers(-99, 99, (2, 4)), rng.integers(1, 1 << 20, (2, 4))
    of = Vector(operation="drain", n0=2, n1=1, n2=6, a_from="C", a_type="i32", a0=6, a2=1, y=64, y0=4, y2=8, p=1,
                shift=25, is_clamped=1, low=0, high=127)  # fmt: skip
    execute(state, of)
    for column, row, lane in np.ndindex(2, 6, 4):
        v = int(state.c[0, column * 6 + row, lane]) + int(state.added[1 + column, lane])
        y = v * int(state.multiplied[1 + column, lane]) + (1 << 24) >> 25
        assert state.x[64 + 8 * row + 4 * column + lane] == min(max(y, 0), 127)


def test_split_sums_are_read_as_they_lie():
    state = _state()
    state.c[1, :2] = np.arange(8, dtype=np.int32).reshape(2, 4) * 0x20001
    execute(state, Vector(operation="first", n2=4, a_from="C", a_bank=1, a_type="i16", a2=1, y=0, y2=4))
    np.testing.assert_array_equal(state.x[:16].view(np.int8), np.stack([np.arange(8), 2 * np.arange(8)], 1).ravel())


def test_transfers_times_and_errors():
    of = Machine(4, 4, 1, lanes=4, line=16, x=256, program=16)
    far = np.arange(128, dtype=np.uint8)
    times = Latencies(off_chip=6, load=4, store=4, vec=3)
    program = Program(
        [
            Transfer(operation="load", x=3, far=16, lines=2),
            Vector(operation="add", n2=3, a=3, a2=4, b=1, y=64, y2=4, needs=(1, 0, 0, 0, 0)),
            Transfer(operation="store", x=64, far=112, lines=1, needs=(0, 0, 0, 0, 1)),
            End(),
        ]
    )
    found = machine.run(of, program, far, times)
    np.testing.assert_array_equal(found.memory[:112], far[:112])
    np.testing.assert_array_equal(found.memory[112:124], far[16:28] + 1)
    # In its queue at 5, taken at 8; 13 cycles of a transfer; 2 cycles later 3 steps and their pipeline; then 11 cycles.
    assert found.begin.tolist() == [8, 23, 31, 43]
    assert found.end.tolist() == [21, 29, 42, 43]
    assert found.cycles == 43
    large = [
        Transfer(operation="load", x=0, far=0, lines=1),
        Vector(operation="mul", a_type="i32", b=1 << 30, y=64, multiplier=16384, needs=(1, 0, 0, 0, 0)),
    ]
    with pytest.raises(DomainError, match=r"instruction 1, vec.mul.*beyond 63 bits"):
        machine.run(of, Program([*large, End()]), np.full(128, 127, np.uint8))
    state = _state()
    state.a[:], state.b[:], state.c[:] = 127, 127, (1 << 31) - 1
    with pytest.raises(DomainError, match="beyond int32"):
        execute(state, Gemm(accumulate=1))


def test_units_run_beside_each_other_and_queues_fill():
    times = Latencies(vec=0)
    work = [Vector(operation="first", n2=10, y=64) for _ in range(12)]
    _, end = machine.timing(SMALL, Program([*work, End()]), times)
    assert end.tolist() == [18 + 10 * k for k in range(12)] + [129]
    other = Convolve(first=1, length=4)
    begin, _ = machine.timing(SMALL, Program([*work, other, End()]), times)
    # It follows the twelfth into a queue, which was full until the fourth was taken out.
    assert begin[12] == 38 + 1 + 1 + 3


def test_instructions_that_wait_for_ever_are_told():
    later = Vector(operation="first", y=64, needs=(0, 1, 0, 0, 0))
    waiting = Program([later, Move(operation="K", needs=(0, 0, 0, 0, 1)), End()])
    with pytest.raises(LayoutError, match=r"instruction 0, vec.first needs=move:1.*waits for ever"):
        machine.timing(SMALL, waiting)


@pytest.mark.parametrize(("far", "lines", "more"), [(4064, 3, 1), (4064, 1, 0), (4032, 3, 0), (0, 200, 0)])
def test_a_burst_of_one_line_has_no_other_right_behind_it(far, lines, more):
    """Addresses are two cycles apart, and a burst ends with its page of 4,096 bytes."""
    fast, slow = Latencies(), Latencies(interval=2)
    loads = [Transfer(operation="load", x=0, far=at, lines=lines) for at in (far, 32)]
    ends = [machine.timing(SMALL, Program((load, End())))[1][0] for load in loads]
    assert ends[0] - ends[1] == more
    assert machine.cycles(SMALL, loads[0], fast) - machine.cycles(SMALL, loads[1], fast) == more
    assert machine.cycles(SMALL, loads[0], slow) == machine.cycles(SMALL, loads[1], slow)


def test_cycles_are_the_equations():
    from derivable.accelerator.operators.runtime import Layer, Vectors, layer_cycles, temporal_cycles

    none = Latencies(nn=0, vsa=0)
    gemm = Gemm(arrays=2, tiles=3, columns=2, n2=50)
    assert machine.cycles(SMALL, gemm, none) == layer_cycles(Layer(50, 24, 8), 4, 4, 2) + 1
    convolve = Convolve(arrays=2, groups=3, length=10)
    assert machine.cycles(SMALL, convolve, none) == temporal_cycles(Vectors(24, 10), 4, 4, 2)
