"""A check of global state: floating-point errors, generators, environment, defaults, the current stream."""

from __future__ import annotations

import decimal
import gc
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.core.device import Device
from cuassay.core.generators import default_generator
from cuassay.testing.generated.execution import check, is_function, run_sample
from cuassay.testing.generated.selection import few, plainest
from cuassay.testing.opspec import OpSpec


def _numpy_generator() -> Any:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  reads the global generator's state, draws nothing
    return name, np.asarray(keys).tobytes(), *rest


def _torch(name: str) -> Callable[[], Any]:
    """A getter of torch's global state; None unless torch has been imported."""

    def get() -> Any:
        torch = sys.modules.get("torch")
        return None if torch is None else str(getattr(torch, name)())

    return get


def _torch_generators() -> Any:
    """The state of torch's generators, of the host and, if torch uses CUDA already, of all GPUs; None without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [state.tolist() for state in (torch.get_rng_state(), *of_gpus)]  # the text of a long tensor leaves most out


#: Global state that no function may change, by the name that a failure prints.
STATE: dict[str, Callable[[], Any]] = {
    "np.geterr()": np.geterr,
    "np.geterrcall()": np.geterrcall,
    "np.get_printoptions()": lambda: repr(np.get_printoptions()),
    "os.environ": lambda: dict(os.environ),
    "the working directory": os.getcwd,
    "gc.isenabled()": gc.isenabled,
    "sys.getrecursionlimit()": sys.getrecursionlimit,
    "decimal.getcontext()": lambda: str(decimal.getcontext()),
    "torch.get_default_device()": _torch("get_default_device"),
    "torch.get_default_dtype()": _torch("get_default_dtype"),
    "torch.get_num_threads()": _torch("get_num_threads"),
}
#: Generators that may change only if a result need not repeat.
GENERATORS: dict[str, Callable[[], Any]] = {
    "the state of the module random": random.getstate,
    "the state of np.random": _numpy_generator,
    "the state of torch's generators": _torch_generators,
}


@check(is_function)
def check_state(spec: OpSpec, device: Device) -> None:
    """Global state is unchanged: floating-point errors, generators, environment, defaults, the current stream."""
    watched = {**STATE, **(GENERATORS if spec.deterministic else {})}
    backend = devices.backend(device.kind)
    filters: list[bool] = []
    with _unlike_any_call(), _seeded(device) as own:
        if spec.deterministic:
            watched |= own
        before = {name: get() for name, get in watched.items()}  # drawing samples runs the function as well
        environment, stream = dict(os.environ), backend.current_stream(device.index)
        try:
            for sample in few(spec, device, plainest(spec, device))[:2]:
                run_sample(spec, device, sample)
                args, kwargs = sample.on(device)
                with _watching_filters(filters):
                    spec.run(device, args, kwargs)
            changed = [name for name, get in watched.items() if get() != before[name]]
            changed += ["the current stream"] if backend.current_stream(device.index) != stream else []
        finally:
            _restore(os.environ, environment)
    changed += ["warnings.filters"] if any(filters) else []
    if changed:
        draws = _DRAWS if (GENERATORS.keys() | own.keys()) & set(changed) else ""
        raise AssertionError(
            f"the function leaves {' and '.join(changed)} changed; restore it with a context manager{draws}"
        )


@contextmanager
def _unlike_any_call() -> Iterator[None]:
    """Set global state to values that no function would set, so that a function that sets any changes it visibly."""
    collects, depth = gc.isenabled(), sys.getrecursionlimit()
    try:
        with (
            np.errstate(all="call", call=_do_nothing),
            np.printoptions(),
            decimal.localcontext(decimal.Context(prec=_DIGITS)),
        ):
            # If an earlier call seeded the generators, seeding them again would not change their state.
            random.random(), np.random.random_sample()  # noqa: NPY002, S311
            sys.setrecursionlimit(depth + _DIGITS)
            gc.enable()
            yield
    finally:
        sys.setrecursionlimit(depth)
        (gc.enable if collects else gc.disable)()


#: A number of digits, or of frames, that no function would ask for.
_DIGITS = 37


@contextmanager
def _seeded(device: Device) -> Iterator[dict[str, Callable[[], Any]]]:
    """Seed our default generators, of the host and of `device`, with an unlikely seed; yield getters of their state.

    The getters of other libraries' generators on the device are among them, if its backend has any.
    """
    watched = getattr(devices.backend(device.kind), "watched_generators", None)
    generators = {f"the default generator of {one}": default_generator(one) for one in {Device("cpu:0"), device}}
    held = {name: one.get_state() for name, one in generators.items()}
    try:
        for one in generators.values():
            one.manual_seed(0x5EED_0FAC_4EC4)
        with nullcontext({}) if watched is None else watched(device.index) as of_others:
            yield {name: one.get_state for name, one in generators.items()} | of_others
    finally:
        for name, one in generators.items():
            one.set_state(held[name])


#: Advice if a generator was changed.
_DRAWS = "; if the function is meant to draw random numbers from it, declare deterministic=False"


def _do_nothing(_error: str, _flag: int) -> None:
    """What NumPy calls at a floating-point error."""


class _NobodysWarning(Warning):
    """A category that no code warns with."""


@contextmanager
def _watching_filters(changed: list[bool]) -> Iterator[None]:
    """Append whether the call inside changes the warning filters; changes by modules that it imports do not count."""
    with warnings.catch_warnings():
        # Put a filter in front: adding the filter that is already first would change nothing.
        warnings.simplefilter("default", _NobodysWarning)
        before, modules = list(warnings.filters), len(sys.modules)
        yield
        changed.append(warnings.filters != before and len(sys.modules) == modules)


def _restore(now: Any, before: dict[str, str]) -> None:
    for name in now.keys() - before.keys():
        del now[name]
    now.update({name: value for name, value in before.items() if now.get(name) != value})
