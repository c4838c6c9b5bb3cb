"""Packages that only an extra installs."""

import subprocess
import sys

import pytest

from derivable.core.diagnostics import MissingDependencyError
from derivable.core.lazy import optional_module


def test_a_package_that_is_there_is_imported():
    assert optional_module("json.decoder", "json", "frames").__name__ == "json.decoder"


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.part", "json.no_such_part"])
def test_a_missing_package_is_named(module):
    with pytest.raises(MissingDependencyError) as caught:
        optional_module(module, "such-package", "frames")
    assert caught.value.message == "this needs such-package, which is not installed"
    assert caught.value.hint == "pip install 'derivable[frames]'"


def test_what_a_package_itself_lacks_is_not_explained_away(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        optional_module("half_installed", "half-installed", "frames")


WITHOUT_TORCH = {
    "a result": 'dv.tensor.einsum("i->i", np.ones(2), output="torch")',
    "a backend": 'dv.tensor.einsum("i->i", np.ones(2), backend="torch")',
    "entries": "dv.tensor.coordinates(np.eye(2)).to_torch()",
    "columns": 'dv.Program("rel a = {1}\\nquery a").run()["a"].to_torch()',
    "a device": 'dv.Program("rel a = {1}\\nquery a").run(device="torch:cpu")',
}


def test_what_is_asked_of_torch_by_name_says_that_it_is_missing():
    """In a process without it."""
    lines = ["import sys; sys.modules['torch'] = None", "import numpy as np, derivable as dv"]
    for call in WITHOUT_TORCH.values():
        lines += ["try:", f"    {call}", "except dv.DerivableError as error:", "    print(error.message)"]
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["this needs torch, which is not installed"] * len(WITHOUT_TORCH)
