"""Private parts of torch are used in one file, and are there in the installed version. (Those of Numba are tested in
`tests/device/test_numba_parts.py`.)
"""

import ast
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "derivable"
# Names in the sources -> the modules of torch that they stand for.
MODULES = {
    "torch": "torch",
    "forward_ad": "torch.autograd.forward_ad",
    "functorch": "torch._C._functorch",
    "tracing": "torch._C",
}
USERS = {"bridge/torch_parts.py"}


def chain(node: ast.AST) -> list[str]:
    """`["torch", "_C", "_len"]` of `torch._C._len`, `sys.modules["torch"]._C._len` and `getattr(torch._C, "_len")`;
    empty for anything but names, attributes and such."""
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute() if owner := chain(node.value):
            return [*owner, node.attr]
        case (
            ast.Subscript(value=modules, slice=ast.Constant(value=str(name)))
            | ast.Call(func=ast.Attribute(value=modules, attr="get"), args=[ast.Constant(value=str(name)), *_])
        ) if chain(modules) == ["sys", "modules"]:
            return name.split(".")
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]) if owner := chain(
            value
        ):
            return [*owner, name]
    return []


def private_parts(text: str) -> set[str]:
    """Whole names of private parts of torch in a source."""
    parts = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            parts |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and chain(node.func)[-2:] == ["config", "patch"]:
            # The settings that are changed.
            parts |= {".".join([*chain(node.func)[:-1], str(keyword.arg)]) for keyword in node.keywords}
        elif (names := chain(node)) and len(names) > 1 and names[0] in MODULES:
            parts.add(".".join([MODULES[names[0]], *names[1:]]))
    return {name for name in parts if any(part.startswith("_") and part[1] != "_" for part in name.split("."))}


USES = {
    path.relative_to(PACKAGE).as_posix(): private_parts(path.read_text())
    for path in PACKAGE.rglob("*.py")
    if "torch" in path.read_text()
}


@pytest.mark.parametrize("name", sorted(set().union(*USES.values())))
def test_torch_has(name):
    owner, *attributes = name.split(".")
    value = importlib.import_module(owner)
    path = owner
    for attribute in attributes:
        path = f"{path}.{attribute}"
        value = getattr(value, attribute) if hasattr(value, attribute) else importlib.import_module(path)


def test_one_file_uses_them():
    assert {path for path, names in USES.items() if names} == USERS


def test_the_check_can_fail():
    text = "import torch\nfrom torch.utils._pytree import tree_map\ntorch._C._no_such_part()\ntorch.add(1, 2)"
    assert private_parts(text) == {"torch.utils._pytree.tree_map", "torch._C", "torch._C._no_such_part"}
    with pytest.raises(ModuleNotFoundError):
        test_torch_has("torch._C._no_such_part")
    for way in ('sys.modules["torch"]._C', 'sys.modules.get("torch", None)._C', 'getattr(torch, "_C")'):
        assert private_parts(f"{way}._no_such_part()") == {"torch._C", "torch._C._no_such_part"}
    settings = private_parts("torch._dynamo.config.patch(no_such_setting=False)")
    assert settings == {f"torch._dynamo{part}" for part in ("", ".config", ".config.patch", ".config.no_such_setting")}
    with pytest.raises(ModuleNotFoundError):
        test_torch_has("torch._dynamo.config.no_such_setting")


def test_jax_and_triton_have():
    jax = pytest.importorskip("jax")
    for module, names in {
        "jax.core": ("ShapedArray", "Tracer"),
        "jax.extend.core": ("Primitive",),
        "jax.interpreters.ad": (
            "defbilinear",
            "instantiate_zeros",
            "is_undefined_primal",
            "primitive_jvps",
            "primitive_transposes",
        ),
        "jax.interpreters.batching": ("primitive_batchers",),
        "jax.interpreters.mlir": ("lower_fun", "register_lowering"),
    }.items():
        assert [name for name in names if not hasattr(importlib.import_module(module), name)] == []
    assert jax.__version_info__ >= (0, 8, 1)
    pytest.importorskip("triton")
    compiler = importlib.import_module("triton.compiler.compiler")
    assert hasattr(compiler.CompiledKernel, "__getitem__")
