"""`derivable warm` compiles what later runs need: after it, a run compiles nothing."""

import json
import os
import subprocess
import sys

import pytest

from derivable.cli import warm
from derivable.core.diagnostics import DerivableError

COUNT = """
import sys
from derivable.cli.warm import WORKLOADS
from derivable.device.cpu import llvm_code
compiled, compile_text = [], llvm_code._compiled
def counted(text):
    compiled.append(text)
    return compile_text(text)
llvm_code._compiled = counted
WORKLOADS[sys.argv[1]]()
print(len(compiled))
"""


def compiled_in(name, environment):
    command = [sys.executable, "-c", COUNT, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", warm.WORKLOADS)
def test_what_is_warm_is_not_compiled_again(name, tmp_path):
    environment = {**os.environ, "DERIVABLE_CACHE_DIR": str(tmp_path / "ours")}
    assert compiled_in(name, environment) > 0
    assert compiled_in(name, environment) == 0


def test_each_family_is_run_in_a_process_of_its_own(monkeypatch, capsys):
    monkeypatch.setattr(warm, "WORKLOADS", {"circuits": None})
    warm.warm_command.main(["--json", "--jobs", "1"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["seconds"]["circuits"] > 0


def test_a_family_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(warm, "WORKLOADS", {"nothing": None})
    with pytest.raises(DerivableError, match="compiling the kernels of nothing failed: KeyError: 'nothing'"):
        warm.warm_command.main([], standalone_mode=False)
