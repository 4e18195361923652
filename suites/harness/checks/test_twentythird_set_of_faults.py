"""The twenty-third set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentythird_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentythird_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 accumulated_loss": ("second_call", "cpu", ""),
    "1 draw_by_counts": ("stress", "cpu", "float32"),
    "1 ell_matvec": ("infinities", "cpu", "float32"),
    "1 fit_to_length": ("combined", "cpu", "int32"),
    "1 fourier_resample": ("second_call", "cpu", ""),
    "1 kaiser_smooth": ("second_call", "cpu", ""),
    "1 keep_largest": ("layouts", "cpu", "float32"),
    "1 kl_to_target": ("zeros", "cpu", "float16"),
    "1 merge_pair": ("sizes", "cpu", ""),
    "1 nan_centre": ("stress", "cpu", "float64"),
    "1 peak_normalise": ("stress", "cpu", "int16"),
    "1 trimmed_mean": ("second_call", "cpu", ""),
    "2 cosine_transform": ("combined", "cpu", "float32"),
    "2 fp4_rounded": ("halves", "cpu", "float32"),
    "2 greedy_loads": ("layouts", "cpu", "float64"),
    "2 hysteresis_mask": ("combined", "cpu", "float32"),
    "2 local_mean": ("stress", "cpu", "uint8"),
    "2 maxplus_product": ("sizes", "cpu", ""),
    "2 months_later": ("stress", "cpu", "int32"),
    "2 packed_signs": ("layouts", "cpu", "float32"),
    "2 periodic_displacement": ("halves", "cpu", "float32"),
    "2 row_histogram": ("out", "cpu", "float32"),
    "2 segmented_cumsum": ("combined", "cpu", "float32"),
    "2 smoothed_prices": ("sizes", "cpu", ""),
}


def test_every_fault_of_the_set_is_found() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
