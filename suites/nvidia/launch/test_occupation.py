"""What a measurement gives to the device: the eviction of its level-2 cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cuassay import devices

pytestmark = pytest.mark.usefixtures("on_cuda")

driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

PERSISTING = "CU_LIMIT_PERSISTING_L2_CACHE_SIZE"


@pytest.fixture
def resets(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each reset of persisting lines, which still happens."""
    happened: list[None] = []
    reset = driver.cuCtxResetPersistingL2Cache

    def counted() -> Any:
        happened.append(None)
        return reset()

    monkeypatch.setattr(driver, "cuCtxResetPersistingL2Cache", counted)
    return happened


@pytest.fixture
def set_aside(on_cuda: None) -> Iterator[None]:
    """Some of the cache is set aside for persisting lines, as a program does that uses an access policy window."""
    backend = devices.backend("cuda")
    limit = getattr(driver.CUlimit, PERSISTING)
    with backend.activate(0):
        backend.synchronize(0)
        if driver.cuCtxSetLimit(limit, 2**20)[0] != driver.CUresult.CUDA_SUCCESS:
            pytest.skip("this device has no persisting lines (compute capability below 8.0)")
        yield
        driver.cuCtxResetPersistingL2Cache()
        driver.cuCtxSetLimit(limit, 0)


@pytest.mark.usefixtures("set_aside")
def test_a_flush_resets_persisting_lines(resets: list[None]) -> None:
    devices.backend("cuda").flush_cache(0)

    assert len(resets) == 1


def test_a_flush_resets_nothing_where_no_cache_is_set_aside(resets: list[None]) -> None:
    devices.backend("cuda").flush_cache(0)

    assert not resets
