"""`cuassay.cuda.matmul` by torch's names: it needs no device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from cuassay import cuda, current_precision, precision, set_default_precision
from cuassay.core.precision import MatmulOptions, matmul_options, set_matmul_options
from cuassay.errors import ArgumentError


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    mode = current_precision()
    yield
    set_default_precision(mode)
    set_matmul_options(**asdict(MatmulOptions()))


def test_tf32_is_a_mode_of_the_process() -> None:
    assert not cuda.matmul.allow_tf32

    cuda.matmul.allow_tf32 = True

    assert (cuda.matmul.fp32_precision, current_precision()) == ("tf32", "tf32")
    cuda.matmul.allow_tf32 = False
    assert current_precision() == "ieee"


def test_the_switch_is_not_what_a_context_says() -> None:
    with precision("tf32"):
        assert not cuda.matmul.allow_tf32


@pytest.mark.parametrize("mode", ["ieee", "tf32", "bf16x9"])
def test_the_precision_is_set_by_name(mode: str) -> None:
    cuda.matmul.fp32_precision = mode  # type: ignore[assignment] # any str goes in, a mode comes out

    assert current_precision() == mode
    cuda.matmul.fp32_precision = "none"  # type: ignore[assignment]
    assert current_precision() == "ieee"


def test_asking_for_the_precision_sets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.matmul.fp32_precision = "tf32"  # another thread's product must find it, whoever asks
    monkeypatch.delattr("cuassay.core.precision.set_default_precision")

    assert cuda.matmul.fp32_precision == "tf32"


def test_another_precision_lists_the_modes() -> None:
    with pytest.raises(
        ArgumentError, match="'fp8' is not a precision of float32 products; give none or one of ieee, tf32"
    ):
        cuda.matmul.fp32_precision = "fp8"  # type: ignore[assignment]


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("allowed", "reduced", "split"), [(True, True, True), (False, False, True), ((False, False), False, False)]
)
def test_a_reduction_is_allowed_alone_or_with_split_k(dtype: str, allowed: Any, reduced: bool, split: bool) -> None:
    name = f"allow_{dtype}_reduced_precision_reduction"

    setattr(cuda.matmul, name, allowed)

    assert (getattr(cuda.matmul, name), getattr(cuda.matmul, f"{name}_split_k")) == (reduced, split)


def test_a_reduced_reduction_without_split_k_is_refused_as_torch_does() -> None:
    with pytest.raises(ArgumentError, match="allow_splitk=False is not supported when reduced precision reductions"):
        cuda.matmul.allow_fp16_reduced_precision_reduction = (True, False)
    assert matmul_options() == MatmulOptions()


def test_float16_accumulation_is_an_option() -> None:
    cuda.matmul.allow_fp16_accumulation = True

    assert matmul_options().fp16_accumulation
    assert "fp16_accumulation=True" in repr(cuda.matmul)


def test_tf32_is_allowed_by_a_bool() -> None:
    with pytest.raises(
        ArgumentError, match="allow_tf32 must be True or False; got 'tf32'; for a mode by name set fp32_pr"
    ):
        cuda.matmul.allow_tf32 = "tf32"  # type: ignore[assignment]
