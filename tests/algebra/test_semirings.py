import dataclasses
import math
import pickle

import numpy as np
import pytest

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError


def test_the_built_in_ones_are_there():
    assert semirings.names() == (
        "addmultprob",
        "bool",
        "boolean",
        "counting",
        "godel",
        "log",
        "max_plus",
        "max_product",
        "maxmultprob",
        "min_plus",
        "nandminprob",
        "nandmultprob",
        "real",
    )
    assert semirings.get("tropical") is semirings.get("min_plus") is semirings.min_plus
    assert semirings.get("max_min") is semirings.godel
    assert semirings.get(semirings.log) is semirings.log


def test_unknown_names_show_the_nearest():
    with pytest.raises(DomainError, match="did you mean 'tropical'"):
        semirings.get("tropcal")
    with pytest.raises(DomainError, match="known are addmultprob, bool, boolean, counting"):
        semirings.get("zzz")
    with pytest.raises(DomainError, match="not int"):
        semirings.get(3)  # type: ignore[arg-type]


def test_log_plus_is_stable():
    plus = semirings.log.plus
    assert plus(-math.inf, -math.inf) == -math.inf
    assert plus(-math.inf, 3.0) == 3.0
    assert plus(1000.0, 1000.0) == pytest.approx(1000 + math.log(2))
    assert plus(-1000.0, 0.0) == 0.0
    assert plus(math.inf, 0.0) == math.inf
    assert np.array_equal(plus(np.array([-np.inf, 0.0]), np.array([-np.inf, -np.inf])), [-np.inf, 0.0])


def test_log_complement_does_not_cancel():
    complement = semirings.log.complement
    assert complement is not None
    assert complement(0.0) == -math.inf
    assert complement(-math.inf) == 0.0
    assert complement(-1e-20) == pytest.approx(math.log(1e-20))
    assert complement(-50.0) == pytest.approx(-math.exp(-50), rel=1e-12)


def test_counting_is_exact():
    assert semirings.counting.plus(2**200, 1) == 2**200 + 1
    assert semirings.counting.times(3**100, 3**100) == 3**200
    values = np.array([2**100, 3**100], dtype=object)
    assert list(semirings.counting.times(values, values)) == [2**200, 3**200]


def test_built_in_records_pickle():
    for name in semirings.names():
        assert pickle.loads(pickle.dumps(semirings.get(name))) == semirings.get(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "two words"}, "not an identifier"),
        ({"plus": 3}, "plus .* not a function"),
        ({"complement": 3}, "complement"),
        ({"carrier": "complex"}, "carrier"),
        ({"zero": True}, "zero .* no value of its carrier"),
        ({"zero": math.nan}, "zero .* no value of its carrier"),
        ({"one": 2.0, "domain": (0.0, 1.0)}, "one .* no value of its carrier"),
        ({"commutative": "yes"}, "commutative .* not a bool"),
        ({"inverse": None}, "without an inverse"),
    ],
)
def test_bad_records_are_refused(change, message):
    record = dataclasses.replace(semirings.real, **{"name": "mine", **change})
    with pytest.raises(DomainError, match=message):
        semirings.register(record)
    with pytest.raises(DomainError, match=message):
        semirings.get(record)
    assert "mine" not in semirings.names()


def test_names_are_taken_once():
    with pytest.raises(DomainError, match="taken"):
        semirings.register(Semiring("tropical", plus=min, times=max, zero=math.inf, one=-math.inf))
    assert semirings.register(semirings.real) is semirings.real
    with pytest.raises(DomainError, match="not a semiring that was registered"):
        semirings.unregister("real")
