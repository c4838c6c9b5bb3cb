"""What files announce is compared with what they hold before memory is taken; compressed ones stop at the limits."""

import gzip
import json
import sys
import tracemalloc
import zlib

import numpy as np
import pytest

from derivable.circuit import compile, load, read_dimacs
from derivable.circuit.files.store import content
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.cli.main import main
from derivable.core import files
from derivable.core.diagnostics import CompileTimeout, OutOfMemory, ParseError
from derivable.core.files import read_bytes
from derivable.tensor.values.matrix_market import parse_matrix_market
from robust.damage import outcome


def stored(header=lambda fields: None, **arrays):
    """A file of x1 or not x1 and x2, with other arrays and a changed header, whose lengths and checksum fit."""
    b = CircuitBuilder()
    data = content(b.build([b.disjunction([b.literal(1), b.conjunction([b.literal(-1), b.literal(2)])])]))
    length = int.from_bytes(data[12:16], "little")
    fields, body, at = json.loads(data[16 : 16 + length]), b"", 16 + length
    for row in fields["arrays"]:
        name, dtype, size = row
        end = at + np.dtype(dtype).itemsize * size
        array = arrays.get(name)
        if array is not None:
            row[1:] = [array.dtype.str, len(array)]
        body += data[at:end] if array is None else array.tobytes()
        at = end
    header(fields)
    text = json.dumps(fields).encode()
    whole = data[:12] + len(text).to_bytes(4, "little") + text + body
    return whole + zlib.crc32(whole).to_bytes(4, "little")


@pytest.mark.parametrize(
    "count", [10**40, 2**63, 2**31, -1, 1e300, 2.0, "7", True, None, [2]], ids=lambda value: str(value)[:8]
)
def test_a_number_of_variables_is_one(count, tmp_path):
    (tmp_path / "c.dvc").write_bytes(stored())
    assert load(tmp_path / "c.dvc").model_count() == 3
    (tmp_path / "c.dvc").write_bytes(stored(lambda fields: fields.update(num_variables=count)))
    with pytest.raises(ParseError, match="no number of variables"):
        load(tmp_path / "c.dvc")


@pytest.mark.parametrize(
    "arrays",
    [
        {"sizes": np.array([2, 4 * 10**9], "<u8")},
        {"sizes": np.array([2, 2**63 + 2], "<u8")},
        {"sizes": np.array([6, -2], "<i8")},
        {"sizes": np.array([2, np.nan], "<f8")},
        {"level_sizes": np.array([3, 1, 2**62], "<u8")},
    ],
)
def test_sums_of_sizes_are_those_of_the_arrays(arrays, tmp_path):
    (tmp_path / "c.dvc").write_bytes(stored(**arrays))
    tracemalloc.start()
    with pytest.raises(ParseError, match="not valid"):
        load(tmp_path / "c.dvc")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.nnf", "nnf 3 2 200000000\nL 1\nL 200000000\nA 2 0 1\n"),
        ("c.nnf", "o 1 0\nt 2 0\n1 2 1 200000000 0\n"),
        ("c.cnf", "p cnf 200000000 2\n1 0\n200000000 0\n"),
    ],
)
def test_variables_that_are_announced_cost_what_is_mentioned(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    load(tmp_path / name)
    tracemalloc.start()
    assert load(tmp_path / name).model_count() == 1 << 199_999_998
    assert tracemalloc.get_traced_memory()[1] < 200_000_000  # the number itself has 25 MB
    tracemalloc.stop()


@pytest.mark.parametrize("text", ["p cnf 3 " + "9" * 5000, f"p cnf {'1' * 5000} 1", "p cnf \u0663 1"])
def test_numbers_of_a_header_have_bounds(text, tmp_path):
    (tmp_path / "c.cnf").write_text(text + "\n1 0\n")
    with pytest.raises(ParseError, match="malformed"):
        read_dimacs(tmp_path / "c.cnf")


@pytest.mark.parametrize(
    "sizes",
    [
        "coordinate real general\n4 4 900000000000\n1 1 1",
        "array real general\n900000 900000\n1",
        f"array real general\n{'9' * 5000} 1\n1",
    ],
)
def test_a_matrix_has_as_many_entries_as_its_sizes_say(sizes):
    tracemalloc.start()
    with pytest.raises(ParseError, match=r"entries, and its sizes say|no number of"):
        parse_matrix_market(f"%%MatrixMarket matrix {sizes}\n")
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    empty = parse_matrix_market(f"%%MatrixMarket matrix array real general\n0 {'9' * 18}\n")
    assert empty.shape == (0, 10**18 - 1)


def test_what_is_decompressed_is_looked_at_on_the_way(tmp_path):
    """48 MiB of zeros in 48 KB: three parts of 16 MiB at least."""
    (tmp_path / "bomb.cnf").write_bytes(gzip.compress(bytes(3 << 24), 1))
    calls = []
    assert len(read_bytes(tmp_path / "bomb.cnf", lambda: calls.append(0))) == 3 << 24
    parts = len(calls)
    assert 3 <= parts <= 6

    def second():
        calls.append(0)
        if len(calls) == parts + 2:
            raise CompileTimeout("enough")

    with pytest.raises(CompileTimeout, match="enough"):
        read_bytes(tmp_path / "bomb.cnf", second)
    assert len(calls) == parts + 2


@pytest.mark.parametrize("name", ["bomb.cnf", "bomb.dvc", "bomb.sdd", "bomb.nnf"])
def test_a_compressed_file_stops_at_the_limits(name, tmp_path, monkeypatch, capsys):
    (tmp_path / name).write_bytes(gzip.compress(bytes(5 << 22), 1))
    with pytest.raises(CompileTimeout, match="did not finish within 1e-06 s"):
        (compile if name.endswith("cnf") else load)(tmp_path / name, time_limit=1e-6)
    assert main(["count", str(tmp_path / name), "--time-limit", "0.000001"]) == 1
    assert "did not finish" in capsys.readouterr().err
    monkeypatch.setattr(files, "_memory", lambda: 1 << 24)
    with pytest.raises(OutOfMemory, match="half of the memory"):
        load(tmp_path / name)
    monkeypatch.undo()
    with pytest.raises(ParseError):
        load(tmp_path / name)


def test_damaged_gzip_streams_are_our_errors(tmp_path):
    whole = gzip.compress(b"p cnf 1 1\n1 0\n", mtime=0)
    for place in range(10, len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            found = outcome(read_dimacs, tmp_path / "c.cnf", changed)
            assert found is None or found.clauses() == [[1]]  # bits between blocks are free


def test_several_streams_are_one_file(tmp_path):
    (tmp_path / "c.cnf").write_bytes(gzip.compress(b"p cnf 2 1\n") + gzip.compress(b"1 2 0\n"))
    assert read_dimacs(tmp_path / "c.cnf").clauses() == [[1, 2]]


def test_counts_of_any_length_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cnf").write_text("p cnf 20000 1\n1 -3 0\n")
    limit = sys.get_int_max_str_digits()
    assert main(["count", "k.cnf"]) == 0
    digits = capsys.readouterr().out.split()[1]
    assert main(["count", "k.cnf", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["models"] == digits
    assert len(digits) == 6021
    assert document["log10_models"] == pytest.approx(6020.5, abs=0.5)
    assert sys.get_int_max_str_digits() == limit
    # Three quarters of 2**20000, summed digit by digit.
    value = 0
    for start in range(0, len(digits), 4000):
        part = digits[start : start + 4000]
        value = value * 10 ** len(part) + int(part)
    assert value == 3 << 19998
