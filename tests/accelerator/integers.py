"""The quantised graph, evaluated operator by operator in plain NumPy integers, as `formats.py` words it.

It shares no code with the lowering or the golden machine, and knows nothing of memories, tiles or lanes.
"""

import math
from fractions import Fraction

import numpy as np

ONE = 65536


def rs(v, s):
    return v if s == 0 else (v + 2 ** (s - 1)) // 2**s


LEAST_AND_MOST = {"i4": (-7, 7), "i8": (-127, 127), "i32": (-(2**31), 2**31 - 1)}


def saturate(v, type):
    return np.clip(v, *LEAST_AND_MOST[type])


def factor(real, bits=15):
    for s in range(40, -1, -1):
        m = round(Fraction(real) * 2**s)
        if abs(m) < 2**bits:
            return m, s
    raise AssertionError(real)


def times(v, real):
    m, s = factor(real)
    return rs(v * m, s)


_EXP = [round(2 ** (k / 256) * 2**24) for k in range(257)]
_LOG = [round(math.log2(1 + k / 256) * 2**24) for k in range(257)]


def _exp2(x):
    x = int(x)
    whole, fraction = x >> 16, x & 65535
    k, rest = fraction >> 8, fraction & 255
    mantissa = _EXP[k] + ((_EXP[k + 1] - _EXP[k]) * rest >> 8)
    if whole >= 15:
        return 2**31 - 1
    return mantissa << (whole - 8) if whole >= 8 else rs(mantissa, min(8 - whole, 31))


def _log2(x):
    x = int(x)
    if x <= 0:
        return -(2**31)
    power = x.bit_length() - 1
    fraction = (x << (31 - power)) - 2**31  # of 2^31
    k, rest = fraction >> 23, fraction >> 7 & 65535
    value = _LOG[k] + ((_LOG[k + 1] - _LOG[k]) * rest >> 16)
    return (power - 16) * ONE + rs(value, 8)


def _elementwise(function):
    return lambda x: np.array([function(v) for v in np.ravel(x)], np.int64).reshape(np.shape(x))


exp2, log2 = _elementwise(_exp2), _elementwise(_log2)


def inverse(x, k):
    return exp2(saturate(-(log2(x) - k * ONE), "i32"))


def power(number):
    return next(k for k in range(64) if 2**k >= number)


def evaluate(graph, formats, inputs):
    """Name -> integers of every operator but constants."""
    found = {}
    constants = {name: np.asarray(array, np.float64) for name, array in graph.constants.items()}

    def as_format(name, to):
        if name in constants:
            return _rounded(constants[name], to)
        before = formats[name]
        if before == to:
            return found[name]
        m, s = factor(before.scale / to.scale)
        zero = np.int64(round(Fraction(to.zero * 2**s, m))) if to.zero else 0
        return _kept(rs((found[name] - before.zero + zero) * m, s), to)

    def wide(name):
        return as_format(name, _Wide)

    def narrow(place):
        """Integers and their scale."""
        format = formats.operands[of.name, place]
        return as_format(of.inputs[place], format), format.scale

    def number(name):
        return float(constants[name].ravel()[0]) if name in constants and constants[name].size == 1 else None

    for of in graph:
        if of.kind == "constant":
            continue
        y = formats[of.name]
        if of.kind == "input":
            found[of.name] = _rounded(np.asarray(inputs[of.name], np.float64), y)
            continue
        value = _value(of, y, wide, narrow, number, found, constants, formats, graph, as_format)
        found[of.name] = _kept(np.asarray(value, np.int64), y).reshape(of.shape)
    return found


class _Wide:
    type, scale, zero = "i32", 2.0**-16, 0


def _kept(steps, format):
    """All steps of bytes and nibbles where there is a zero, else as many on both sides."""
    least, most = LEAST_AND_MOST[format.type]
    return np.clip(steps, least - (format.zero != 0), most)


def _rounded(array, format):
    return _kept(np.rint(array / format.scale) + format.zero, format).astype(np.int64)


def _layer(of, x, weight, formats, y, sums):
    """`sums` of x and weights [channel, ...]; the channel is last in what it gives."""
    scale, own = formats.operands[of.name, 0].scale, formats.weights[of.name]
    steps = np.rint(weight / own.reshape(-1, *(1,) * (weight.ndim - 1)))
    steps = saturate(steps, formats.types[of.name]).astype(np.int64)
    real = scale * own / y.scale
    s = factor(float(np.max(np.abs(real), initial=0)), 30)[1]
    m = np.rint(real * 2.0**s).astype(np.int64)
    total = sums(x, steps) - formats.operands[of.name, 0].zero * steps.reshape(len(steps), -1).sum(1)
    zero = y.zero * 2.0**s / m if y.zero else 0
    return lambda bias: rs((total + np.rint(bias / (scale * own) + zero).astype(np.int64)) * m, s)


