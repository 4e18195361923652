"""The twenty-fifth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentyfifth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentyfifth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 coo_todense": ("out", "cpu", "float32"),
    "1 householder": ("zeros", "cpu", "float32"),
    "1 interleaved_product": ("out", "cpu", "float32"),
    "1 jagged_sums": ("infinities", "cpu", "float32"),
    "1 merge_moments": ("combined", "cpu", "float32"),
    "1 mxint8_quantise": ("combined", "cpu", "float32"),
    "1 ntk_rotary": ("sizes", "cpu", ""),
    "1 pick_by_counts": ("combined", "cpu", "float32"),
    "1 position_ids": ("sizes", "cpu", ""),
    "1 reciprocal_rank": ("zeros", "cpu", "float16"),
    "1 smoothed_cross_entropy": ("combined", "cpu", "float32"),
    "1 weighted_order": ("units", "cpu", "float32"),
    "2 bond_days": ("stress", "cpu", "int32"),
    "2 distance_to_seeds": ("combined", "cpu", "bool"),
    "2 integral_image": ("out", "cpu", "float32"),
    "2 label_regions": ("halves", "cpu", "float32"),
    "2 minimizers": ("stress", "cpu", "int32"),
    "2 numbers_in_bins": ("units", "cpu", "float32"),
    "2 pair_numbers": ("stress", "cpu", "int32"),
    "2 peak_blocks": ("second_call", "cpu", ""),
    "2 ray_meets_box": ("zeros", "cpu", "float32"),
    "2 rolling_max": ("second_call", "cpu", ""),
    "2 text_hash": ("sizes", "cpu", ""),
    "2 zero_crossings": ("units", "cpu", "float32"),
}


def test_every_fault_of_the_set_is_found() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
