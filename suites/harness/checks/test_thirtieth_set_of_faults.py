"""The thirtieth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtieth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtieth_set/part_{part}.py").items()}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 block_difference": ("second_call", "cpu", ""),
    "1 channel_affine": ("sizes", "cpu", ""),
    "1 complex_root": ("units", "cpu", "complex64"),
    "1 pairwise_distance": ("stress", "cpu", "float64"),
    "1 scaled_bessel": ("units", "cpu", "float32"),
    "1 shift_columns": ("stress", "cpu", "int64"),
    "1 skewness": ("zeros", "cpu", "float64"),
    "1 tiled_argmin": ("stress", "cpu", "float32"),
    "1 tukey_taper": ("second_call", "cpu", ""),
    "1 unit_slices": ("second_call", "cpu", ""),
    "1 wrap_pad": ("sizes", "cpu", ""),
    "2 batched_pick": ("combined", "cpu", "float32"),
    "2 block_span": ("second_call", "cpu", ""),
    "2 bray_curtis_matrix": ("sizes", "cpu", ""),
    "2 chunked_covariance": ("second_call", "cpu", ""),
    "2 cosine_transform": ("second_call", "cpu", ""),
    "2 image_sampling": ("zeros", "cpu", "float32"),
    "2 q15_product": ("stress", "cpu", "int16"),
    "2 sgd_update": ("second_call", "cpu", ""),
    "2 softplus_beta": ("units", "cpu", "float32"),
    "2 table_lookup": ("combined", "cpu", "int32"),
    "2 version_roots": ("combined", "cpu", "int64"),
    "2 zero_point_matmul": ("second_call", "cpu", ""),
}


#: An infinite entry of a table, which the wrong function multiplies by a weight of zero.
NOT_FOUND = {"1 table_lookup"}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys() | NOT_FOUND


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
