"""Files of plain fields, which a kernel reads, against Python's numbers and what Arrow and lines say of the same."""

import random
import struct
from fractions import Fraction

import numpy as np
import pytest

import derivable as dv
from derivable.cli.main import main
from derivable.core.diagnostics import DerivableError, ParseError
from derivable.datalog.facts import fact_files
from derivable.datalog.facts.fact_files import read_facts
from derivable.datalog.facts.inputs import Texts
from derivable.datalog.facts.plain_fields import plain_columns
from derivable.datalog.policy.costs import under
from derivable.datalog.souffle import read as souffle_files
from derivable.datalog.values.values import TYPES

KINDS = ("i8", "u8", "i16", "i32", "u32", "i64", "u64", "usize", "f32", "f64", "f64", "String", "char")
FORMS = (("\t", ".facts"), ("\t", ".tsv"), (",", ".csv"), (" ", ".facts"), ("\t", ".txt"))
TEXTS = ("a", "bc", "", "x y", " z", "é", "12", "a longer text", "\x01b", '"q"', "#")
ODD = (
    *("", "+5", "007", "-0", "-", "--1", "1.0", "1e3", " 4", "4 ", "0x1F", "99999999999", "1234567890123456789"),
    *(
        "12345678901234567890",
        ".",
        "1.",
        "-.5",
        "1e",
        "1E+2",
        "1e+-2",
        "1e400",
        "1e-310",
        "3.5e38",
        "inf",
        "e",
        "NaN",
        "null",
        "1_0",
        "１",
        "\t",
        "\r",
        "\n",
        "\r\n",
        '"',
        '""',
        "\0",
        "#c",
        ",",
        " ",
    ),
)


@pytest.fixture
def taken(monkeypatch):
    """What the kernel gave for each file."""
    results = []
    plain = fact_files.plain_columns

    def noted(*arguments):
        results.append(plain(*arguments))
        return results[-1]

    monkeypatch.setattr(fact_files, "plain_columns", noted)
    return results


def read(path, kinds):
    """Values by column, or the text of the error."""

    def values(array):
        if not isinstance(array, Texts):
            # A zero below zero is another text.
            return [repr(value) if isinstance(value, float) else value for value in array.tolist()]
        texts = array.texts if isinstance(array.texts, list) else array.texts.decoded()
        return texts if array.positions is None else [texts[i] for i in array.positions.tolist()]

    try:
        with under(many=0):
            columns = read_facts(path, "r", [TYPES[kind] for kind in kinds])
    except DerivableError as error:
        return str(error)
    tags = columns.probabilities
    return [*map(values, columns.arrays)], None if tags is None else list(map(repr, tags.tolist()))


def drawn_field(draw, kind):
    if kind == "char" or (kind == "String" and draw.random() < 0.3):
        return draw.choice("abcxyz")
    if kind == "String":
        return draw.choice(TEXTS)
    if kind in ("f32", "f64"):
        return drawn_float(draw, kind)
    low, high = TYPES[kind].limits
    size = 10 ** draw.randint(1, 20)
    return str(draw.choice([low, high, draw.randint(max(low, -size), min(high, size))]))


def drawn_float(draw, kind="f64"):
    """Decimals as they are written, of any bits, and such as are at, or next to, the middle of two floats."""
    match draw.choice([0, 0, 1, 3, 5, 6] if kind == "f32" else range(7)):
        case 0:
            return f"{draw.uniform(-100, 100):.{draw.randint(0, 9)}f}"
        case 1:
            return repr(draw.random())
        case 2:
            return f"{draw.getrandbits(draw.randint(1, 63))}e{draw.randint(-300, 280)}"
        case 3:
            return f"{draw.uniform(-1, 1):.{draw.choice([7, 15, 16, 18])}e}"
        case 4:
            return repr(struct.unpack("d", struct.pack("Q", draw.getrandbits(62) + (1 << 56)))[0])
        case 5:
            return str(np.float32(draw.uniform(-1e6, 1e6)))
    bits, least = (24, -8) if kind == "f32" else (53, -2)
    middle = Fraction((1 << bits) + 2 * draw.getrandbits(bits - 1) + 1) * Fraction(2) ** draw.randint(least, 8)
    power = middle.denominator.bit_length() - 1
    return f"{int(middle * 10**power) + draw.randint(-1, 1)}e-{power}"


def drawn_file(draw, kinds, delimiter):
    end = draw.choice(["\n", "\n", "\r\n"])
    lines = [delimiter.join(drawn_field(draw, kind) for kind in kinds) for _ in range(draw.randint(0, 12))]
    text = end.join(lines) + draw.choice([end, ""])
    for _ in range(draw.choice([0, 0, 1, 1, 2])):
        at, way = draw.randint(0, len(text)), draw.random()
        piece = draw.choice(ODD) if way < 0.5 else "" if way < 0.8 else chr(draw.randint(0, 255))
        text = text[:at] + piece + text[at + (way >= 0.5) :]
    return text.encode()


