"""Settings of the suite: examples that are drawn, slow tests, garbage, threads."""

import gc
import os

import hypothesis
import pytest

from derivable.datalog.exact import circuit_files
from forked import Forked
from quarters import quarter_of

# Of the time that JAX compiles, a fifth is for optimisation. Ours is a call inside, which that does not reach.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Half of the rest goes into MLIR, by which XLA prints fused loops; its older printer hands them to LLVM at once.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
# Tests run beside each other, and waiting threads of PyTorch spin: small steps took ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Each test compiles its circuits, whatever another one or an earlier run of the suite has compiled.
circuit_files.LEAST_NODES = 1 << 62

# An example takes what the machine's other work and compilers leave it: a law holds however long that is.
hypothesis.settings.register_profile(
    "people",
    deadline=None,
    derandomize=False,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
# A machine that decides whether a change lands draws the same examples each time, so that a change is judged by itself;
# people, and slow tests in `make test-all` everywhere, draw new ones. What fails prints a line that repeats it.
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("people"), derandomize=True)
QUICK_PROFILE = "ci" if os.environ.get("CI") else "people"
hypothesis.settings.load_profile(QUICK_PROFILE)


def pytest_addoption(parser):
    parser.addoption("--quarter", type=int, choices=range(4), help="of slow tests, those of this quarter only")


def pytest_collection_modifyitems(config, items):
    """Of slow tests those of one quarter are left, but for the ones that take many minutes each."""
    addresses = [item.nodeid for item in items if " at 0x" in item.nodeid.lower()]
    if addresses:
        raise pytest.UsageError(f"the name of a case has an address, so that processes differ in it: {addresses[0]}")
    quarter = config.getoption("quarter")
    if quarter is None:
        return
    others = [
        item
        for item in items
        if item.get_closest_marker("long") or (item.get_closest_marker("slow") and quarter_of(item.nodeid) != quarter)
    ]
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(items).difference(others)
        items[:] = [item for item in items if item in left]


def pytest_runtest_setup(item):
    """Settings that a test makes when it runs are those of its suite."""
    is_whole = item.config.getoption("quarter") is None
    hypothesis.settings.load_profile("people" if is_whole and item.get_closest_marker("slow") else QUICK_PROFILE)


def pytest_collection_finish():
    """Ten thousand tests and the libraries that they import stay; looking for garbage in them took a twentieth.

    So did looking among what is new each time that it has grown by 700 objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def forked():
    """Runs scripts in processes of their own, for which PyTorch is imported once."""
    made = Forked()
    yield made
    made.close()
