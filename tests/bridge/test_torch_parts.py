"""Parts of torch and egglog beyond their documented interfaces do what they are used for.

That they are there, and in one module, is tested in `tests/architecture/test_private_parts.py`.
"""

import egglog
import torch


def test_batches_of_the_older_vmap_are_made_and_taken_away():
    level = torch._C._vmapmode_increment_nesting()
    try:
        batched = torch._add_batch_dim(torch.arange(6.0).reshape(2, 3), 0, level)
        assert torch._C._functorch.is_legacy_batchedtensor(batched)
        assert torch._remove_batch_dim(batched * 2, level, 2, 0).tolist() == [[0, 2, 4], [6, 8, 10]]
    finally:
        torch._C._vmapmode_decrement_nesting()


def test_a_graph_of_egglog_is_dropped_by_its_thread():
    graph = egglog.EGraph()
    assert graph._state.egraph is not None
    graph._state.egraph = None
    assert graph._state.egraph is None
