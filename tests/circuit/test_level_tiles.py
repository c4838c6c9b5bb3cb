"""Folds on a GPU: the plan, the kernel by the interpreter of the loop IR, and by Triton's in a process of its own."""

import math
from dataclasses import replace

import numpy as np
import pytest

from circuit.decimal_circuits import random_circuit
from circuit.test_level_folds import BEST, DUAL, RINGS
from circuit.tile_cases import by_cpu, given_to
from derivable.algebra import semirings
from derivable.circuit.fold import tile_fold
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.fold.tile_plan import bounded, tile_plan
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.kernels.level_fold import LevelFold
from derivable.circuit.kernels.level_tiles import NOWHERE, REDUCE, tile_kernel
from derivable.core.and_or import AND, LITERAL, NOT, OR
from derivable.core.diagnostics import UnsupportedError
from derivable.kernel.emit_triton import emit_triton
from derivable.kernel.interpret import interpret
from triton_process import printed_by


def random_of(seed, widest=30, roots=2):
    return random_circuit(np.random.default_rng(seed), 5, 30, roots, widest)


def test_bounded_graphs_have_the_same_operands_in_the_same_order():
    for seed in range(4):
        circuit = random_of(seed)
        given = circuit.kind, circuit.literal, circuit.offsets, circuit.children, circuit.roots
        kind, _, offsets, children, _ = found = bounded(*given)
        arity = np.diff(offsets)
        assert arity[kind == AND].max() <= 2
        assert arity[kind == OR].max() <= 4
        assert (children < np.repeat(np.arange(len(kind)), arity)).all()
        assert flattened(*found) == flattened(*given)


def flattened(kind, literal, offsets, children, roots):
    """The roots as nested tuples, in which no sum has a sum and no product a product as a part."""
    found = []
    for node in range(len(kind)):
        parts = []
        for child in children[offsets[node] : offsets[node + 1]]:
            parts += [found[child]] if kind[child] != kind[node] else found[child][1:]
        found.append((int(kind[node]), *parts) if parts else int(literal[node]))
    return [found[root] for root in roots]


def test_every_use_has_a_place_and_is_summed_once_after_it_is_written():
    circuit = random_of(3)
    plan = tile_plan(plan_of(circuit).graph, 5, in_order=False)
    used = np.concatenate([plan.terms, plan.roots])
    places = plan.places[plan.places != NOWHERE]
    assert len(np.unique(places)) == len(places) == (used > 1).sum()
    sums = [(begin, count) for begin, count in plan.uses.tolist() if count] + plan.tasks[:, :2].tolist()
    read = np.concatenate([np.arange(begin, begin + count) for begin, count in sums])
    assert sorted(read.tolist()) == list(range(plan.num_places))
    written = {int(place): 0 for place in plan.places[len(plan.terms) :]}
    for step, groups in enumerate(plan.backward, 1):
        for group in groups:
            for item in range(group.first, group.first + group.count):
                if group.kind == REDUCE:
                    begin, count, place = plan.tasks[item].tolist()
                    assert all(written[x] < step for x in range(begin, begin + count))
                    written[place] = step
                elif group.pairs:
                    begin, count = plan.uses[item].tolist()
                    assert all(written[x] < step for x in range(begin, begin + count))
                    at = group.start + (item - group.first) * 2 * group.pairs
                    written |= {int(place): step for place in plan.places[at : at + 2 * group.pairs]}
    assert len(plan.tasks) > 0


