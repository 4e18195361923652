"""The twentieth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentieth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentieth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 adler_digest": ("stress", "cpu", "uint8"),
    "1 allocate_lots": ("second_call", "cpu", ""),
    "1 amplitude_at_bins": ("zeros", "cpu", "float32"),
    "1 codebook_assign": ("threads", "cpu", ""),
    "1 cumulative_energy": ("layouts", "cpu", "float32"),
    "1 ecdf_gap": ("zeros", "cpu", "float32"),
    "1 householder_vector": ("zeros", "cpu", "float32"),
    "1 ordered_dither": ("layouts", "cpu", "uint8"),
    "1 pair_group_ids": ("stress", "cpu", "int32"),
    "1 permutation_parity": ("errors", "cpu", "int32"),
    "1 segment_distance": ("units", "cpu", "float32"),
    "2 block_sums": ("second_call", "cpu", ""),
    "2 calibrate_channels": ("combined", "cpu", "float32"),
    "2 centre_of_mass": ("zeros", "cpu", "float32"),
    "2 harmonic_mean": ("second_call", "cpu", ""),
    "2 integer_root": ("stress", "cpu", "int64"),
    "2 leaderboard": ("zeros", "cpu", "float32"),
    "2 max_drawdown": ("sizes", "cpu", ""),
    "2 pack_valid": ("zeros", "cpu", "float32"),
    "2 polygon_area": ("stress", "cpu", "int32"),
    "2 pre_emphasis": ("inputs_unchanged", "cpu", "float64"),
    "2 quadratic_forms": ("sizes", "cpu", ""),
    "2 walsh_hadamard": ("aliasing", "cpu", ""),
}

#: What shows those that no check finds.
MISSED = {
    "1 component_labels": "a path of hundreds of vertices: edges are drawn at random, and join within a few rounds"
}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
