"""The twenty-first set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentyfirst_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentyfirst_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 causal_attention": ("second_call", "cpu", ""),
    "1 correlate1d": ("combined", "cpu", "float32"),
    "1 cross_entropy": ("infinities", "cpu", "float32"),
    "1 draw_categories": ("combined", "cpu", "float32"),
    "1 dynamic_rotary": ("combined", "cpu", "float32"),
    "1 layer_norm": ("second_call", "cpu", ""),
    "1 quantise": ("units", "cpu", "float32"),
    "1 resize_like": ("combined", "cpu", "float32"),
    "1 segment_max": ("infinities", "cpu", "float32"),
    "1 standardise_columns": ("layouts", "cpu", "float64"),
    "1 top_k": ("second_call", "cpu", ""),
    "2 add_months": ("stress", "cpu", "int32"),
    "2 bright_spots": ("second_call", "cpu", ""),
    "2 fft_resample": ("second_call", "cpu", ""),
    "2 kaiser_taper": ("second_call", "cpu", ""),
    "2 nan_anomaly": ("stress", "cpu", "float64"),
    "2 pack_flags": ("second_call", "cpu", ""),
    "2 page_rank": ("stress", "cpu", "float32"),
    "2 round_to_step": ("errors", "cpu", "int32"),
    "2 savgol": ("combined", "cpu", "float32"),
    "2 virial": ("layouts", "cpu", "float32"),
    "2 wrap_degrees": ("combined", "cpu", "float32"),
}

#: What shows those that no check finds.
MISSED = {
    "1 unit_lower_solve": "as many matrices as they have rows, and a right side of two axes: another shape results",
    "2 bin_counts": "numbers on an inner edge of a bin, where the product that finds the bin is rounded up",
}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
