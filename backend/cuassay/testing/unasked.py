"""Options of a function that none of its samples gives: its tests see the defaults alone."""

from __future__ import annotations

import inspect

from cuassay.testing.opspec import OpSpec

__all__ = ["unasked_options"]

#: What was found, by the spec's id; the spec is kept so that no other one gets its id.
_FOUND: dict[int, tuple[OpSpec, tuple[str, ...]]] = {}


def unasked_options(spec: OpSpec) -> tuple[str, ...]:
    """The names of the parameters with a default that no sample of a function gives, in their order."""
    if id(spec) not in _FOUND:
        _FOUND[id(spec)] = spec, _found(spec)
    return _FOUND[id(spec)][1]


def _is_option(parameter: inspect.Parameter) -> bool:
    is_out = parameter.name == "out" and parameter.default is None  # the check `out` gives it
    return parameter.default is not parameter.empty and not parameter.name.startswith("_") and not is_out


def _found(spec: OpSpec) -> tuple[str, ...]:
    if spec.fn is None or not spec.dtypes:
        return ()
    try:
        _, *parameters = inspect.signature(spec.fn).parameters.values()  # the first is the namespace
        options = [(place, one.name) for place, one in enumerate(parameters) if _is_option(one)]
        samples = list(spec.draw(0, spec.dtypes[0])) if options else []
    except Exception:  # noqa: BLE001  a function without a signature, or samples that a test will report
        return ()
    return tuple(
        name
        for place, name in options
        if not any(name in sample.kwargs or place < len(sample.args) for sample in samples)
    )
