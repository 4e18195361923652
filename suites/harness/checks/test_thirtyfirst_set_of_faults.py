"""The thirty-first set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtyfirst_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtyfirst_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 add_saturating": ("stress", "cpu", "int64"),
    "1 bright_box": ("units", "cpu", "float32"),
    "1 carry_forward": ("stress", "cpu", "int64"),
    "1 dilated_windows": ("second_call", "cpu", ""),
    "1 euclidean_length": ("second_call", "cpu", ""),
    "1 first_equal": ("values", "cpu", "int32"),
    "1 flat_offsets": ("errors", "cpu", "int32"),
    "1 lag_products": ("values", "cpu", "complex64"),
    "1 log_add": ("extremal", "cpu", "float32"),
    "1 lower_quantiles": ("inputs_unchanged", "cpu", "float32"),
    "1 shift_periods": ("second_call", "cpu", ""),
    "1 weber_contrast": ("broadcast_views", "cpu", ""),
    "2 adjusted_rand": ("values", "cpu", "int32"),
    "2 carry_forward": ("combined", "cpu", "float32"),
    "2 graph_smooth": ("second_call", "cpu", ""),
    "2 lowest_valid": ("infinities", "cpu", "float32"),
    "2 mean_timestamp": ("values", "cpu", "int64"),
    "2 paired_correlation": ("values", "cpu", "float32"),
    "2 run_ids": ("values", "cpu", "int32"),
    "2 silhouette": ("sizes", "cpu", ""),
    "2 soft_minimum": ("extremal", "cpu", "float32"),
    "2 spectral_scale": ("deterministic", "cpu", "float32"),
    "2 suffix_max": ("stress", "cpu", "float32"),
    "2 triangle_place": ("stress", "cpu", "int64"),
}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
