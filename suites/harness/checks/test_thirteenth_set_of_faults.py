"""The thirteenth set of wrong functions: what finds each fault, and that the right twin passes it.

The set is in suites/data/faults/thirteenth_set. The README next to it says how many were found at the first run; checks
were extended for the classes of the others.
"""

from __future__ import annotations

import pytest
from fault_sets import pairs_of, run_check

from cuassay.errors import RaceError

PAIRS = pairs_of("thirteenth_set/part_1.py")

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "add_months": ("stress", "cpu", "int32"),
    "akima_slopes": ("stress", "cpu", "float32"),
    "categorical_from_uniform": ("zeros", "cpu", "float32"),
    "complex_expm1": ("units", "cpu", "complex128"),
    "dct": ("second_call", "cpu", ""),
    "encoder_unwrap": ("sizes", "cpu", ""),
    "fake_quantize": ("sizes", "cpu", ""),
    "fourier_resample": ("second_call", "cpu", ""),
    "image_correlation": ("layouts", "cpu", "float32"),
    "iso_week": ("stress", "cpu", "int32"),
    "merge_moments": ("sizes", "cpu", ""),
    "random_integers": ("sizes", "cpu", ""),
    "remove_trend": ("inputs_unchanged", "cpu", "float64"),
    "smoothed_cross_entropy": ("stress", "cpu", "float32"),
    "so3_exp_map": ("units", "cpu", "float64"),
    "standard_error": ("second_call", "cpu", ""),
    "weighted_logsumexp": ("infinities", "cpu", "float32"),
    "weighted_mean": ("errors", "cpu", "float32"),
    "weighted_quantile": ("zeros", "cpu", "float32"),
}

#: What shows those that no check finds.
MISSED = {
    "longitude_in_range": "two options a whole period apart: no check knows which pairs of options mean something",
}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    _, right, declare = PAIRS[name].make()
    run_check(*FOUND[name], declare(right))

    wrong, _, declare = PAIRS[name].make()  # made again: what the wrong one keeps must not reach its twin
    with pytest.raises((AssertionError, RaceError)):
        run_check(*FOUND[name], declare(wrong))
