"""The eighteenth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/eighteenth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of, run_check

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"eighteenth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 calendar_date": ("combined", "cpu", "int64"),
    "1 causal_softmax": ("sizes", "cpu", ""),
    "1 circular_blur": ("combined", "cpu", "float32"),
    "1 dense_rank": ("halves", "cpu", "float32"),
    "1 draw_category": ("zeros", "cpu", "float64"),
    "1 histogram_counts": ("units", "cpu", "float32"),
    "1 hue_sector": ("combined", "cpu", "float32"),
    "1 latest_price": ("stress", "cpu", "float32"),
    "1 product_of_others": ("zeros", "cpu", "float32"),
    "1 rank_of_pairs": ("stress", "cpu", "int32"),
    "1 repetition_penalties": ("combined", "cpu", "float32"),
    "1 rolling_mean": ("infinities", "cpu", "float32"),
    "2 angular_distance": ("units", "cpu", "float64"),
    "2 average_pool": ("second_call", "cpu", ""),
    "2 dithered_round": ("layouts", "cpu", "float32"),
    "2 hann_taper": ("second_call", "cpu", ""),
    "2 prefix_sum": ("combined", "cpu", "float32"),
    "2 quaternion_multiply": ("sizes", "cpu", ""),
    "2 radix_argsort": ("stress", "cpu", "float32"),
    "2 scaled_sgd_step": ("units", "cpu", "float16"),
    "2 stacked_matmul": ("combined", "cpu", "float32"),
    "2 tile_histogram": ("combined", "cpu", "int32"),
    "2 unfold_windows": ("second_call", "cpu", ""),
}

#: What shows those that no check finds.
MISSED = {"2 rotary_embedding": "out= that is the input, of a function that does not work element by element"}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])


def test_a_function_that_rounds_on_purpose_is_not_said_to_compute_in_float32() -> None:
    """Sixteenths are float32 numbers, those of the reference as well."""
    _, right, declare = PAIRS["2 dithered_round"].make()
    run_check("full_precision", "cpu", "", declare(right))
