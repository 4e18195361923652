"""The thirty-second set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtysecond_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtysecond_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 autocovariance_at": ("values", "cpu", "complex64"),
    "1 channel_norm": ("sizes", "cpu", ""),
    "1 cut_utf8": ("values", "cpu", "uint8"),
    "1 degrees_of_dms": ("zeros", "cpu", "float64"),
    "1 draw_without_replacement": ("zeros", "cpu", "float32"),
    "1 gcn_propagate": ("second_call", "cpu", ""),
    "1 left_padded": ("deterministic", "cpu", "int64"),
    "1 morton_code": ("sizes", "cpu", ""),
    "1 overlap_add": ("sizes", "cpu", ""),
    "1 phi_coefficient": ("values", "cpu", "int64"),
    "1 robust_scale": ("inputs_unchanged", "cpu", "float64"),
    "1 softcapped_attention": ("second_call", "cpu", ""),
    "2 bitonic_sorted": ("stress", "cpu", "float32"),
    "2 compact_kept": ("zeros", "cpu", "float32"),
    "2 discounted_total": ("sizes", "cpu", ""),
    "2 dot4_rows": ("sizes", "cpu", ""),
    "2 first_seen": ("stress", "cpu", "int32"),
    "2 group_peak": ("zeros", "cpu", "float32"),
    "2 halo_sums": ("sizes", "cpu", ""),
    "2 noisy_int8": ("zeros", "cpu", "float32"),
    "2 paged_value_sums": ("combined", "cpu", "float32"),
    "2 two_best_experts": ("infinities", "cpu", "float32"),
    "2 two_of_four": ("zeros", "cpu", "float32"),
    "2 windowed_scores": ("second_call", "cpu", ""),
}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
