"""Agreement with torch-hd: with what it computed once, and with itself where it is installed."""

import json
from pathlib import Path

import pytest
import torch

import derivable as dv
from vsa.make_torch_hd import CASES, drawn, results

MADE = json.loads(Path(__file__).with_name("torch_hd.json").read_text())
DTYPES = {"fhrr": torch.complex128, "bsc": torch.bool}


def ours(name, items, fillers):
    found = {
        "bind": dv.vsa.bind(items, fillers, model=name),
        "inverse": dv.vsa.inverse(items, model=name),
        "bundle": dv.vsa.bundle(items, model=name),
        "similarities": dv.vsa.similarities(items, fillers, model=name),
        "record": dv.vsa.record(items, fillers, model=name),
    }
    if name != "hrr":
        found |= {"permute": dv.vsa.permute(items, 2, model=name), "ngrams": dv.vsa.ngrams(items, 3, model=name)}
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_it_computed(name):
    def read(key):
        values = torch.tensor(MADE[name][key], dtype=torch.bool if name == "bsc" and key != "similarities" else None)
        return torch.view_as_complex(values.double()) if name == "fhrr" and key != "similarities" else values

    found = ours(
        name, read("items").to(DTYPES.get(name, torch.float64)), read("fillers").to(DTYPES.get(name, torch.float64))
    )
    for key, value in found.items():
        expected = read(key).to(value.dtype)
        assert (
            torch.allclose(value, expected, atol=1e-6) if value.dtype != torch.bool else torch.equal(value, expected)
        ), key


@pytest.mark.parametrize("name", CASES)
def test_itself(name):
    pytest.importorskip("torchhd")
    torch.manual_seed(1)
    items, fillers = (drawn(CASES[name], 9, 500, DTYPES.get(name, torch.float64)) for _ in range(2))
    found = ours(name, items.as_subclass(torch.Tensor), fillers.as_subclass(torch.Tensor))
    for key, expected in results(name, items, fillers).items():
        assert torch.allclose(
            found[key].to(torch.complex128), expected.as_subclass(torch.Tensor).to(torch.complex128)
        ), key
