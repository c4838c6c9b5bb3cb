"""Steps of layers that are learned with the weights (Esser et al., 2020, LSQ), for formats of few bits.

    network = LearnedSteps(model, samples, {"conv1": "int8", "head": "int8", "*": "int4"})
    ... train `network(x)` by the loss of `model(x)` ...
    design(model, x, precision=network.precision, scales=network.scales())

Every linear and conv2d of the model rounds its input and its weights, as the hardware does: an input has one step, with
any zero where the samples have no negative numbers, and weights have one for each output channel. The gradient goes
through the rounding as if it was not there, and steps learn from what is rounded and from what is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from derivable.accelerator.numbers.layers import PARTS, REST, outwards, parse_precision
from derivable.accelerator.numbers.precision import PRECISIONS, Precision
from derivable.core.diagnostics import DomainError
from derivable.core.registry import suggestion

_LAYERS = (torch.nn.Linear, torch.nn.Conv2d)
_LEAST = 1e-8  # of a step


def rounded(x: torch.Tensor, step: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """Numbers as steps from low to high, with gradients for the numbers and for the step.

    A step's gradient is divided by the root of how many numbers it is of and of the steps that there are.
    """
    scale = (x.numel() / step.numel() * max(high, 1)) ** -0.5
    size = step.abs().clamp(min=_LEAST)
    size = size * scale + (size - size * scale).detach()
    steps = (x / size).clamp(low, high)
    return (steps + (steps.round() - steps).detach()) * size


class LearnedSteps(torch.nn.Module):
    """A model whose layers round their inputs and weights to steps that are parameters.

    model      a module with layers, whose parameters are trained with the steps
    samples    arguments of the model, from which steps begin: a tensor or a tuple for each
    precision  names of formats by names of modules, see `design`; "*" is the rest of the layers

    Raises DomainError without layers and samples, and for names and formats that there are not.
    """

    def __init__(self, model: torch.nn.Module, samples: Iterable[Any], precision: Mapping[str, str] | str = "int8"):
        super().__init__()
        self.model = model
        self.precision: dict[str, str] = parse_precision(precision)
        self._formats = _formats(model, self.precision)
        if not self._formats:
            raise DomainError("the model has no linear and no conv2d", hint="steps are learned for these layers")
        self.weight_steps, self.input_steps = torch.nn.ParameterDict(), torch.nn.ParameterDict()
        self._signed: dict[str, bool] = {}
        seen = self._seen(samples)
        for path, format in self._formats.items():
            layer: Any = model.get_submodule(path)
            weight = layer.weight.detach().flatten(1)
            inputs = seen[path]
            self._signed[path] = bool((inputs < 0).any())
            high = _limits(format, self._signed[path])[1]
            most = _limits(format, True)[1]
            self.weight_steps[_key(path)] = torch.nn.Parameter(2 * weight.abs().mean(1).clamp(min=_LEAST) / most**0.5)
            self.input_steps[_key(path)] = torch.nn.Parameter(2 * inputs.abs().mean().clamp(min=_LEAST) / high**0.5)

    def _seen(self, samples: Iterable[Any]) -> dict[str, torch.Tensor]:
        """The inputs of each layer on the samples."""
        inputs: dict[str, list[torch.Tensor]] = {}

        def recorder(path: str) -> Callable[[Any, Any], None]:
            return lambda module, arguments: inputs.setdefault(path, []).append(arguments[0].detach().flatten())

        hooks = [self.model.get_submodule(path).register_forward_pre_hook(recorder(path)) for path in self._formats]
        try:
            with torch.no_grad():
                for sample in samples:
                    self.model(*(sample if isinstance(sample, tuple) else (sample,)))
        finally:
            for hook in hooks:
                hook.remove()
        for path in self._formats:
            if path not in inputs:
                raise DomainError(f"no sample goes through the layer {path!r}", hint="give samples of all that is used")
        return {path: torch.cat(parts) for path, parts in inputs.items()}

    def forward(self, *arguments: Any, **options: Any) -> Any:
        hooks, weights = [], {}
        for path, format in self._formats.items():
            module: Any = self.model.get_submodule(path)
            step = self.weight_steps[_key(path)]
            along = step.reshape(-1, *(1,) * (module.weight.ndim - 1))
            weights[f"{path}.weight"] = rounded(module.weight, along, *_limits(format, True))
            if module.bias is not None:
                # What is added to sums of products is a whole number of their steps.
                sums = (self.input_steps[_key(path)] * step).abs().clamp(min=_LEAST).detach()
                whole = (module.bias / sums).round() * sums
                weights[f"{path}.bias"] = module.bias + (whole - module.bias).detach()
            hooks.append(module.register_forward_pre_hook(self._rounding(path)))
        try:
            return torch.func.functional_call(self.model, weights, arguments, options)
        finally:
            for hook in hooks:
                hook.remove()

    def _rounding(self, path: str) -> Callable[[Any, Any], tuple]:
        """What a layer's arguments become: its input in steps."""
        step = self.input_steps[_key(path)]
        limits = _limits(self._formats[path], self._signed[path])
        return lambda module, arguments: (rounded(arguments[0], step, *limits), *arguments[1:])

    def scales(self) -> dict[str, dict[str, Any]]:
        """The steps by the names of layers, as `design` takes them."""
        scales: dict[str, dict[str, Any]] = {}
        for path, format in self._formats.items():
            of_input, of_weight = (
                steps[_key(path)].detach().abs().clamp(min=_LEAST).double().cpu().numpy()
                for steps in (self.input_steps, self.weight_steps)
            )
            zero = 0 if self._signed[path] else -(2 ** (format.bits - 1))
            scales[path] = {"input": (float(of_input), zero), "weight": of_weight}
        return scales


def _key(path: str) -> str:
    """The name of a layer's step: names of parameters have no dots."""
    return path.replace(".", "/")


def _limits(format: Precision, is_signed: bool) -> tuple[int, int]:
    """The least and the largest step; without negative numbers, all steps are from zero on."""
    most = 2 ** (format.bits - 1) - 1
    return (-most, most) if is_signed else (0, 2 * most + 1)


def _formats(model: torch.nn.Module, precision: Mapping[str, str]) -> dict[str, Precision]:
    """The format of each layer by its path: that of the nearest name, or of the neural part."""
    formats, used = {}, set()
    for path, module in model.named_modules():
        if not isinstance(module, _LAYERS):
            continue
        name = next((name for name in outwards(path) if name in precision), "neural")
        used.update(outwards(path))
        formats[path] = PRECISIONS[precision[name]]
        if formats[path].is_float:
            raise DomainError(
                f"the format of {path!r} is {formats[path].name}",
                hint=f'steps are of int8 and int4: {{"{REST}": "int4"}}',
            )
    for name in precision:
        if name not in used and name not in PARTS:
            raise DomainError(f"precision is of {name!r}, which is no layer", hint=suggestion(name, used, ""))
    return formats
