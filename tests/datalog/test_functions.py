"""The language's functions, against Python's own and against definitions written down here once more."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.test_fused import NEVER, settings_of
from derivable.datalog.foreign.function import distinct
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.values.values import TYPES

NUMBERS = [t for t in TYPES.values() if t.is_number and t.bits <= 64]
INTEGERS = [t for t in NUMBERS if t.is_integer]
FLOATS = [TYPES["f32"], TYPES["f64"]]
TEXTS = st.text(st.sampled_from("ab ,\u00e9\u4e2d\U0001f600\u0130\u00df\x1f\u2003{}"), max_size=8) | st.text(max_size=6)


def called(name, types, rows, **facts):
    """The function's value for each row of arguments, None where it has none; and so the reference interpreter's."""
    names = [f"x{i}" for i in range(len(types))]
    columns = ", ".join(["i: usize", *(f"{n}: {t}" for n, t in zip(names, types))])
    text = f"type q({columns})\nrel r(i, ${name}({', '.join(names)})) = q(i, {', '.join(names)})\nquery r"
    program = dv.Program(text)
    given_rows = [(i, *row) for i, row in enumerate(rows)]
    found = dict(list(program.run({"q": given_rows})["r"]))
    reference = dict(interpret(program.lowered(), {"q": given_rows[:2]})["r"])
    assert all(reference.get(i) == found.get(i) for i in range(min(2, len(rows))))
    return [found.get(i) for i in range(len(rows))]


def edges(t):
    if t.is_integer:
        low, high = t.limits
        return sorted({low, low + 1, high - 1, high, 0, 1, 2, 7} | ({-1, -2, -7} if low else set()))
    values = [0.0, 1.0, -1.0, 0.5, -0.5, -2.75, 3.0, 1e-30, 200.5, 709.0, 1e30, math.inf, -math.inf]
    return [float(np.float32(v)) if t.bits == 32 else v for v in values]


def clipped(value, t):
    return max(t.limits[0], min(t.limits[1], value))


def test_all_of_them_are_there():
    wanted = (
        "abs floor ceil exp exp2 log log2 pow powf sin cos tan asin acos atan atan2 sign max min bit_and bit_or "
        "bit_xor bit_not bit_shift_left bit_shift_right string_concat string_length string_char_at substring format "
        "string_upper string_lower string_index_of string_replace "
        "string_trim hash datetime_day datetime_month datetime_month0 datetime_year parse_entity list_contains dim dot"
    )
    assert set(wanted.split()) <= set(FUNCTIONS.names())


# Numbers


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_bits_are_those_of_two_complements(t):
    """Python's integers have bits without end: what is left of them in so many is the value."""

    def wrapped(value):
        low = value & ((1 << t.bits) - 1)
        return low - (1 << t.bits) if low > t.limits[1] else low

    own = [int(x) for x in edges(t)]
    pairs = [(x, y) for x in own for y in own]
    for name, meaning in {
        "bit_and": lambda x, y: x & y,
        "bit_or": lambda x, y: x | y,
        "bit_xor": lambda x, y: x ^ y,
    }.items():
        assert called(name, [t, t], pairs) == [wrapped(meaning(x, y)) for x, y in pairs]
    assert called("bit_not", [t], [(x,) for x in own]) == [wrapped(~x) for x in own]
    places = [(x, k) for x in own for k in (0, 1, t.bits - 1, t.bits, 200, (1 << 32) - 1)]
    assert called("bit_shift_left", [t, TYPES["u32"]], places) == [wrapped(x << min(k, t.bits)) for x, k in places]
    assert called("bit_shift_right", [t, TYPES["u32"]], places) == [x >> k for x, k in places]
    program = dv.Program(f"""
        type e(x: {t}, k: u32), n(k: u32)
        rel left(x, k, $bit_shift_left(x, k)) = e(x, k), n(k)
        rel right(x, k, $bit_shift_right(x, k)) = e(x, k), n(k)
        query left query right
    """)
    for few in (NEVER, 0):
        with settings_of(few, NEVER):
            found = program.run({"e": places, "n": [(k,) for _, k in places]}, keep=True)
        assert set(found["left"]) == {(x, k, wrapped(x << min(k, t.bits))) for x, k in places}
        assert set(found["right"]) == {(x, k, x >> k) for x, k in places}
    assert [rule.route.name for rule in found.profile.rules] == ["kernel", "kernel"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("String", ["b", "", "ab", "\u00e9", "a"]),
        ("bool", [False, True]),
        ("char", ["b", "a", "\u00e9"]),
        ("u128", [0, 1 << 100, 7]),
    ],
)
def test_extrema_are_of_whatever_has_an_order(kind, values):
    rows = [(x, y, z) for x in values for y in values for z in values]
    assert called("min", [TYPES[kind]] * 3, rows) == [min(row) for row in rows]
    assert called("max", [TYPES[kind]] * 3, rows) == [max(row) for row in rows]


