"""The command line as a process: what it imports, pipes, interruption, terminals."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = "rel edge = {(0, 1), (1, 2)}\nrel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))\nquery path\n"
COMMAND = [sys.executable, "-m", "derivable.cli"]
# The package as this process found it, installed or not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def loaded_by(arguments):
    code = (
        "import sys, json\nfrom derivable.cli.main import main\n"
        f"assert main({arguments!r}) == 0\nprint(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_discrete_run_imports_neither_torch_nor_jax(tmp_path):
    path = tmp_path / "path.scl"
    path.write_text(PROGRAM)
    loaded = loaded_by(["run", str(path)])
    assert "derivable.datalog.api.program" in loaded
    assert not loaded & {"torch", "jax", "sklearn", "matplotlib"}


def test_help_imports_nothing_large():
    assert not loaded_by(["--help"]) & {"torch", "jax", "numba", "numpy", "lark"}


def test_counting_imports_no_torch(tmp_path):
    path = tmp_path / "small.cnf"
    path.write_text("p cnf 2 1\n1 2 0\n")
    assert not loaded_by(["count", str(path)]) & {"torch", "jax"}


def test_a_closed_pipe_is_quiet(tmp_path):
    path = tmp_path / "many.scl"
    path.write_text(_many_facts(30_000))
    process = subprocess.Popen(
        [*COMMAND, "run", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"n(0)\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141


def _many_facts(count):
    return f"rel n = {{{', '.join(map(str, range(count)))}}}\n"


def test_interruption_is_quiet(tmp_path):
    # A shell that starts the tests in the background makes programs ignore SIGINT.
    script = (
        "import signal, sys, time\nfrom derivable.cli import main as entry\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(*a, **k):\n    print('waiting', flush=True)\n    time.sleep(60)\n"
        "entry.cli.make_context = wait\nsys.exit(entry.main([]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr.read() == b""


def test_a_terminal_gets_a_table(tmp_path):
    path = tmp_path / "path.scl"
    path.write_text(PROGRAM)
    controller, terminal = pty.openpty()
    process = subprocess.Popen([*COMMAND, "run", str(path)], stdout=terminal, stderr=subprocess.PIPE, env=ENVIRONMENT)
    os.close(terminal)
    text = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            part = os.read(controller, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(controller)
    assert process.wait(timeout=30) == 0
    assert "path  (3)" in text.decode()
    assert "┃" in text.decode() or "│" in text.decode()


def test_stdin(tmp_path):
    done = subprocess.run(
        [*COMMAND, "run", "-"], input=PROGRAM, capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert done.stdout == "path(0, 1)\npath(0, 2)\npath(1, 2)\n"


def test_missing_demo_packages_are_named(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "absent = ('sklearn', 'matplotlib')\n"
        "PathFinder.find_spec = lambda name, *rest: None if name.split('.')[0] in absent else find(name, *rest)\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")]), *sys.path])
    done = subprocess.run(
        [*COMMAND, "demo", "digits"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "PYTHONPATH": paths},
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "this needs matplotlib, scikit-learn: not installed" in done.stderr
    assert "pip install 'derivable[demo]'" in done.stderr


@pytest.mark.parametrize("name", ["run", "count", "compile", "explain", "demo"])
def test_every_command_has_help(name):
    done = subprocess.run([*COMMAND, name, "--help"], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout.startswith("Usage: derivable")


def test_the_package_is_the_command_and_completes_provenances():
    command, environment = [sys.executable, "-m", "derivable"], {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*command, "--version"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("derivable, version")
    asked = {"COMP_WORDS": "derivable run p.scl --provenance min", "COMP_CWORD": "4"}
    completing = {**environment, **asked, "_DERIVABLE_COMPLETE": "bash_complete"}
    done = subprocess.run(command, env=completing, capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) == {"plain,min_plus", "plain,minmax", "plain,minmaxprob"}
