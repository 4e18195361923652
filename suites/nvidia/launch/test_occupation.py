"""What a measurement gives to the device: the eviction of its level-2 cache."""

from __future__ import annotations

from typing import Any

import pytest

from cuassay import devices

pytestmark = pytest.mark.usefixtures("on_cuda")

driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")


def test_a_flush_resets_persisting_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[Any] = []
    reset = driver.cuCtxResetPersistingL2Cache

    def told() -> Any:
        statuses.append(reset())
        return statuses[-1]

    monkeypatch.setattr(driver, "cuCtxResetPersistingL2Cache", told)

    devices.backend("cuda").flush_cache(0)

    assert len(statuses) == 1
    assert statuses[0][0] in (driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_NOT_SUPPORTED)
