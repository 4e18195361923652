"""The tenth set of wrong functions: what finds each fault, and that the right twin passes it.

The set is in suites/data/faults/tenth_set.py. Of its 60 faults 49 were found at the first run; the checks were extended
for the classes of nine others.
"""

from __future__ import annotations

import random

import pytest
from fault_sets import pairs_of, run_check

from cuassay.errors import RaceError

PAIRS = pairs_of("tenth_set.py")

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "prefix_sum": ("sizes", "cpu", ""),
    "first_peak": ("zeros", "cpu", "float32"),
    "one_sided_power": ("combined", "cpu", "float32"),
    "rms": ("values", "cpu", "complex64"),
    "annuity_payment": ("zeros", "cpu", "float32"),
    "slerp": ("combined", "cpu", "float32"),
    "nearest_image": ("units", "cpu", "float32"),
    "upper": ("stress", "cpu", "uint8"),
    "group_mean": ("zeros", "cpu", "float32"),
    "csr_row_sums": ("zeros", "cpu", "float32"),
    "pagerank_step": ("stress", "cpu", "float64"),
    "weight_rows": ("sizes", "cpu", ""),
    "row_norms": ("sizes", "cpu", ""),
    "max_over_axes": ("second_call", "cpu", ""),
    "cumulative_trapezoid": ("second_call", "cpu", ""),
    "share_of_total": ("second_call", "cpu", ""),
    "weighted_variance": ("second_call", "cpu", ""),
    "scan": ("second_call", "cpu", ""),
    "causal_weights": ("sizes", "cpu", ""),
    "descending_order": ("zeros", "cpu", "float32"),
    "column_totals": ("second_call", "cpu", ""),
    "total": ("deterministic", "cpu", "float32"),
    "squared_error": ("errors", "cpu", "float32"),
    "iq_to_complex": ("layouts", "cpu", "float32"),
    "slope": ("values", "cpu", "uint16"),
    "blend": ("values", "cpu", "uint8"),
    "half_mean": ("units", "cpu", "float16"),
    "weekday": ("values", "cpu", "int32"),
    "row_median": ("combined", "cpu", "float32"),
    "run_lengths": ("sizes", "cpu", ""),
    "squash": ("zero_size", "cpu", "float16"),
    "upsample": ("aliasing", "cpu", ""),
    "remove_mean": ("inputs_unchanged", "cpu", "float64"),
    "divide_rounded": ("values", "cpu", "int32"),
    "chain_product": ("inputs_unchanged", "cpu", "float32"),
    "soft_sign": ("inputs_unchanged", "sim", "float32"),
    "smooth_abs": ("aliasing", "cpu", ""),
    "add_scaled_": ("layouts", "cpu", "float32"),
    "smooth": ("second_call", "cpu", ""),
    "taper": ("side_stream", "sim", "float32"),
    "ahead_sum": ("sizes", "cpu", ""),
    "dither": ("state", "cpu", ""),
    "join": ("mixed_lists", "cpu", ""),
    "dropout": ("second_call", "cpu", ""),
    "inner": ("layouts", "cpu", "float32"),
    "rotate_positions": ("sizes", "cpu", ""),
    "days_in_month": ("stress", "cpu", "int32"),
    "reflect_pad": ("second_call", "cpu", ""),
    "to_unit_range": ("threads", "cpu", ""),
    "shift_right_": ("sizes", "cpu", ""),
    "adler32": ("sizes", "cpu", ""),
    "quantize": ("units", "cpu", "float32"),
    "round_to_step": ("halves", "cpu", "float32"),
    "counts_in_bins": ("zeros", "cpu", "float32"),
    "product_gradient": ("zeros", "cpu", "float32"),
    "best_allowed": ("zeros", "cpu", "float32"),
    "moving_variance": ("stress", "cpu", "float32"),
}

#: What no check finds here, or not in each run, and why.
MISSED = {
    "average_pool": "NumPy warns of the mean of nothing, which is an error in this project: the call counts as refused",
    "unit_peak": "found in most runs: whether an id is used again depends on what else is in memory",
    "resize_nearest": "one of 129 lengths shows it for the size of each sample",
}


@pytest.fixture(autouse=True)
def _same_orders() -> None:
    """`total` adds in orders drawn again in each call; one time in a hundred all that it draws give the same bits."""
    random.seed(2026)


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    _, right, declare = PAIRS[name].make()
    run_check(*FOUND[name], declare(right))

    wrong, _, declare = PAIRS[name].make()  # made again: what the wrong one keeps must not reach its twin
    with pytest.raises(ValueError if name == "iq_to_complex" else (AssertionError, RaceError)):
        run_check(*FOUND[name], declare(wrong))
