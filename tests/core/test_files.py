"""Reading files into memory of the caller's choice."""

import gzip
import os
import threading

import numpy as np
import pytest

from derivable.core.diagnostics import ParseError
from derivable.core.files import read_buffer, read_bytes


def read(path):
    return bytes(read_buffer(path, lambda size: np.empty(size, np.uint8)))


@pytest.mark.parametrize("content", [b"", b"x", b"\x1f", bytes(range(256)) * 5000])
def test_both_ways_of_reading_agree(tmp_path, content):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    for path in (plain, packed):
        assert read(path) == read_bytes(path) == content


def test_a_file_is_read_to_its_end_whatever_its_size_was(tmp_path):
    path = tmp_path / "growing"
    path.write_bytes(b"first ")

    def allocate(size):
        with open(path, "ab") as file:
            file.write(b"second")
        return np.empty(size, np.uint8)

    assert bytes(read_buffer(path, allocate)) == b"first second"

    def cut(size):
        os.truncate(path, 3)
        return np.empty(size, np.uint8)

    assert bytes(read_buffer(path, cut)) == b"fir"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_have_no_size(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"through a pipe" * 10_000,))
    writer.start()
    assert read(path) == b"through a pipe" * 10_000
    writer.join()


def test_errors_are_the_same(tmp_path):
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(b"text " * 1000)[:20])
    for path in (tmp_path, tmp_path / "missing", damaged):
        texts = []
        for way in (read, read_bytes):
            with pytest.raises(ParseError) as caught:
                way(path)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
