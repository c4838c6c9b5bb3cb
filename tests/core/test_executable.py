"""No program that Python is only a part of is started again."""

import sys

import pytest

from derivable.circuit.compilation import compile_process
from derivable.circuit.compilation.compile_process import CompilerError
from derivable.core.executable import python_executable


@pytest.mark.parametrize("name", ["python", "python3.11", "pythonw.exe", "Python"])
def test_a_python_is_one(monkeypatch, name):
    monkeypatch.setattr(sys, "executable", f"/usr/bin/{name}")
    assert python_executable() == f"/usr/bin/{name}"


@pytest.mark.parametrize("host", ["host-program", "my-python-app", "", None])
def test_a_host_is_not_started(monkeypatch, tmp_path, host):
    trace = tmp_path / "started"
    path = host and tmp_path / host
    if path:
        path.write_text(f"#!/bin/sh\ntouch {trace}\n")
        path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path) if path else host)
    assert python_executable() is None
    with pytest.raises(CompilerError, match="cannot start"):
        compile_process.run_worker("sdd", tmp_path, name="PySDD")
    assert not trace.exists()
