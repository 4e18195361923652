"""The loop of a candidate's process: it makes its last call again before the judge's clock runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cuassay import Device
from cuassay.judging import candidate, protocol
from cuassay.judging.candidate import Answer, Server
from cuassay.judging.protocol import Request


class Requests:
    """A bell whose ring, after each reply, sends the next request."""

    def __init__(self, control: memoryview, requests: list[Request]) -> None:
        self._control, self._requests = control, requests
        self.replies: list[bool] = []

    def ring(self) -> None:
        self.replies.append(protocol.read_reply(self._control, protocol.reply_number(self._control), ()).error is None)
        self.send()

    def send(self) -> None:
        if self._requests:
            protocol.send(self._control, protocol.packed(self._requests.pop(0)))

    def wait(self, seconds: float) -> bool:
        return bool(self._requests)


def calls_of(*forms: bytes, is_on_device: bool = True, **server: Any) -> tuple[list[int], list[bool]]:
    """Serve requests with these forms; return the number of the request of each call, and which replies were good."""
    control = memoryview(bytearray(protocol.CONTROL_NBYTES))
    requests = [
        Request(2 + place, form, (), (), is_on_device and form != b"", is_empty=form == b"empty")
        for place, form in enumerate(forms)
    ]
    bell: Any = Requests(control, requests)
    made: list[int] = []

    def call(_: Server, request: Request) -> Answer:
        made.append(request.number)
        if request.form == b"bad":
            raise ValueError("bad")
        return (), 0.0, False

    bell.send()
    Server(Device("cpu"), control, memoryview(b""), bell, **server).run(call)
    return made, bell.replies


MEMORY: Any = SimpleNamespace()


@pytest.fixture(autouse=True)
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate, "_READY_SECONDS", 0.0)


def test_the_last_call_is_made_again_before_the_next_one() -> None:
    made, replies = calls_of(b"", b"call", b"", b"call", memory=MEMORY)

    assert made == [3, 3, 3, 3, 5]
    assert replies == [True] * 4


def test_a_call_that_fails_again_does_not_end_the_process() -> None:
    made, replies = calls_of(b"bad", b"", b"call", memory=MEMORY)

    assert made == [2, 2, 4]
    assert replies == [False, False, True]


def test_no_call_is_made_again_through_the_memory_of_the_host() -> None:
    assert calls_of(b"call", b"", b"call", is_on_device=False)[0] == [2, 4]


def test_a_long_call_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate, "_SHORT_SECONDS", -1.0)

    assert calls_of(b"call", b"", b"call", memory=MEMORY)[0] == [2, 4]


def test_an_empty_call_is_not_made_again_but_the_call_before_it() -> None:
    assert calls_of(b"call", b"empty", b"", memory=MEMORY)[0] == [2, 3, 2, 2, 2]
