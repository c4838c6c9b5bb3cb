"""Every user error of vectors: its report, byte for byte, in tests/golden/vsa/."""

import dataclasses

import pytest
import torch

import derivable as dv
import golden_files
from derivable.vsa import models

v = dv.vsa


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def memory():
    return v.ItemMemory((2, 4), generator=0).add_all(["red", "green"])


def altered(**fields):
    return dataclasses.replace(models.get("map"), name="mine", **fields)


CASES = {
    "lengths_differ": lambda: v.bind(ones(7, 4, 256), ones(4, 128)),
    "blocks_differ": lambda: v.unbind(ones(4, 256), ones(2, 256)),
    "batches_do_not_broadcast": lambda: v.similarity(ones(2, 4, 8), ones(3, 4, 8)),
    "no_blocks": lambda: v.bind(ones(256), ones(256)),
    "not_a_tensor": lambda: v.inverse([[1.0, 0.0]]),
    "empty_vectors": lambda: v.permute(ones(3, 4, 0)),
    "integers_in_block_codes": lambda: v.normalise(ones(2, 4, dtype=torch.int64)),
    "reals_in_fhrr": lambda: v.bind(ones(8), ones(8), model="fhrr"),
    "model_unknown": lambda: v.bind(ones(8), ones(8), model="hhr"),
    "model_of_another_type": lambda: v.bind(ones(8), ones(8), model=3),
    "model_without_powers": lambda: v.power(ones(8), 0.5, model="map"),
    "exponents_do_not_broadcast": lambda: v.power(ones(3, 2, 4), ones(2)),
    "exponent_is_a_text": lambda: v.power(ones(2, 4), "2"),
    "bundle_of_nothing": lambda: v.bundle(),
    "bundle_without_items": lambda: v.bundle(ones(2, 4)),
    "bundle_weights": lambda: v.bundle(ones(5, 3, 2, 4), weights=ones(5, 2)),
    "majority_of_nothing": lambda: v.bundle(ones(0, 8, dtype=torch.bool), model="bsc"),
    "shift_is_a_fraction": lambda: v.permute(ones(2, 4), 0.5),
    "codebook_without_items": lambda: v.cleanup(ones(2, 4), ones(2, 4)),
    "codebook_of_other_vectors": lambda: v.similarities(ones(2, 4), ones(3, 2, 5)),
    "temperature_zero": lambda: v.cleanup(ones(2, 4), ones(3, 2, 4), temperature=0),
    "random_distribution": lambda: v.random(2, 4, distribution="onehot"),
    "random_shape": lambda: v.random(256),
    "random_dtype": lambda: v.random(2, 4, dtype=torch.int32),
    "mass_of_other_items": lambda: v.mass_to_vector(ones(5, 3), ones(4, 2, 8)),
    "codebook_kind": lambda: v.codebook(3, kind="ortogonal"),
    "codebook_too_many_orthogonal": lambda: v.codebook(20, 4, 16, kind="orthogonal"),
    "ngrams_of_few": lambda: v.ngrams(ones(2, 2, 4), 3),
    "record_counts": lambda: v.record(ones(2, 2, 4), ones(3, 2, 4)),
    "stack_of_majorities": lambda: v.push(ones(8, dtype=torch.bool), ones(8, dtype=torch.bool), model="bsc"),
    "memory_of_a_number": lambda: v.ItemMemory(256),
    "memory_of_a_codebook": lambda: v.ItemMemory(v.codebook(3, 2, 4, generator=0)),
    "size_is_a_tensor": lambda: v.random(ones(2, 2, 4)),
    "tree_of_three": lambda: v.tree((ones(2, 4),) * 3, ones(2, 4), ones(2, 4)),
    "branch_turn": lambda: v.branch(ones(2, 4), "lx", ones(2, 4), ones(2, 4)),
    "factorise_one_tensor": lambda: v.factorise(ones(2, 4), ones(3, 2, 4)),
    "factorise_other_vectors": lambda: v.factorise(ones(2, 4), [ones(3, 2, 4), ones(3, 2, 5)]),
    "factorise_dtypes": lambda: v.factorise(ones(2, 4), [ones(3, 2, 4, dtype=torch.float64)]),
    "memory_name_unknown": lambda: memory()["gren"],
    "memory_name_taken": lambda: memory().add("red"),
    "memory_name_of_another_type": lambda: memory().add((1, 2)),
    "memory_vector": lambda: memory().add("blue", ones(2, 5)),
    "memory_too_few": lambda: memory().nearest(ones(2, 4), 3),
    "memory_empty": lambda: v.ItemMemory((2, 4))(ones(2, 4)),
    "memory_of_batches": lambda: v.ItemMemory((3, 2, 4)),
    "register_without_axes": lambda: v.register(altered(axes=())),
    "register_unlawful": lambda: v.register(altered(bind=torch.sub)),
    "register_exact": lambda: v.register(
        dataclasses.replace(models.get("map"), name="mine", exact=frozenset({"sgns"}))
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_report(name):
    with pytest.raises(dv.DerivableError) as caught:
        CASES[name]()
    golden_files.compare(f"vsa/{name}", str(caught.value))


def test_every_file_belongs_to_a_case():
    assert golden_files.names("vsa") == set(CASES)
