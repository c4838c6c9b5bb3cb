"""From a PyTorch model to the operator graph: a trace of `torch.fx`, with shapes, dtypes and lines of the user's files.

The trace runs the model on the example inputs while it records, so that shapes are numbers: loops over them and
conditions on them are followed. Conditions on values are errors. Everything is computed in float64, and what comes out
is compared with the model itself.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import getitem
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from derivable.accelerator import translate_layers  # noqa: F401 - enters its rows
from derivable.accelerator.operators import (
    Builder,
    Operator,
    OperatorGraph,
    Part,
    check,
    fold_batch_norm,
    fold_constants,
)
from derivable.accelerator.place import Place, calls_model, place_here, place_of
from derivable.accelerator.translate import ROWS, Ref, Refused, Translation
from derivable.accelerator.translate_vsa import ROWS as VSA_ROWS
from derivable.core.diagnostics import DerivableError, DomainError, ShapeError, UnsupportedError
from derivable.core.registry import suggestion

# What only sizes say, so that a trace has the numbers.
_OF_SHAPES = {
    *("size", "dim", "numel", "ndimension", "is_floating_point", "is_complex", "element_size", "stride"),
    *("storage_offset", "is_contiguous", "get_device", "is_tensor", "result_type", "__len__"),
}
_FILLED = {
    *("zeros_like", "ones_like", "full_like", "empty_like"),
    *("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"),
}
_RANDOM = {
    *("rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "normal", "uniform", "random"),
    *("exponential", "rrelu", "poisson"),
}
_DRAWN = ("rand", "randn", "randint", "randperm", "normal", "multinomial")
_VALUES = "data-dependent control flow"


def trace(model: Callable, example_inputs: Any, *, symbolic: Sequence[str] = ()) -> OperatorGraph:
    """The operator graph of a model, for inputs of the shapes of the example.

    model           a module or a function of torch tensors. Batch norm and dropout are as in `model.eval()`
    example_inputs  a tensor, a tuple of arguments, or a mapping of names to arguments; also NumPy arrays
    symbolic        paths of modules that belong to the symbolic part, besides operations of `derivable.vsa` and what
                    follows them up to the next neural layer

    The graph has no batch norms and nothing that no output needs; constants are parameters, buffers and what follows
    from them. Law: `evaluate(trace(model, x), x)` is `model(x)` in float64.

    Raises UnsupportedError, with the operation and the line of the user's file, for what cannot be traced: conditions
    on values, operations without an operator, random numbers, layers in training; ShapeError for inputs that the model
    does not take.
    """
    if not callable(model):
        raise DomainError(f"the model is {type(model).__name__}, expected a torch.nn.Module or a function of tensors")
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedError("a scripted module hides its operations", hint="give the module that was scripted")
    arguments = _arguments(model, example_inputs)
    float_name = _float_name(model, arguments)
    paths = [path for path, _ in model.named_modules()] if isinstance(model, torch.nn.Module) else []
    for path in symbolic:
        if path not in paths:
            raise DomainError(f"the model has no module {path!r}", hint=suggestion(path, paths, "print the model"))
    with _in_float64(model) as (wide, mode):
        examples = {name: tree_map(_widened, value) for name, value in arguments.items()}
        expected = _run(wide, examples)
        recorder = _Recorder(examples, symbolic)
        graph = _record(recorder, wide)
        made = _translate(recorder, graph, float_name)
        _compare(recorder, expected, recorder.view_changed or mode.drawn or Place())
        return made


# The model and its inputs


def flat_inputs(model: Callable, inputs: Any) -> dict[str, np.ndarray]:
    """The arrays of arguments of a model, given as `trace` takes its example, by the names of the graph's inputs."""
    found = {}
    for name, value in _arguments(model, inputs).items():
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        names = _input_names(name, value, len(tensors))
        found.update(zip(names, (tensor.detach().cpu().numpy() for tensor in tensors)))
    return found


def _input_names(argument: str, value: Any, count: int) -> list[str]:
    """What the tensors in an argument are called: as it, or numbered where it holds several."""
    argument = argument.lstrip("*")
    return [argument] if isinstance(value, torch.Tensor) else [f"{argument}_{number}" for number in range(count)]


