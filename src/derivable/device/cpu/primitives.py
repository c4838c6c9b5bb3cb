"""The CPU device: primitives of `derivable.parallel.reference` on rows as Numba kernels, under the same names.

The meaning of each function is its reference's docstring. Results have the same bits for the same input and number of
threads (`device.cpu.threads`). Folds are those of `dv.parallel`.
"""

from derivable.device.cpu.rows import *  # noqa: F403
from derivable.device.cpu.rows import __all__ as __all__
