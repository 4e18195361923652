"""The twenty-second set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentysecond_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentysecond_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 ctc_collapse": ("second_call", "cpu", ""),
    "1 dilate": ("second_call", "cpu", ""),
    "1 directed_hausdorff": ("stress", "cpu", "float64"),
    "1 edit_distance_within": ("values", "cpu", "int64"),
    "1 factorize": ("stress", "cpu", "int64"),
    "1 fisher_z": ("units", "cpu", "float64"),
    "1 kaplan_meier": ("zeros", "cpu", "float32"),
    "1 order_missing": ("stress", "cpu", "float32"),
    "1 rank_equalise": ("layouts", "cpu", "float32"),
    "1 shortest_paths": ("combined", "cpu", "float32"),
    "1 trimmed_mean": ("sizes", "cpu", ""),
    "2 busy_minutes": ("second_call", "cpu", ""),
    "2 cloglog_loss": ("units", "cpu", "float32"),
    "2 cyclic_solve": ("combined", "cpu", "float32"),
    "2 days_30_360": ("stress", "cpu", "int32"),
    "2 delta_encode": ("layouts", "cpu", "int32"),
    "2 digit_count": ("stress", "cpu", "int64"),
    "2 hamming_distance": ("stress", "cpu", "uint8"),
    "2 interest_payment": ("combined", "cpu", "float32"),
    "2 lars_step": ("zeros", "cpu", "float32"),
    "2 mel_energies": ("second_call", "cpu", ""),
    "2 radical_inverse": ("stress", "cpu", "int32"),
    "2 wealth_index": ("sizes", "cpu", ""),
}

#: What shows those that no check finds.
MISSED = {
    "1 coo_reshape": "a shape of more than 2^31 elements, in an option: 70,000 rows by 70,000 columns",
}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
