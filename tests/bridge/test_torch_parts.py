"""What is used of torch and egglog beyond their documented interfaces is there, and stands in these modules alone."""

import re
from pathlib import Path

import egglog
import pytest
import torch
import torch._dynamo
from torch.autograd import forward_ad
from torch.utils import _pytree

import derivable

SOURCES = Path(derivable.__file__).parent
# name -> the modules that use it
PARTS = {
    "torch._C._are_functorch_transforms_active": {"bridge/torch.py"},
    "torch._C._is_tracing": {"bridge/torch.py"},
    "torch._C._len_torch_dispatch_stack": {"bridge/torch.py"},
    "torch._C._functorch": {"bridge/torch.py", "bridge/operators.py"},
    "torch._C._functorch.is_legacy_batchedtensor": {"bridge/torch.py"},
    "torch._C.DispatchKey.AutogradFunctionality": {"bridge/engines.py"},
    "torch._C._SetExcludeDispatchKeyGuard": {"bridge/engines.py"},
    "torch._C._AutoDispatchBelowAutograd": {"bridge/operators.py"},
    "torch._C._after_autograd_keyset": {"bridge/operators.py"},
    "torch._C._vmapmode_increment_nesting": {"bridge/operators.py"},
    "torch._C._vmapmode_decrement_nesting": {"bridge/operators.py"},
    "torch._add_batch_dim": {"bridge/operators.py"},
    "torch._remove_batch_dim": {"bridge/operators.py"},
    "torch._C": {"bridge/compiled.py"},
    "torch._dynamo.config.patch": {"accelerator/trace/trace.py"},
    "torch._dynamo.disable": {"bridge/arrays.py"},
}
# Of the others of these modules, under names of their own.
OTHERS = {
    forward_ad: ("_current_level", "_set_fwd_grad_enabled"),
    torch._C: ("_get_tracing_state", "_set_tracing_state"),
    torch._C._functorch: (
        *("get_single_level_autograd_function_allowed", "set_single_level_autograd_function_allowed"),
        *("is_functorch_wrapped_tensor", "get_unwrapped"),
    ),
    _pytree: ("tree_map", "tree_leaves"),
}
# In comments and in the tables of what a trace replaces, nothing is called.
NAMED = {"torch._dynamo"}
PYTREE = {"nn/inference.py", "nn/batch.py", "accelerator/trace/trace.py", "accelerator/trace/recording.py"}


def resolved(name):
    found = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", PARTS)
def test_torch_has(name):
    assert resolved(name) is not None


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in OTHERS.items() for name in names])
def test_its_modules_have(owner, name):
    assert hasattr(owner, name)


def test_no_other_module_uses_private_parts_of_torch():
    users: dict[str, set[str]] = {}
    pytree = set()
    for path in SOURCES.rglob("*.py"):
        text, module = path.read_text(), path.relative_to(SOURCES).as_posix()
        for name in re.findall(r"\btorch\.(?:_[a-zA-Z]\w*(?:\.\w+)*)", text):
            users.setdefault(name, set()).add(module)
        if re.search(r"\btorch\.utils\._pytree\b", text):
            pytree.add(module)
    assert {name: modules for name, modules in users.items() if name not in NAMED} == PARTS
    assert pytree == PYTREE


def test_batches_of_the_older_vmap_are_made_and_taken_away():
    level = torch._C._vmapmode_increment_nesting()
    try:
        batched = torch._add_batch_dim(torch.arange(6.0).reshape(2, 3), 0, level)
        assert torch._C._functorch.is_legacy_batchedtensor(batched)
        assert torch._remove_batch_dim(batched * 2, level, 2, 0).tolist() == [[0, 2, 4], [6, 8, 10]]
    finally:
        torch._C._vmapmode_decrement_nesting()


def test_a_graph_of_egglog_is_dropped_by_its_thread():
    graph = egglog.EGraph()
    assert graph._state.egraph is not None
    graph._state.egraph = None
    assert graph._state.egraph is None
