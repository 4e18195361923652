"""The twenty-seventh set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentyseventh_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentyseventh_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 affine_round_trip": ("combined", "cpu", "float32"),
    "1 blocked_sum": ("sizes", "cpu", ""),
    "1 coo_times_dense": ("units", "cpu", "float64"),
    "1 cross_entropy": ("infinities", "cpu", "float32"),
    "1 embedding": ("out", "cpu", "float16"),
    "1 gated_scan": ("zeros", "cpu", "float32"),
    "1 masked_argmax": ("infinities", "cpu", "float32"),
    "1 poisson_loss": ("combined", "cpu", "float32"),
    "1 rank_of_pairs": ("stress", "cpu", "int64"),
    "1 reverse_strings": ("stress", "cpu", "uint8"),
    "1 rotary": ("second_call", "cpu", ""),
    "1 top_k_places": ("stress", "cpu", "int8"),
    "2 box_filter": ("combined", "cpu", "float32"),
    "2 cell_index": ("units", "cpu", "float32"),
    "2 decimate_mean": ("layouts", "cpu", "float32"),
    "2 exponential_filter": ("inputs_unchanged", "cpu", "float64"),
    "2 fourier_resample": ("combined", "cpu", "float32"),
    "2 iso_week": ("stress", "cpu", "int32"),
    "2 kaiser_taper": ("second_call", "cpu", ""),
    "2 monotone_slopes": ("units", "cpu", "float32"),
    "2 nan_quantile": ("infinities", "cpu", "float32"),
    "2 nearest_resize": ("second_call", "cpu", ""),
    "2 rgb_from_hsv": ("zeros", "cpu", "float32"),
    "2 sample_slope": ("stress", "cpu", "int16"),
}


def test_every_fault_of_the_set_is_found() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
