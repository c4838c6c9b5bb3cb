"""Operations of torch that are made of others, written in torch: a trace records what they are made of, under the line
of the user's file that calls them.

A function is called as torch's own, with tensors of the trace in the place of those that depend on inputs; what follows
from parameters alone is computed at once. Where it returns NotImplemented, the operation is recorded as it is.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from derivable.core.diagnostics import UnsupportedError

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {}


class Refused(UnsupportedError):
    """An operation that no operators are, or not with these arguments; the trace adds where it is."""


def row(*keys: Any) -> Callable:
    """Enter a function for operations of torch by their names, or for operations of `derivable.vsa`."""

    def enter(function: Callable) -> Callable:
        DECOMPOSITIONS.update(dict.fromkeys(keys, function))
        return function

    return enter


def refuse(condition: Any, message: str, hint: str | None = None) -> None:
    if condition:
        raise Refused(f"{message} has no operator", hint=hint)


def axes_of(rank: int, dim: Any) -> tuple[int, ...]:
    """Axes as torch names them, None or none at all for all."""
    if dim is None or dim == () or dim == []:
        return tuple(range(rank))
    return tuple(axis % rank for axis in ((dim,) if isinstance(dim, int) else dim))


def each_axis(value: Any, count: int) -> tuple[Any, ...]:
    """A setting for each of some axes, of which one alone is for all."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return (given * count)[:count]


