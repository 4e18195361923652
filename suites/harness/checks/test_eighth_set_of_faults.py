"""The eighth set of wrong functions: what finds each fault, and that the right twin passes it.

The set is in suites/data/faults/eighth_set.py. Of its 60 faults 49 were found at the first run.
"""

from __future__ import annotations

import numpy as np
import pytest
from fault_sets import pairs_of, run_check

from cuassay.errors import RaceError
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.execution import explained

PAIRS = pairs_of("eighth_set.py")

#: The check that names each fault, the device and the dtype; no dtype for a check that runs once for a function.
FOUND = {
    "mse_unsigned": ("values", "cpu", "uint8"),
    "gelu_constant": ("wider_result", "cpu", "float32"),
    "count_uint8": ("sizes", "cpu", ""),
    "mean_int32": ("stress", "cpu", "int32"),
    "midpoint_int": ("stress", "cpu", "int8"),
    "gamma_wraps": ("values", "cpu", "uint8"),
    "softplus_threshold": ("units", "cpu", "float32"),
    "hypot_naive": ("full_range", "cpu", "float32"),
    "variance_moments": ("stress", "cpu", "float32"),
    "geometric_mean": ("sizes", "cpu", ""),
    "clamp_nan": ("stress", "cpu", "float16"),
    "argmax_nan": ("stress", "cpu", "float32"),
    "entropy_zero": ("zeros", "cpu", "float32"),
    "unit_vector_zero": ("zeros", "cpu", "float32"),
    "quantize_half": ("halves", "cpu", "float32"),
    "isclose_infinite": ("infinities", "cpu", "float32"),
    "moving_average": ("units", "cpu", "float32"),
    "windows_of_flipped": ("layouts", "cpu", "float32"),
    "argmax_memory_order": ("layouts", "cpu", "float32"),
    "rows_of_fortran": ("second_call", "cpu", ""),
    "as_float32_shares": ("aliasing", "cpu", ""),
    "pad_to_four_shares": ("aliasing", "cpu", ""),
    "result_in_workspace": ("aliasing", "cpu", ""),
    "median_sorts_input": ("inputs_unchanged", "cpu", "float32"),
    "nan_replaced_in_input": ("stress", "cpu", "float32"),
    "input_restored": ("inputs_unchanged", "cpu", "float32"),
    "scale_in_place_copies": ("layouts", "cpu", "float32"),
    "side_stream_unordered": ("side_stream", "sim", "float32"),
    "side_stream_early": ("side_stream", "sim", "float32"),
    "scratch_of_all_streams": ("side_stream", "sim", "float32"),
    "host_waits": ("waits", "sim", "float32"),
    "weights_by_identity": ("captured", "sim", ""),
    "window_cache_dtype": ("second_call", "cpu", ""),
    "rotary_cache_base": ("second_call", "cpu", ""),
    "mask_cache_extent": ("sizes", "cpu", ""),
    "kept_window_scaled": ("deterministic", "cpu", "float32"),
    "errors_silenced": ("state", "cpu", ""),
    "running_mean": ("units", "cpu", "float32"),
    "global_seed": ("state", "cpu", ""),
    "noise_not_seeded": ("deterministic", "cpu", "float32"),
    "flag_after_error": ("errors", "cpu", "float32"),
    "lengths_not_checked": ("errors", "cpu", "float32"),
    "block_tail": ("sizes", "cpu", ""),
    "grid_of_rows": ("layouts", "cpu", "float32"),
    "half_positions": ("sizes", "cpu", ""),
    "ranks_int16": ("sizes", "cpu", ""),
    "max_pads_zero": ("units", "cpu", "float32"),
    "negative_axis": ("second_call", "cpu", ""),
    "scatter_duplicates": ("values", "cpu", "float32"),
    "histogram_last_edge": ("zeros", "cpu", "float32"),
    "flat_index_uint8": ("sizes", "cpu", ""),
    "bias_by_extent": ("sizes", "cpu", ""),
    "slope_or_default": ("second_call", "cpu", ""),
    "count_of_first_axis": ("values", "cpu", "float32"),
    "row_without_keys": ("zeros", "cpu", "float32"),
    "irfft_odd": ("sizes", "cpu", ""),
}

#: What no check finds, and why.
MISSED = {
    "logsumexp_empty_row": "many right functions subtract a maximum, and give NaN where all numbers are minus infinity",
    "norm_p": "the reference overflows in float32 as well, which excuses the function",
    "rms_half": "the reference overflows in float16 as well, which excuses the function",
    "table_of_first_device": "the table is NumPy's where cpu comes first, and sim takes its numbers",
}

#: Twins that the check of their fault refuses rightly, and why.
REFUSED = {
    "negative_axis": "it takes axis 2 of two for axis 1",
    "side_stream_early": "it drops an array of the side stream that another stream still reads",
    "side_stream_unordered": "it drops an array of the side stream that another stream still reads",
}


def test_every_fault_of_the_set_is_found_or_named() -> None:
    assert PAIRS.keys() == FOUND.keys() | MISSED.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_check_finds_the_fault_and_passes_its_twin(name: str) -> None:
    wrong, right, declare = PAIRS[name].make()

    if name not in REFUSED:
        run_check(*FOUND[name], declare(right))
    with pytest.raises((AssertionError, RaceError, ValueError)):
        run_check(*FOUND[name], declare(wrong))


@pytest.mark.parametrize("name", REFUSED)
def test_the_check_of_the_fault_refuses_a_twin_that_is_wrong_too(name: str) -> None:
    _, right, declare = PAIRS[name].make()

    with pytest.raises((AssertionError, RaceError)):
        run_check(*FOUND[name], declare(right))


def test_a_failure_does_not_become_a_skip_where_the_call_that_words_it_is_refused() -> None:
    raised: BaseException | None = None
    try:
        with explained("after another call", lambda: pytest.skip("refused")):
            np.testing.assert_equal(1, 2, "wrong")
    except (AssertionError, pytest.skip.Exception) as error:
        raised = error

    assert isinstance(raised, AssertionError)
    assert str(raised).startswith("after another call\n")


def test_a_function_that_works_in_place_and_says_so_is_not_refused() -> None:
    _, right, declare = PAIRS["scale_in_place_copies"].make()
    spec = declare(right)

    CHECKS["sizes"](spec, "cpu:0")
    assert not CHECKS["broadcast_views"].applies(spec)
