"""The thirty-ninth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtyninth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtyninth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 absolute_spread": ("values", "cpu", "float32"),
    "1 alpha_over": ("values", "cpu", "uint8"),
    "1 bit_key_order": ("extremal", "cpu", "float32"),
    "1 blocked_cummin": ("values", "cpu", "int32"),
    "1 box_iou": ("values", "cpu", "float32"),
    "1 by_magnitude": ("promotion", "cpu", "float32"),
    "1 byte_planes": ("layouts", "cpu", "int16"),
    "1 depth_to_space": ("values", "cpu", "float32"),
    "1 discrete_hartley": ("values", "cpu", "float32"),
    "1 full_convolution": ("values", "cpu", "float32"),
    "1 gumbel_log_survival": ("extremal", "cpu", "float32"),
    "1 is_nondecreasing": ("extremal", "cpu", "float32"),
    "1 last_above": ("values", "cpu", "float32"),
    "1 matched_filter": ("values", "cpu", "complex128"),
    "1 nan_weighted_mean": ("extremal", "cpu", "float32"),
    "1 one_pole": ("layouts", "cpu", "float64"),
    "1 pairs_within_clusters": ("values", "cpu", "int32"),
    "1 parallel_resistance": ("extremal", "cpu", "float32"),
    "1 plane_rotation_": ("values", "cpu", "float32"),
    "1 relative_difference": ("broadcast_views", "cpu", ""),
    "1 round_robin_merge": ("values", "cpu", "float32"),
    "1 row_mode": ("values", "cpu", "int32"),
    "1 second_differences": ("aliasing", "cpu", ""),
    "1 seeded_signs": ("values", "cpu", "float32"),
    "1 sine_degrees": ("zero_size", "cpu", "float32"),
    "1 stable_partition": ("values", "cpu", "float32"),
    "1 standardised_affine": ("values", "cpu", "float32"),
    "1 strict_take": ("errors", "cpu", "float32"),
    "1 times_power_of_two": ("combined", "cpu", "float32"),
    "1 van_leer_slopes": ("zeros", "cpu", "float32"),
    "2 apply_track_gains": ("combined", "cpu", "float32"),
    "2 battery_state": ("values", "cpu", "float32"),
    "2 bounding_radius": ("zero_size", "cpu", "float32"),
    "2 bounds_without_nan": ("stress", "cpu", "float32"),
    "2 chroma_420": ("values", "cpu", "uint8"),
    "2 coo_diagonal": ("values", "cpu", "float32"),
    "2 deposit_charge": ("layouts", "cpu", "float64"),
    "2 depth_to_space": ("values", "cpu", "float32"),
    "2 dequantize_groups": ("values", "cpu", "float32"),
    "2 donchian_upper": ("values", "cpu", "float32"),
    "2 expanding_mean": ("values", "cpu", "float16"),
    "2 flags_in_common": ("values", "cpu", "int32"),
    "2 gauss_integral": ("second_call", "cpu", ""),
    "2 lag_stack": ("values", "cpu", "float32"),
    "2 log_mean_exp": ("second_call", "cpu", ""),
    "2 luma_8bit": ("values", "cpu", "uint8"),
    "2 mix_signals": ("out", "cpu", "float32"),
    "2 paeth_residual": ("stress", "cpu", "uint8"),
    "2 planar_channels": ("aliasing", "cpu", ""),
    "2 pooled_mean_of_parts": ("values", "cpu", "float32"),
    "2 rescale_timestamps": ("values", "cpu", "int32"),
    "2 reverse_complement_codes": ("values", "cpu", "uint8"),
    "2 rotate_bits_left": ("values", "cpu", "int32"),
    "2 split_heads": ("errors", "cpu", "float16"),
    "2 toeplitz_of": ("values", "cpu", "complex128"),
    "2 token_shift_mix": ("values", "cpu", "float16"),
    "2 triangles_per_node": ("values", "cpu", "int32"),
    "2 triplet_margin": ("values", "cpu", "float32"),
    "2 vector_length3": ("promotion", "cpu", "float32"),
    "2 zero_where_masked": ("values", "cpu", "float32"),
}

#: Faults that show by an error of the function's own, in the check that is named.
RAISED: dict[str, type[Exception]] = {"1 sine_degrees": ValueError, "2 bounding_radius": RuntimeWarning}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name], raises=RAISED.get(name))
