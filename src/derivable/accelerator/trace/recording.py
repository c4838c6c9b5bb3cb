"""What `torch.fx` records of a model while it runs on examples: shapes are numbers, and values cannot be asked for.

Every node has its place in the user's files, its shape, and the module it is in. What only shapes say is computed and
not recorded, and so is what follows from parameters alone.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.fx.node import map_aggregate

from derivable.accelerator.trace.decompositions import Refused, assigned
from derivable.accelerator.trace.exported import LOOP_HINT, call, is_exported
from derivable.accelerator.trace.source_location import SourceLocation, calls_model, location_here, location_of
from derivable.accelerator.trace.spectra import Spectrum, complex_error, decomposition
from derivable.accelerator.trace.state import class_of, refuse_class
from derivable.bridge.torch_parts import tree_leaves, tree_map
from derivable.core.diagnostics import DerivableError, ShapeError, UnsupportedError

# What only sizes say, so that a trace has the numbers.
_OF_SHAPES = {
    *("size", "dim", "numel", "ndimension", "is_floating_point", "is_complex", "element_size", "stride"),
    *("storage_offset", "is_contiguous", "get_device", "is_tensor", "result_type", "__len__"),
}
# What a tensor of the trace is, which its value on the examples says; no derivative is asked of it.
_KNOWN = {
    *("shape", "ndim", "dtype", "device", "requires_grad", "is_cuda", "is_nested", "is_sparse", "is_quantized"),
    *("size", "dim", "numel", "is_floating_point"),
}
_FILLED = {
    *("zeros_like", "ones_like", "full_like", "empty_like"),
    *("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"),
}
_RANDOM = {
    *("rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "normal", "uniform", "random"),
    *("exponential", "rrelu", "poisson"),
}
_VALUES = "data-dependent control flow"


class Value(torch.fx.Proxy):
    """A tensor of the trace, which knows its shape; to read its numbers is an error."""

    value: torch.Tensor
    tracer: Recorder

    @property
    def T(self) -> Any:
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Any:
        return self.transpose(-1, -2)

    @property
    def data(self) -> Any:
        return self

    @property
    def real(self) -> Any:
        return self  # no tensor of a trace is complex

    def as_subclass(self, kind: type) -> Any:
        refuse_class(kind, "a tensor of the trace", location_here(self.tracer.module))
        return _of_class(self, kind)

    def where(self, condition: Any, other: Any) -> Any:
        return torch.where(condition, self, other)  # type: ignore[call-overload]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return Value.__getattr__(args[0], func.__self__.__name__)
        return super().__torch_function__(func, types, args, kwargs)

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return self.tracer.condition(self)

    def __iter__(self) -> Iterator:
        return iter([self.select(0, k) for k in range(len(self.value))])

    def __getattr__(self, name: str) -> Any:
        if name in _KNOWN:
            return getattr(self.value, name)
        if callable(getattr(torch.Tensor, name, None)) or name.startswith("__"):
            return super().__getattr__(name)
        location = location_here(self.tracer.module)
        raise location.error(UnsupportedError, f"a trace does not know the attribute .{name} of a tensor")

    def __setitem__(self, index: Any, value: Any) -> None:
        location = location_here(self.tracer.module)
        try:
            found = assigned(self, index, value)
        except Refused as error:
            raise location.error(UnsupportedError, error.message, error.hint) from None
        self.tracer.changed(self, found, location)

    def _read(self, what: str) -> Any:
        raise value_error(what, location_here(self.tracer.module))


for _name, _method in {"__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_"}.items():
    setattr(Value, _name, lambda self, other, method=_method: getattr(self, method)(other))
for _what, _names in {
    "the number": ("__float__", "__int__", "__index__", "item"),
    "the numbers": ("tolist", "numpy", "__array__"),
    "an entry": ("__contains__",),
}.items():
    for _name in _names:
        setattr(Value, _name, lambda self, *rest, what=_what: self._read(what))


def value_error(what: str, location: SourceLocation) -> DerivableError:
    """The error for a model that reads the numbers of a tensor that depends on the inputs."""
    return location.error(
        UnsupportedError,
        f"{what} of a tensor that depends on the inputs: {_VALUES} cannot be traced",
        f"compute both branches and choose by `torch.where(condition, one, other)`, or {LOOP_HINT}",
    )


@functools.cache
def _class_of_values(kind: type) -> type:
    """Tensors of a trace that are of a user's class of tensors: its methods and operators, and what it inherits."""
    above = kind.__mro__[: kind.__mro__.index(torch.Tensor)]
    methods = {name: value for cls in reversed(above) for name, value in vars(cls).items()}
    methods.pop("__dict__", None)
    return type(kind.__name__, (Value, kind), methods | {"_is_param": False})


