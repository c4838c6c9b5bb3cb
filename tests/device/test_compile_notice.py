"""A person at a terminal is told, once, that kernels have been compiling for a second; a pipe is told nothing."""

import os
import pty
import select
import subprocess
import sys

import pytest

from derivable.device.cpu.compile_notice import NOTICE

CODE = """
from derivable.device.cpu import compile_notice
compile_notice.PATIENCE = {patience}
import numpy as np
from derivable.circuit.kernels.and_or import heights
heights(np.array([0, 0, 1]), np.zeros(1, np.int16), np.zeros(2, np.int16))
"""


def stderr_of(cache, terminal: bool, patience: float = 0.0) -> str:
    caches = {"DERIVABLE_CACHE_DIR": str(cache)}
    environment = {**os.environ, **caches, "DERIVABLE_TIER": "compiled"}
    code = CODE.format(patience=patience)
    if not terminal:
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stderr
    leader, follower = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=follower, check=True
        )
        return os.read(leader, 10_000).decode() if select.select([leader], [], [], 0)[0] else ""
    finally:
        os.close(leader)
        os.close(follower)


@pytest.mark.skipif(not hasattr(pty, "openpty"), reason="no pseudo-terminals here")
def test_said_once_and_not_again_when_cached(tmp_path):
    assert stderr_of(tmp_path, terminal=True).count(NOTICE) == 1
    assert stderr_of(tmp_path, terminal=True) == ""


def test_a_pipe_is_told_nothing(tmp_path):
    assert stderr_of(tmp_path, terminal=False) == ""


@pytest.mark.skipif(not hasattr(pty, "openpty"), reason="no pseudo-terminals here")
def test_a_short_wait_is_not_mentioned(tmp_path):
    assert stderr_of(tmp_path, terminal=True, patience=1000.0) == ""