def _arguments(model: Callable, example_inputs: Any) -> dict[str, Any]:
    """The arguments of the model by name, arrays as tensors."""
    function = type(model).forward if isinstance(model, torch.nn.Module) else model
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise DomainError(f"the arguments of {model!r} are not known", hint="wrap it in a torch.nn.Module") from None
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
        raise DomainError(f"the example inputs are {example_inputs!r}, without a tensor")
    for leaf in found:
        if not leaf.numel():
            raise ShapeError(f"an example input is {list(leaf.shape)}, without an entry", hint="give a batch of one")
        if leaf.is_complex():
            raise ShapeError(f"an example input is {leaf.dtype}", hint="no operator has complex numbers")
    return flat


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _widened(value: Any) -> Any:
    """Floating tensors as float64, of their own memory; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype is not torch.float64:
        return value.detach().cpu().to(torch.float64) if value.is_floating_point() else value.detach().cpu()
    return value


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
            model = copy.deepcopy(model).cpu().double()
        except Exception as error:
            raise UnsupportedError(
                f"the model cannot be copied: {type(error).__name__}: {error}",
                hint="keep tensors that require gradients as parameters",
            ) from error
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), _Wide() as mode:
            yield model, mode
    finally:
        torch.set_default_dtype(before)


class _Wide(TorchFunctionMode):
    """Floating numbers are float64 in every operation, also those of tensors that a model does not own.

    drawn  where random numbers were drawn first, which need not depend on an input
    """

    drawn: Place | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return func(*args)  # what a tensor is, such as its dtype
        if self.drawn is None and getattr(func, "__name__", "") in _DRAWN:
            self.drawn = place_here("")
        return func(*map_aggregate(args, _widened), **map_aggregate(kwargs or {}, _widened))  # type: ignore[misc]


def _call(function: Callable, arguments: Mapping[str, Any]) -> Any:
    starred = [value for name, values in arguments.items() if name.startswith("*") for value in values]
    if starred:
        plain = [value for name, value in arguments.items() if not name.startswith("*")]
        return function(*plain, *starred)
    return function(**arguments)


@calls_model
def _run(model: Callable, examples: Mapping[str, Any]) -> list[torch.Tensor]:
    """The outputs of the model itself, flat."""
    examples = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, dict(examples))
    try:
        found = tree_leaves(_call(model, examples))
    except DerivableError:
        raise
    except Exception as error:
        place = place_of(error)
        raise place.error(
            ShapeError, f"the model fails on the example inputs: {type(error).__name__}: {_one_line(error)}"
        ) from error
    if not any(isinstance(one, torch.Tensor) for one in found):
        raise UnsupportedError("the model returns no tensor", hint="return tensors, in tuples, lists or dictionaries")
    return found


def _one_line(error: BaseException) -> str:
    return (str(error).strip().split("\n") or [""])[0].rstrip(".")


# Recording


class _Value(torch.fx.Proxy):
    """A tensor of the trace, which knows its shape; to read its numbers is an error."""

    value: torch.Tensor
    tracer: _Recorder

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.dim()

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        return self.value.device

    @property
    def requires_grad(self) -> bool:
        return False

    @property
    def is_cuda(self) -> bool:
        return False

    is_nested = is_sparse = is_quantized = is_cuda

    @property
    def T(self) -> Any:
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Any:
        return self.transpose(-1, -2)

    @property
    def data(self) -> Any:
        return self

    def size(self, dim: int | None = None) -> Any:
        return self.value.shape if dim is None else self.value.shape[dim]

    def dim(self) -> int:
        return self.value.dim()

    def numel(self) -> int:
        return self.value.numel()

    def is_floating_point(self) -> bool:
        return self.value.is_floating_point()

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator:
        return iter([self.select(0, k) for k in range(len(self.value))])

    def __getattr__(self, name: str) -> Any:
        if callable(getattr(torch.Tensor, name, None)) or name.startswith("__"):
            return super().__getattr__(name)
        place = place_here(self.tracer.module)
        raise place.error(UnsupportedError, f"a trace does not know the attribute .{name} of a tensor")

    def __iadd__(self, other: Any) -> Any:
        return self.add_(other)

    def __isub__(self, other: Any) -> Any:
        return self.sub_(other)

    def __imul__(self, other: Any) -> Any:
        return self.mul_(other)

    def __itruediv__(self, other: Any) -> Any:
        return self.div_(other)

    def __setitem__(self, index: Any, value: Any) -> None:
        place = place_here(self.tracer.module)
        raise place.error(
            UnsupportedError,
            "an assignment to a part of a tensor cannot be traced",
            "make a new tensor, with torch.cat, torch.stack or torch.where of constants",
        )

    def _read(self, what: str) -> Any:
        place = place_here(self.tracer.module)
        raise place.error(
            UnsupportedError,
            f"{what} of a tensor that depends on the inputs: {_VALUES} cannot be traced",
            "compute both branches and mix them with weights from 0 to 1, or let the condition be one of shapes",
        )

    def __bool__(self) -> bool:
        return self._read("the truth value")

    def __float__(self) -> float:
        return self._read("the number")

    def __int__(self) -> int:
        return self._read("the number")

    def __index__(self) -> int:
        return self._read("the number")

    def __contains__(self, value: object) -> bool:
        return self._read("an entry")

    def item(self) -> Any:
        return self._read("the number")

    def tolist(self) -> Any:
        return self._read("the numbers")

    def numpy(self) -> Any:
        return self._read("the numbers")

    def __array__(self, *rest: Any) -> Any:
        return self._read("the numbers")


class _Recorder(torch.fx.Tracer):
    """A tracer that computes what it records."""

    def __init__(self, examples: Mapping[str, Any], symbolic: Sequence[str]):
        super().__init__()
        self.examples = examples
        self.symbolic = tuple(symbolic)
        self.inputs: dict[str, torch.Tensor] = {}
        self.results: list[Any] = []
        self.module = ""
        self.layer: str | None = None  # the path of the module of torch.nn that is running
        self.view_changed: Place | None = None  # where a tensor that has the memory of another was changed first
        # By where memory begins, the value that was recorded first of those that the user still has.
        self._memory: WeakValueDictionary[int, _Value] = WeakValueDictionary()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict) -> Any:
        # Parameters stay tensors: what follows from them alone is computed once, here.
        return attr_val

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return False

    def call_module(self, m: torch.nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
        before = self.module, self.layer
        self.module = self.path_of_module(m)
        self.layer = self.module if type(m).__module__.startswith("torch.nn.") and not list(m.children()) else None
        found = forward(*args, **kwargs)
        # After an error the module is still known.
        self.module, self.layer = before
        return found

    def create_args_for_root(self, root_fn: Callable, is_module: bool, concrete_args: Any = None) -> Any:
        def placed(argument: str, value: Any) -> Any:
            tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
            names = iter(_input_names(argument, value, len(tensors)))

            def one(leaf: Any) -> Any:
                if not isinstance(leaf, torch.Tensor):
                    return leaf
                name = next(names)
                self.inputs[name] = leaf
                return self.create_proxy("placeholder", name, (), {})

            return tree_map(one, value) if tensors else value

        proxies = {name: placed(name, value) for name, value in self.examples.items()}

        def call(*root: Any) -> Any:
            self.results = tree_leaves(_call(lambda *args, **kwargs: root_fn(*root, *args, **kwargs), proxies))
            return tuple(result for result in self.results if result is not None)

        return call, [self.root] if is_module else []

    def proxy(self, node: torch.fx.Node) -> _Value:
        return _Value(node, self)

    def create_arg(self, a: Any) -> Any:
        return a.node if isinstance(a, torch.fx.Proxy) else super().create_arg(a)

    def create_proxy(self, kind: str, target: Any, args: tuple, kwargs: dict, *rest: Any, **more: Any) -> Any:
        if kind == "placeholder":
            value, place = self.inputs[target], Place()
        else:
            place = place_here(self.module)
            value = self._computed(kind, target, args, kwargs, place)
            name = _name(target)
            if name in _OF_SHAPES or name in _FILLED:
                return value
        proxy: Any = super().create_proxy(kind, target, args, kwargs, *rest, **more)
        proxy.node.meta.update(place=place, layer=self.layer)
        if isinstance(value, (tuple, list)) and all(part is None or isinstance(part, torch.Tensor) for part in value):
            # Results with several tensors are known one by one.
            proxy.value = value
            parts = [
                None if part is None else self.create_proxy("call_function", getitem, (proxy, k), {})
                for k, part in enumerate(value)
            ]
            return _rebuilt(value, parts)
        if isinstance(value, (tuple, list)):
            raise place.error(UnsupportedError, f"{_name(target)} has no operator")
        if not isinstance(value, torch.Tensor):
            raise place.error(
                UnsupportedError,
                f"{_name(target)} gives {type(value).__name__} that depends on the inputs: {_VALUES} cannot be traced",
                "only tensors go through a trace; write a fixed number of steps in the place of a search",
            )
        if value.is_complex():
            raise place.error(UnsupportedError, f"{_name(target)} gives complex numbers, which no operator has")
        proxy.value = value
        proxy.node.meta["shape"] = tuple(value.shape)
        if _is_in_place(target, kwargs) and args and isinstance(args[0], _Value):
            return self._changed(args[0], proxy, place)
        self._memory.setdefault(value.untyped_storage().data_ptr(), proxy)
        return proxy

    def _changed(self, before: _Value, after: _Value, place: Place) -> _Value:
        """The same tensor of the user's with what an operation in place made of it."""
        if self.view_changed is None and self._memory.get(before.value.untyped_storage().data_ptr()) is not before:
            self.view_changed = place
        before.node, before.value = after.node, after.value
        self._memory[after.value.untyped_storage().data_ptr()] = before
        return before

    def _computed(self, kind: str, target: Any, args: tuple, kwargs: dict, place: Place) -> Any:
        """What an operation gives on the examples, without changing its operands."""
        name = _name(target)
        if name in _RANDOM:
            raise place.error(UnsupportedError, f"{name} draws random numbers", "give them as an input")

        def number(value: Any) -> Any:
            if isinstance(value, _Value):
                return value.value
            return _widened(value)

        args, kwargs = map_aggregate(args, number), map_aggregate(kwargs, number)  # type: ignore[assignment]
        kwargs = {key: False if key == "inplace" else value for key, value in kwargs.items()}
        try:
            if kind == "call_method":
                method = target if target.startswith("__") else target.rstrip("_")
                method = method if callable(getattr(torch.Tensor, method, None)) else target
                first = args[0].clone() if method.endswith("_") and not method.startswith("__") else args[0]
                found = getattr(first, method)(*args[1:], **kwargs)
            else:
                found = target(*args, **kwargs)
        except DerivableError as error:
            raise place.error(type(error), error.message, error.hint) from error
        except Exception as error:
            raise place.error(ShapeError, f"{name} fails: {_one_line(error)}") from error
        return _rebuilt(found, map(_widened, found)) if isinstance(found, (tuple, list)) else _widened(found)


