"""The thirty-sixth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtysixth_set, in parts by three authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2, 3)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtysixth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 apply_pivots_": ("stress", "cpu", "float64"),
    "1 best_and_runner_up": ("stress", "cpu", "float32"),
    "1 bit_field": ("second_call", "cpu", ""),
    "1 block_diagonal": ("lists", "cpu", ""),
    "1 clip_between": ("stress", "cpu", "float32"),
    "1 covariance_weighted": ("second_call", "cpu", ""),
    "1 fold_scores": ("infinities", "cpu", "float32"),
    "1 grid_of_axes": ("second_call", "cpu", ""),
    "1 least_multiple": ("stress", "cpu", "int32"),
    "1 peak_to_peak": ("out", "cpu", "float32"),
    "1 rebase_": ("sizes", "cpu", ""),
    "1 ring_append_": ("sizes", "cpu", ""),
    "2 amplitude_spectrum": ("second_call", "cpu", ""),
    "2 coo_filled_cells": ("sizes", "cpu", ""),
    "2 insertion_places": ("stress", "cpu", "float16"),
    "2 multilabel_margin": ("values", "cpu", "float32"),
    "2 philox_bits": ("stress", "cpu", "int64"),
    "2 rank_share": ("combined", "cpu", "float32"),
    "2 ring_interp": ("units", "cpu", "float32"),
    "2 scatter_mean": ("zeros", "cpu", "float32"),
    "2 segments_meet": ("stress", "cpu", "int32"),
    "2 signal_present": ("units", "cpu", "float32"),
    "2 stacked_rank": ("sizes", "cpu", ""),
    "2 strided_same_conv": ("sizes", "cpu", ""),
    "3 elliptic_k": ("values", "cpu", "float64"),
    "3 floored_remainder": ("infinities", "cpu", "float32"),
    "3 gain_in_decibels": ("broadcast_views", "cpu", ""),
    "3 heading_angle": ("zeros", "cpu", "float32"),
    "3 integer_ramp": ("stress", "cpu", "int16"),
    "3 kendall_tau": ("stress", "cpu", "float32"),
    "3 r_squared": ("zeros", "cpu", "float32"),
    "3 running_xor": ("sizes", "cpu", ""),
    "3 sinc_slope": ("values", "cpu", "float64"),
    "3 soft_shrink": ("stress", "cpu", "float32"),
    "3 swept_sine": ("values", "cpu", "float32"),
}


#: Its reference is wrong where it is, in the dtype of the inputs.
NOT_FOUND = {"3 projection_weight"}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys() | NOT_FOUND


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
