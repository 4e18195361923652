"""The nineteenth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/nineteenth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"nineteenth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 blockwise_quantize": ("layouts", "cpu", "float32"),
    "1 cosine_similarity": ("units", "cpu", "float32"),
    "1 ewm_mean": ("stress", "cpu", "float32"),
    "1 fixed_histogram": ("units", "cpu", "float32"),
    "1 kaiser_taper": ("second_call", "cpu", ""),
    "1 mirror_smooth": ("combined", "cpu", "float32"),
    "1 nearest_resize": ("second_call", "cpu", ""),
    "1 overlap_add_filter": ("combined", "cpu", "float32"),
    "1 rotary_embedding": ("sizes", "cpu", ""),
    "1 time_of_day": ("combined", "cpu", "int64"),
    "1 weighted_average": ("combined", "cpu", "float32"),
    "2 adaptive_mean_pool": ("combined", "cpu", "float32"),
    "2 causal_conv": ("combined", "cpu", "float32"),
    "2 cautious_update": ("units", "cpu", "float32"),
    "2 draw_token": ("combined", "cpu", "float32"),
    "2 ell_row_max": ("combined", "cpu", "float32"),
    "2 fourier_resample": ("combined", "cpu", "float32"),
    "2 gated_scan": ("combined", "cpu", "float32"),
    "2 group_limited_experts": ("combined", "cpu", "float32"),
    "2 kv_offset": ("second_call", "cpu", ""),
    "2 mx_exponent": ("combined", "cpu", "float32"),
    "2 periodic_cell": ("units", "cpu", "float32"),
    "2 time_bucket": ("combined", "cpu", "int64"),
}

#: What shows those that no check finds.
MISSED = {"1 mid_side": "out= that is the input, of a function that does not work element by element"}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