def check_drawn_files(tmp_path, monkeypatch, taken, seed, count):
    draw, noted = random.Random(seed), fact_files.plain_columns
    for _ in range(count):
        kinds = [draw.choice(KINDS) for _ in range(draw.randint(1, 4))]
        delimiter, ending = draw.choice(FORMS)
        path = tmp_path / f"r{ending}"
        path.write_bytes(drawn_file(draw, draw.choice([[], [], ["f64"]]) + kinds, delimiter))
        columns = read(path, kinds)
        monkeypatch.setattr(fact_files, "plain_columns", lambda *_: None)
        assert columns == read(path, kinds), (kinds, path.read_bytes())
        monkeypatch.setattr(fact_files, "plain_columns", noted)
    assert sum(columns is not None for columns in taken) > count // 10


def test_drawn_files(tmp_path, monkeypatch, taken):
    check_drawn_files(tmp_path, monkeypatch, taken, 1, 60)


@pytest.mark.slow
def test_many_drawn_files(tmp_path, monkeypatch, taken):
    check_drawn_files(tmp_path, monkeypatch, taken, 2, 2000)


def check_files_of_souffle(tmp_path, monkeypatch, seed, count):
    draw, results, plain = random.Random(seed), [], souffle_files.plain_columns

    def noted(*arguments, **options):
        results.append(plain(*arguments, **options))
        return results[-1]

    path = tmp_path / "r.facts"
    for _ in range(count):
        kinds = [draw.choice(["number", "unsigned", "symbol", "float"]) for _ in range(draw.randint(1, 3))]
        form, delimiter = draw.choice([("", "\t"), ('(delimiter=",", rfc4180=true)', ","), ("(headers=true)", "\t")])
        columns = ", ".join(f"c{i}:{kind}" for i, kind in enumerate(kinds))
        program = dv.Program.from_souffle(f".decl r({columns})\n.input r{form}\n.output r")
        names = {"number": "i32", "unsigned": "u32", "symbol": "String", "float": "f32"}
        path.write_bytes(drawn_file(draw, [names[kind] for kind in kinds], delimiter))
        answers = []
        for way in (noted, lambda *_, **__: None):
            monkeypatch.setattr(souffle_files, "plain_columns", way)
            try:
                answers.append(sorted(map(repr, program.run(program.read(tmp_path))["r"])))
            except DerivableError as error:
                answers.append(str(error))
        assert answers[0] == answers[1], (columns, form, path.read_bytes())
    assert sum(columns is not None for columns in results) > count // 20


def test_drawn_files_of_souffle(tmp_path, monkeypatch):
    check_files_of_souffle(tmp_path, monkeypatch, 3, 30)


@pytest.mark.slow
def test_many_drawn_files_of_souffle(tmp_path, monkeypatch):
    check_files_of_souffle(tmp_path, monkeypatch, 4, 500)


@pytest.mark.parametrize(("kind", "digits"), [("i32", 9), ("i64", 18), ("u64", 18), ("i16", 4)])
def test_integers_of_all_lengths(tmp_path, taken, kind, digits):
    draw = np.random.default_rng(3)
    values = [sign * number for n in range(1, digits + 1) for number in (10**n - 1, 10 ** (n - 1)) for sign in (1, -1)]
    values += [0, *draw.integers(0, 10 ** np.repeat(np.arange(1, digits + 1), 50)).tolist()]
    values = [abs(value) if kind == "u64" else value for value in values]
    path = tmp_path / "r.facts"
    # Without a newline at the end, where fewer than eight bytes are left.
    path.write_text("\n".join(f"{value}\t{i}" for i, value in enumerate(values)))
    assert read(path, [kind, "i32"]) == ([values, [*range(len(values))]], None)
    assert taken[0] is not None
    assert taken[0][0].dtype == {"i16": "i4", "i32": "i4", "i64": "i8", "u64": "u8"}[kind]


def check_floats(fields):
    data = "\n".join(fields).encode()
    columns = plain_columns(data, 0, "\t", [TYPES["f64"]], len(fields) - 1)
    assert columns is not None
    assert columns[0].view(np.int64).tolist() == np.array([*map(float, fields)]).view(np.int64).tolist()


def test_floats_are_those_next_to_the_text():
    draw = random.Random(5)
    check_floats([drawn_float(draw) for _ in range(3000)])
    exact = ["0", "-0", "-0.0", "0e999", "1.", ".5", "-.5", "1E+2", "1e-2", "9007199254740993", "9007199254740995"]
    ends = ["2.2250738585072014e-308", "1.7976931348623157e308", "1.7976931348623158e308", "0." + 30 * "0" + "123"]
    check_floats([*exact, *ends, "9999999999999999999", "9999999999999999999e-19", "8.41e21", "6929495644600919.5e0"])
    # Products whose lower word decides.
    check_floats(["9511602413006487524e-14", "17976931348623157e292", "1e23", "8533e68", "4.1006e-184", "9.998e307"])
    check_floats([f"{digits}e{power}" for power in range(-307, 289) for digits in (1, 2**53 + 1, 10**19 - 1)])


