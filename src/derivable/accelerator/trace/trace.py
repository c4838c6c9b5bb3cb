"""From a PyTorch model to the operator graph: a trace of `torch.fx`, with shapes, dtypes and lines of the user's files.

The trace runs the model on the example inputs while it records, so that shapes are numbers: loops over them and
conditions on them are followed. Conditions on values are errors where the operations depend on them. Everything is
computed in float64, and what comes out is compared with the model itself.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode

from derivable.accelerator.operators.operators import (
    Builder,
    Operator,
    OperatorGraph,
    Part,
    bounded_masks,
    check,
    fold_batch_norm,
    fold_constants,
)
from derivable.accelerator.trace import (  # noqa: F401 - they enter their rows
    decompositions_layers,
    decompositions_places,
    decompositions_volumes,
    decompositions_vsa,
    translate_views,
    translate_vsa,
)
from derivable.accelerator.trace.decompositions import DECOMPOSITIONS, Refused
from derivable.accelerator.trace.exported import module_of
from derivable.accelerator.trace.recording import (
    Recorder,
    Value,
    attribute,
    call_with,
    input_names,
    name_of,
    one_line,
    record,
    same_graphs,
    value_error,
    widened,
)
from derivable.accelerator.trace.source_location import SourceLocation, calls_model, location_here, location_of
from derivable.accelerator.trace.state import (
    Change,
    changes,
    class_of,
    copied,
    refuse_class,
    refuse_classes,
    refused,
    restore,
    state_of,
)
from derivable.accelerator.trace.translate import ROWS, Ref, Translation
from derivable.bridge.torch_parts import traced_in_compiled_code, tree_leaves, tree_map
from derivable.core.arguments import several
from derivable.core.arrays import as_array
from derivable.core.diagnostics import DerivableError, DomainError, ShapeError, UnsupportedError
from derivable.core.registry import suggestion

# What to do instead of operations that have no operator.
_INSTEAD = {
    name: hint
    for hint, names in {
        "sort, topk and median give an order": "quantile nanmedian mode cummax cummin",
        "a table of its values as a constant": "atan atan2 asin acos",
        "return what the loss is of": "cross_entropy nll_loss mse_loss l1_loss",
        "scatter and scatter_add, or a product with one_hot of the index": "index_put index_copy scatter_reduce",
        "its shape depends on the inputs: torch.where keeps shapes": "nonzero",
    }.items()
    for name in names.split()
}

_DRAWN = ("rand", "randn", "randint", "randperm", "normal", "multinomial")


def trace(model: Callable, example_inputs: Any, *, symbolic: Sequence[str] = ()) -> OperatorGraph:
    """The operator graph of a model, for inputs of the shapes of the example.

    model           a module in `eval()`, or a function of torch tensors, which may use modules from around it. What
                    torch.compile made of either is traced as what it was made of; an `ExportedProgram` of torch.export;
                    the path of a file of ONNX, or a model of `onnx` or `onnx_ir`
    example_inputs  a tensor, a tuple of arguments, or a mapping of names to arguments; also NumPy arrays
    symbolic        paths of modules that belong to the symbolic part, besides operations of `derivable.vsa` and what
                    follows them up to the next neural layer

    The graph has no batch norms and nothing that no output needs; constants are parameters, buffers and what follows
    from them. Law: `evaluate(trace(model, x), x)` is `model(x)` in float64.

    Raises UnsupportedError, with the operation and the line of the user's file, for what cannot be traced: conditions
    on values, operations without an operator, random numbers, layers in training; ShapeError for inputs that the model
    does not take.
    """
    model = uncompiled(model)
    if not callable(model):
        raise DomainError(
            f"the model is {type(model).__name__}, expected a torch.nn.Module or a function of tensors",
            hint="or the path of a file of ONNX, which ends in .onnx",
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedError("a scripted module hides its operations", hint="give the module that was scripted")
    refuse_classes(model)
    arguments = _arguments(model, example_inputs)
    float_name = _float_name(model, arguments)
    paths = [path for path, _ in model.named_modules()] if isinstance(model, torch.nn.Module) else []
    for path in several(symbolic, "symbolic", '["rules"]', "paths of modules"):
        if path not in paths:
            raise DomainError(f"the model has no module {path!r}", hint=suggestion(path, paths, "print the model"))
    with _in_float64(model) as (wide, mode):
        examples = {name: tree_map(widened, value) for name, value in arguments.items()}
        before = state_of(wide)
        expected = _run(wide, examples)
        written = changes(wide, before, mode.written)
        is_read = bool(written or mode.outside) and not _agree(expected, _run(wide, examples))
        restore(written)
        mode.restore()
        if is_read:
            raise refused(wide, written) if written else mode.refused()
        recorder = Recorder(examples, symbolic)
        try:
            graph = record(recorder, wide)
            _refuse_conditions(recorder, graph, wide, written)
            made = _translate(recorder, graph, float_name)
            _compare(recorder, expected, recorder.view_changed or mode.drawn or SourceLocation())
        except UnsupportedError:
            if not written:
                raise
            raise refused(wide, written) from None
        finally:
            restore(written)
        return made


def _refuse_conditions(recorder: Recorder, graph: torch.fx.Graph, model: Callable, written: Sequence[Change]) -> None:
    """Raise UnsupportedError unless the model records the same whichever way each of its conditions on values goes, as
    where it only warns."""
    for number, location in enumerate(recorder.conditions):
        restore(written)
        other = Recorder(recorder.examples, recorder.symbolic, flipped=number)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                is_same = same_graphs(recorder, graph, other, record(other, model))
        except Exception:
            is_same = False
        if not is_same:
            raise value_error("the truth value", location)


# The model and its inputs


def flat_inputs(model: Callable, inputs: Any) -> dict[str, np.ndarray]:
    """The arrays of arguments of a model, given as `trace` takes its example, by the names of the graph's inputs."""
    found = {}
    for name, value in _arguments(model, inputs).items():
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        names = input_names(name, value, len(tensors))
        found.update(zip(names, (widened(tensor).detach().numpy() for tensor in tensors)))
    return found


