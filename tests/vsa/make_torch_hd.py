"""Makes torch_hd.json: what torch-hd 5.8.4 (MIT licence) computes for a few vectors of each model that both have.

    pip install torch-hd==5.8.4 && python tests/vsa/make_torch_hd.py

torch-hd has no dense block codes. Its permutation of HRR is a rotation, ours is not (docs/decisions/090): what needs it
is left out for HRR.
"""

import json
from pathlib import Path

import torch

CASES = {"hrr": "HRR", "fhrr": "FHRR", "map": "MAP", "bsc": "BSC"}


def plain(tensor):
    tensor = tensor.as_subclass(torch.Tensor)
    return torch.view_as_real(tensor.resolve_conj()).tolist() if tensor.is_complex() else tensor.tolist()


def results(name, items, fillers):
    """Everything that is compared, of torch-hd's own tensors."""
    import torchhd

    found = {
        "bind": torchhd.bind(items, fillers),
        "inverse": torchhd.inverse(items),
        "bundle": torchhd.multibundle(items),
        "similarities": torchhd.cosine_similarity(items, fillers),
        "record": torchhd.hash_table(items, fillers),
    }
    if name != "hrr":
        found |= {"permute": torchhd.permute(items, shifts=2), "ngrams": torchhd.ngrams(items, 3)}
    return found


def drawn(model, count, dimension, dtype):
    import torchhd

    return torchhd.random(count, dimension, model, dtype=dtype)


def main():
    torch.manual_seed(0)
    written = {}
    for name, model in CASES.items():
        dtype = {"fhrr": torch.complex128, "bsc": torch.bool}.get(name, torch.float64)
        items, fillers = drawn(model, 5, 7, dtype), drawn(model, 5, 7, dtype)
        found = {"items": items, "fillers": fillers, **results(name, items, fillers)}
        written[name] = {key: plain(value) for key, value in found.items()}
    Path(__file__).with_name("torch_hd.json").write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main()
