"""The CPU device: the primitives of `derivable.parallel.reference` as Numba kernels, under the same names.

The meaning of each function is its reference's docstring. Results have the same bits for the same
input and number of threads (`device.cpu.threads`).
"""

from derivable.bridge import folds
from derivable.device.cpu import rows
from derivable.parallel import reference

__all__ = []
__all__ += reference.__all__

for _name in __all__:
    globals()[_name] = getattr(folds if hasattr(folds, _name) else rows, _name)