def uncompiled(model: Callable) -> Callable:
    """What torch.compile was given, and the module of what torch.export made and of ONNX; other models as they are."""
    for name in ("_orig_mod", "_torchdynamo_orig_callable"):
        model = getattr(model, name, model)
    return module_of(model)


def _uncompile_parts(module: torch.nn.Module, seen: set[torch.nn.Module]) -> None:
    """Put the modules that torch.compile was given into the place of what it made of them, in a whole module."""
    seen.add(module)
    for name, part in module._modules.items():
        if part is not None:
            plain: Any = uncompiled(part)
            module._modules[name] = plain
            if plain not in seen:
                _uncompile_parts(plain, seen)


@contextmanager
def _without_compiler() -> Iterator[None]:
    """What torch.compile made runs as what it was made of; else it refuses to be traced, or takes long to compile."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with traced_in_compiled_code():
        yield


def _arguments(model: Callable, example_inputs: Any) -> dict[str, Any]:
    """The arguments of the model by name, arrays as tensors."""
    if isinstance(model, type):
        raise DomainError(f"the model is a class, {model.__name__}", hint=f"make a model of it: {model.__name__}(...)")
    model = uncompiled(model)
    function = type(model).forward if isinstance(model, torch.nn.Module) else model
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        name = getattr(model, "__name__", type(model).__name__)
        raise DomainError(
            f"the names of the arguments of {name!r} are unknown", hint="give a function of Python that calls it"
        ) from None
    first = [None] if isinstance(model, torch.nn.Module) else []
    try:
        if isinstance(example_inputs, Mapping):
            bound = signature.bind(*first, **example_inputs)
        else:
            given = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
            bound = signature.bind(*first, *given)
    except TypeError as error:
        raise ShapeError(
            f"the example inputs are not the arguments of the model: {error}",
            hint=f"it takes {', '.join(list(signature.parameters)[len(first) :]) or 'none'}",
        ) from None
    flat: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[len(first) :]:
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            flat.update(value)
        else:
            flat[f"*{name}" if kind is inspect.Parameter.VAR_POSITIONAL else name] = value
    flat = {name: tree_map(_tensor, value) for name, value in flat.items()}
    found = [leaf for leaf in tree_leaves(flat) if isinstance(leaf, torch.Tensor)]
    if not found:
        raise DomainError(
            f"the example inputs are {example_inputs!r}, without a tensor",
            hint="give a tensor of torch or an array of NumPy, a tuple of arguments, or a mapping of names to them",
        )
    for leaf in found:
        refuse_class(class_of(leaf), "an example input", SourceLocation())
        if leaf.layout is not torch.strided or leaf.is_meta:
            kind = "on the meta device, without numbers" if leaf.is_meta else f"{leaf.layout}"
            raise DomainError(f"an example input is {kind}", hint="give a dense tensor with numbers")
        if not leaf.numel():
            raise ShapeError(f"an example input is {list(leaf.shape)}, without an entry", hint="give a batch of one")
        if leaf.is_complex():
            raise ShapeError(
                f"an example input is {leaf.dtype}",
                hint="no operator has complex numbers; take HRR in the place of FHRR",
            )
    return flat


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "fiubc":
        raise DomainError(f"an example input is an array of {value.dtype}, expected real numbers")
    return torch.from_numpy(np.ascontiguousarray(as_array(value, "an example input")))


def _float_name(model: Callable, arguments: Mapping[str, Any]) -> str:
    """The dtype of floating numbers in the model, such as "float32"."""
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    for tensor in (*parameters, *tree_leaves(dict(arguments))):
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            return str(tensor.dtype).removeprefix("torch.")
    return "float32"


@contextmanager
def _in_float64(model: Callable) -> Iterator[tuple[Callable, _Wide]]:
    """A copy of the model in float64 on the CPU, and new numbers in float64."""
    if isinstance(model, torch.nn.Module):
        try:
            model = copied(model).cpu().double()
            _uncompile_parts(model, set())
        except Exception as error:
            raise UnsupportedError(
                f"the model cannot be copied: {type(error).__name__}: {error}",
                hint="keep tensors that require gradients as parameters",
            ) from error
    before = torch.get_default_dtype()
    mode = _Wide(before)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), _without_compiler(), mode:
            yield model, mode
    finally:
        torch.set_default_dtype(before)
        # Behind the mode, in which they would be float64.
        mode.restore()


def _writes(name: str) -> bool:
    """Whether a function of torch of this name changes its first operand."""
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__")) or name[:3] == "__i"


class _Wide(TorchFunctionMode):
    """Floating numbers are float64 in every operation, also those of tensors that a model does not own.

    drawn    where random numbers were drawn first, which need not depend on an input
    written  where a tensor was first changed in place, by its identity
    outside  by identity, tensors that were changed in place and that no operation of the call has made: the tensor, a
             copy of what it was, and where it was changed first
    """

    drawn: SourceLocation | None = None

    def __init__(self, default: torch.dtype) -> None:
        super().__init__()
        self.written: dict[int, SourceLocation] = {}
        self.outside: dict[int, tuple[torch.Tensor, torch.Tensor, SourceLocation]] = {}
        self._made: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()
        self._default = default
        # By identity, each with the parameter, which so keeps it: a weight that is read often is one constant.
        self._parameters: dict[int, tuple[torch.Tensor, Any]] = {}

    def _widened(self, value: Any) -> Any:
        if isinstance(value, Value):
            return value
        if not isinstance(value, torch.nn.Parameter):
            return widened(value)
        if id(value) not in self._parameters:
            self._parameters[id(value)] = value, widened(value)
        return self._parameters[id(value)][1]

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return func(*args)  # what a tensor is, such as its dtype
        if func is torch.Tensor.__getitem__ and isinstance(args[1], Value):
            return Value.__torch_function__(func, types, args, kwargs)  # torch would take the index for a sequence
        name = getattr(func, "__name__", "")
        if self.drawn is None and name in _DRAWN:
            self.drawn = location_here("")
        if name in ("rand", "randn"):  # the numbers that the model draws, which are others in float64
            kwargs = {"dtype": self._default, **(kwargs or {})}
            return widened(func(*args, **kwargs))
        if func in (torch.as_tensor, torch.asarray) and isinstance(args[0], Value):
            dtype = (kwargs or {}).get("dtype")
            return args[0] if dtype is None else args[0].to(dtype)
        changed = args[0] if args and _writes(name) and not isinstance(args[0], Value) else None
        if changed is not None:
            self.written.setdefault(id(changed), location_here(""))
        if isinstance(changed, torch.Tensor) and self._made.get(id(changed)) is not changed:
            self.outside.setdefault(id(changed), (changed, changed.detach().clone(), self.written[id(changed)]))
        wide: Any = map_aggregate(args, self._widened)
        found = func(*wide, **map_aggregate(kwargs or {}, self._widened))  # type: ignore[misc]
        if isinstance(changed, torch.Tensor) and wide[0] is not changed and not isinstance(changed, torch.nn.Parameter):
            changed.data = wide[0].detach()
            found = changed if found is wide[0] else found
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor) and one is not changed:
                self._made[id(one)] = one
        return found

    def restore(self) -> None:
        """Put back what tensors from outside were."""
        for tensor, before, _ in self.outside.values():
            tensor.data = before.clone()

    def refused(self) -> DerivableError:
        """The error that shows where a tensor from outside is changed."""
        location = next(location for *_, location in self.outside.values())
        return location.error(
            UnsupportedError,
            "a call of the model changes a tensor that was there before it, and the hardware keeps no state between "
            "calls",
            "take it as an input and return what it becomes: `def forward(self, x, h)`, `return y, h + ...`",
        )


@calls_model
def _run(model: Callable, examples: Mapping[str, Any]) -> list[torch.Tensor]:
    """The outputs of the model itself, flat."""
    examples = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, dict(examples))
    try:
        found = tree_leaves(call_with(model, examples))
    except DerivableError:
        raise
    except Exception as error:
        location = location_of(error)
        raise location.error(
            ShapeError, f"the model fails on the example inputs: {type(error).__name__}: {one_line(error)}"
        ) from error
    if not any(isinstance(one, torch.Tensor) for one in found):
        raise UnsupportedError("the model returns no tensor", hint="return tensors, in tuples, lists or dictionaries")
    return found


def _agree(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether outputs are the same to nine digits."""
    return len(some) == len(others) and all(
        not isinstance(other, torch.Tensor)
        or (
            one.shape == other.shape
            and torch.allclose(one.double().cpu(), other.double().cpu(), 1e-9, 1e-9, equal_nan=True)
        )
        for one, other in zip(some, others)
    )


