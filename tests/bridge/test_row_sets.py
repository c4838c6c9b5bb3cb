"""Joins and sets of rows by Triton's kernels, run on the CPU by its interpreter in a process of its own."""

from triton_process import printed_by


def test_kernels_find_the_rows_that_torch_finds():
    assert printed_by("bridge/row_set_cases.py").split() == [
        "test_sets",
        "test_pairs",
        "test_programs",
        "test_rooms",
        "test_pieces",
        "test_operations_of_rows",
        "test_the_comparison_can_fail",
    ]
