"""The thirty-seventh set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtyseventh_set, in parts by three authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2, 3)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtyseventh_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 adamax_step": ("second_call", "cpu", ""),
    "1 average_precision": ("stress", "cpu", "float32"),
    "1 bag_peak": ("zeros", "cpu", "float32"),
    "1 channel_codes_uint8": ("zeros", "cpu", "float32"),
    "1 key_masked_attention": ("combined", "cpu", "float32"),
    "1 min_p_draw": ("zeros", "cpu", "float32"),
    "1 next_fit_rows": ("stress", "cpu", "int32"),
    "1 overhang_mean_pool": ("sizes", "cpu", ""),
    "1 polynomial_rate": ("stress", "cpu", "int32"),
    "1 stretch_contrast": ("sizes", "cpu", ""),
    "1 sync_moments": ("combined", "cpu", "float32"),
    "1 token_loss_in_chunks": ("stress", "cpu", "float32"),
    "2 centred_blur": ("sizes", "cpu", ""),
    "2 cubic_balance": ("stress", "cpu", "float32"),
    "2 heun_step": ("values", "cpu", "float64"),
    "2 interpolated_quantile": ("infinities", "cpu", "float32"),
    "2 neighbours_within": ("stress", "cpu", "float32"),
    "2 ridge_solve": ("values", "cpu", "complex64"),
    "2 seasonal_profile": ("sizes", "cpu", ""),
    "2 spread_second_difference": ("sizes", "cpu", ""),
    "2 surface_at": ("zeros", "cpu", "float32"),
    "2 tetrahedron_volumes": ("stress", "cpu", "float64"),
    "2 ticks_to_microseconds": ("stress", "cpu", "int64"),
    "2 trapezoid_rule": ("stress", "cpu", "int16"),
    "3 centre_text": ("sizes", "cpu", ""),
    "3 coo_row_peaks": ("zeros", "cpu", "float32"),
    "3 distinct_in_groups": ("stress", "cpu", "int16"),
    "3 distinct_in_rows": ("stress", "cpu", "float16"),
    "3 flat_blocks": ("second_call", "cpu", ""),
    "3 forest_roots": ("combined", "cpu", "int32"),
    "3 key_hash": ("stress", "cpu", "float16"),
    "3 last_valid": ("zeros", "cpu", "float32"),
    "3 levels_below": ("combined", "cpu", "float32"),
    "3 order_by_size": ("stress", "cpu", "int16"),
    "3 rolling_product": ("zeros", "cpu", "float32"),
    "3 slice_by_bounds": ("second_call", "cpu", ""),
}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