def test_steps_have_one_kind_of_work_where_levels_are_narrow():
    """A chain of sums of two products and single products, whose leaves all levels use."""
    kinds, rows, x, y = [LITERAL] * 3, [[], [], []], 0, 1
    for _ in range(12):
        at = len(kinds)
        kinds += [AND, AND, OR, AND]
        rows += [[x, 0], [y, 1], [at, at + 1], [x, 2]]
        x, y = at + 2, at + 3
    graph = AndOrGraph.of([*kinds, OR], [1, 2, 3] + [0] * (len(rows) - 2), [*rows, [x, y]], [len(rows)])
    plan = tile_plan(plan_of(graph, 5).graph, 5, in_order=False)
    assert [[(group.pairs, group.count) for group in step] for step in plan.forward[1:-3]] == [[(2, 2)]] * 11
    reduced = [number for number, step in enumerate(plan.backward) if any(group.kind == REDUCE for group in step)]
    assert reduced == [len(plan.backward) - 2]
    rng = np.random.default_rng(0)
    operands, seeds = given_to(semirings.log, rng, 3, 5, "float64", False), [rng.random((3, 1))]
    found = interpreted(graph, semirings.log, "float64", operands, seeds, 2, 16)
    for mine, others in zip(found, by_cpu(graph, semirings.log, operands, seeds), strict=True):
        for one, other in zip(mine, others, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def interpreted(circuit, ring, precision, operands, seeds, width, lanes):
    """Values and gradients by the interpreter of the IR, in one launch."""
    plan = plan_of(circuit, 5)
    fold = LevelFold(ring.typed(precision), plan.has_negation)
    tiles = tile_plan(plan.graph, plan.num_variables, in_order=not fold.is_plus_free)
    components, floats = len(fold.dtypes), len(fold.floats)
    has_negative = len(operands) == 2 * components
    steps = tiles.steps(fold.has_gradient, seeds is not None)
    chunks, offsets = tiles.chunks(steps, lanes // width)
    rows = len(operands[0])
    count = -(-rows // width)
    numbers = count, rows, width, tiles.num_slots, tiles.num_places, plan.num_variables, plan.num_roots
    arguments = [np.array([0, len(steps), *numbers]), offsets, chunks, *tiles.tables(width), *operands]
    arguments += [np.zeros(count * tiles.num_slots * width, dtype) for dtype in fold.dtypes]
    out = [np.zeros((rows, plan.num_roots), dtype) for dtype in fold.dtypes]
    arguments += out
    gradients = []
    if fold.has_gradient:
        dtypes = [fold.dtypes[k] for k in fold.floats]
        arguments += [np.full(count * tiles.num_places * width, np.nan, dtype) for dtype in dtypes]
        arguments += seeds or [np.zeros((rows, plan.num_roots), dtype) for dtype in dtypes]
        gradients = [np.full(operands[0].shape, np.nan, dtype) for dtype in dtypes * (1 + has_negative)]
        arguments += gradients
    interpret(tile_kernel(fold, lanes, has_negative, fold.has_gradient), *arguments)
    assert len(gradients) == floats * (1 + has_negative) * fold.has_gradient
    return out, gradients


@pytest.mark.parametrize("name", ["log", "max_product", "dual", "best", "boolean"])
def test_the_kernel_is_what_the_cpu_computes(name):
    ring = RINGS.get(name) or {"dual": DUAL, "best": BEST}.get(name) or semirings.get(name)
    rng = np.random.default_rng(5)
    for seed, rows, width in ((0, 1, 1), (1, 3, 2)):
        circuit, has_negative = random_of(seed, [4, 30][seed]), seed == 0 or ring.complement is None
        operands = given_to(ring, rng, rows, 5, "float64", has_negative)
        floats = [k for k, carrier in enumerate(ring.carriers) if carrier == "float"]
        seeds = [rng.random((rows, 2)) for _ in floats] if seed else None
        found, gradients = interpreted(circuit, ring, "float64", operands, seeds, width, 16)
        values, adjoints = by_cpu(circuit, ring, operands, seeds)
        for one, other in zip(found, values, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        if ring.differentiable and floats:
            for one, other in zip(gradients, adjoints, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["real", "log"])
def test_negations_are_nodes_of_a_step(name):
    """Of a sum, of a product, of a negation, and one with many uses."""
    ring, rng = semirings.get(name), np.random.default_rng(6)
    rows = [[], [], [], [0, 1], [3], [1, 4], [5], [6], [4, 7], [4, 2], [8, 9], *([[4, 10]] * 12)]
    kinds = [LITERAL] * 3 + [OR, NOT, AND, NOT, NOT, AND, OR, AND] + [AND] * 12
    rows.append([*range(11, 23)])
    graph = AndOrGraph.of([*kinds, OR], [1, -2, 3] + [0] * (len(rows) - 3), rows, [len(rows) - 1, 7])
    operands, seeds = given_to(ring, rng, 3, 5, "float64", False), [rng.random((3, 2))]
    operands[0] -= math.log(40) if name == "log" else 0.0
    found = interpreted(graph, ring, "float64", operands, seeds, 2, 16)
    for mine, others in zip(found, by_cpu(graph, ring, operands, seeds), strict=True):
        for one, other in zip(mine, others, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_tiles_are_wide_where_caches_do_not_hold_them():
    plan = tile_plan(plan_of(random_of(0), 5).graph, 5, in_order=False)
    large = replace(plan, num_places=1 << 20)
    vars(large)["width"] = 1 << 12
    for rows, width in ((1, 1), (130, 1), (1024, 4), (1 << 20, 32)):
        assert tile_fold.layout_of(plan, rows, 132).width == width
    assert [tile_fold.layout_of(large, rows, 132).width for rows in (1, 10, 20, 1024)] == [1, 1, 16, 32]
    assert [tile_fold.layout_of(large, rows, 132).lanes for rows in (1, 1024)] == [1024, 512]
    # Too narrow levels for several programs.
    vars(large)["width"] = 4
    assert tile_fold.layout_of(large, 1024, 132).width == 4
    # Places of a tile have 32 bits.
    assert tile_fold.layout_of(replace(large, num_places=1 << 30), 1024, 132).width == 1


def test_launches_are_few_where_steps_are_small():
    assert tile_fold.launches(np.array([1, 2, 3, 1]), 100) == [(0, 4, 1)]
    assert tile_fold.launches(np.array([1, 50, 60, 1, 1]), 20) == [(0, 1, 1), (1, 2, 20), (2, 3, 20), (3, 5, 1)]
    assert tile_fold.launches(np.array([1, 50, 60, 1]), 1) == [(0, 4, 1)]


def test_triton_computes_what_the_cpu_does():
    assert printed_by("circuit/tile_cases.py").split() == [
        "test_modules",
        "test_launches_of_one_step",
        "test_batches_in_parts",
    ]


def test_the_text_compiles_for_a_gpu():
    pytest.importorskip("triton")
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from derivable.algebra.expr.generated import load_generated

    kernel = tile_kernel(LevelFold(semirings.log.typed("float32")), 128, has_negative=False, has_gradient=True)
    pointers = {"int32": "*i32", "int64": "*i64", "float32": "*fp32"}
    source = load_generated(emit_triton(kernel), kernel.name)
    signature = {parameter.name: pointers[parameter.dtype] for parameter in kernel.parameters}
    made = compiled(ASTSource(source.fold_tiles, signature, {}), target=GPUTarget("cuda", 90, 32))
    assert "bar.sync" in made.asm["ptx"]
    assert "atom" not in made.asm["ptx"]


def test_what_triton_does_not_have_is_said():
    circuit = random_of(0)
    with pytest.raises(UnsupportedError, match="triton has no tanh"):
        tile_fold.TileFold(plan_of(circuit), RINGS["tanh"], "float64", True)
    module = circuit.to_torch(RINGS["tanh"])
    assert "there are no kernels for meta" in module.explain("meta")
    engine = module._engines[True, next(iter(module._engines))[1]]
    assert "tanh" in str(engine._tiles)