def _rebuilt(like: Any, parts: Iterable[Any]) -> Any:
    """The parts in a tuple, list or named tuple like another one."""
    return like._make(parts) if hasattr(like, "_make") else type(like)(list(parts))


def _is_in_place(target: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation changes its first operand, such as `x.add_(y)` and `relu(x, inplace=True)`."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return kwargs.get("inplace") is True or (name.endswith("_") and not name.startswith("__"))


def _name(target: Any) -> str:
    """What an operation is called: `relu` for torch.relu, F.relu, x.relu and x.relu_."""
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return name if name.startswith("__") else name.rstrip("_")


@calls_model
def _record(recorder: _Recorder, model: Callable) -> torch.fx.Graph:
    try:
        return recorder.trace(model)  # type: ignore[arg-type]
    except DerivableError:
        raise
    except Exception as error:
        place = place_of(error, recorder.module)
        raise place.error(
            UnsupportedError,
            f"the model cannot be traced: {type(error).__name__}: {_one_line(error)}",
            "a trace goes through operations on tensors; other code must not ask what they hold or are",
        ) from error


def _compare(recorder: _Recorder, expected: Sequence[Any], suspect: Place) -> None:
    """Raise unless the operations that were recorded give what the model gives; the error shows what is suspected."""
    found = [value.value if isinstance(value, _Value) else value for value in recorder.results]
    for number, (one, other) in enumerate(zip(found, expected)):
        if other is None:
            continue
        if not isinstance(other, torch.Tensor):
            raise UnsupportedError(
                f"output {number} of the model is {type(other).__name__}, expected tensors",
                hint="return tensors, in tuples, lists or dictionaries",
            )
        if one.shape != other.shape or not torch.allclose(_widened(one), _widened(other), 1e-9, 1e-9, equal_nan=True):
            raise suspect.error(
                UnsupportedError,
                f"output {number} of the trace is not what the model gives",
                "look for random numbers, for operations in place on a tensor that is read again under another "
                "name, and for state that a call changes",
            )


# Translation


def _translate(recorder: _Recorder, graph: torch.fx.Graph, float_name: str) -> OperatorGraph:
    builder = Builder()
    translation = Translation(builder)
    known: dict[torch.fx.Node, Any] = {}
    parts: dict[str, Part | None] = {}
    graph.eliminate_dead_code()
    for node in graph.nodes:
        before = len(builder.operators)
        place: Place = node.meta.get("place", Place())
        builder.source = str(place)
        known[node] = _operation(recorder, node, translation, known, place, float_name)
        part = _part(recorder, node)
        parts.update(dict.fromkeys(list(builder.operators)[before:], part))
    outputs = known[next(node for node in graph.nodes if node.op == "output")]
    made = builder.build([translation.ref(value).name for value in outputs])
    made = replace(made, operators=tuple(_with_dtype(operator, float_name) for operator in made))
    made = fold_constants(fold_batch_norm(_with_parts(made, parts)))
    check(made)
    return made


def _operation(
    recorder: _Recorder,
    node: torch.fx.Node,
    translation: Translation,
    known: Mapping[torch.fx.Node, Any],
    place: Place,
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
    name = _name(node.target)
    translate = (VSA_ROWS.get(node.target) if callable(node.target) else None) or ROWS.get(name)
    if translate is None:
        raise place.error(
            UnsupportedError,
            f"{name} has no operator",
            suggestion(name, ROWS, "write it with operations that have one"),
        )
    try:
        found = translate(translation, *ready(node.args), **ready(node.kwargs))
    except Refused as error:
        raise place.error(UnsupportedError, error.message, error.hint) from None
    except DerivableError as error:
        raise place.error(type(error), f"{name}: {error.message}", error.hint) from None
    except TypeError as error:
        raise place.error(
            UnsupportedError, f"{name} with these arguments has no operator: {_one_line(error)}"
        ) from error
    shape = node.meta.get("shape")
    if isinstance(found, Ref) and shape is not None and translation.shape(found) != shape:
        raise AssertionError(f"{name} gave {translation.shape(found)}, torch {shape}")
    return found


def _constant(recorder: _Recorder, target: str, translation: Translation, float_name: str) -> Ref:
    """A parameter or buffer under its own name, another tensor as a constant; in the model's dtype if that is exact."""
    value: Any = recorder.root
    for part in target.split("."):
        value = getattr(value, part)
    array = _widened(value).numpy()
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


def _part(recorder: _Recorder, node: torch.fx.Node) -> Part | None:
    """The part of a node by itself, None if it follows from what is around it."""
    module = node.meta.get("place", Place()).module
    for path in recorder.symbolic:
        if module == path or module.startswith(f"{path}."):
            return "symbolic"
    if getattr(node.target, "__module__", None) and str(node.target.__module__).startswith("derivable.vsa"):  # type: ignore[union-attr]
        return "symbolic"
    return "neural" if node.meta.get("layer") or _name(node.target) in _LAYERS else None


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