@pytest.mark.parametrize("t", NUMBERS, ids=str)
def test_functions_of_any_number(t):
    rows = [(v,) for v in edges(t)]
    sign = [(v > 0) - (v < 0) for (v,) in rows]
    assert called("sign", [t], rows) == sign
    expected = [abs(v) for (v,) in rows]
    assert called("abs", [t], rows) == [clipped(v, t) if t.is_integer else v for v in expected]
    for name, meaning in (("floor", math.floor), ("ceil", math.ceil)):
        expected = [v if math.isinf(v) else float(meaning(v)) if t.family == "float" else v for (v,) in rows]
        assert called(name, [t], rows) == expected
    pairs = [(a, b) for a in edges(t) for b in edges(t)]
    assert called("max", [t, t], pairs) == [max(pair) for pair in pairs]
    assert called("min", [t, t], pairs) == [min(pair) for pair in pairs]
    assert called("max", [t], rows) == [v for (v,) in rows]
    triples = [(a, b, a) for a, b in pairs[:7]]
    assert called("min", [t] * 3, triples) == [min(triple) for triple in triples]


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_powers_of_integers_wrap_around(t):
    pairs = [(a, n) for a in edges(t) for n in (0, 1, 2, 3, 7, 64, 2**32 - 1)]
    low = t.limits[0]
    expected = [(pow(a, n, 2**t.bits) - low) % 2**t.bits + low for a, n in pairs]
    assert called("pow", [t, "u32"], pairs) == expected


def real(meaning, *operands):
    """A function of Python's math, None where it has no number."""
    try:
        found = meaning(*operands)
    except ValueError:
        return None
    except OverflowError:
        return math.inf
    return None if math.isnan(found) else found


MEANINGS = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": lambda x: -math.inf if x == 0 else math.log(x),
    "log2": lambda x: -math.inf if x == 0 else math.log2(x),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
}


@pytest.mark.parametrize("t", FLOATS, ids=str)
@pytest.mark.parametrize("name", MEANINGS)
def test_functions_of_floats(name, t):
    values = [v for v in edges(t) if abs(v) < 1e20 or math.isinf(v)]
    tolerance = 1e-5 if t.bits == 32 else 1e-12
    for value, found in zip(values, called(name, [t], [(v,) for v in values])):
        expected = real(MEANINGS[name], value)
        if expected is not None and t.bits == 32 and expected > 3.5e38:
            expected = math.inf
        assert found == (None if expected is None else pytest.approx(expected, rel=tolerance, abs=1e-30)), value


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_functions_of_two_floats(t):
    pairs = [(a, b) for a in (0.0, 1.0, -1.0, 0.5, -2.75, 3.0) for b in (0.0, 1.0, -1.0, 0.5, 3.0)]
    tolerance = 1e-5 if t.bits == 32 else 1e-12
    for (a, b), found in zip(pairs, called("atan2", [t, t], pairs)):
        assert found == pytest.approx(math.atan2(a, b), rel=tolerance, abs=1e-30)
    for (a, b), found in zip(pairs, called("powf", [t, t], pairs)):
        expected = math.inf if a == 0 and b < 0 else real(math.pow, a, b)
        assert found == (None if expected is None else pytest.approx(expected, rel=tolerance))


