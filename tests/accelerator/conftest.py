"""One thread of torch: these models are small, and threads of several workers would wait for each other."""

import pytest


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
