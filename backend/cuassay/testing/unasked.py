"""Find options of a function that none of its samples passes, so that its tests use only their defaults."""

from __future__ import annotations

import inspect

from cuassay.testing.opspec import OpSpec

__all__ = ["unasked_options"]

#: Results by the spec's id; the spec is stored too, so that its id is not reused.
_FOUND: dict[int, tuple[OpSpec, tuple[str, ...]]] = {}


def unasked_options(spec: OpSpec) -> tuple[str, ...]:
    """The names of a function's parameters with a default that no sample passes, in their order."""
    if id(spec) not in _FOUND:
        _FOUND[id(spec)] = spec, _options_without_sample(spec)
    return _FOUND[id(spec)][1]


def _is_option(parameter: inspect.Parameter) -> bool:
    is_out = parameter.name == "out" and parameter.default is None  # the check `out` passes it
    return parameter.default is not parameter.empty and not parameter.name.startswith("_") and not is_out


def _options_without_sample(spec: OpSpec) -> tuple[str, ...]:
    if spec.fn is None or not spec.dtypes:
        return ()
    try:
        _, *parameters = inspect.signature(spec.fn).parameters.values()  # the first is the array module
        options = [(place, one.name) for place, one in enumerate(parameters) if _is_option(one)]
        samples = list(spec.draw(0, spec.dtypes[0])) if options else []
    except Exception:  # noqa: BLE001  the function has no signature, or its samples raise, which a test will report
        return ()
    return tuple(
        name
        for place, name in options
        if not any(name in sample.kwargs or place < len(sample.args) for sample in samples)
    )