def _compare(recorder: Recorder, expected: Sequence[Any], suspect: SourceLocation) -> None:
    """Raise unless the operations that were recorded give what the model gives; the error shows what is suspected."""
    found = [value.value if isinstance(value, Value) else value for value in recorder.results]
    for number, (one, other) in enumerate(zip(found, expected)):
        if other is None:
            continue
        if not isinstance(other, torch.Tensor):
            raise UnsupportedError(
                f"output {number} of the model is {type(other).__name__}, expected tensors",
                hint="return tensors, in tuples, lists or dictionaries",
            )
        if not _agree([one], [other]):
            raise suspect.error(
                UnsupportedError,
                f"output {number} of the trace is not what the model gives",
                "look for random numbers, for operations in place on a tensor that is read again under another "
                "name, and for state that a call changes",
            )


# Translation


def _translate(recorder: Recorder, graph: torch.fx.Graph, float_name: str) -> OperatorGraph:
    builder = Builder()
    translation = Translation(builder)
    known: dict[torch.fx.Node, Any] = {}
    parts: dict[str, Part | None] = {}
    graph.eliminate_dead_code()
    for node in graph.nodes:
        before = len(builder.operators)
        location: SourceLocation = node.meta.get("location", SourceLocation())
        builder.source = str(location)
        known[node] = _operation(recorder, node, translation, known, location, float_name)
        part = _part(recorder, node)
        parts.update(dict.fromkeys(list(builder.operators)[before:], part))
    outputs = known[next(node for node in graph.nodes if node.op == "output")]
    made = builder.build([translation.ref(value).name for value in outputs])
    made = replace(made, operators=tuple(_with_dtype(operator, float_name) for operator in made))
    made = bounded_masks(fold_constants(fold_batch_norm(_with_parts(made, parts))))
    check(made)
    return made


