"""Item memories: adding, looking up, cleaning up, files, and what a module of torch has to do."""

import copy
import pickle

import pytest
import torch

import derivable as dv
from derivable.vsa import models


@pytest.mark.parametrize("name", models.names())
def test_nearest_items_are_those_of_a_loop(name):
    shape = (2, 32) if models.get(name).rank == 2 else (64,)
    memory = dv.vsa.ItemMemory(shape, model=name, generator=0).add_all(range(9))
    queries = dv.vsa.random(2, 3, *shape, model=name, generator=1)
    found = memory.nearest(queries, k=4)
    for i in range(2):
        for j in range(3):
            alike = [dv.vsa.similarity(queries[i, j], memory[item], model=name).item() for item in range(9)]
            assert found.similarity[i, j].tolist() == pytest.approx(sorted(alike, reverse=True)[:4], abs=1e-5)
            assert [alike[item] for item in found.names[i][j]] == pytest.approx(
                found.similarity[i, j].tolist(), abs=1e-5
            )
    assert torch.equal(memory(memory.vectors), memory.vectors)


def test_adding_looking_up_and_removing():
    memory = dv.vsa.ItemMemory((2, 16), generator=0)
    own = dv.vsa.random(2, 16, distribution="unitary", generator=5)
    memory.add("a").add("b", own).add_all(["c", 4], dv.vsa.random(2, 2, 16, generator=6))
    assert memory.names == ["a", "b", "c", 4]
    assert torch.equal(memory["b"], own)
    assert torch.equal(memory[["b", "a"]], torch.stack([own, memory["a"]]))
    assert 4 in memory
    assert memory.nearest(own).names == ["b"]
    kept = memory["c"]
    memory.remove("b")
    assert memory.names == ["a", "c", 4]
    assert torch.equal(memory["c"], kept)
    assert len(memory) == len(memory.vectors) == 3


def test_soft_cleanup_goes_over_to_the_nearest():
    memory = dv.vsa.ItemMemory((2, 16), generator=0, dtype=torch.float64).add_all("abcd")
    query = (memory["a"] * 2 + memory["b"]).requires_grad_()
    weights = torch.softmax(memory.similarities(query) / 0.5, -1)
    expected = (weights[:, None, None] * memory.vectors).sum(0)
    assert torch.allclose(memory(query, temperature=0.5), expected)
    assert torch.allclose(memory(query, temperature=1e-3), memory["a"])
    assert torch.autograd.gradcheck(lambda q: memory(q, temperature=0.5), (query,))


def test_files(tmp_path):
    for name in models.names():
        shape = (2, 8) if models.get(name).rank == 2 else (8,)
        memory = dv.vsa.ItemMemory(shape, model=name, generator=0).add_all(["x", 7, "z"])
        memory.save(tmp_path / "memory")
        read = dv.vsa.ItemMemory.load(tmp_path / "memory")
        assert (read.names, read.model.name) == (["x", 7, "z"], name)
        assert torch.equal(read.vectors, memory.vectors)
        read.add("new")
    (tmp_path / "other").write_bytes(b"something else")
    torch.save({"a": torch.ones(2)}, tmp_path / "tensor")
    for wrong in ("other", "tensor", "missing"):
        with pytest.raises(dv.DerivableError, match=wrong):
            dv.vsa.ItemMemory.load(tmp_path / wrong)


@pytest.mark.parametrize(
    "changed",
    [
        {"names": 5},
        {"names": None},
        {"names": [["a"], "b"]},
        {"names": ["a"]},
        {"names": ["a", "a"]},
        {"vectors": "x"},
        {"vectors": torch.ones(())},
        {"vectors": torch.ones(2, 8)},
        {"vectors": torch.ones(2, 2, 8, dtype=torch.int64)},
        {"vectors": torch.ones(2, 0, 8)},
        {"vectors": torch.eye(4).to_sparse()},
        {"model": 3},
        {"model": "nosuch"},
        {"format": "derivable item memory 2"},
    ],
    ids=str,
)
def test_a_damaged_file_is_an_error_of_ours(tmp_path, changed):
    content = {
        "format": "derivable item memory 1", "model": "block", "names": ["a", "b"], "vectors": torch.rand(2, 2, 8),
    }  # fmt: skip
    torch.save(content, tmp_path / "memory")
    assert dv.vsa.ItemMemory.load(tmp_path / "memory").names == ["a", "b"]
    for broken in (content | changed, {key: value for key, value in content.items() if key not in changed}):
        torch.save(broken, tmp_path / "memory")
        with pytest.raises(dv.DerivableError):
            dv.vsa.ItemMemory.load(tmp_path / "memory")


def test_as_a_module():
    memory = dv.vsa.ItemMemory((2, 8), generator=0).add_all("abc")
    network = torch.nn.ModuleDict({"memory": memory})
    state = copy.deepcopy(network.state_dict())
    memory.add("d")
    assert network.state_dict()["memory._kept"].shape[0] == 4
    other = torch.nn.ModuleDict({"memory": dv.vsa.ItemMemory((2, 8), generator=1).add("q")})
    other.load_state_dict(state)
    assert other["memory"].names == ["a", "b", "c"]
    assert torch.equal(other["memory"].vectors, memory.vectors[:3])
    assert memory.double().vectors.dtype == torch.float64
    for twin in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        assert twin.names == memory.names
        assert torch.equal(twin.vectors, memory.vectors)
        assert twin.model is memory.model


def test_many_items_are_added_one_by_one():
    memory = dv.vsa.ItemMemory((1, 8), generator=0)
    for number in range(2000):
        memory.add(number)
    assert memory.vectors.shape == (2000, 1, 8)