def _of_class(value: Any, kind: type) -> Any:
    """The same tensor of the trace as one of a class; anything else as it is."""
    if isinstance(value, Spectrum):
        return Spectrum(_of_class(value.vectors, kind))
    if not isinstance(value, Value):
        return value
    if class_of(value) is kind:
        return value
    is_plain = kind is torch.Tensor
    made: Any = Value(value.node, value.tracer) if is_plain else value.value.as_subclass(_class_of_values(kind))
    made.node, made.tracer, made.value = value.node, value.tracer, value.value
    return made


def _plain(value: Any) -> Any:
    """Tensors, of the trace and others, without a class of the user's."""
    if isinstance(value, torch.Tensor) and not isinstance(value, Value) and class_of(value) is not torch.Tensor:
        return value.as_subclass(torch.Tensor)
    return _of_class(value, torch.Tensor)


def _class_of_result(operands: Any) -> type:
    """The class of what an operation gives, as torch decides it: the first operand's, or one below it."""
    found: type = torch.Tensor
    for operand in tree_leaves(operands):
        operand = operand.vectors if isinstance(operand, Spectrum) else operand
        if isinstance(operand, torch.Tensor) and issubclass(class_of(operand), found):
            found = class_of(operand)
    return found


class Recorder(torch.fx.Tracer):
    """A tracer that computes what it records.

    flipped     the number of the condition on values that goes the other way than on the examples, if one does
    conditions  where the model reads the truth value of a tensor that depends on the inputs
    """

    def __init__(self, examples: Mapping[str, Any], symbolic: Sequence[str], flipped: int | None = None):
        super().__init__()
        self.flipped = flipped
        self.conditions: list[SourceLocation] = []
        self.examples = examples
        self.symbolic = tuple(symbolic)
        self.inputs: dict[str, torch.Tensor] = {}
        self.results: list[Any] = []
        self.module = ""
        self.layer: str | None = None  # the path of the module of torch.nn that is running
        self.part: str | None = None  # of what an operation of `derivable.vsa` is composed of
        # Where a tensor that has the memory of another was changed first.
        self.view_changed: SourceLocation | None = None
        # By where memory begins, the value that was recorded first of those that the user still has.
        self._memory: WeakValueDictionary[int, Value] = WeakValueDictionary()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict) -> Any:
        # Parameters stay tensors: what follows from them alone is computed once, here.
        return attr_val

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return False

    def path_of_module(self, mod: torch.nn.Module) -> str:
        try:
            return super().path_of_module(mod)
        except NameError:  # of a function that has the module from around it
            return type(mod).__name__

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
            names = iter(input_names(argument, value, len(tensors)))

            def one(leaf: Any) -> Any:
                if not isinstance(leaf, torch.Tensor):
                    return leaf
                name = next(names)
                self.inputs[name] = leaf
                return self.create_proxy("placeholder", name, (), {})

            return tree_map(one, value) if tensors else value

        proxies = {name: placed(name, value) for name, value in self.examples.items()}

        def call(*root: Any) -> Any:
            self.results = tree_leaves(call_with(lambda *args, **kwargs: root_fn(*root, *args, **kwargs), proxies))
            return tuple(result for result in self.results if result is not None)

        return call, [self.root] if is_module else []

    def proxy(self, node: torch.fx.Node) -> Value:
        return Value(node, self)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.fx.Proxy):
            return a.node
        if isinstance(a, Spectrum):
            error = complex_error("a Fourier transform")
            raise location_here(self.module).error(UnsupportedError, error.message, error.hint)
        if isinstance(a, torch.nn.Parameter) and not any(a is own for own in self.root.parameters()):
            a = a.detach()  # of a module that a function has from around it
        return super().create_arg(a)

    def condition(self, value: Value) -> bool:
        """The truth value of a tensor; `trace` refuses the model unless it records the same either way."""
        location, number = location_here(self.module), len(self.conditions)
        if value.value.numel() != 1:
            raise value_error("the truth value", location)
        self.conditions.append(location)
        return bool(value.value) != (number == self.flipped)

    def create_proxy(self, kind: str, target: Any, args: tuple, kwargs: dict, *rest: Any, **more: Any) -> Any:
        of = class_of(self.inputs[target]) if kind == "placeholder" else _class_of_result((args, kwargs))
        before = self.part
        if hasattr(of, "bind"):  # hypervectors
            self.part = "symbolic"
        try:
            found = self._recorded(kind, target, args, kwargs, *rest, **more)
        finally:
            self.part = before
        return found if of is torch.Tensor else map_aggregate(found, lambda value: _of_class(value, of))

    def _recorded(self, kind: str, target: Any, args: tuple, kwargs: dict, *rest: Any, **more: Any) -> Any:
        if is_exported(target):
            try:
                return call(target, map_aggregate(args, _plain), map_aggregate(kwargs, _plain))
            except Refused as error:
                raise location_here(self.module).error(UnsupportedError, error.message, error.hint) from None
        name = name_of(target)
        compose = None if kind == "placeholder" else decomposition(name, target, args)
        if compose is not None:
            found = self._decomposed(compose, target, args, kwargs)
            if found is not NotImplemented:
                return found
        if kind == "placeholder":
            value, location = _plain(self.inputs[target]), SourceLocation()
        else:
            location = location_here(self.module)
            value = self._computed(kind, target, args, kwargs, location)
            if name in _OF_SHAPES or name in _FILLED:
                return value
        proxy: Any = super().create_proxy(kind, target, args, kwargs, *rest, **more)
        proxy.node.meta.update(location=location, layer=self.layer, part=self.part)
        if isinstance(value, (tuple, list)) and all(part is None or isinstance(part, torch.Tensor) for part in value):
            # Results with several tensors are known one by one.
            proxy.value = value
            parts = [
                None if part is None else self.create_proxy("call_function", getitem, (proxy, k), {})
                for k, part in enumerate(value)
            ]
            return _rebuilt(value, parts)
        if isinstance(value, (tuple, list)):
            raise location.error(UnsupportedError, f"{name} has no operator")
        if not isinstance(value, torch.Tensor):
            raise location.error(
                UnsupportedError,
                f"{name} gives {type(value).__name__} that depends on the inputs: {_VALUES} cannot be traced",
                "only tensors go through a trace; write a fixed number of steps in the place of a search",
            )
        self._refuse_complex(name, value, location)
        proxy.value = value
        proxy.node.meta["shape"] = tuple(value.shape)
        if _is_in_place(target, kwargs) and args and isinstance(args[0], Value):
            return self.changed(args[0], proxy, location)
        self._memory.setdefault(value.untyped_storage().data_ptr(), proxy)
        return proxy

    def _refuse_complex(self, name: str, value: Any, location: SourceLocation) -> None:
        if isinstance(value, torch.Tensor) and value.is_complex():
            hint = "take HRR in the place of FHRR, which is the same algebra over real numbers"
            raise location.error(UnsupportedError, f"{name} gives complex numbers, which no operator has", hint)

    def _decomposed(self, compose: Callable, target: Any, args: tuple, kwargs: dict) -> Any:
        """What an operation gives that is made of others, which are recorded; NotImplemented where it is not."""
        location, before = location_here(self.module), self.part
        try:
            if str(getattr(target, "__module__", "")).startswith("derivable.vsa"):
                self.part = "symbolic"
                value = self._computed("call_function", target, args, kwargs, location)  # which checks the arguments
                self._refuse_complex(name_of(target), value, location)
            operands, named = map_aggregate(args, _plain), map_aggregate(kwargs, _plain)
            found = compose(*operands, **{key: value for key, value in named.items() if key != "inplace"})  # type: ignore[misc]
        except Refused as error:
            raise location.error(UnsupportedError, error.message, error.hint) from None
        except TypeError as error:
            raise location.error(
                UnsupportedError, f"{name_of(target)} with these arguments has no operator: {one_line(error)}"
            ) from error
        finally:
            self.part = before
        if isinstance(found, Value) and _is_in_place(target, kwargs) and args and isinstance(args[0], Value):
            return self.changed(args[0], found, location)
        return found

    def changed(self, before: Value, after: Value, location: SourceLocation) -> Value:
        """The same tensor of the user's with what an operation in place made of it."""
        if self.view_changed is None and self._memory.get(before.value.untyped_storage().data_ptr()) is not before:
            self.view_changed = location
        before.node, before.value = after.node, after.value
        self._memory[after.value.untyped_storage().data_ptr()] = before
        return before

    def _computed(self, kind: str, target: Any, args: tuple, kwargs: dict, location: SourceLocation) -> Any:
        """What an operation gives on the examples, without changing its operands."""
        name = name_of(target)
        if name in _RANDOM:
            raise location.error(UnsupportedError, f"{name} draws random numbers", "give them as an input")

        def number(value: Any) -> Any:
            if isinstance(value, Value):
                return value.value
            return _plain(widened(value))

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
            raise location.error(type(error), error.message, error.hint) from error
        except Exception as error:
            raise location.error(ShapeError, f"{name} fails: {one_line(error)}") from error
        return _rebuilt(found, map(widened, found)) if isinstance(found, (tuple, list)) else widened(found)


