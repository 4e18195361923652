"""The thirty-fifth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtyfifth_set, in parts by three authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2, 3)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtyfifth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 calibration_gap": ("zeros", "cpu", "float32"),
    "1 count_matches": ("sizes", "cpu", ""),
    "1 decayed_totals": ("sizes", "cpu", ""),
    "1 gather_or_fill": ("stress", "cpu", "int64"),
    "1 key_partitions": ("stress", "cpu", "float32"),
    "1 lag_in_partition": ("values", "cpu", "float32"),
    "1 nearest_rank": ("sizes", "cpu", ""),
    "1 range_window_sums": ("values", "cpu", "int32"),
    "1 shuffle_bytes": ("sizes", "cpu", ""),
    "1 sketch_registers": ("stress", "cpu", "int32"),
    "1 unpack_fixed_width": ("values", "cpu", "uint8"),
    "1 weekdays_between": ("values", "cpu", "int32"),
    "2 compensated_total": ("infinities", "cpu", "float64"),
    "2 conv_state_update": ("sizes", "cpu", ""),
    "2 dilated_depthwise": ("sizes", "cpu", ""),
    "2 packed_documents_attention": ("sizes", "cpu", ""),
    "2 pixel_norm": ("zeros", "cpu", "float16"),
    "2 race_draw": ("zeros", "cpu", "float32"),
    "2 reorder_beams_": ("values", "cpu", "float16"),
    "2 ring_cache_attention": ("combined", "cpu", "float32"),
    "2 silu_gate_packed": ("combined", "cpu", "float32"),
    "2 split_kv_decode": ("values", "cpu", "float32"),
    "2 top_k_top_p_draw": ("zeros", "cpu", "float16"),
    "3 alternate_signs": ("sizes", "cpu", ""),
    "3 complex_tanh": ("units", "cpu", "complex64"),
    "3 exprel": ("values", "cpu", "float32"),
    "3 heaviside_step": ("stress", "cpu", "float16"),
    "3 logit_clamped": ("zeros", "cpu", "float16"),
    "3 mean_where": ("broadcast_views", "cpu", ""),
    "3 pivot_places": ("values", "cpu", "complex128"),
    "3 poly_from_roots": ("zero_size", "cpu", "float32"),
    "3 round_decimals": ("out", "cpu", "int32"),
    "3 sample_variance": ("sizes", "cpu", ""),
    "3 spectrum_2d": ("second_call", "cpu", ""),
    "3 trace_offset": ("sizes", "cpu", ""),
}


#: A scale so large that twice as much is infinite: right functions overflow there as well.
NOT_FOUND = {"2 grow_loss_scale"}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys() | NOT_FOUND


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
