"""Importing the library is cheap and pulls in neither torch nor JAX."""

import json
import subprocess
import sys


def modules_after(statement: str) -> set[str]:
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_is_light():
    loaded = modules_after("import derivable")
    assert "derivable" in loaded
    assert not loaded & {"torch", "jax", "numba", "numpy", "scipy", "matplotlib"}
    assert sum(name.startswith("derivable") for name in loaded) < 15


def test_a_small_run_is_light():
    """What prints kernels, reads frames or shows errors is not imported, and not much else is."""
    loaded = modules_after(
        "import derivable as dv\n"
        "program = dv.Program('rel e = {(0, 1), (1, 2)} rel p(x, y) = e(x, y) or p(x, z) and e(z, y) query p')\n"
        "assert len(program.run()['p']) == 3"
    )
    assert not loaded & {
        "torch",
        "jax",
        "numba",
        "scipy",
        "pandas",
        "pyarrow",
        "lark",
        "egglog",
        "rich",
        "pyspark",
        "pysail",
    }
    assert not loaded & {"difflib", "fractions", "html"}
    assert sum(name.startswith("derivable") for name in loaded) < 262


def test_the_check_can_fail():
    assert "fractions" in modules_after("import fractions")
