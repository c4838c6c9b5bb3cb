"""Ctrl-C at any moment, and memory that is not there, leave programs and databases as they were: in child processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of Unix")

COMMON = """
import os, signal, sys, threading, time
import numpy as np
import derivable as dv
from derivable.core.diagnostics import DerivableError, OutOfMemory
from work import processor_seconds

# A shell that starts the tests in the background makes programs ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

def chain(count):
    return np.stack([np.arange(count), np.arange(1, count + 1)], axis=1)

def interrupted(work, after):
    '''Whether a real SIGINT, some seconds after the start, ended the work.'''
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    started = False
    try:
        timer.start()
        started = True
        work()
        ended = False
    except KeyboardInterrupt:
        ended = started
    try:
        timer.cancel()
        timer.join()
        time.sleep(0.001)
    except KeyboardInterrupt:
        pass
    return ended

def content(db):
    return {name: dict(zip(view, view.tag_list())) for name, view in db.items()}
"""


def run_child(code, seconds=120):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", "tests"])}
    done = subprocess.run(
        [sys.executable, "-c", COMMON + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    ("provenance", "size"), [("unit", 300), ("minmaxprob", 60), pytest.param("topkproofs", 20, marks=pytest.mark.slow)]
)
def test_runs_and_additions_end_at_any_moment(provenance, size):
    """Additions are ended again and again, each a little later, until one is through."""
    run_child(f"""
        program = dv.Program('''
            type edge(a: usize, b: usize), stop(a: usize)
            rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
            rel open(x, y) = path(x, y), not stop(y)
            rel number(n) = n := count!(x, y: open(x, y))
        ''')
        size = {size}
        first = {{"edge": [(0.9, (a, b)) for a, b in chain(size).tolist()], "stop": [3]}}
        more = {{"edge": [(0.8, (a + 7, b)) for a, b in chain(size).tolist()], "stop": [4]}}
        db = program.run(first, {provenance!r}, keep=True)
        branch = db.fork()
        before = content(db)
        wanted = content(program.run({{n: first[n] + more[n] for n in first}}, {provenance!r}))
        ended, after, through = 0, 0.0002, []
        while True:
            after *= 1.2
            ended += interrupted(lambda: through.append(db.add(more)), after)
            if through:
                break
            # The addition may have been through when the signal came.
            if content(db) != before:
                break
            ended += interrupted(lambda: program.run(more, {provenance!r}), after)
        db.add({{}})
        found = content(db)
        assert {{n: set(t) for n, t in found.items()}} == {{n: set(t) for n, t in wanted.items()}}
        for name, tuples in wanted.items():
            for row, tag in tuples.items():
                assert abs(found[name][row] - tag) < 1e-9
        assert content(branch) == before
        branch.add(more)
        assert set(branch["open"]) == set(db["open"])
        assert ended, after
    """)


@pytest.mark.parametrize("module", ["llvmlite", "llvmlite.binding"])
def test_an_import_is_ended_nowhere(module, tmp_path, monkeypatch):
    """Packages that are half imported stay so in their process: the next run would fail."""
    monkeypatch.setenv("DERIVABLE_CACHE_DIR", str(tmp_path))
    run_child(f"""
        class Interruption:
            def find_spec(name, path, target=None):
                if name == {module!r}:
                    sys.meta_path.remove(Interruption)
                    os.kill(os.getpid(), signal.SIGINT)

        program = dv.Program("type edge(x: usize, y: usize)\\nrel path(x, z) = edge(x, z) or (edge(x, y), path(y, z))")
        sys.meta_path.insert(0, Interruption)
        try:
            program.run({{"edge": chain(700)}})
            raise SystemExit("nothing ended it")
        except KeyboardInterrupt:
            pass
        assert Interruption not in sys.meta_path
        assert len(program.run({{"edge": chain(700)}})["path"]) == 700 * 701 // 2
    """)


def test_exact_compilation_ends():
    run_child("""
        rng = np.random.default_rng(0)
        program = dv.Program('''
            type edge(a: usize, b: usize)
            rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
            query path(0, 1)
        ''')
        easy = {"edge": [(0.5, (0, 2)), (0.5, (2, 1))]}
        db = program.run(easy, keep=True)
        hard = {"edge": [(0.5, (int(a), int(b))) for a, b in rng.integers(0, 24, (90, 2))]}
        ended = []
        for after in (0.3, 1.5):
            # Without its being interrupted the work takes minutes.
            assert processor_seconds(lambda: ended.append(interrupted(lambda: db.add(hard), after))) < after + 10
            assert ended.pop()
            assert dict(db["path(0, 1)"].items()) == {(0, 1): 0.25}
            assert interrupted(lambda: program.run(hard), after)
        db.add({"edge": [(0.5, (0, 1))]})
        assert dict(db["path(0, 1)"].items()) == {(0, 1): 0.625}
    """)


# A terminal leaves SIGINT to programs; a shell that starts the tests in the background has them ignore it.
COMMAND_LINE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("derivable.cli", run_name="__main__", alter_sys=True)
"""


def test_a_person_ends_the_command_line():
    """The way it happens: the whole group of processes gets the signal, and the program is left without a traceback."""
    text = "type n(x: usize)\nrel n = {0}\nrel n(x + 1) = n(x)\nquery n"
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND_LINE, "run", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": "src"},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
        time.sleep(3)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        # A program that goes on in spite of the signal would do so for ever.
        process.kill()
    assert process.returncode != 0
    assert "Traceback" not in errors


def test_memory_that_is_not_there():
    """With few addresses, as with little memory, the error is ours, and the next run works."""
    out = run_child("""
        import resource
        program = dv.Program('''
            type edge(a: usize, b: usize)
            rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
            rel four(a, b, c, d) = edge(a, b), edge(c, d)
        ''')
        small, large = {"edge": chain(50)}, {"edge": chain(20000)}
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), resource.RLIM_INFINITY))
        program.run({"edge": chain(700)})
        db = program.run(small, keep=True)
        before = content(db)
        for _ in range(2):
            for work in (lambda: program.run(large), lambda: db.add(large)):
                try:
                    work()
                    raise SystemExit("it went through")
                except OutOfMemory as error:
                    assert isinstance(error, MemoryError)
                    print(error)
            assert content(db) == before
            assert len(program.run(small)["path"]) == 50 * 51 // 2
        db.add({"edge": [(50, 51)]})
        assert len(db["path"]) == 51 * 52 // 2
    """)
    assert "help:" in out
    assert " MB" in out


def test_a_memory_limit_ends_a_run_long_before():
    out = run_child("""
        program = dv.Program("type a(x: usize)\\nrel b(x, y, z) = a(x), a(y), a(z)")
        import resource
        from derivable.datalog.policy.costs import under
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        # Large enough to compile what the next run needs: compilers take memory too.
        program.run({"a": range(120)})
        start = peak()
        try:
            # Without the clock of looks, which is late on a machine that is busy.
            with under(look_seconds=0.0):
                program.run({"a": range(2000)}, memory_limit="300 MB")
            raise SystemExit("it went through")
        except OutOfMemory as error:
            print(error)
        assert peak() < start + 600e6
        assert len(program.run({"a": range(9)})["b"]) == 729
    """)
    assert "the run passed memory_limit = 300 MB" in out
    assert "rel b(x, y, z) = a(x), a(y), a(z)" in out
    assert "the rule of `b`" in out
