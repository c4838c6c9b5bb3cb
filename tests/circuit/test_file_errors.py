"""What a user sees for each kind of damaged file, byte for byte."""

import gzip
import zlib
from pathlib import Path

import pytest

import golden_files
from derivable.circuit import load
from derivable.circuit.files.vtree_file import load_vtree
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.diagnostics import ParseError

SDD = b"sdd 5\nL 0 0 1\nL 1 2 2\nL 2 0 -1\nF 3\nD 4 1 2 0 1 2 3\n"
C2D = b"nnf 5 4 2\nL 1\nL -1\nL 2\nO 1 2 0 1\nA 2 3 2\n"
D4 = b"o 1 0\na 2 0\nt 3 0\n1 2 -1 0\n1 3 1 2 0\n2 3 2 0\n"
VTREE = b"vtree 3\nL 0 1\nL 2 2\nI 1 0 2\n"


def stored() -> bytes:
    from derivable.circuit.files.store import content

    b = CircuitBuilder()
    return content(b.build([b.disjunction([b.literal(1), b.conjunction([b.literal(-1), b.literal(2)])])]))


def sealed(data: bytes, old: bytes, new: bytes) -> bytes:
    """A changed file whose checksum fits."""
    assert data.count(old) == 1
    changed = data[:-4].replace(old, new)
    return changed + zlib.crc32(changed).to_bytes(4, "little")


def with_header(data: bytes, change) -> bytes:
    """The file with the text of its header changed, and lengths and checksum that fit."""
    length = int.from_bytes(data[12:16], "little")
    header = change(data[16 : 16 + length])
    changed = data[:12] + len(header).to_bytes(4, "little") + header + data[16 + length : -4]
    return changed + zlib.crc32(changed).to_bytes(4, "little")


def swapped(data: bytes, position: int, new: bytes) -> bytes:
    return data[:position] + new + data[position + len(new) :]


