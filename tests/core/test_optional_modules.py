"""Packages that only an extra installs."""

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
