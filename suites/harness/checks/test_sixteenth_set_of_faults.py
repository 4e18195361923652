"""The sixteenth set of wrong functions: what finds each fault, and that the right twin passes it.

The set is in suites/data/faults/sixteenth_set, in parts by two authors. The README next to it says how many were found
at the first run; no check was changed for it.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of, run_check

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"sixteenth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 box_corners": ("inputs_unchanged", "cpu", "float64"),
    "1 csr_row_max": ("zeros", "cpu", "float32"),
    "1 descending_order": ("stress", "cpu", "int32"),
    "1 group_norm": ("stress", "cpu", "float32"),
    "1 householder": ("zeros", "cpu", "float64"),
    "1 iso_week": ("stress", "cpu", "int32"),
    "1 max_pool": ("second_call", "cpu", ""),
    "1 periodogram": ("combined", "cpu", "float32"),
    "1 rotary": ("second_call", "cpu", ""),
    "2 axpy_dense": ("layouts", "cpu", "float32"),
    "2 lerp_into": ("out", "cpu", "float32"),
    "2 padded_energy": ("combined", "cpu", "float64"),
    "2 radix_argsort": ("halves", "cpu", "float32"),
    "2 rank_in_edges": ("values", "cpu", "float32"),
    "2 rounding_shift": ("stress", "cpu", "int32"),
    "2 segment_sum": ("infinities", "cpu", "float32"),
    "2 tiled_row_max": ("combined", "cpu", "float32"),
    "2 two_pass_mean": ("units", "cpu", "float16"),
}

#: What shows those that no check finds.
MISSED = {
    "1 soft_cross_entropy": "a probability of 0 next to a logit of minus infinity, in two arrays",
    "2 image_bias": "four images of 5 x 5: the whole a multiple of four, and an image not",
}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])


def test_a_message_that_is_no_regular_expression_is_told() -> None:
    """The right twin of box_corners raises the text that it declares, letter by letter."""
    _, right, declare = PAIRS["1 box_corners"].make()

    with pytest.raises(AssertionError, match=r"does not say 'give \(\.\.\., 4\)': .*; match is a regular expression"):
        run_check("errors", "cpu", "float32", declare(right))
