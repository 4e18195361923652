"""What derivatives cost the host: a call that is recorded, and a node of the backward pass, in units of the plain call.

The calls are chains of `neg` of few elements, whose derivative is one `neg` again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cuassay import Device, from_host, ops, to_host
from cuassay.autograd import vjp
from cuassay.testing import devices

#: Calls in a chain.
CALLS = 1000


def chain(x: Any) -> Any:
    for _ in range(CALLS):
        x = ops.neg(x)
    return x


@devices("cpu", "cuda")
def test_a_recorded_call_and_a_backward_node(device: Device, host_times: Callable[..., None]) -> None:
    x = from_host(np.ones(16, np.float32), device)
    _, pull = vjp(chain, x)
    calls = {"plain": lambda: chain(x), "recorded": lambda: vjp(chain, x), "backward": lambda: pull(x)}

    host_times("gradients", f"{CALLS} neg of 16", calls, per_sample=CALLS)

    assert to_host(pull(x)[0]).tolist() == [1.0] * 16