# Texts


def byte_slice(text, begin, end=None):
    raw = text.encode()
    end = len(raw) if end is None else end
    if begin > end or end > len(raw):
        return None
    try:
        return raw[begin:end].decode()
    except UnicodeDecodeError:
        return None


def byte_index(text, part):
    place = text.encode().find(part.encode())
    return place if place >= 0 else None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS, st.integers(0, 9), st.integers(0, 12)), min_size=1, max_size=30))
def test_texts(rows):
    rows = [row for row in rows if not any(0xD800 <= ord(c) < 0xE000 for text in row[:3] for c in text)]
    for name, types, meaning in [
        ("string_length", ["String"], lambda s, p, q, i, j: len(s.encode())),
        ("string_upper", ["String"], lambda s, p, q, i, j: s.upper()),
        ("string_lower", ["String"], lambda s, p, q, i, j: s.lower()),
        ("string_concat", ["String"] * 3, lambda s, p, q, i, j: s + p + q),
        ("string_replace", ["String"] * 3, lambda s, p, q, i, j: q.join(s.split(p)) if p else s.replace(p, q)),
        ("string_index_of", ["String"] * 2, lambda s, p, q, i, j: byte_index(s, p)),
        ("string_trim", ["String"], lambda s, p, q, i, j: s.strip(" \t\n\v\f\r\x85\xa0\u2003\u2028\u2029")),
    ]:
        given_rows = [row[: len(types)] for row in rows]
        assert called(name, types, given_rows) == [meaning(*row) for row in rows], name
    places = [(s, i) for s, _, _, i, _ in rows]
    assert called("string_char_at", ["String", "usize"], places) == [s[i] if i < len(s) else None for s, i in places]
    assert called("substring", ["String", "usize"], places) == [byte_slice(s, i) for s, i in places]
    spans = [(s, i, j) for s, _, _, i, j in rows]
    assert called("substring", ["String", "usize", "usize"], spans) == [byte_slice(*span) for span in spans]


def test_spaces_are_those_of_unicode():
    assert called("string_trim", ["String"], [("\x1c a\u3000",)]) == ["\x1c a"]


def test_format():
    text = r"""
    rel p = {(1, "a", true, 'c', 2.5, 1e-7)}
    rel r($format("{}|{}|{}|{}|{}|{}", a, b, c, d, e, f)) = p(a, b, c, d, e, f)
    rel plain($format("no place"))
    rel whole($format("{}{}", 3.0, 100000000000000000000.0))
    rel nested($format("{}", $format("<{}>", -3)))
    """.replace("1e-7", "0.0000001")
    db = dv.Program(text).run()
    assert set(db["r"]) == {("1|a|true|c|2.5|0.0000001",)}
    assert set(db["plain"]) == {("no place",)}
    assert set(db["whole"]) == {("3100000000000000000000",)}
    assert set(db["nested"]) == {("<-3>",)}


def test_patterns_of_rows():
    patterns = ["<{}>", "{0} {x} {}", "{{}}", "{}"]
    found = called("format", ["String", "i8"], [(pattern, i) for i, pattern in enumerate(patterns * 3)])
    assert found == [pattern.replace("{}", str(i)) for i, pattern in enumerate(patterns * 3)]


# Hashes


def siphash(data):
    """SipHash-1-3 with the key 0, a byte string at a time."""
    mask = 2**64 - 1

    def turn(x, bits):
        return (x << bits | x >> (64 - bits)) & mask

    def mix(a, b, c, d):
        a, c = (a + b) & mask, (c + d) & mask
        b, d = turn(b, 13) ^ a, turn(d, 16) ^ c
        a = turn(a, 32)
        c, a = (c + b) & mask, (a + d) & mask
        b, d = turn(b, 17) ^ c, turn(d, 21) ^ a
        return a, b, turn(c, 32), d

    state = tuple(struct.unpack(">4Q", b"somepseudorandomlygeneratedbytes"))
    whole = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for (word,) in struct.iter_unpack("<Q", whole):
        a, b, c, d = state
        a, b, c, d = mix(a, b, c, d ^ word)
        state = a ^ word, b, c, d
    a, b, c, d = state
    state = a, b, c ^ 255, d
    for _ in range(3):
        state = mix(*state)
    a, b, c, d = state
    return a ^ b ^ c ^ d