def _by_channel(total, real):
    """Each channel, the last axis, by its own factor, with the shift of the largest."""
    s = factor(float(np.max(np.abs(real), initial=0)), 30)[1]
    return rs(total * np.rint(np.asarray(real) * 2.0**s).astype(np.int64), s)


def _conv(x, weight, at, zero):
    (sy, sx), (py, px), (dy, dx), groups = at["stride"], at["padding"], at["dilation"], at["groups"]
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)), constant_values=zero)
    outputs, channels, high, wide = weight.shape
    rows, columns = (x.shape[2] - dy * (high - 1) - 1) // sy + 1, (x.shape[3] - dx * (wide - 1) - 1) // sx + 1
    total = np.zeros((x.shape[0], outputs, rows, columns), np.int64)
    for o, row, column in np.ndindex(outputs, rows, columns):
        group = o // (outputs // groups)
        part = x[:, group * channels : (group + 1) * channels]
        window = part[:, :, row * sy :, column * sx :][:, :, : dy * high : dy, : dx * wide : dx]
        total[:, o, row, column] = (window * weight[o]).sum((1, 2, 3))
    return total


def _pool(x, at, fill):
    (high, wide), (sy, sx), (py, px) = at["kernel"], at["stride"], at["padding"]
    dy, dx = at.get("dilation", (1, 1))
    x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(py, py), (px, px)], constant_values=fill)
    rows, columns = (x.shape[-2] - dy * (high - 1) - 1) // sy + 1, (x.shape[-1] - dx * (wide - 1) - 1) // sx + 1
    windows = [
        [x[..., r * sy :, c * sx :][..., : dy * high : dy, : dx * wide : dx] for c in range(columns)]
        for r in range(rows)
    ]
    return np.array([[w.reshape(*w.shape[:-2], -1) for w in line] for line in windows])  # [row, column, ..., tap]