def edges(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """The padding of a convolution along each axis, in numbers."""
    if padding == "same":
        total = [apart * (taps - 1) for apart, taps in zip(dilation, kernel)]
        refuse(any(pad % 2 for pad in total), "padding='same' of an even kernel", "pad both sides alike")
        return tuple(pad // 2 for pad in total)
    return each_axis(0 if padding == "valid" else padding, len(kernel))


# Entry by entry

DECOMPOSITIONS |= {
    "rsub": lambda input, other: other - input,
    "square": lambda input: input * input,
    "reciprocal": lambda input: 1.0 / input,
    "rsqrt": lambda input: 1.0 / torch.sqrt(input),
    "hardtanh": lambda input, min_val=-1.0, max_val=1.0, inplace=False: torch.clamp(input, min_val, max_val),
    "relu6": lambda input, inplace=False: torch.clamp(input, 0.0, 6.0),
    "clamp_min": lambda input, min: torch.clamp(input, min=min),
    "clamp_max": lambda input, max: torch.clamp(input, max=max),
    "lerp": lambda input, end, weight: input + weight * (end - input),
    "addcmul": lambda input, tensor1, tensor2, *, value=1: input + value * (tensor1 * tensor2),
    "addcdiv": lambda input, tensor1, tensor2, *, value=1: input + value * (tensor1 / tensor2),
    "fmax": torch.maximum,
    "fmin": torch.minimum,
    "expm1": lambda input: torch.exp(input) - 1,
    "log1p": lambda input: torch.log(input + 1),
    "exp2": lambda input: torch.exp(input * math.log(2)),
    "log2": lambda input: torch.log(input) * (1 / math.log(2)),
    "log10": lambda input: torch.log(input) * (1 / math.log(10)),
    "erfc": lambda input: 1 - torch.erf(input),
    "tan": lambda input: torch.sin(input) / torch.cos(input),
    "sinh": lambda input: 0.5 * (torch.exp(input) - torch.exp(-input)),
    "cosh": lambda input: 0.5 * (torch.exp(input) + torch.exp(-input)),
    "logaddexp": lambda input, other: torch.maximum(input, other) + F.softplus(-torch.abs(input - other)),
    # The hardware has no other numbers.
    "nan_to_num": lambda input, nan=0.0, posinf=None, neginf=None: torch.clone(input),
    # activations
    "silu": lambda input, inplace=False: input * torch.sigmoid(input),
    "mish": lambda input, inplace=False: input * torch.tanh(F.softplus(input)),
    "softsign": lambda input: input / (torch.abs(input) + 1.0),
    "hardsigmoid": lambda input, inplace=False: torch.clamp(input + 3.0, 0.0, 6.0) * (1 / 6),
    "hardswish": lambda input, inplace=False: input * F.hardsigmoid(input),
    "logsigmoid": lambda input: -F.softplus(-input),
    "log_sigmoid": lambda input: -F.softplus(-input),
    "selu": lambda input, inplace=False: 1.0507009873554805 * F.elu(input, 1.6732632423543772),
    "celu": lambda input, alpha=1.0, inplace=False: (
        F.relu(input) + alpha * (torch.exp(torch.clamp(input, max=0) / alpha) - 1)
    ),
    **dict.fromkeys(
        ("threshold", "_threshold"),
        lambda input, threshold, value, inplace=False: torch.where(input > threshold, input, value),
    ),
    "tanhshrink": lambda input: input - torch.tanh(input),
    "hardshrink": lambda input, lambd=0.5: input * (torch.abs(input) > lambd),
    "softshrink": lambda input, lambd=0.5: F.relu(input - lambd) - F.relu(-input - lambd),
    "softmin": lambda input, dim=None, _stacklevel=3, dtype=None: F.softmax(-input, dim),
    # signs and roundings, by the basic one, floor
    "sign": lambda input: (input > 0).double() - (input < 0).double(),
    "copysign": lambda input, other: abs(input) * (1.0 - 2.0 * (other < 0).double()),
    "sgn": lambda input: (input > 0).double() - (input < 0).double(),
    "heaviside": lambda input, values: torch.where(input == 0, values, (input > 0).double()),
    "ceil": lambda input: -torch.floor(-input),
    "trunc": lambda input: torch.floor(F.relu(input)) - torch.floor(F.relu(-input)),
    "fix": lambda input: torch.trunc(input),
    "frac": lambda input: input - torch.trunc(input),
    "mod": lambda input, other: input - other * torch.floor_divide(input, other),
    "remainder": lambda input, other: input - other * torch.floor_divide(input, other),
    "fmod": lambda input, other: input - other * torch.trunc(input / other),
    "floordiv": lambda input, other: torch.floor_divide(input, other),
}


def scaled(x: Any, factor: Any) -> Any:
    return x if factor == 1 else x * factor


@row("leaky_relu")
def _leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    refuse(not 0 <= negative_slope <= 1, f"the slope {negative_slope}", "from 0 to 1")
    return torch.maximum(input, input * negative_slope)


@row("prelu")
def _prelu(input: Any, weight: Any) -> Any:
    slopes = weight.reshape(-1, *(1,) * (input.dim() - 2)) if input.dim() > 2 else weight
    return F.relu(input) + torch.clamp(input, max=0) * slopes


@row("elu")
def _elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return F.relu(input) + scaled(torch.exp(torch.clamp(input, max=0)) - 1.0, alpha)


@row("softplus")
def _softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    # Beyond the threshold torch gives its input, and this gives it but for exp(-threshold).
    x = scaled(input, beta)
    return scaled(F.relu(x) + torch.log(torch.exp(-torch.abs(x)) + 1.0), 1 / beta)


@row("glu")
def _glu(input: Any, dim: int = -1) -> Any:
    value, gate = input.chunk(2, dim)
    return value * torch.sigmoid(gate)


@row("masked_fill")
def _masked_fill(input: Any, mask: Any, value: Any) -> Any:
    if not isinstance(mask, torch.Tensor) or hasattr(value, "dim"):
        return torch.where(mask, value, input)
    filled = torch.where(mask, float(value), 0.0)
    # Products of infinity with zero would be none.
    return (input if math.isinf(value) else input * torch.where(mask, 0.0, 1.0)) + filled


@row("round")
def _round(input: Any, *, decimals: int = 0) -> Any:
    """To the nearest whole number, of two the even one."""
    refuse(decimals, "a rounding to decimals")
    up = torch.floor(input + 0.5)
    is_odd = up - 2 * torch.floor(up * 0.5)
    return up - (up - input == 0.5) * is_odd


@row("floor_divide")
def _floor_divide(input: Any, other: Any) -> Any:
    # Integer quotients are never near a rounding boundary.
    dtypes = [x.dtype for x in (input, other) if hasattr(x, "dtype")]
    is_whole = not any(dtype.is_floating_point for dtype in dtypes) and not isinstance(other, float)
    return torch.floor((input + 0.5) / other).long() if is_whole else torch.floor(input / other)


@row("div", "divide", "true_divide")
def _div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return NotImplemented
    return torch.floor_divide(input, other) if rounding_mode == "floor" else torch.trunc(input / other)


# Over axes


def _moments(x: Any, dim: Any, unbiased: bool, keepdim: bool, correction: Any) -> tuple[Any, Any]:
    """Variance and mean; a truth value in the place of `dim` is `unbiased`."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes = axes_of(x.dim(), dim)
    mean = x.mean(axes, keepdim=True)
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = count - (int(unbiased) if correction is None else correction)
    # The sum of many squares may be beyond what numbers reach, and their mean is not.
    found = ((x - mean) * (x - mean)).mean(axes, keepdim=keepdim)
    found = found if divisor == count else found * (count / divisor)
    return found, mean if keepdim else x.mean(axes)


def _statistic(finish: Callable[[Any, Any], Any]) -> Callable:
    def compose(
        input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
    ) -> Any:
        return finish(*_moments(input, dim, unbiased, keepdim, correction))

    return compose


DECOMPOSITIONS |= {
    "var": _statistic(lambda variance, mean: variance),
    "std": _statistic(lambda variance, mean: torch.sqrt(variance)),
    "var_mean": _statistic(lambda variance, mean: (variance, mean)),
    "std_mean": _statistic(lambda variance, mean: (torch.sqrt(variance), mean)),
}


@row("norm", "linalg_norm", "linalg_vector_norm")
def _norm(
    input: Any,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    *,
    ord: Any = None,
    out: Any = None,
) -> Any:
    kind = p if ord is None else ord
    axes = axes_of(input.dim(), dim)
    if kind in (2, "fro", None):
        return torch.sqrt((input * input).sum(axes, keepdim=keepdim))
    if kind == 1:
        return torch.abs(input).sum(axes, keepdim=keepdim)
    refuse(kind != math.inf, f"a norm of order {kind}", "orders 1, 2 and inf")
    return torch.amax(torch.abs(input), axes, keepdim)


@row("cosine_similarity")
def _cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    first, second = (torch.clamp(torch.norm(x, 2, dim, True), min=eps) for x in (x1, x2))
    return ((x1 / first) * (x2 / second)).sum(dim)


@row("logsumexp")
def _logsumexp(input: Any, dim: Any, keepdim: bool = False) -> Any:
    axes = axes_of(input.dim(), dim)
    largest = torch.amax(input, axes, True)
    found = torch.log(torch.exp(input - largest).sum(axes, keepdim=True)) + largest
    return found if keepdim else found.squeeze(axes)


@row("cumsum")
def _cumsum(input: Any, dim: int, *, dtype: Any = None) -> Any:
    length = input.shape[dim]
    sums = torch.triu(torch.ones(length, length))
    return (input.transpose(dim, -1) @ sums).transpose(dim, -1)


@row("diagonal")
def _diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rows = input.movedim((dim1, dim2), (-2, -1))
    places = torch.arange(math.prod(rows.shape[-2:])).reshape(rows.shape[-2:]).diagonal(offset)
    return rows.flatten(-2)[..., places]


DECOMPOSITIONS |= {
    "argmin": lambda input, dim=None, keepdim=False: torch.argmax(-input, dim, keepdim),
    "any": lambda input, dim=None, keepdim=False: (
        torch.amax((input != 0).double(), axes_of(input.dim(), dim), keepdim) > 0
    ),
    "all": lambda input, dim=None, keepdim=False: (
        torch.amin((input != 0).double(), axes_of(input.dim(), dim), keepdim) > 0
    ),
    "count_nonzero": lambda input, dim=None: (input != 0).sum(axes_of(input.dim(), dim)),
    "pairwise_distance": lambda x1, x2, p=2.0, eps=1e-6, keepdim=False: torch.norm(x1 - x2 + eps, p, -1, keepdim),
    "cdist": lambda x1, x2, p=2.0, compute_mode=None: torch.norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1),
    "triu": lambda input, diagonal=0: input * torch.triu(torch.ones(input.shape[-2:]), diagonal),
    "tril": lambda input, diagonal=0: input * torch.tril(torch.ones(input.shape[-2:]), diagonal),
    "take_along_dim": lambda input, indices, dim: torch.gather(input, dim, indices),
}


# Products


DECOMPOSITIONS |= {
    "outer": lambda input, vec2: input.unsqueeze(-1) * vec2,
    **dict.fromkeys(
        ("addmm", "baddbmm"),
        lambda input, a, b, *, beta=1, alpha=1: scaled(torch.matmul(a, b), alpha) + scaled(input, beta),
    ),
}


def _spelled(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with letters for what `...` stands for."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    names = left.split(",")
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    more = [rank - len(name.replace("...", "")) if "..." in name else 0 for name, rank in zip(names, ranks)]
    rest = spare[: max(more, default=0)]
    names = [name.replace("...", "".join(rest[len(rest) - n :])) for name, n in zip(names, more)]
    if not arrow:
        letters = "".join(names)
        result = "..." + "".join(sorted(a for a in set(letters) if letters.count(a) == 1 and a not in rest))
    return names, result.replace("...", "".join(rest))


def _contracted(names: Sequence[str], refs: Sequence[Any], result: str, lengths: dict[str, int]) -> Any:
    """Two operands as one product of matrices, axes that only one has being summed before; one as sum and permute."""
    pairs: list[tuple[Any, str]] = []
    for k, (x, name) in enumerate(zip(refs, names)):
        others = result + "".join(other for at, other in enumerate(names) if at != k)
        lonely = tuple(axis for axis, a in enumerate(name) if a not in others)
        pairs.append((x.sum(lonely) if lonely else x, "".join(a for a in name if a in others)))
    x, a = pairs[0]
    if len(pairs) == 1:
        return x.permute([a.index(c) for c in result])
    y, b = pairs[1]
    batch, inner = ([c for c in a if c in b and (c in result) == is_kept] for is_kept in (True, False))
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]

    def matrix(x: Any, name: str, *groups: Sequence[str]) -> Any:
        flat = [math.prod(lengths[c] for c in group) for group in groups]
        ordered = x.permute([name.index(c) for c in itertools.chain(batch, *groups)])
        return ordered.reshape([*(lengths[c] for c in batch), *flat])

    found = torch.matmul(matrix(x, a, rows, inner), matrix(y, b, inner, columns))
    order = [*batch, *rows, *columns]
    return found.reshape([lengths[c] for c in order]).permute([order.index(c) for c in result])


@row("einsum")
def _einsum(equation: str, *operands: Any) -> Any:
    """More than two operands are contracted two at a time, the smallest result first."""
    refs = list(operands[0] if operands and isinstance(operands[0], (list, tuple)) else operands)
    refuse(not isinstance(equation, str), "einsum with lists of axes", "give an equation")
    names, result = _spelled(equation, [x.dim() for x in refs])
    refuse(any(len(set(name)) < len(name) for name in names), f"einsum {equation!r}", "no diagonals")
    lengths = {a: n for name, x in zip(names, refs) for a, n in zip(name, x.shape)}

    def needed(one: int, other: int) -> str:
        """The letters of the product of two operands that something else needs."""
        others = result + "".join(name for k, name in enumerate(names) if k not in (one, other))
        return "".join(a for a in dict.fromkeys(names[one] + names[other]) if a in others)

    while len(refs) > 2:
        pairs = [(one, other) for other in range(len(refs)) for one in range(other)]
        pair = min(pairs, key=lambda pair: math.prod(lengths[a] for a in needed(*pair)))
        found = _contracted([names[k] for k in pair], [refs[k] for k in pair], needed(*pair), lengths)
        refs = [*(x for k, x in enumerate(refs) if k not in pair), found]
        names = [*(name for k, name in enumerate(names) if k not in pair), needed(*pair)]
    return _contracted(names, refs, result, lengths)


@row("bilinear")
def _bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    found = torch.einsum("...i,oij,...j->...o", input1, weight, input2)
    return found if bias is None else found + bias


@row("tensordot")
def _tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    if isinstance(dims, int):
        dims = (tuple(range(a.dim() - dims, a.dim())), tuple(range(dims)))
    left, right = string.ascii_lowercase[: a.dim()], list(string.ascii_uppercase[: b.dim()])
    for one, other in zip(*dims):
        right[other] = left[one]
    rest = "".join(c for c in left if c not in right) + "".join(c for c in right if c not in left)
    return torch.einsum(f"{left},{''.join(right)}->{rest}", a, b)


@row("kron")
def _kron(input: Any, other: Any) -> Any:
    refuse(input.dim() != other.dim(), "kron of different ranks")
    pairs = list(zip(input.shape, other.shape))
    left = input.reshape([n for pair in pairs for n in (pair[0], 1)])
    right = other.reshape([n for pair in pairs for n in (1, pair[1])])
    return (left * right).reshape([a * b for a, b in pairs])


# Places


@row("one_hot")
def _one_hot(tensor: Any, num_classes: int = -1) -> Any:
    refuse(num_classes < 0, "one_hot of as many classes as the values say", "give num_classes")
    return (tensor.unsqueeze(-1) == torch.arange(num_classes)).long()


@row("gather")
def _gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """Where an index is a place, an entry counts, else it does not: exact, at the cost of all of them."""
    axis = dim % input.dim()
    for other, n in enumerate(index.shape):
        input = input if other == axis else input.narrow(other, 0, n)
    hot = F.one_hot(index.transpose(axis, -1), input.shape[axis])
    return (hot * input.transpose(axis, -1).unsqueeze(-2)).sum(-1).transpose(axis, -1)


@row("embedding_bag")
def _embedding_bag(
    input: Any, weight: Any, offsets: Any = None, max_norm: Any = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: Any = None,
) -> Any:  # fmt: skip
    """Rows of a table and their sum: how often each item is in a bag, by the table."""
    refuse(
        input.dim() != 2 or max_norm is not None or padding_idx is not None or mode == "max",
        "embedding_bag with offsets, max_norm, padding_idx or mode='max'",
        "bags of equal length [bag, item] and mode='mean' or 'sum'",
    )
    hot = F.one_hot(input, weight.shape[0]).double()
    hot = hot if per_sample_weights is None else hot * per_sample_weights.unsqueeze(-1)
    found = hot.sum(1) @ weight
    return found * (1 / input.shape[1]) if mode == "mean" else found


@row("stack")
def _stack(tensors: Any, dim: int = 0) -> Any:
    return torch.cat(tuple(x.unsqueeze(dim) for x in tensors), dim)


@row("broadcast_tensors")
def _broadcast_tensors(*tensors: Any) -> Any:
    shape = torch.broadcast_shapes(*(x.shape for x in tensors))
    return tuple(x.expand(shape) for x in tensors)


def _windows(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The windows of pictures [image, channel, row, column] as columns: each tap is a slice."""
    rows, columns = each_axis(padding, 2)
    x = F.pad(input, (columns, columns, rows, rows)) if rows or columns else input
    sizes = list(zip(x.shape[2:], *(each_axis(of, 2) for of in (kernel_size, dilation, stride))))
    counts = [(n - apart * (taps - 1) - 1) // step + 1 for n, taps, apart, step in sizes]

    def places(axis: int, tap: int) -> slice:
        _, _, apart, step = sizes[axis]
        return slice(tap * apart, tap * apart + (counts[axis] - 1) * step + 1, step)

    taps = [x[:, :, places(0, row), places(1, column)] for row in range(sizes[0][1]) for column in range(sizes[1][1])]
    return torch.stack(taps, 2).flatten(3).flatten(1, 2)


@row("unfold")
def _unfold(input: Any, dimension: Any = None, size: Any = None, step: Any = None, *rest: Any, **named: Any) -> Any:
    """Of an axis, and of pictures: two operations of one name."""
    if named or step is None or rest:
        given = [value for value in (dimension, size, step, *rest) if value is not None]
        return _windows(input, *given, **named)
    axis = dimension % input.dim()
    starts = torch.arange(0, input.shape[axis] - size + 1, step)
    places = (starts[:, None] + torch.arange(size)).flatten()
    return input.index_select(axis, places).unflatten(axis, (len(starts), size)).movedim(axis + 1, -1)


def is_traced(value: Any) -> bool:
    """Whether a value depends on the inputs of the model that is traced."""
    return isinstance(value, torch.fx.Proxy)


def assigned(x: Any, index: Any, value: Any) -> Any:
    """`x` after `x[index] = value`."""
    if is_traced(index):
        refuse(index.dtype != torch.bool, "an assignment to places that depend on the inputs", "torch.where of a mask")
        mask = index.reshape(*index.shape, *(1,) * (x.dim() - index.dim()))
        refuse(hasattr(value, "dim") and value.dim() > 0, "an assignment of several numbers by a mask", "torch.where")
        return torch.where(mask, value, x)
    places = torch.arange(x.numel()).reshape(x.shape)[index]
    if not is_traced(value):
        is_new, numbers = torch.zeros(x.shape, dtype=torch.bool), torch.zeros(x.shape)
        is_new[index], numbers[index] = True, value
        return torch.where(is_new, numbers, x)
    rows = [(n, part) for n, part in zip(x.shape, index if isinstance(index, tuple) else (index,))]
    whole = [k for k, (n, part) in enumerate(rows) if isinstance(part, slice) and part.indices(n) == (0, n, 1)]
    if len(rows) - len(whole) == 1 and all(isinstance(part, (int, slice)) for _, part in rows):
        (axis,) = set(range(len(rows))) - set(whole)
        n, part = rows[axis]
        start, stop, step = part.indices(n) if isinstance(part, slice) else (part % n, part % n + 1, 1)
        if step == 1 and start < stop:
            new = value.expand(places.shape)
            new = new.unsqueeze(axis) if isinstance(part, int) else new
            before, after = x.narrow(axis, 0, start), x.narrow(axis, stop, n - stop)
            parts = [piece for piece in (before, new, after) if piece.shape[axis]]
            return torch.cat(parts, axis) if len(parts) > 1 else new * 1.0
    order = torch.arange(x.numel())
    order[places.flatten()] = x.numel() + torch.arange(places.numel())
    both = torch.cat([x.reshape(-1), value.expand(places.shape).reshape(-1)])
    return both[order].reshape(x.shape)
