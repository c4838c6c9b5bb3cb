"""Kernels that are on disk by what they are made of: another process neither builds nor prints them."""

import json

import numpy as np
import pytest

import derivable as dv
from derivable.algebra import semirings
from derivable.algebra.expr import functions
from derivable.algebra.expr.nodes import Argument, Constant
from derivable.core import cache
from derivable.datalog.kernels import row_sets
from derivable.datalog.policy.costs import under
from derivable.datalog.policy.kernels import MODULES, StoredKernels
from derivable.device.cpu import kernel_files, linking, llvm_code
from derivable.device.cpu.kernel_files import KernelFiles, text_of
from derivable.kernel.emit_llvm import emit_llvm, emit_packed

PATHS = "type e(i32, i32) rel p(a, b) = e(a, b) rel p(a, c) = p(a, b), e(b, c) query p"
CLOSED = "type e(i32, i32) rel t(a, b, c) = e(a, b), e(b, c), e(a, c), a != 3 query t"
COUNTED = (
    "type e(i32, i32) rel t(a, b, c) = e(a, b), e(b, c), e(c, d) rel n(k) = k := count(a, b, c: t(a, b, c)) query n"
)
# Code goes with the engine that has linked it.
engines = []


class Counting(StoredKernels):
    """Kernels of a process of their own: what is built, and what a key has."""

    def __init__(self):
        super().__init__()
        self.built, self.keys = [], {}

    def of(self, key, build):
        def counted():
            self.built.append(key)
            return build()

        function, notes = super().of(key, counted)
        self.keys[key] = build, notes
        return function, notes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for module in (kernel_files, llvm_code):
        monkeypatch.setattr(module, "cache_directory", lambda: tmp_path)
    return tmp_path / "objects"


def runs(text, provenance, monkeypatch):
    """What a program gives in a process of its own, and the kernels of that."""
    engines.append(linking._engine())
    linking._engine.cache_clear()
    for name in ("_addresses", "_functions"):
        monkeypatch.setattr(llvm_code, name, {})
    rows = np.random.default_rng(5).integers(0, 40, (150, 2)).astype(np.int32)
    facts = rows if provenance == "unit" else [*zip(np.linspace(0.1, 0.9, len(rows)), map(tuple, rows.tolist()))]
    with under(kernels=(kernels := Counting()), few_rows=0, many_rows=0, has_small_runs=False):
        relations = dv.Program(text).run(facts={"e": facts}, provenance=provenance)
        return {name: sorted(map(repr, relations[name])) for name in relations}, kernels


CASES = [
    *[(text, "unit") for text in (PATHS, CLOSED, COUNTED)],
    *[(text, tags) for text in (PATHS, CLOSED) for tags in ("minmaxprob", "addmultprob")],
]


@pytest.mark.parametrize(("text", "provenance"), CASES)
def test_another_process_builds_nothing(text, provenance, folder, monkeypatch):
    first, kernels = runs(text, provenance, monkeypatch)
    assert kernels.built
    again, others = runs(text, provenance, monkeypatch)
    assert again == first
    assert others.built == []
    for file in folder.rglob("*.o"):
        file.unlink()
    once_more, others = runs(text, provenance, monkeypatch)
    assert once_more == first
    assert others.built


def test_files_say_what_would_be_built(folder, monkeypatch):
    num_checked, texts = 0, {}
    for text, provenance in CASES:
        _, kernels = runs(text, provenance, monkeypatch)
        for key, (build, notes) in kernels.keys.items():
            path = kernels.files.path(key)
            assert path is not None, key
            texts.setdefault(text_of(key), key)
            built = build()
            assert json.loads(json.dumps(built.notes)) == json.loads(json.dumps(notes))
            if path.exists() and json.loads(path.read_bytes())["code"]:
                code = (emit_packed if built.is_packed else emit_llvm)(built.kernel)
                assert json.loads(path.read_bytes())["code"] == llvm_code._digest(code)
                num_checked += 1
    assert num_checked > 5
    # What differs has another text.
    assert len(texts) == len(set(texts.values()))


def test_texts_say_all_of_what_a_kernel_is_made_of():
    x, y = Argument(0, "float64", "x"), Argument(1, "float64", "x")
    different = [
        *(1, 1.0, True, "1", None, (1,), ((1,),), (1, 1), -0.0, 0.0),
        *(Constant(0.0, "float64"), Constant(-0.0, "float64"), Constant(0.0, "float32"), Constant(0, "int64")),
        *(x, y, Argument(0, "int64", "x"), Argument(0, "float64", "y"), x + y, y + x, x + x, x * y, (x, y)),
        *((x + y) * x, functions.cast(x, "float32"), functions.cast(x, "int64")),
        *(row_sets.SetForm(2, True), row_sets.SetForm(2, False), row_sets.SetForm(1, True)),
        *(row_sets.find_kernel, row_sets.insert_kernel, row_sets.SetForm),
        *(semirings.get(name).typed() for name in ("godel", "real", "boolean")),
        *(semirings.get("real").typed("float32"), semirings.get("real").typed().plus),
    ]
    texts = [text_of(value) for value in different]
    assert len(set(texts)) == len(different)
    assert texts == [text_of(value) for value in different]


def test_what_has_no_text_has_no_file(folder):
    files = KernelFiles(())
    assert files.path((lambda: None,)) is None
    assert files.path((row_sets.find_kernel, object())) is None


@pytest.mark.parametrize("pattern", MODULES)
def test_modules_of_kernels_are_there(pattern):
    assert list(cache.SOURCES.glob(pattern))


def test_other_modules_make_other_kernels(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SOURCES", tmp_path)
    (tmp_path / "makers").mkdir()
    paths = set()
    for text in ("a = 1", "a = 2", "a = 12"):
        (tmp_path / "makers" / "one.py").write_text(text)
        paths.add(KernelFiles(("makers/*.py",)).path((1,)))
    assert len(paths) == 3
