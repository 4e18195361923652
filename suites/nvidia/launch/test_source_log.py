"""What NVRTC is given to write into is nobody else's, over a model of it that writes as it does; no GPU, no NVRTC."""

from __future__ import annotations

import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cuassay.devices.cuda.launch import source


class nvrtcResult(IntEnum):  # noqa: N801  by its name the status' text is asked for
    NVRTC_SUCCESS = 0


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each place that the model was given for a log of no text: its final zero is one byte."""
    places: list[bytes] = []

    def write(program: Any, place: bytes) -> tuple[nvrtcResult]:
        places.append(place)
        return (nvrtcResult.NVRTC_SUCCESS,)

    nvrtc = SimpleNamespace(
        nvrtcGetProgramLogSize=lambda program: (nvrtcResult.NVRTC_SUCCESS, 1), nvrtcGetProgramLog=write
    )
    bindings = ModuleType("cuda.bindings")
    bindings.nvrtc = nvrtc  # type: ignore[attr-defined]
    for name, module in {"cuda": ModuleType("cuda"), "cuda.bindings": bindings, "cuda.bindings.nvrtc": nvrtc}.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    return places


def test_an_empty_log_is_not_written_into_the_one_object_of_a_single_byte(given: list[Any]) -> None:
    """CPython shares every bytes object of length 1: a zero written into b" " is in every f-string compiled later."""
    assert source._log(object()) == ""

    (place,) = given
    assert len(place) > 1
    assert all(place is not bytes([byte]) for byte in range(256))
