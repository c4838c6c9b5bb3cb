"""Scans of one column of numbers and their gradients, arrays [row] in and out."""

from __future__ import annotations

import numpy as np

from derivable.algebra.monoids import NAMED
from derivable.parallel import element_folds


def scan(name, values, **options):
    op = NAMED[name].typed((str(values.dtype),))
    return element_folds.scan(op, (values.reshape(-1, 1, 1),), **options)[0].reshape(-1)


def pull(name, adjoints, values, results, **options):
    op = NAMED[name].typed((str(values.dtype),))
    arrays = [array.reshape(-1, 1, 1) for array in (adjoints, values, results)]
    return np.ravel(element_folds.scan_vjp(op, *([array] for array in arrays), **options)[0])