def _operation(
    recorder: Recorder,
    node: torch.fx.Node,
    translation: Translation,
    known: Mapping[torch.fx.Node, Any],
    location: SourceLocation,
    float_name: str,
) -> Any:
    def ready(value: Any) -> Any:
        return map_aggregate(value, lambda x: known[x] if isinstance(x, torch.fx.Node) else x)

    if node.op == "placeholder":
        value = recorder.inputs[str(node.target)]
        dtype = float_name if value.is_floating_point() else str(value.dtype).removeprefix("torch.")
        return Ref(translation.builder.input(str(node.target), tuple(value.shape), dtype))
    if node.op == "get_attr":
        return _constant(recorder, str(node.target), translation, float_name)
    if node.op == "output":
        return ready(node.args[0])
    name = name_of(node.target)
    translate = ROWS.get(node.target) or ROWS.get(name)
    if translate is None:
        known_names = {key for key in (*ROWS, *DECOMPOSITIONS) if isinstance(key, str)}
        hint = _INSTEAD.get(name) or suggestion(name, known_names, "write it with operations that have one")
        raise location.error(UnsupportedError, f"{name} has no operator", hint)
    translation.result = node.meta.get("shape", ())
    try:
        found = translate(translation, *ready(node.args), **ready(node.kwargs))
    except Refused as error:
        raise location.error(UnsupportedError, error.message, error.hint) from None
    except DerivableError as error:
        raise location.error(type(error), f"{name}: {error.message}", error.hint) from None
    except TypeError as error:
        raise location.error(
            UnsupportedError, f"{name} with these arguments has no operator: {one_line(error)}"
        ) from error
    shape = node.meta.get("shape")
    if isinstance(found, Ref) and shape is not None and translation.shape(found) != shape:
        raise AssertionError(f"{name} gave {translation.shape(found)}, torch {shape}")
    return found