# name of the golden file -> (file name, content)
FILES = {
    "empty_sdd": ("c.sdd", b""),
    "blank_nnf": ("c.nnf", b" \n\r\n"),
    "comments_only": ("c.nnf", b"c nothing\nc here\n"),
    "empty_unknown": ("circuit", b""),
    "unknown_format": ("c.txt", b"hello world\n"),
    "missing_file": ("absent.sdd", None),
    "truncated_gzip": ("c.sdd.gz", gzip.compress(SDD, mtime=0)[:-20]),
    "wrong_extension": ("c.sdd", C2D),
    "sdd_no_header": ("c.sdd", b"L 0 0 1\n"),
    "sdd_header_word": ("c.sdd", b"sdd five\nL 0 0 1\n"),
    "sdd_header_more": ("c.sdd", b"sdd 5 6\nL 0 0 1\n"),
    "sdd_truncated": ("c.sdd", b"\n".join(SDD.split(b"\n")[:4]) + b"\n"),
    "sdd_truncated_line": ("c.sdd", SDD[:-8]),
    "sdd_header_lies_high": ("c.sdd", SDD.replace(b"sdd 5", b"sdd 900000000")),
    "sdd_header_lies_low": ("c.sdd", SDD.replace(b"sdd 5", b"sdd 4").replace(b"D 4", b"D 3")),
    "sdd_no_nodes": ("c.sdd", b"sdd 0\n"),
    "sdd_dangling": ("c.sdd", SDD.replace(b"D 4 1 2 0 1 2 3", b"D 4 1 2 0 1 2 9")),
    "sdd_forward": ("c.sdd", b"sdd 3\nL 0 0 1\nD 1 1 1 0 2\nT 2\n"),
    "sdd_own_child": ("c.sdd", b"sdd 2\nT 0\nD 1 1 1 0 1\n"),
    "sdd_duplicate": ("c.sdd", SDD.replace(b"L 2 0 -1", b"L 1 0 -1")),
    "sdd_garbage": ("c.sdd", SDD.replace(b"0 1 2 3", b"0 1 2x 3")),
    "sdd_unknown_line": ("c.sdd", SDD.replace(b"F 3", b"Q 3")),
    "sdd_binary": ("c.sdd", b"sdd 2\nT 0\n\xff\xfe\x00\x01\n"),
    "sdd_zero_literal": ("c.sdd", SDD.replace(b"L 2 0 -1", b"L 2 0 0")),
    "sdd_large_literal": ("c.sdd", SDD.replace(b"L 2 0 -1", b"L 2 0 -99999999999999999999")),
    "sdd_too_few_elements": ("c.sdd", SDD.replace(b"D 4 1 2 0 1 2 3", b"D 4 1 2 0 1") + b"c end\n"),
    "sdd_too_many_elements": ("c.sdd", SDD.replace(b"D 4 1 2", b"D 4 1 1")),
    "sdd_no_elements": ("c.sdd", SDD.replace(b"D 4 1 2", b"D 4 1 0")),
    "sdd_crlf_column": ("c.sdd", SDD.replace(b"\n", b"\r\n").replace(b"L 1 2 2", b"L 1 2 two")),
    "c2d_truncated": ("c.nnf", b"\n".join(C2D.split(b"\n")[:4])),
    "c2d_edges": ("c.nnf", C2D.replace(b"nnf 5 4 2", b"nnf 5 7 2")),
    "c2d_too_many_nodes": ("c.nnf", C2D.replace(b"nnf 5 4 2", b"nnf 4 2 2")),
    "c2d_header_lies_high": ("c.nnf", C2D.replace(b"nnf 5 4 2", b"nnf 500000000 4 2")),
    "c2d_header_short": ("c.nnf", C2D.replace(b"nnf 5 4 2", b"nnf 5 4")),
    "c2d_header_negative": ("c.nnf", C2D.replace(b"nnf 5 4 2", b"nnf 5 -4 2")),
    "c2d_variables": ("c.nnf", C2D.replace(b"nnf 5 4 2", b"nnf 5 4 1")),
    "c2d_forward": ("c.nnf", C2D.replace(b"O 1 2 0 1", b"O 1 2 0 4")),
    "c2d_cycle": ("c.nnf", C2D.replace(b"A 2 3 2", b"A 2 4 2")),
    "c2d_dangling": ("c.nnf", C2D.replace(b"A 2 3 2", b"A 2 3 77")),
    "c2d_count": ("c.nnf", C2D.replace(b"A 2 3 2", b"A -2 3 2")),
    "c2d_garbage": ("c.nnf", C2D.replace(b"L -1", b"L --1")),
    "c2d_unknown_line": ("c.nnf", C2D.replace(b"L 2", b"X 2")),
    "c2d_zero_literal": ("c.nnf", C2D.replace(b"L 2", b"L 0")),
    "d4_cycle": ("c.nnf", D4.replace(b"2 3 2 0", b"2 4 2 0\no 4 0\n4 5 0\na 5 0\n5 2 -2 0\n5 3 1 0")),
    "d4_self_cycle": ("c.nnf", D4.replace(b"2 3 2 0", b"2 2 2 0")),
    "d4_root_cycle": ("c.nnf", D4.replace(b"2 3 2 0", b"2 1 2 0")),
    "d4_long_cycle": (
        "c.nnf",
        b"".join(b"o %d 0\n" % i for i in range(1, 41))
        + b"".join(b"%d %d 0\n" % (i, i % 40 + 1) for i in range(1, 41)),
    ),
    "d4_dangling": ("c.nnf", D4.replace(b"1 3 1 2 0", b"1 8 1 2 0")),
    "d4_dangling_source": ("c.nnf", D4.replace(b"2 3 2 0", b"9 3 2 0")),
    "d4_duplicate": ("c.nnf", D4.replace(b"t 3 0", b"t 3 0\no 2 0")),
    "d4_duplicate_with_zeros": ("c.nnf", D4.replace(b"t 3 0", b"t 3 0\n o\t02 0")),
    "d4_not_closed": ("c.nnf", D4.replace(b"1 2 -1 0", b"1 2 -1")),
    "d4_truncated": ("c.nnf", D4[:-4]),
    "d4_leaf_edge": ("c.nnf", D4 + b"3 2 0\n"),
    "d4_garbage": ("c.nnf", D4.replace(b"1 2 -1 0", b"1 2 -1, 0")),
    "d4_unknown_line": ("c.nnf", D4.replace(b"t 3 0", b"true 3 0")),
    "d4_no_target": ("c.nnf", D4.replace(b"2 3 2 0", b"2 0")),
    "d4_after_end": ("c.nnf", D4.replace(b"1 2 -1 0", b"1 2 -1 0 5 0")),
    "own_truncated_header": ("c.dvc", stored()[:12]),
    "own_truncated": ("c.dvc", stored()[:-9]),
    "own_changed": ("c.dvc", swapped(stored(), len(stored()) - 8, b"\x07")),
    "own_newer": ("c.dvc", swapped(stored(), 8, b"\x63")),
    "own_longer": ("c.dvc", stored() + b"more"),
    "own_header": ("c.dvc", swapped(stored(), 16, b"[")),
    "own_invalid": ("c.dvc", sealed(stored(), bytes([2, 1, 4, 1]), bytes([2, 1, 4, 9]))),
    "own_not": ("c.dvc", b"something else"),
}


