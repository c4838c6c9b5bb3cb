"""Every object that a network may hold, at every door of torch: equal to the call itself, on other inputs than those
that a graph was made for. `modules.ROWS` has the objects."""

import copy
import io
import pickle
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import derivable as dv
from derivable.core.diagnostics import UnsupportedError
from robust.modules import ROWS

pytestmark = pytest.mark.filterwarnings("ignore")


def plain(module, x):
    return module(x)


def loss(module, y):
    return module(y).sin().sum()


def jacobian(module, y):
    """Row by row, by plain reverse mode."""
    return torch.autograd.functional.jacobian(module, y)


def traced(module, x, y):
    with torch.no_grad():
        graph = torch.jit.trace(module.eval(), x)
    return graph(y), module(y)


def traced_with_gradients(module, x, y):
    graph = torch.jit.trace(module, x)
    return gradients(graph, y), gradients(module, y)


def traced_and_saved(module, x, y):
    with torch.no_grad():
        graph = torch.jit.trace(module, x)
    file = io.BytesIO()
    torch.jit.save(graph, file)
    file.seek(0)
    return torch.jit.load(file)(y), module(y)


def exported(module, x, y):
    return torch.export.export(module, (x,)).module()(y), module(y)


def made_fx(module, x, y):
    return make_fx(module)(x)(y), module(y)


def gradients(module, y):
    return torch.autograd.grad(loss(module, y), list(module.parameters()))


def mapped(module, x, y):
    return vmap(module)(torch.stack([x, y])), torch.stack([module(x), module(y)])


def batched_gradients(module, x, y):
    y = y.clone().requires_grad_()
    found = module(y)
    seeds = torch.eye(found.numel(), dtype=found.dtype).reshape(-1, *found.shape)
    rows = torch.autograd.grad(found, y, seeds, is_grads_batched=True)[0]
    return rows.reshape(*found.shape, *y.shape), jacobian(module, y)


def vectorised(module, x, y):
    return torch.autograd.functional.jacobian(module, y, vectorize=True), jacobian(module, y)


def vectorised_second(module, x, y):
    return (
        torch.autograd.functional.hessian(lambda x: loss(module, x), y, vectorize=True),
        torch.autograd.functional.hessian(lambda x: loss(module, x), y),
    )


def by_reverse(module, x, y):
    return jacrev(module)(y), jacobian(module, y)


def by_forward(module, x, y):
    return jacfwd(module)(y), jacobian(module, y)


def second(module, x, y):
    return hessian(lambda y: loss(module, y))(y), torch.autograd.functional.hessian(lambda y: loss(module, y), y)


def copied(module, x, y):
    module(x)
    other = copy.deepcopy(module)
    shallow = copy.copy(module)
    return (other(y), shallow(y)), (module(y), module(y))


def pickled(module, x, y):
    module.function(x.sigmoid())
    inside = pickle.loads(pickle.dumps(module.function))
    return inside(y.sigmoid()), module.function(y.sigmoid())


def loaded(module, x, y):
    """The state alone goes into a module that is made again."""
    other = module.row.module()
    with torch.no_grad():
        module.linear.weight.add_(0.25)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    return other(y), module(y)


def functional(module, x, y):
    """With parameters from outside, as optimisers of ensembles do."""
    state = {name: value + 0.5 for name, value in module.named_parameters()}
    found = functional_call(module, state, (y,))
    module.load_state_dict(state, strict=False)
    return found, module(y)


def in_threads(module, x, y):
    """As in DataParallel: replicas run at once."""
    inputs, found = [x, y] * 4, [None] * 8

    def run(place):
        found[place] = module(inputs[place])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, [module(one) for one in inputs]


def compiled_by(function, module, x):
    """One graph, made for one input."""
    torch._dynamo.reset()
    made = torch.compile(function, backend="aot_eager", fullgraph=True)
    made(x)
    return made


def compiled(module, x, y):
    made = compiled_by(module, module, x)
    return (made(y), gradients(made, y)), (module(y), gradients(module, y))


def compiled_vmap(module, x, y):
    made = compiled_by(vmap(module.forward), module, torch.stack([x, y]))
    return made(torch.stack([y, x])), torch.stack([module(y), module(x)])


def compiled_grad(module, x, y):
    def slope(y):
        return grad(lambda y: loss(module, y))(y)

    return compiled_by(slope, module, x)(y), slope(y)


def compiled_hessian(module, x, y):
    def bend(y):
        return hessian(lambda y: loss(module, y))(y)

    return compiled_by(bend, module, x)(y), torch.autograd.functional.hessian(lambda y: loss(module, y), y)


def strictly_exported(module, x, y):
    return torch.export.export(module, (x,), strict=True).module()(y), module(y)


QUICK = {
    "jit.trace": traced,
    "jit.trace with gradients": traced_with_gradients,
    "jit.save": traced_and_saved,
    "export": exported,
    "make_fx": made_fx,
    "vmap": mapped,
    "is_grads_batched": batched_gradients,
    "jacobian(vectorize)": vectorised,
    "jacrev": by_reverse,
    "jacfwd": by_forward,
    "hessian": second,
    "hessian(vectorize)": vectorised_second,
    "copy": copied,
    "pickle": pickled,
    "state_dict": loaded,
    "functional_call": functional,
    "threads": in_threads,
}
SLOW = {
    "compile": compiled,
    "compile of vmap": compiled_vmap,
    "compile of grad": compiled_grad,
    "compile of hessian": compiled_hessian,
    "strict export": strictly_exported,
}


@cache
def made(name):
    return ROWS[name].module()


def check(name, door):
    module = copy.deepcopy(made(name))
    module.row = ROWS[name]
    found, expected = door(module, ROWS[name].inputs(1), ROWS[name].inputs(2))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ROWS)