def _constant(recorder: Recorder, target: str, translation: Translation, float_name: str) -> Ref:
    """A parameter or buffer under its own name, another tensor as a constant; in the model's dtype if that is exact."""
    array = widened(attribute(recorder.root, target)).numpy()
    if array.dtype == np.float64 and float_name in ("float32", "float16"):
        with np.errstate(over="ignore"):
            narrow = array.astype(float_name)
        array = narrow if np.array_equal(narrow, array, equal_nan=True) else array
    named = target in dict(recorder.root.named_parameters()) or target in dict(recorder.root.named_buffers())
    return translation.constant(np.ascontiguousarray(array).reshape(array.shape), target if named else None)


def _with_dtype(operator: Operator, float_name: str) -> Operator:
    is_float = operator.kind != "constant" and operator.dtype.startswith(("float", "bfloat"))
    return replace(operator, dtype=float_name) if is_float else operator


_LAYERS = frozenset({"conv2d", "conv1d", "linear", "batch_norm"})


def _part(recorder: Recorder, node: torch.fx.Node) -> Part | None:
    """The part of a node by itself, None if it follows from what is around it."""
    module = node.meta.get("location", SourceLocation()).module
    for path in recorder.symbolic:
        if module == path or module.startswith(f"{path}."):
            return "symbolic"
    if node.meta.get("part") or str(getattr(node.target, "__module__", "")).startswith("derivable.vsa"):
        return "symbolic"
    return "neural" if node.meta.get("layer") or name_of(node.target) in _LAYERS else None


def _with_parts(graph: OperatorGraph, parts: Mapping[str, Part | None]) -> OperatorGraph:
    """Every operator's part: its own, else that of its inputs (symbolic if any is), else that of its readers."""
    found: dict[str, Part | None] = {}
    for operator in graph:
        above = [found[name] for name in operator.inputs if found[name] is not None]
        own = parts.get(operator.name) if operator.unit != "source" else None
        inherited: Part | None = "symbolic" if "symbolic" in above else "neural" if above else None
        found[operator.name] = own or inherited
    for operator in reversed(graph.operators):
        if found[operator.name] is None:
            below = [found[name] for name in graph.users[operator.name]]
            found[operator.name] = "symbolic" if below and all(part == "symbolic" for part in below) else "neural"
    return replace(graph, operators=tuple(replace(o, part=found[o.name] or "neural") for o in graph))