def report(name: str, content: bytes | None, folder: Path, monkeypatch, read=load) -> str:
    monkeypatch.chdir(folder)
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(ParseError) as caught:
        read(name)
    return str(caught.value)


@pytest.mark.parametrize("golden", FILES)
def test_golden_message(golden, tmp_path, monkeypatch):
    golden_files.compare(f"circuit_files/{golden}", report(*FILES[golden], tmp_path, monkeypatch))


VTREES = {
    "vtree_empty": b"",
    "vtree_no_header": b"L 0 1\n",
    "vtree_truncated": b"vtree 3\nL 0 1\nL 2 2\n",
    "vtree_two_parents": b"vtree 5\nL 0 1\nL 1 2\nI 2 0 1\nL 3 3\nI 4 2 0\n",
    "vtree_not_a_tree": b"vtree 3\nL 0 1\nL 1 2\nL 2 3\n",
    "vtree_same_variable": VTREE.replace(b"L 2 2", b"L 2 1"),
    "vtree_forward": b"vtree 3\nI 1 0 2\nL 0 1\nL 2 2\n",
    "vtree_variable": VTREE.replace(b"L 2 2", b"L 2 -2"),
}


@pytest.mark.parametrize("golden", VTREES)
def test_golden_vtree_message(golden, tmp_path, monkeypatch):
    golden_files.compare(
        f"circuit_files/{golden}", report("c.vtree", VTREES[golden], tmp_path, monkeypatch, load_vtree)
    )


def test_golden_vtree_of_another_circuit(tmp_path, monkeypatch):
    (tmp_path / "c.vtree").write_bytes(b"vtree 1\nL 0 1\n")
    golden_files.compare("circuit_files/sdd_other_vtree", report("c.sdd", SDD, tmp_path, monkeypatch))
    assert load(tmp_path / "c.sdd", vtree=False).num_variables == 2
    (tmp_path / "c.vtree").write_bytes(VTREE)
    assert load(tmp_path / "c.sdd").vtree is not None


def test_the_files_are_good_before_they_are_damaged(tmp_path):
    for name, content in (("a.sdd", SDD), ("b.nnf", C2D), ("c.nnf", D4), ("d.dvc", stored())):
        (tmp_path / name).write_bytes(content)
        assert load(tmp_path / name).num_variables == 2


def test_every_golden_file_is_used():
    assert golden_files.names("circuit_files") == {*FILES, *VTREES, "sdd_other_vtree"}


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.replace(b'"num_variables":2', b'"num_variables":1e999'),
        lambda header: header.replace(b'"num_variables":2', b'"num_variables":2,"vtree":[7]'),
        lambda header: b"[" * 100_000,
    ],
    ids=["infinite", "vtree", "deep"],
)
def test_headers_that_lie_with_a_checksum_that_fits(change, tmp_path):
    (tmp_path / "c.dvc").write_bytes(with_header(stored(), lambda header: header))
    assert load(tmp_path / "c.dvc").num_variables == 2
    (tmp_path / "c.dvc").write_bytes(with_header(stored(), change))
    with pytest.raises(ParseError, match=r"damaged|not valid"):
        load(tmp_path / "c.dvc")


@pytest.mark.parametrize("content", [SDD, C2D, D4, VTREE, None], ids=["sdd", "c2d", "d4", "vtree", "own"])
def test_any_cut_or_changed_byte_is_our_error_or_a_circuit(content, tmp_path):
    """Every prefix and many single-byte changes: a valid result or a ParseError, never anything else."""
    data = stored() if content is None else content
    name = tmp_path / {SDD: "c.sdd", C2D: "c.nnf", D4: "c.nnf", VTREE: "c.vtree", None: "c.dvc"}[content]
    read = load_vtree if content == VTREE else load
    variants = [data[:length] for length in range(len(data))]
    variants += [swapped(data, i, bytes([new])) for i in range(len(data)) for new in b"09-x \n\xff"]
    # Signs, digits and white space that Python knows and the formats do not, between any two bytes.
    variants += [
        data[:i] + new + data[i:] for i in range(len(data)) for new in (b"0", b"+", b"_", b"\x0b", b"\xc2\xa0")
    ]
    failures = 0
    for variant in variants:
        name.write_bytes(variant)
        try:
            result = read(name)
        except ParseError:
            failures += 1
        else:
            if content != VTREE:
                result.check()
    assert failures > len(data)
