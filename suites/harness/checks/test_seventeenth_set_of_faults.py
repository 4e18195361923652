"""The seventeenth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/seventeenth_set, in parts by two authors. The README next to it says how many were
found at the first run; the check `combined` was written for those that were not.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"seventeenth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 add_months": ("stress", "cpu", "int32"),
    "1 causal_attention": ("second_call", "cpu", ""),
    "1 csr_order": ("second_call", "cpu", ""),
    "1 fake_quantise": ("combined", "cpu", "float32"),
    "1 householder_vector": ("zeros", "cpu", "float32"),
    "1 lerp_out": ("out", "cpu", "float32"),
    "1 polygon_area": ("combined", "cpu", "float64"),
    "1 resize_bilinear": ("second_call", "cpu", ""),
    "1 set_diagonal_": ("layouts", "cpu", "float32"),
    "1 top_k_mask": ("stress", "cpu", "float32"),
    "1 varint_offsets": ("stress", "cpu", "int64"),
    "2 bias_relu_epilogue": ("combined", "cpu", "float32"),
    "2 nearest_resize": ("combined", "cpu", "uint8"),
    "2 patch_conv2d": ("second_call", "cpu", ""),
    "2 radix_argsort": ("halves", "cpu", "float32"),
    "2 requantise": ("stress", "cpu", "int32"),
    "2 rotary_table": ("second_call", "cpu", ""),
    "2 segment_sum": ("infinities", "cpu", "float32"),
    "2 segmented_cumsum": ("combined", "cpu", "float32"),
    "2 smooth_in_place": ("second_call", "cpu", ""),
    "2 smoothed_cross_entropy": ("infinities", "cpu", "float32"),
    "2 tile_histogram": ("combined", "cpu", "int32"),
    "2 tiled_attention": ("combined", "cpu", "float32"),
}

#: What shows those that no check finds.
MISSED = {"1 histogram_uniform": "a number on the edge of a bin, which right functions round to either side"}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