BYTES = {"i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q"}
BYTES |= {"isize": "<q", "usize": "<Q", "f32": "<f", "f64": "<d", "bool": "<?", "char": "<I"}


def hashed(row, types):
    data = struct.pack("<Q", len(row))
    for value, t in zip(row, types):
        if t == "String":
            data += value.encode() + b"\xff"
        else:
            data += struct.pack(BYTES[t], ord(value) if t == "char" else value)
    return siphash(data)


def test_published_hashes():
    db = dv.Program('rel a($hash(1, 3)) rel b($hash("a", 3, 5.5))').run()
    assert set(db["a"]) == {(7198375873285174811,)}
    assert set(db["b"]) == {(5862532063111067262,)}
    assert hashed((1, 3), ["i32", "i32"]) == 7198375873285174811


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_hashes_of_all_types(data):
    types = data.draw(st.lists(st.sampled_from([*BYTES, "String"]), min_size=1, max_size=4))
    kinds = {
        "String": TEXTS.filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s)),
        "char": st.sampled_from("a\u00e9\U0001f600"),
        "bool": st.booleans(),
        "f32": st.floats(width=32, allow_nan=False).map(lambda v: v + 0.0),
        "f64": st.floats(allow_nan=False).map(lambda v: v + 0.0),
    }
    columns = [kinds[t] if t in kinds else st.integers(*TYPES[t].limits) for t in types]
    rows = data.draw(st.lists(st.tuples(*columns), min_size=1, max_size=20))
    assert called("hash", types, rows) == [hashed(row, types) for row in rows]


# Calls


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 1)), min_size=1, max_size=60))
def test_distinct_rows(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows)]
    kept, places = distinct(columns)
    found = list(zip(*(column.tolist() for column in kept)))
    assert [found[place] for place in (range(len(rows)) if places is None else places)] == rows
    assert len(rows) <= 16 or len(set(found)) == len(found)


def test_functions_in_bodies_tags_and_recursion():
    text = """
    rel word = {"a", "bb", "ccc"}
    rel long(w) = word(w), $string_length(w) >= 2
    rel (1.0 / ($string_length(w) as f64))::picked(w) = word(w)
    rel grown("x")
    rel grown($string_concat(w, "y")) = grown(w), $string_length(w) < 4
    rel last(c) = grown(w), c == $string_char_at(w, 3)
    """
    program = dv.Program(text)
    db = program.run()
    assert set(db["long"]) == {("bb",), ("ccc",)}
    assert dict(db["picked"].items()) == pytest.approx({("a",): 1.0, ("bb",): 0.5, ("ccc",): 1 / 3})
    assert set(db["grown"]) == {("x" + "y" * n,) for n in range(4)}
    assert set(db["last"]) == {("y",)}
    for name in ("long", "grown", "last"):
        assert set(program.run(provenance="unit")[name]) == interpret(program.lowered(), {})[name]


def test_functions_of_scalars_are_parts_of_kernels(costs):
    costs(few_rows=0, many_rows=0)
    text = "type e(i32, i32)\nrel p(x, $max(y, $abs(z)) + $sign(x)) = e(x, y), e(y, z)\nquery p"
    edges_ = [(i, (i * 7) % 11 - 5) for i in range(-5, 6)]
    database = dv.Program(text).run({"e": edges_}, keep=True)
    found = set(database["p"])
    assert found == {(x, max(y, abs(z)) + (x > 0) - (x < 0)) for x, y in edges_ for a, z in edges_ if a == y}
    # The kernel has the whole rule: there is no reason why it has not.
    assert [(effort.route.name, effort.route.reason) for effort in database.profile.rules] == [("kernel", "")]
