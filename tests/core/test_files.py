"""Reading files into memory of the caller's choice; writing them whole or not at all."""

import gzip
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from derivable.core.diagnostics import DerivableError, ParseError
from derivable.core.files import atomic_write, read_buffer, read_bytes


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


def save(path, text):
    with atomic_write(path) as file:
        file.write(text)


WRITER = """
import sys
from derivable.core.files import atomic_write

with atomic_write(sys.argv[1]) as file:
    file.write("half of it")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_the_next_save_removes_what_a_killed_process_left(tmp_path):
    target, theirs = tmp_path / "circuit.dvc", tmp_path / ".circuit.dvc.original"
    theirs.write_text("not ours")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, target], **pipes) for _ in range(2)]
    killed, living = writers
    for writer in writers:
        assert writer.stdout.readline() == "writing\n"
    assert len(list(tmp_path.iterdir())) == 3
    killed.kill()
    killed.wait()
    save(target, "saved")
    # The process that is still writing keeps its file, and ends well.
    assert len(list(tmp_path.iterdir())) == 3
    living.communicate("")
    assert living.returncode == 0
    assert target.read_text() == "half of it"
    assert sorted(tmp_path.iterdir()) == sorted([target, theirs])
    killed.stdout.close()
    killed.stdin.close()


def test_what_cannot_be_written_is_our_error(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "absent" / "file", tmp_path / ("x" * 300)):
        with pytest.raises(DerivableError, match="cannot write the file"):
            save(path, "text")
    assert os.listdir(tmp_path) == ["folder"]