def _value(of, y, wide, narrow, number, found, constants, formats, graph, as_format):
    kind, names, at, ranges = of.kind, of.inputs, of.at, formats.ranges
    if kind in ("conv2d", "linear") or (
        kind == "matmul" and names[0] not in constants and names[1] in constants and constants[names[1]].ndim == 2
    ):
        x, weight = narrow(0)[0], constants[names[1]]
        weight = weight.T if kind == "matmul" else weight
        bias = constants[names[2]] if len(names) == 3 else 0.0
        zero = formats.operands[of.name, 0].zero
        if kind == "conv2d":
            result = _layer(of, x, weight, formats, y, lambda x, w: np.moveaxis(_conv(x, w, at, zero), 1, -1))
        else:
            result = _layer(of, x, weight, formats, y, lambda x, w: x @ w.T)
        result = result(bias + formats.added.get(of.name, 0.0))
        return np.moveaxis(result, -1, 1) if kind == "conv2d" else result
    if kind == "matmul":
        (a, sa), (b, sb) = narrow(0), narrow(1)
        on_array = names[0] in constants and a.ndim == 2
        return _by_channel(a @ b, sa * sb / y.scale) if on_array else times(a @ b, sa * sb / y.scale)
    if kind == "bundle":
        rank = at["rank"]
        if names[0] in constants and constants[names[0]].ndim == rank + 1:
            (a, sa), (w, sw) = narrow(0), narrow(1)
            return _by_channel(np.tensordot(w, a, (-1, 0)), sa * sw / y.scale)
        (a, sa), (w, sw) = narrow(0), narrow(1)
        total = (a * w.reshape(*w.shape, *(1,) * rank)).sum(-rank - 1)
        return times(total, sa * sw / y.scale)
    if kind in ("bind", "unbind"):
        (c, sc), (a, sa) = narrow(0), narrow(1)
        c, a = np.broadcast_arrays(c, a)
        d = c.shape[-1]
        sign = 1 if kind == "unbind" else -1
        total = sum(a[..., k : k + 1] * c[..., (np.arange(d) + sign * k) % d] for k in range(d))
        return times(total, sc * sa / y.scale)
    if kind == "match_probability":
        (a, sa), (b, sb) = narrow(0), narrow(1)
        return times((a * b).sum((-2, -1)), sa * sb / a.shape[-2] / y.scale)
    if kind in ("add", "sub"):
        sign = 1 if kind == "add" else -1
        a, b = (np.int64(round(number(name) * ONE)) if number(name) is not None else wide(name) for name in names)
        return a + sign * b
    if kind in ("mul", "div"):
        order = names if kind == "div" or number(names[1]) is not None else names[::-1]
        c = number(order[1])
        if c is not None:
            c = 1 / c if kind == "div" else c
            return times(wide(order[0]), c)
        if kind == "mul":
            return rs(wide(names[0]) * wide(names[1]), 16)
        a, b = wide(names[0]), wide(names[1])
        bounds = [
            np.array([np.min(constants[n]), np.max(constants[n])] if n in constants else ranges[n]) for n in names
        ]
        k = power(np.abs(bounds[1]).max())
        is_signed = [ends[0] < 0 for ends in bounds]
        least = 0 if np.prod(bounds[1]) <= 0 else np.abs(bounds[1]).min()
        b_size, b_sign = (np.abs(b), np.sign(b)) if is_signed[1] else (b, 1)
        if k <= 4 or least >= 2.0 ** (k - 15):
            return rs(a * (inverse(b_size, k) * b_sign), 16 + k)
        a_size, a_sign = (np.abs(a), np.sign(a)) if is_signed[0] else (a, 1)
        return exp2(saturate(log2(a_size) - log2(np.maximum(b_size, 1)), "i32")) * a_sign * b_sign
    if kind == "greater":
        return ONE * (wide(names[0]) > wide(names[1]))
    if kind == "equal":
        return ONE * (wide(names[0]) == wide(names[1]))
    if kind == "floor":
        return wide(names[0]) // ONE * ONE
    if kind == "abs":
        return np.abs(wide(names[0]))
    if kind == "clamp":
        low, high = at["low"], at["high"]
        x = wide(names[0])
        x = x if low is None else np.maximum(x, round(low * ONE))
        return x if high is None else np.minimum(x, round(high * ONE))
    if kind in ("maximum", "minimum"):
        return getattr(np, kind)(wide(names[0]), wide(names[1]))
    if kind == "exp":
        return exp2(saturate(times(wide(names[0]), math.log2(math.e)), "i32"))
    if kind == "log":
        return times(log2(np.maximum(wide(names[0]), 1)), math.log(2))
    if kind == "sqrt":
        return exp2(rs(log2(wide(names[0])), 1))
    if kind == "tanh":
        e = exp2(saturate(times(wide(names[0]), 2 * math.log2(math.e)), "i32"))
        return ONE - exp2(ONE - log2(saturate(e + ONE, "i32")))
    if kind == "gelu":
        x = wide(names[0])
        cube = saturate(rs(saturate(rs(x * x, 16), "i32") * x, 16), "i32")
        u = saturate(x + saturate(times(cube, 0.044715), "i32"), "i32")
        e = exp2(saturate(times(u, -2 * math.sqrt(2 / math.pi) * math.log2(math.e)), "i32"))
        return rs(x * inverse(saturate(e + ONE, "i32"), 0), 16)
    if kind == "softmax":
        x, axis = wide(names[0]), at["axis"]
        t = exp2(saturate(times(x - x.max(axis, keepdims=True), math.log2(math.e)), "i32"))
        k = power(x.shape[axis])
        return rs(t * inverse(saturate(t.sum(axis, keepdims=True), "i32"), k), 16 + k)
    if kind == "to_mass":
        x = np.maximum(wide(names[0]), 0)
        total = saturate(x.sum(-1, keepdims=True), "i32")
        k = power(x.shape[-1] * max(ranges[names[0]][1], 0))
        return saturate(rs(x * inverse(total, k), 16 + k), "i32") + np.where(
            total > 0, 0, times(-1, -ONE / x.shape[-1])
        )
    if kind == "normalise":
        x, axes = wide(names[0]), tuple(range(-at["rank"], 0))
        total = saturate(rs((x * x).sum(axes, keepdims=True), 16), "i32")
        return rs(x * exp2(saturate(rs(-log2(total), 1), "i32")), 16)
    x = found.get(names[0])
    if kind == "relu":
        return np.maximum(x, y.zero)
    if kind in ("max", "min"):
        return getattr(np, kind)(x, axis=at["axes"], keepdims=at["keepdims"])
    if kind == "sum":
        return wide(names[0]).sum(at["axes"], keepdims=at["keepdims"])
    if kind == "mean":
        total = wide(names[0]).sum(at["axes"], keepdims=at["keepdims"])
        return times(total, 1 / (wide(names[0]).size // total.size))
    if kind == "prod":
        x = np.moveaxis(wide(names[0]), at["axes"], range(-len(at["axes"]), 0))
        x = x.reshape(*x.shape[: x.ndim - len(at["axes"])], -1)
        result = x[..., 0]
        for k in range(1, x.shape[-1]):
            result = saturate(rs(result * x[..., k], 16), "i32")
        return result
    if kind == "max_pool2d":
        return np.moveaxis(_pool(x, at, -(2**40)).max(-1), (0, 1), (-2, -1))
    if kind == "avg_pool2d":
        high, across = at["kernel"]
        met = _pool(wide(names[0]), at, 0)
        k = power(across) if high > 1 else 0
        rows = rs(met.reshape(*met.shape[:-1], high, across).sum(-1), k)
        return np.moveaxis(times(rows.sum(-1), 2**k / (high * across)), (0, 1), (-2, -1))
    if kind == "concatenate":
        return np.concatenate([as_format(name, y) for name in names], at["axis"])
    assert of.unit == "view", kind
    return of.row.evaluate([x], at)
