"""Arrays that start on large pages."""

import numpy as np
import pytest

from derivable.device.cpu.pages import empty_pages, zero_pages


@pytest.mark.parametrize("make", [empty_pages, zero_pages])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 1000, (1 << 20) - 1, 1 << 20, (1 << 21) + 3])
def test_arrays_are_contiguous_writable_and_start_on_a_page_if_large(make, dtype, count):
    array = make(count, dtype)
    assert array.shape == (count,)
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.nbytes < 1 << 20 or array.ctypes.data % (1 << 21) == 0
    if make is zero_pages:
        assert not array.any()
    array.fill(7)
    # What has been freed is not taken for zeros.
    del array
    assert not zero_pages(count, dtype).any()