def test_traces_and_copies(name):
    for door in ("jit.trace", "is_grads_batched", "hessian(vectorize)", "copy", "pickle", "state_dict", "threads"):
        check(name, QUICK[door])


@pytest.mark.slow
@pytest.mark.parametrize("door", QUICK)
@pytest.mark.parametrize("name", ROWS)
def test_a_door(name, door):
    check(name, QUICK[door])


@pytest.mark.parametrize("door", QUICK)
@pytest.mark.parametrize("name", ["scan", "einsum", "function", "circuit real", "logic exact"])
def test_a_door_of_each_engine(name, door):
    check(name, QUICK[door])


@pytest.mark.slow
@pytest.mark.parametrize("door", SLOW)
@pytest.mark.parametrize("name", ROWS)
def test_a_compiled_door(name, door):
    check(name, SLOW[door])


@pytest.mark.parametrize("name", ["scan", "function"])
def test_compile(name):
    check(name, compiled)


COLD = """
import sys, torch
sys.path.insert(0, {tests!r})
import derivable as dv
from derivable.core.diagnostics import UnsupportedError
from robust.modules import ROWS
row = ROWS[{name!r}]
module = row.module()
made = torch.compile(module, backend="aot_eager", fullgraph=True)
y = row.inputs(2)
found = made(y)
torch.testing.assert_close(found, module(y))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_first_call_is_a_compiled_one(name):
    text = COLD.format(tests=str(Path(__file__).parents[1]), name=name)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert not ran.returncode, ran.stderr[-3000:]


EXPORT = """
import sys, torch
sys.path.insert(0, {tests!r})
import derivable as dv
from derivable.core.diagnostics import UnsupportedError
from robust.modules import ROWS
row = ROWS[{name!r}]
others = [ROWS[other].module() for other in ("circuit log and negatives", "logic minmaxprob")]
for other, name in zip(others, ("circuit log and negatives", "logic minmaxprob")):
    torch.vmap(other)(ROWS[name].inputs(2)[None])
module = row.module() if {is_made} else None
# Folds and programs make an engine when they are called first.
expected = module(row.inputs(2)) if module else None
import derivable.bridge.operators
graph = torch.export.load({path!r}).module()
try:
    torch.testing.assert_close(graph(row.inputs(2)), expected)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scan", "function", "circuit real", "logic exact", "logic addmultprob"])
@pytest.mark.parametrize("is_made", [True, False])
def test_a_graph_from_a_file_runs_the_same_engine_or_none(name, is_made, tmp_path):
    """A number that another process has given is the name of the same engine there, and of no other one."""
    row, path = ROWS[name], str(tmp_path / "graph.pt2")
    torch.export.save(torch.export.export(row.module(), (row.inputs(1),)), path)
    text = EXPORT.format(tests=str(Path(__file__).parents[1]), name=name, path=path, is_made=is_made)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert not ran.returncode, ran.stderr[-3000:]
    assert ("has not made" in ran.stdout) if not is_made else not ran.stdout, ran.stdout


class Net(torch.nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x.sigmoid()) + 1


def test_symbolic_traces_have_one_node_of_a_layer():
    layers = {
        "circuit": (dv.circuit.compile([[1, 2], [-2, 3]]).to_torch("real"), 3),
        "loss": (dv.nn.SemanticLoss([[1, 2], [-2, 3]]), 3),
        "rules": (dv.nn.Logic("rel q(x) = a(x)", {"a": dv.independent([0, 1])}, {"q": [0, 1]}), 2),
    }
    for name, (layer, size) in layers.items():
        graph = torch.fx.symbolic_trace(Net(layer))
        x = torch.randn(5, size)
        assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == ["inside"], name
        torch.testing.assert_close(graph(x), Net(layer)(x))
    for name in ("circuit", "loss"):
        with pytest.raises(UnsupportedError, match="symbolic_trace of a"):
            torch.fx.symbolic_trace(layers[name][0])


@pytest.mark.parametrize("name", ["scan", "affine scan", "segments", "einsum", "function", "expression"])
def test_other_symbolic_traces_are_refused_by_name(name):
    with pytest.raises(UnsupportedError, match=r"torch\.fx\.symbolic_trace"):
        torch.fx.symbolic_trace(made(name))


def test_what_decides_on_numbers_is_refused_in_a_trace():
    books = [dv.vsa.random(3, 2, 4, generator=k) for k in (1, 2)]
    memory = dv.vsa.ItemMemory((2, 4), generator=3).add_all(["a", "b"])
    varying = dv.nn.Logic("rel q(x) = a(x)", {"a": dv.varying()}, {"q": range(2)})
    attempts = {
        "factorise": lambda x: dv.vsa.factorise(x, books).indices,
        "nearest": lambda x: memory.nearest(x).similarities,
        "differ": lambda x: varying(a=[([0, 1], x[0, :2])]),
    }
    for words, attempt in attempts.items():
        for capture in (torch.jit.trace, lambda function, x: make_fx(function)(x)):
            with torch.no_grad(), pytest.raises(UnsupportedError, match=words):
                capture(attempt, torch.rand(2, 4))


def test_a_distribution_follows_its_rows_in_a_trace():
    model = dv.circuit.ProbabilisticCircuit(dv.circuit.compile([[1, 2], [-2, 3]])).to_torch()
    rows = torch.tensor([[1.0, 1, 1], [0, 1, 1]])
    others = torch.tensor([[1.0, 0, 0], [1, 0, 1]])
    with torch.no_grad():
        traced = torch.jit.trace(model, rows)
        torch.testing.assert_close(traced(others), model(others))
        torch.testing.assert_close(make_fx(model)(rows)(others), model(others))
