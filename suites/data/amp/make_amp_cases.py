"""Ask torch how its GradScaler and autocast behave, and write the answers to ``amp_cases.json`` next to this file.

    python suites/data/amp/make_amp_cases.py

Needs torch and a CUDA device; run once, by hand. `suites/devices/training/test_amp_cases.py` holds ours against
the answers.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

#: (op, dtype of the operands, dtype of the region or None: disabled) for each op, asked for its output's dtype.
OPS = {
    "mm": lambda a: torch.mm(a, a),
    "matmul": lambda a: torch.matmul(a, a),
    "bmm": lambda a: torch.bmm(a[None], a[None]),
    "addmm": lambda a: torch.addmm(a, a, a),
    "baddbmm": lambda a: torch.baddbmm(a[None], a[None], a[None]),
    "linear": lambda a: torch.nn.functional.linear(a, a, a[0]),
    "exp": torch.exp,
    "softmax": lambda a: torch.softmax(a, -1),
    "sum": torch.sum,
    "layer_norm": lambda a: torch.nn.functional.layer_norm(a, (4,), a[0], a[0]),
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "add": lambda a: a + a,
    "mul": lambda a: a * a,
}
REGIONS = (
    ("float32", "float16"),
    ("bfloat16", "float16"),
    ("float64", "float16"),
    ("float16", "bfloat16"),
    ("float32", None),
)

#: What happens to a scaler, in turn: gradients of one step, or ("update", scale), or two optimizers' gradients.
SCALERS = {
    "good steps": ({}, [1.0, 1.0, 1.0]),
    "an overflow": ({}, [1.0, math.inf, 1.0]),
    "a NaN": ({}, [math.nan, 1.0]),
    "minus infinity": ({}, [-math.inf]),
    "growth": ({"growth_interval": 2}, [1.0, 1.0, 1.0, 1.0]),
    "an overflow before growth": ({"growth_interval": 2}, [1.0, math.inf, 1.0, 1.0]),
    "growth by three": ({"growth_interval": 1, "growth_factor": 3.0}, [1.0, 1.0]),
    "backoff by a tenth": ({"backoff_factor": 0.1}, [math.inf, math.inf]),
    "growth at the end of float32": ({"init_scale": 2.0**127, "growth_interval": 1}, [0.0, 0.0]),
    "backoff below one": ({"init_scale": 1.0}, [math.inf, math.inf]),
    "a scale of the caller's": ({"growth_interval": 2}, [1.0, ("update", 24.0), 1.0]),
    "two optimizers, one overflows": ({}, [(1.0, math.inf), (1.0, 1.0)]),
    "two optimizers, both overflow": ({}, [(math.inf, math.nan)]),
    "unscaled first": ({"init_scale": 8.0}, [("unscale", 16.0), ("unscale", math.inf), 8.0]),
    "disabled": ({"enabled": False}, [1.0, 2.0]),
    "float16 losses that overflow": (
        {"init_scale": 4.0},
        [("loss", 5.0), ("loss", 20000.0), ("loss", 5.0), ("loss", 40000.0)],
    ),
}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def casts() -> list[dict]:
    found = []
    for given, region in REGIONS:
        with torch.autocast("cuda", getattr(torch, region or "float16"), enabled=region is not None):
            answers = {}
            for name, call in OPS.items():
                answers[name] = dtype_name(call(torch.ones(4, 4, dtype=getattr(torch, given), device="cuda")).dtype)
        found.append({"given": given, "region": region, "results": answers})
    return found


def scaler(options: dict, events: list) -> dict:
    made = torch.amp.GradScaler("cuda", **options)
    params = [torch.nn.Parameter(torch.zeros(1, device="cuda")) for _ in range(2)]
    optimizers = [torch.optim.SGD([param], lr=1.0) for param in params]
    made.scale(torch.ones(1, device="cuda"))
    seen = []
    for event in events:
        how, grads = event if isinstance(event, tuple) and isinstance(event[0], str) else ("step", event)
        grads = grads if isinstance(grads, tuple) else (grads,)
        if how == "update":
            made.update(grads[0])
        else:
            for grad, param, optimizer in zip(grads, params, optimizers, strict=False):
                param.grad = torch.full((1,), grad, device="cuda")
                if how == "loss":
                    loss = made.scale(torch.full((1,), grad, device="cuda", dtype=torch.float16))
                    param.grad = loss.float()
                if how == "unscale":
                    made.unscale_(optimizer)
                made.step(optimizer)
            made.update()
        values = [float(param) for param in params[: max(len(grads), 1)]]
        tracker = made._get_growth_tracker() if made.is_enabled() else 0
        seen.append(
            {
                "how": how,
                "grads": [repr(grad) for grad in grads],
                "scale": made.get_scale(),
                "tracker": tracker,
                "params": values,
            }
        )
    return {"options": options, "seen": seen}


def main() -> None:
    torch.set_default_device("cpu")
    made = {
        "origin": f"torch {torch.__version__} on {torch.cuda.get_device_name()}, by make_amp_cases.py",
        "casts": casts(),
        "scalers": {name: scaler(*case) for name, case in SCALERS.items()},
    }
    Path(__file__).with_name("amp_cases.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
