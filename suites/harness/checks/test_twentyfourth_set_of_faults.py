"""The twenty-fourth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/twentyfourth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"twentyfourth_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 bilinear_points": ("layouts", "cpu", "float32"),
    "1 keep_top": ("combined", "cpu", "float32"),
    "1 neighbour_sum": ("infinities", "cpu", "float32"),
    "1 nesterov_step": ("stress", "cpu", "float32"),
    "1 not_known": ("halves", "cpu", "float32"),
    "1 pair_rank": ("stress", "cpu", "int32"),
    "1 radix_order": ("stress", "cpu", "float32"),
    "1 reachable": ("stress", "cpu", "int32"),
    "1 rotary_dynamic": ("sizes", "cpu", ""),
    "1 streaming_attention": ("combined", "cpu", "float32"),
    "1 warm_restarts": ("stress", "cpu", "int32"),
    "1 wavetable": ("units", "cpu", "float32"),
    "2 frame_ranks": ("layouts", "cpu", "float32"),
    "2 gaussian_frames": ("second_call", "cpu", ""),
    "2 haar_lift": ("layouts", "cpu", "float32"),
    "2 join_counts": ("sizes", "cpu", ""),
    "2 minimum_image": ("units", "cpu", "float32"),
    "2 mulaw_encode": ("stress", "cpu", "int16"),
    "2 pulse_bins": ("units", "cpu", "float32"),
    "2 quadrature": ("sizes", "cpu", ""),
    "2 rolling_energy": ("aliasing", "cpu", ""),
    "2 theil_sen": ("halves", "cpu", "float32"),
    "2 tukey_loss": ("units", "cpu", "float32"),
    "2 varint_sizes": ("stress", "cpu", "int64"),
}


def test_every_fault_of_the_set_is_found() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
