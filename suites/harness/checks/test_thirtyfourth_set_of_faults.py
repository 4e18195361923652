"""The thirty-fourth set of wrong functions: what finds each fault today, and that the right twin passes it.

The set is in suites/data/faults/thirtyfourth_set, in parts by two authors. The README next to it says how many were
found at the first run.
"""

from __future__ import annotations

import pytest
from fault_sets import assert_found, pairs_of

PARTS = (1, 2)
PAIRS = {
    f"{part} {name}": pair for part in PARTS for name, pair in pairs_of(f"thirtyfourth_set/part_{part}.py").items()
}

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "1 absmax_codes": ("units", "cpu", "float32"),
    "1 bits_in_spans": ("combined", "cpu", "uint8"),
    "1 coo_column_norms": ("zeros", "cpu", "float32"),
    "1 e5m2_rounded": ("sizes", "cpu", ""),
    "1 erode_square": ("stress", "cpu", "float32"),
    "1 expand_lengths": ("combined", "cpu", "int32"),
    "1 fft_fir_causal": ("sizes", "cpu", ""),
    "1 merge_argsort": ("stress", "cpu", "int32"),
    "1 normed_laplacian": ("sizes", "cpu", ""),
    "1 nulls_last_order": ("stress", "cpu", "float32"),
    # 1 running_argmax: 4/5 [(('stress', 'float64'), 4), (('stress', 'float32'), 4), (('stress', 'float16'), 4)]
    "1 running_argmax": ("stress", "cpu", "float32"),
    "1 trimmed_lengths": ("stress", "cpu", "uint8"),
    "2 channel_shuffle": ("sizes", "cpu", ""),
    "2 choose": ("stress", "cpu", "int32"),
    "2 factored_update": ("zeros", "cpu", "float16"),
    "2 geometric_from_uniform": ("stress", "cpu", "float32"),
    "2 hermitian_from_lower": ("values", "cpu", "complex128"),
    "2 inside_polygon": ("combined", "cpu", "float32"),
    "2 interpolate_gaps": ("values", "cpu", "float64"),
    "2 mean_iou": ("sizes", "cpu", ""),
    "2 project_to_simplex": ("zeros", "cpu", "float16"),
    "2 ray_sphere": ("zeros", "cpu", "float32"),
    "2 rprop_step": ("units", "cpu", "float32"),
    "2 spherical_j1": ("units", "cpu", "float64"),
}


def test_every_fault_of_the_set_is_listed() -> None:
    assert PAIRS.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    assert_found(PAIRS[name], *FOUND[name])
