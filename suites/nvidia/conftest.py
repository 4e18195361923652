"""What tests of this folder ask for: a CUDA device or cuBLASLt, or a skip with the reason; a tuner of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cuassay import devices


@pytest.fixture
def on_cuda() -> None:
    """There is a CUDA device; else the test is skipped with the reason."""
    reason = devices.backend("cuda").why_absent()
    if reason is not None:
        pytest.skip(f"no CUDA device: {reason}")


@pytest.fixture
def cublaslt(on_cuda: None) -> None:
    """The first CUDA device computes products by cuBLASLt; else the test is skipped with the reason."""
    reason = devices.capabilities("cuda:0").missing("cublaslt")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def own_tuner(on_cuda: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the settings say: disabled, with short searches, files and providers of the test's own."""
    from cuassay.devices.cuda.blas import controls, plans, providers, tuning

    monkeypatch.setenv("CUASSAY_TUNABLEOP_FILENAME", str(tmp_path / "results.jsonl"))
    monkeypatch.setenv("CUASSAY_TUNABLEOP_UNTUNED_FILENAME", str(tmp_path / "untuned.jsonl"))
    monkeypatch.setenv("CUASSAY_TUNABLEOP_MAX_TUNING_DURATION_MS", "60")
    monkeypatch.setattr(providers, "_providers", dict(providers._all()))
    tuning.tuner.cache_clear()
    yield
    tuning.tuner.cache_clear()
    plans.set_selector(None)
    controls.preferred_blas_library("default")
