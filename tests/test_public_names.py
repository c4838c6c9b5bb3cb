"""Every name that a package lists can be had from it."""

import importlib

import pytest

MODULES = [
    "derivable",
    *(f"derivable.{name}" for name in ("algebra", "circuit", "datalog", "device", "nn", "parallel")),
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_resolves(module):
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
        assert name in dir(loaded)


@pytest.mark.parametrize("module", MODULES)
def test_an_unknown_name_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = importlib.import_module(module).no_such_name