@pytest.mark.slow
def test_many_floats_are_those_next_to_the_text():
    draw = random.Random(6)
    check_floats([drawn_float(draw) for _ in range(400_000)])


@pytest.mark.parametrize(
    "field",
    [
        *("inf", "nan", "0x1p3", "1_0", "+1", " 1", "1 ", "", "-", ".", "1e", "1e+", "1e+-5", "--1", "1..2", "1e5."),
        *("1e999", "1e-320", "2.2250738585072013e-308", "1.7976931348623159e308", "12345678901234567890", "1e1e1"),
    ],
)
def test_floats_that_others_read(field):
    assert plain_columns(f"1\n{field}\n2".encode(), 0, "\t", [TYPES["f64"]], 2, False) is None


def test_singles_are_rounded_once():
    # The float64 next to it is halfway between two float32, and it is above.
    above = "1.00000005960464477539062500000001"[:20]
    single = TYPES["f32"]
    assert float(np.float32("0.1")) != 0.1
    columns = plain_columns(b"0.1\n-2.5", 0, "\t", [single], 1, rounds_once=True)
    assert columns is not None
    assert columns[0].dtype == np.float32
    assert columns[0].tolist() == [float(np.float32(0.1)), -2.5]
    for field in (above, "1.00000005960464478", "16777217", "3.5e38", "1e-39"):
        assert plain_columns(field.encode(), 0, "\t", [single], 0, rounds_once=True) is None
    columns = plain_columns(b"16777217\n0.1", 0, "\t", [single], 1)
    assert columns is not None
    assert columns[0].tolist() == [16777217.0, 0.1]


def test_tags_are_read_with_the_facts(tmp_path, taken):
    path = tmp_path / "r.csv"
    path.write_text("0.25,a,1.5\n1e-3,b,-2\n0.1,c,3\n")
    expected = ([["a", "b", "c"], ["1.5", "-2.0", "3.0"]], ["0.25", "0.001", "0.1"])
    assert read(path, ["String", "f64"]) == expected
    assert taken[0] is not None
    path.write_text("x,probability,y\na,0.25,1.5\nb,1e-3,-2\nc,0.1,3\n")
    with under(many=0):
        columns = read_facts(path, "r", [TYPES["String"], TYPES["f64"]], ("x", "y"))
    assert columns.probabilities.tolist() == [0.25, 0.001, 0.1]
    assert columns.arrays[1].tolist() == [1.5, -2, 3]
    assert taken[1] is not None


def test_texts_blank_lines_and_returns(tmp_path, taken):
    path = tmp_path / "r.csv"
    path.write_bytes(b"\r\nab,1\r\n\n,2\r\na much longer text,-3\n\r\nx,4")
    assert read(path, ["String", "i64"]) == ([["ab", "", "a much longer text", "x"], [1, 2, -3, 4]], None)
    assert taken[0] is not None


def test_a_return_alone_ends_a_line_of_messages(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b"1,2\r3,4\r5,x\r")
    with pytest.raises(ParseError, match="'x' in column 2 is not of type i32") as raised:
        read_facts(path, "r", [TYPES["i32"]] * 2)
    assert (raised.value.span.line, raised.value.span.column) == (3, 3)


@pytest.mark.parametrize("rows", [1, 20_000])
def test_quotes_are_read_as_is_said(tmp_path, rows):
    path = tmp_path / "r.csv"
    path.write_text('"a",1\n"b"c,2\n' * rows)
    program = dv.Program(f'@file("{path}", quotes=false) type r(x: String, n: i32)\nquery r')
    assert sorted(program.run()["r"]) == [('"a"', 1), ('"b"c', 2)]
    assert sorted(dv.Program("type r(x: String, n: i32)").run({"r": dv.datalog.FactFile(path, quotes=False)})["r"]) == [
        ('"a"', 1),
        ('"b"c', 2),
    ]
    (tmp_path / "r.facts").write_text('"a b"\t1\nc\t2\n' * rows)
    plain = dv.Program("type r(x: String, n: i32)")
    for quotes, first in ((None, '"a b"'), (True, "a b")):
        facts = dv.datalog.FactFile(tmp_path / "r.facts", quotes=quotes)
        assert sorted(plain.run({"r": facts})["r"]) == sorted([(first, 1), ("c", 2)])


def test_files_without_quotes_are_written(tmp_path):
    path = tmp_path / "r.csv"
    program = dv.Program('rel r = {("a\\"b", 1), ("c", 2)}\n@file("r.csv", quotes=false, header=false) query r')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        (tmp_path / "p.scl").write_text(program.text)
        assert main(["run", "p.scl", "-o", "."]) == 0
    assert sorted(path.read_text().splitlines()) == ['a"b,1', "c,2"]
