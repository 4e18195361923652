"""The twenty-ninth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentyninth_set, in parts by three authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2, 3)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentyninth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 agreement": ("infinities", "cpu", "float32"),
    "1 occupancy": ("sizes", "cpu", ""),
    "1 peak_level": ("stress", "cpu", "int16"),
    "1 phase_counter_distance": ("values", "cpu", "uint16"),
    "1 rising_edges": ("side_stream", "cpu", "bool"),
    "1 rounding_shift": ("values", "cpu", "int16"),
    "1 row_quantile": ("infinities", "cpu", "float32"),
    "1 running_peak": ("stress", "cpu", "float16"),
    "1 scale_by_power": ("zeros", "cpu", "float16"),
    "1 size_class": ("halves", "cpu", "float32"),
    "1 split_complex_root": ("zeros", "cpu", "float32"),
    "2 conv_same": ("second_call", "cpu", ""),
    "2 expert_slots": ("sizes", "cpu", ""),
    "2 lamb_step": ("zeros", "cpu", "float32"),
    "2 max_pool": ("second_call", "cpu", ""),
    "2 microscaled_fp4": ("halves", "cpu", "float32"),
    "2 resize_linear": ("second_call", "cpu", ""),
    "2 scatter_add_flat": ("broadcast_views", "cpu", ""),
    "2 segmented_scan": ("zeros", "cpu", "float16"),
    "2 sink_attention": ("combined", "cpu", "float32"),
    "2 token_by_number": ("zeros", "cpu", "float32"),
    "2 transposition_sort": ("infinities", "cpu", "float32"),
    "3 angular_separation": ("units", "cpu", "float64"),
    "3 asof_index": ("combined", "cpu", "int32"),
    "3 bspline_basis": ("zeros", "cpu", "float32"),
    "3 circular_deviation": ("units", "cpu", "float32"),
    "3 closeness": ("stress", "cpu", "int32"),
    "3 cusum_levels": ("stress", "cpu", "int32"),
    "3 eccentric_anomaly": ("zeros", "cpu", "float32"),
    "3 roll_to_weekday": ("stress", "cpu", "int32"),
    "3 rolling_range": ("second_call", "cpu", ""),
    "3 standard_columns": ("zeros", "cpu", "float64"),
    "3 theil_sen": ("second_call", "cpu", ""),
    "3 weighted_percentile": ("combined", "cpu", "float32"),
}


#: In the first, the reference underflows in complex64 as the wrong function does. In the second, function and reference
#: may differ for an axis without elements, as both are defined there.
NOT_FOUND = {"1 cross_phase", "2 ctc_loss"}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys() | NOT_FOUND


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
