"""The thirty-eighth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtyeighth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtyeighth_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 binary_entropy": ("errors", "cpu", "float32"),
    "1 bound_complex": ("values", "cpu", "float32"),
    "1 count_words": ("stress", "cpu", "uint8"),
    "1 dew_point": ("broadcast_views", "cpu", ""),
    "1 diagonal_scan": ("values", "cpu", "float32"),
    "1 histogram_curve": ("second_call", "cpu", ""),
    "1 modular_power": ("stress", "cpu", "int64"),
    "1 most_sessions": ("zeros", "cpu", "float32"),
    "1 pack_triangle": ("second_call", "cpu", ""),
    "1 recent_average": ("sizes", "cpu", ""),
    "1 smoothing_residual": ("values", "cpu", "float64"),
    "2 american_put": ("values", "cpu", "float32"),
    "2 block_repeated_ngrams": ("sizes", "cpu", ""),
    "2 canonical_kmers": ("values", "cpu", "int32"),
    "2 continuous_quaternions": ("values", "cpu", "float32"),
    "2 cuped_adjusted": ("zeros", "cpu", "float32"),
    "2 daughter_amount": ("zeros", "cpu", "float32"),
    "2 drop_frame_count": ("stress", "cpu", "int32"),
    "2 energy_life_step": ("values", "cpu", "int32"),
    "2 feedback_echo": ("errors", "cpu", "float32"),
    "2 ideal_low_pass": ("sizes", "cpu", ""),
    "2 marginal_relevance": ("zeros", "cpu", "float32"),
    "2 tile_number": ("zeros", "cpu", "float32"),
}

#: It needs a zero in one array and an infinity at the same place of another.
NOT_FOUND = {"1 interval_product"}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys() | NOT_FOUND


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