def _rebuilt(like: Any, parts: Iterable[Any]) -> Any:
    """The parts in a tuple, list or named tuple like another one."""
    return like._make(parts) if hasattr(like, "_make") else type(like)(list(parts))


def _is_in_place(target: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation changes its first operand, such as `x.add_(y)` and `relu(x, inplace=True)`."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return kwargs.get("inplace") is True or (name.endswith("_") and not name.startswith("__"))


def name_of(target: Any) -> str:
    """What an operation is called: `relu` for torch.relu, F.relu, x.relu and x.relu_."""
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return name if name.startswith("__") else name.rstrip("_")


@calls_model
def record(recorder: Recorder, model: Callable) -> torch.fx.Graph:
    try:
        # The tracer takes functions, and no other callables, such as methods.
        root = model if isinstance(model, torch.nn.Module) else lambda *args, **kwargs: model(*args, **kwargs)
        return recorder.trace(root)
    except DerivableError:
        raise
    except Exception as error:
        location = location_of(error, recorder.module)
        hint = "a trace goes through operations on tensors; other code must not ask what they hold or are"
        if any("_higher_order_ops" in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
            hint = "`torch.cond` and `torch.while_loop` are traced in exported programs: give torch.export.export(...)"
        raise location.error(
            UnsupportedError, f"the model cannot be traced: {type(error).__name__}: {one_line(error)}", hint
        ) from error


def same_graphs(one: Recorder, graph: torch.fx.Graph, other: Recorder, other_graph: torch.fx.Graph) -> bool:
    """Whether two recordings are the same operations on the same constants, as far as results need them."""
    for each in (graph, other_graph):
        each.eliminate_dead_code()
    if len(graph.nodes) != len(other_graph.nodes):
        return False
    places: dict[torch.fx.Node, int] = {}

    def operands(node: torch.fx.Node) -> Any:
        return map_aggregate((node.args, node.kwargs), lambda x: places[x] if isinstance(x, torch.fx.Node) else x)

    for number, (node, twin) in enumerate(zip(graph.nodes, other_graph.nodes)):
        places[node] = places[twin] = number
        if node.op != twin.op:
            return False
        if node.op == "get_attr":
            constants = [attribute(recorder.root, str(each.target)) for recorder, each in ((one, node), (other, twin))]
            if not torch.equal(*constants):
                return False
        elif node.target != twin.target or operands(node) != operands(twin):
            return False
    return True


def attribute(root: Any, path: str) -> Any:
    """What a module has at a path of names."""
    return functools.reduce(getattr, path.split("."), root)


def input_names(argument: str, value: Any, count: int) -> list[str]:
    """What the tensors in an argument are called: as it, or numbered where it holds several."""
    argument = argument.lstrip("*")
    return [argument] if isinstance(value, torch.Tensor) else [f"{argument}_{number}" for number in range(count)]


def call_with(function: Callable, arguments: Mapping[str, Any]) -> Any:
    starred = [value for name, values in arguments.items() if name.startswith("*") for value in values]
    if starred:
        plain = [value for name, value in arguments.items() if not name.startswith("*")]
        return function(*plain, *starred)
    return function(**arguments)


def widened(value: Any) -> Any:
    """Floating tensors as float64, of their own memory; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype is not torch.float64:
        return value.detach().cpu().to(torch.float64) if value.is_floating_point() else value.detach().cpu()
    return value


def one_line(error: BaseException) -> str:
    return (str(error).strip().split("\n") or [""])[0].rstrip(".")
