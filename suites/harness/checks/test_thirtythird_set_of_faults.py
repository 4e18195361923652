"""The thirty-third set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtythird_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtythird_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 account_balances": ("stress", "cpu", "int64"),
    "1 cardinal_sine": ("zeros", "cpu", "float16"),
    "1 cooccurrence": ("stress", "cpu", "uint8"),
    "1 crest_factor": ("zero_size", "cpu", "float32"),
    "1 dice_loss": ("zeros", "cpu", "float16"),
    "1 distinct_values": ("stress", "cpu", "float32"),
    "1 image_distance": ("infinities", "cpu", "float32"),
    "1 langevin": ("units", "cpu", "float32"),
    "1 portfolio_value": ("infinities", "cpu", "float32"),
    "1 profit_factor": ("infinities", "cpu", "float32"),
    "1 treatment_effect": ("values", "cpu", "float32"),
    "1 vertical_wavenumber": ("units", "cpu", "complex64"),
    "2 adjacency_counts": ("stress", "cpu", "int32"),
    "2 chunk_peaks": ("second_call", "cpu", ""),
    "2 cyclic_shift": ("second_call", "cpu", ""),
    "2 final_state": ("values", "cpu", "float64"),
    "2 group_variance": ("second_call", "cpu", ""),
    "2 lp_pool": ("values", "cpu", "float32"),
    "2 norm_over_axes": ("second_call", "cpu", ""),
    "2 pad_stack": ("stress", "cpu", "float32"),
    "2 rolling_total": ("stress", "cpu", "float32"),
    "2 sine_window": ("sizes", "cpu", ""),
    "2 subtract_first": ("out", "cpu", "float32"),
    "2 unfold_taps": ("second_call", "cpu", ""),
}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
