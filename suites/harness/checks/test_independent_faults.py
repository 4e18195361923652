"""Sixty wrong functions by an author who had not seen the checks: one check names each, and lets its right twin pass.

The functions are in suites/data/faults; its README says how they came about.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cuassay import devices
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS

FAULTS = Path(__file__).parents[2] / "data" / "faults"

#: Name of the fault: the check that finds it, the device, and for a check of each dtype the dtype.
FOUND: dict[str, tuple[str, ...]] = {
    "layer_norm_tail": ("values", "cpu", "float32"),
    "logsumexp_plus_infinity": ("infinities", "cpu", "float32"),
    "argmax_block_ties": ("stress", "cpu", "float32"),
    "count_nonzero_square": ("values", "cpu", "float16"),
    "pnorm_zero_order": ("zeros", "cpu", "float32"),
    "nanmean_half_total": ("units", "cpu", "float16"),
    "cumsum_carry": ("sizes", "cpu"),
    "segment_sum_difference": ("units", "cpu", "float32"),
    "softplus_threshold": ("stress", "cpu", "float32"),
    "kl_epsilon": ("units", "cpu", "float32"),
    "causal_mask_with_cache": ("values", "cpu", "float32"),
    "rope_half_angles": ("sizes", "cpu"),
    "online_softmax_rescale": ("sizes", "cpu"),
    "alibi_slopes": ("values", "cpu", "float32"),
    "inverse_cdf_zero": ("zeros", "cpu", "float64"),
    "resize_edge": ("values", "cpu", "float32"),
    "fft_filter_wraps": ("sizes", "cpu"),
    "histogram_constant": ("zeros", "cpu", "float64"),
    "ifftshift_odd": ("sizes", "cpu"),
    "topk_negated": ("stress", "cpu", "float32"),
    "argsort_descending_ties": ("zeros", "cpu", "float16"),
    "bitonic_padding": ("infinities", "cpu", "float32"),
    "embedding_one_hot": ("infinities", "cpu", "float32"),
    "clip_swallows_nan": ("stress", "cpu", "float16"),
    "roll_beyond_length": ("sizes", "cpu"),
    "flat_index_uint16": ("sizes", "cpu"),
    "adam_epsilon": ("units", "cpu", "float32"),
    "clip_grad_enlarges": ("units", "cpu", "float32"),
    "lion_sign_of_zero": ("zeros", "cpu", "float32"),
    "ema_decay_rounds": ("zeros", "cpu", "float16"),
    "quantize_half_up": ("halves", "cpu", "float32"),
    "fake_quantize_zero_row": ("zeros", "cpu", "float32"),
    "int8_accumulator": ("sizes", "cpu"),
    "householder_zero_first": ("zeros", "cpu", "float32"),
    "cdist_expanded": ("stress", "cpu", "float32"),
    "zscore_threshold": ("units", "cpu", "float32"),
    "rolling_sum_poisoned": ("units", "cpu", "float32"),
    "foreach_group_order": ("values", "cpu", "float32"),
    "mse_broadcast": ("values", "cpu", "float32"),
    "floor_divide_float": ("full_range", "cpu", "int64"),
    "nms_chain": ("stress", "cpu", "float64"),
    "unscale_by_sum": ("units", "cpu", "float16"),
    "stencil_halo_uninitialised": ("values", "sim", "float32"),
    "dropout_memory_order": ("second_call", "cpu"),
    "window_cache_dtype": ("second_call", "cpu"),
    "output_reused": ("aliasing", "cpu"),
    "mask_cache_window": ("second_call", "cpu"),
    "weight_cache_identity": ("captured", "sim"),
    "fork_without_join": ("aliasing", "sim"),
    "table_of_another_stream": ("side_stream", "sim", "float32"),
    "stream_of_first_call": ("side_stream", "sim", "float32"),
    "graph_output_kept": ("aliasing", "sim"),
    "graph_keeps_slope": ("second_call", "sim"),
    "pinned_read_early": ("aliasing", "sim"),
    "softmax_in_place_wide": ("inputs_unchanged", "cpu", "float32"),
    "copy_is_not_a_copy": ("aliasing", "cpu"),
    "tuned_after_ten_calls": ("layouts", "cpu", "float32"),
    "settings_shared_by_threads": ("threads", "cpu"),
    "stream_left_on_empty": ("zero_size", "sim", "float32"),
}

#: What is not found, with the reason.
NOT_FOUND = {
    "batch_norm_folded": "moving the float16 inputs by their last digits changes the result as much",
}


def spec_of(name: str, kind: str) -> OpSpec:
    """The declaration in the file of that name; what its function keeps is made again each time."""
    held = runpy.run_path(str(FAULTS / kind / f"{name}.py")).values()
    (found,) = (one for one in held if hasattr(one, "__cuassay_test_class__"))
    spec: OpSpec = found.spec
    return spec


@pytest.fixture(autouse=True)
def stream() -> Iterator[None]:
    """What a wrong function leaves current must not reach other tests."""
    sim = devices.backend("sim")
    before = sim.current_stream(0)
    yield
    sim.set_stream(before)


def run(spec: OpSpec, finder: str, device: str, *dtype: str) -> None:
    CHECKS[finder](spec, f"{device}:0", *map(np.dtype, dtype))


def test_every_fault_is_in_one_table() -> None:
    files = {path.stem for path in (FAULTS / "wrong").glob("*.py")}

    assert files == {path.stem for path in (FAULTS / "right").glob("*.py")} == {*FOUND, *NOT_FOUND}


@pytest.mark.parametrize(("name", "finder"), FOUND.items(), ids=FOUND)
def test_the_fault_is_found(name: str, finder: tuple[str, ...]) -> None:
    spec = spec_of(name, "wrong")

    with pytest.raises(Exception) as found:  # noqa: PT011  a race of sim has its own type
        run(spec, *finder)

    assert not isinstance(found.value, pytest.skip.Exception)


@pytest.mark.parametrize(("name", "finder"), FOUND.items(), ids=FOUND)
def test_its_right_twin_passes(name: str, finder: tuple[str, ...]) -> None:
    run(spec_of(name, "right"), *finder)
