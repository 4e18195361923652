"""The twenty-eighth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentyeighth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentyeighth_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 box_blur": ("out", "cpu", "float32"),
    "1 dense_rank": ("stress", "cpu", "float16"),
    "1 drawdown": ("sizes", "cpu", ""),
    "1 edit_cost": ("sizes", "cpu", ""),
    "1 fletcher16": ("second_call", "cpu", ""),
    "1 hold_resample": ("second_call", "cpu", ""),
    "1 label_regions": ("zeros", "cpu", "float32"),
    "1 ragged_sums": ("stress", "cpu", "float32"),
    "1 smooth_derivative": ("second_call", "cpu", ""),
    "1 smooth_with_gaps": ("stress", "cpu", "float32"),
    "1 suppress_boxes": ("zeros", "cpu", "float32"),
    "1 zigzag_deltas": ("stress", "cpu", "int64"),
    "2 adler32": ("bench", "cpu", ""),
    "2 blockwise_affine": ("units", "cpu", "float32"),
    "2 debounce": ("sizes", "cpu", ""),
    "2 dynamic_rotary": ("combined", "cpu", "float32"),
    "2 ewm_mean": ("second_call", "cpu", ""),
    "2 jpeg_colours": ("combined", "cpu", "uint8"),
    "2 kaplan_meier": ("zeros", "cpu", "float32"),
    "2 keep_largest": ("broadcast_views", "cpu", ""),
    "2 log_density": ("zeros", "cpu", "float16"),
    "2 mel_energies": ("sizes", "cpu", ""),
    "2 merge_pair": ("sizes", "cpu", ""),
    "2 price_bars": ("combined", "cpu", "float32"),
}


def test_every_fault_of_the_set_is_found() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
