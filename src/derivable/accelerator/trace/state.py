"""State that a model keeps between calls: its parameters, buffers and numbers, and which of them a call changes.

The hardware keeps nothing between passes. What a call changes and another call reads is refused by its name; what only
counts, such as the batches of a batch norm, is left as it was.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from derivable.accelerator.trace.source_location import SourceLocation, is_users
from derivable.core.diagnostics import DerivableError, UnsupportedError

_KINDS = {"_parameters": "parameter", "_buffers": "buffer", "": "attribute"}
Key: TypeAlias = tuple[torch.nn.Module, str, str]  # a module, the table of it ("" for attributes), and a name
State: TypeAlias = dict[Key, tuple[Any, Any]]  # the tensor or number, and a copy


@dataclass(frozen=True)
class Change:
    """What a call wrote: a value of a module, as it was before, and where in the user's files it was written."""

    key: Key
    before: Any
    location: SourceLocation


def state_of(model: Any) -> State:
    """The tensors and numbers of a module and of all in it, or of the modules that a function has from around it."""
    return {key: (value, _copied(value)) for key, value in _entries(model)}


def _entries(model: Any) -> Iterator[tuple[Key, Any]]:
    for module in _modules(model):
        for table in ("_parameters", "_buffers"):
            if table == "_buffers" and module.training and type(module).__module__.startswith("torch.nn."):
                continue  # a layer in training, which is refused as such
            yield from (((module, table, name), value) for name, value in getattr(module, table).items())
        for name, value in vars(module).items():
            if name != "training" and (value is None or isinstance(value, (torch.Tensor, int, float))):
                yield (module, "", name), value


def class_of(tensor: Any) -> type:
    """The user's class of tensors that a tensor is of; torch.Tensor for torch's own and where operations forget it."""
    kind = type(tensor)
    if issubclass(kind, torch.fx.Proxy):  # of the trace, whose class is made of the trace's and of the user's
        return kind.__bases__[-1] if issubclass(kind, torch.Tensor) else torch.Tensor
    is_own = kind.__module__.partition(".")[0] == "torch" or issubclass(kind, torch.nn.Parameter)
    return torch.Tensor if is_own else kind


def refuse_class(kind: type, what: str, location: SourceLocation) -> None:
    """Raise UnsupportedError for a class of tensors that itself decides what operations of torch mean."""
    names = ("__torch_function__", "__torch_dispatch__")
    above = kind.__mro__[: kind.__mro__.index(torch.Tensor)]
    changed = [name for name in names if any(name in vars(cls) for cls in above)]
    if changed:
        raise location.error(
            UnsupportedError,
            f"{what} is a {kind.__name__} of {kind.__module__.partition('.')[0]}, which decides in {changed[0]} what "
            "operations of torch mean, and a trace does not see it",
            "give its numbers: `.as_subclass(torch.Tensor)`, and write what it does as operations of torch",
        )


def refuse_classes(model: Any) -> None:
    """Raise UnsupportedError where a module has tensors whose class decides what operations of torch mean."""
    paths = _modules(model)
    for (module, table, name), value in _entries(model):
        if isinstance(value, torch.Tensor):
            where = paths[module] and f" of the module {paths[module]!r}"
            refuse_class(class_of(value), f"the {_KINDS[table]} {name!r}{where}", SourceLocation())


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module; tensors of a user's class, which torch refuses to copy, are copied by their numbers."""
    of_classes: dict[int, Any] = {}
    for (_, table, _), value in _entries(model):
        if isinstance(value, torch.Tensor) and class_of(value) is not torch.Tensor:
            numbers = _copied(value)
            is_parameter = table == "_parameters"
            of_classes[id(value)] = torch.nn.Parameter(numbers, value.requires_grad) if is_parameter else numbers
    return copy.deepcopy(model, of_classes)


def _modules(model: Any) -> dict[torch.nn.Module, str]:
    """The modules that a call may reach, and their paths: of a module, of what a function closes over, of what holds
    them in attributes."""
    found: dict[torch.nn.Module, str] = {}
    waiting, seen = [(model, "")], set()
    while waiting:
        value, path = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.nn.Module):
            for inner, module in value.named_modules(prefix=path):
                found.setdefault(module, inner)
            waiting += [
                (vars(module)["forward"], inner) for module, inner in found.items() if "forward" in vars(module)
            ]
        elif isinstance(value, functools.partial):
            waiting += [(each, path) for each in (value.func, *value.args, *value.keywords.values())]
        elif inspect.ismethod(value):
            waiting += [(value.__self__, path), (value.__func__, path)]
        elif inspect.isfunction(value) and is_users(value.__code__):
            around = inspect.getclosurevars(value)
            waiting += [(each, name) for names in (around.nonlocals, around.globals) for name, each in names.items()]
        elif not path and hasattr(value, "__dict__") and not isinstance(value, type) and callable(value):
            waiting += [(each, name) for name, each in vars(value).items()]
    return found


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def changes(model: Any, before: State, written: Mapping[int, SourceLocation]) -> list[Change]:
    """What a call has written since `before`, in the order of the modules.

    written  where tensors were changed in place, by their identity
    """
    after, found = dict(_entries(model)), []
    for key, (value, saved) in before.items():
        now = after.get(key)
        location = written.get(id(now)) or written.get(id(value))
        if isinstance(value, torch.Tensor):
            is_same = now is value and location is None and torch.equal(value.nan_to_num(), saved.nan_to_num())
        else:
            is_same = now is value or now == value
        if not is_same:
            found.append(Change(key, saved, location or SourceLocation()))
    return found


def restore(found: Sequence[Change]) -> None:
    """Put values back: copies, which a call may change again."""
    for change in found:
        module, table, name = change.key
        entries = getattr(module, table) if table else vars(module)
        if isinstance(entries.get(name), torch.nn.Parameter):
            entries[name].data = _copied(change.before)
        else:
            entries[name] = _copied(change.before)


def refused(model: Any, found: Sequence[Change]) -> DerivableError:
    """The error that names what a call changes, at the line that writes it where that is known."""
    paths = _modules(model)
    names = []
    for module, table, name in (change.key for change in found):
        where = f"the module {paths[module]!r}" if paths[module] else f"the model, {type(module).__name__}"
        names.append(f"the {_KINDS[table]} {name!r} of {where}")
    location = next((change.location for change in found if change.location.file), SourceLocation())
    first = found[0].key[2]
    return location.error(
        UnsupportedError,
        f"a call of the model changes {', '.join(names)}, and the hardware keeps no state between calls",
        f"take it as an input and return what it becomes: `def forward(self, x, {first})`, `return y, {first} + ...`; "
        "or change it in training only: `if self.training:`",
    )
