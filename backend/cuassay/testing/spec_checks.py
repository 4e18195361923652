"""Reject an `OpSpec` at its declaration if it cannot be tested or contradicts itself.

These checks need no device. `cuassay.testing.opspec` describes the fields.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from cuassay import devices
from cuassay.arrays.dtypes import dtype_name, reference_dtype
from cuassay.core.capability import DTYPE_NAMES, dtype_word, parse_requirement, unknown_dtype
from cuassay.core.nearest import did_you_mean, nearest, usual_kind
from cuassay.errors import CuassayError, SpecError
from cuassay.ops import registry
from cuassay.ops.operation import Op
from cuassay.testing.check_names import CHECK_NAMES, RELATION_NAMES
from cuassay.testing.declared import FORMS, ONE_CALL, KnownFailure, index_advice
from cuassay.testing.default_samples import required_names
from cuassay.testing.samples import each
from cuassay.testing.tolerance import Tolerance
from cuassay.testing.tracebacks import frames_of_caller, of_caller

if TYPE_CHECKING:
    from cuassay.testing.opspec import OpSpec
    from cuassay.testing.samples import Sample

__all__ = ["check", "check_fields"]


#: A test of the user's whose name is at least this similar to a check's is taken for a misspelt check.
_MISSPELT = 0.8

#: `work` may declare at most this many times the bytes of the call's arrays.
_MOST_READS = 8


def check_fields(given: Mapping[str, Any]) -> None:
    """Raise `SpecError` if a field of a spec, given by name, has a value of the wrong kind."""
    for name, form in FORMS.items():
        if given[name] is not None and not callable(given[name]):
            raise SpecError(f"{name}= takes a function; got {given[name]!r}; write {name}={form}")
    if given["op"] is not None and not isinstance(given["op"], Op):
        raise SpecError(
            f"op= takes a declared operation, such as cuassay.ops.add; got {given['op']!r}; give the operation itself, "
            "or a function as fn="
        )
    if given["tolerance"] is not None and not isinstance(given["tolerance"], Tolerance):
        raise SpecError(f"tolerance= takes a Tolerance; got {given['tolerance']!r}; write Tolerance(ulps=...)")
    failures = given["known_failures"]
    if not isinstance(failures, tuple | list) or not all(isinstance(one, KnownFailure) for one in failures):
        raise SpecError(
            f"known_failures= takes several KnownFailure; got {failures!r}; write [KnownFailure(reason=...)]"
        )


def check(spec: OpSpec) -> None:
    """Raise `SpecError` for everything in the spec that is wrong on any device."""
    try:
        _check(spec)
    except SpecError as error:
        # Frames of this package would not help.
        raise error.with_traceback(frames_of_caller(error)) from of_caller(error.__cause__)


def _check(spec: OpSpec) -> None:
    result = [spec.result_dtype] if isinstance(spec.result_dtype, str) else []
    for name in (*spec.dtypes, *result, *chain.from_iterable(spec.unclaimed.values())):
        if name not in DTYPE_NAMES:
            raise SpecError(f"{spec.name}: {unknown_dtype(name)}")
    for kind, names in spec.unclaimed.items():
        if advice := _unknown_kind(kind):
            raise SpecError(f"{spec.name}: unclaimed= names {kind!r}, {advice}")
        if idle := [name for name in names if name not in spec.dtypes]:
            raise SpecError(
                f"{spec.name}: unclaimed= names {', '.join(idle)} for {kind}, which dtypes= does not claim on any "
                "device; remove it from unclaimed=, or add it to dtypes="
            )
    if spec.op is not None:
        _check_op(spec, spec.op)
    _check_known_failures(spec)
    for need in spec.requires:
        parse_requirement(need)
    _check_words(spec)
    _check_drawn(spec)


def _check_op(spec: OpSpec, op: Op) -> None:
    undefined = [name for name in spec.dtypes if name not in op.schema.dtypes]
    if undefined:
        raise SpecError(
            f"{spec.name} claims {', '.join(undefined)}, for which it is not declared; claim less or declare it"
        )
    if spec.reference is None:
        raise SpecError(
            f"{spec.name} has no reference, and a kernel cannot judge itself; give reference= in NumPy float64"
        )
    if spec.result_dtype is not None:
        raise SpecError(f"{spec.name} is an op, whose schema determines the dtype of the result; omit result_dtype=")


def _check_known_failures(spec: OpSpec) -> None:
    for entry in spec.known_failures:
        if not entry.reason.strip():
            raise SpecError(f"{spec.name} has a known failure without a reason; say why, best with an issue")
        if entry.dtype is not None and entry.dtype not in spec.dtypes:
            raise SpecError(
                f"{spec.name}: known_failures= names {entry.dtype}, which dtypes= does not claim; remove the entry, or "
                f"add {entry.dtype} to dtypes="
            )
        if entry.kind is not None and (advice := _unknown_kind(entry.kind, "kind=")):
            raise SpecError(f"{spec.name} has a known failure on kind={entry.kind!r}, {advice}")
        if entry.check is not None:
            _check_name(spec, entry.check)


def _check_words(spec: OpSpec) -> None:
    """Check that relations and omitted checks are known, and that each omission has a reason."""
    if not isinstance(spec.without, Mapping):
        raise SpecError(
            f"{spec.name}: without= maps checks to reasons; got {spec.without!r}; write without={{'aliasing': 'why'}}"
        )
    for field, words, known in (("relations", spec.relations, RELATION_NAMES), ("without", spec.without, CHECK_NAMES)):
        for word in words:
            if word not in known:
                raise SpecError(
                    f"{spec.name}: {field}= names {word!r}{did_you_mean(word, known)}; it takes {', '.join(known)}"
                )
    _check_like(spec)
    if spec.supports_grad and spec.op is None:
        raise SpecError(
            f"{spec.name} is a function, and supports_grad= is for ops, which have a derivative; omit it, and test a "
            "gradient with cuassay.autograd.gradcheck"
        )
    for word, reason in spec.without.items():
        if not str(reason).strip():
            raise SpecError(f"{spec.name} leaves {word!r} out without a reason; write without={{{word!r}: 'why'}}")


def _check_like(spec: OpSpec) -> None:
    """Check that `like` maps device kinds to other ops or other kinds."""
    if spec.like and spec.op is None:
        raise SpecError(f"{spec.name} is a function, and like= is for ops; omit it")
    for kind, other in spec.like.items():
        if advice := _unknown_kind(kind):
            raise SpecError(f"{spec.name}: like= names {kind!r}, {advice}")
        if other in (kind, spec.name) or not (registry.is_declared(other) or other in devices.kinds()):
            raise SpecError(
                f"{spec.name}: like= has {other!r} for {kind!r}; name another op, or another kind of device, such as "
                f"{next(name for name in devices.kinds() if name != kind)!r}"
            )


def _check_name(spec: OpSpec, name: str) -> None:
    """Accept the name of a check, or of a user's test unless it is so similar to a check's that it is misspelt."""
    known = (*CHECK_NAMES, "speed")
    if name.startswith("test_"):
        right = name.removeprefix("test_")
        raise SpecError(f"{spec.name} has a known failure of check={name!r}; write check={right!r}")
    meant = nearest(name, known, likeness=_MISSPELT)
    if name not in known and meant is not None:
        raise SpecError(
            f"{spec.name} has a known failure of check={name!r}; did you mean {meant!r}? If it is a test of your own, "
            f"rename that test: its name is too similar to {meant!r}"
        )


def _unknown_kind(kind: str, form: str = "") -> str | None:
    """Advice on a misspelt kind, or None; an unknown name may be a kind that is installed elsewhere."""
    meant = nearest(usual_kind(kind.partition(":")[0]), devices.kinds())
    if kind == meant or (meant is None and kind.isidentifier()):
        return None
    advice = "give the name of a kind, such as 'cuda'" if meant is None else f"write {form}{meant!r}"
    return f"which is not a kind of device; {advice}"


def _check_drawn(spec: OpSpec) -> None:
    """Check that samples can be drawn and that the reference accepts one, because otherwise nothing would be tested."""
    seed, dtype = 0, spec.dtypes[0]
    with _as_spec_error(
        spec, "samples=", f"it is called with make, which makes arrays: write samples={FORMS['samples']}"
    ):
        first = next(spec.draw(seed, dtype, "values"), None)
    if first is None:
        raise SpecError(f"{spec.name} draws no sample of kind 'values'; yield at least one")
    first = _first_accepted(spec, first)
    if callable(spec.result_dtype):
        _check_result_dtype(spec, spec.result_dtype, first)
    with _as_spec_error(spec, "error_inputs=", f"write error_inputs={FORMS['error_inputs']}"):
        for one in spec.draw_errors(seed, dtype):
            re.compile(one.match)
    if spec.work is not None:
        with _as_spec_error(
            spec, "work=", f"it is called with exactly a sample's arguments: write work={FORMS['work']}"
        ):
            _check_work(spec, first)
    if spec.op is None:
        for claimed in spec.dtypes:
            _check_sample_dtype(spec, claimed)


def _first_accepted(spec: OpSpec, first: Sample) -> Sample:
    """The first ordinary sample that the reference accepts; if it accepts none, raise its error for the `first`."""
    taken = (one for one in spec.draw(0, spec.dtypes[0], "values") if spec.refusal(one) is None)
    given = f"a sample's arguments, here {_forms(first)}, arrays as NumPy's in {reference_dtype(spec.dtypes[0])}"
    remedy = "give samples= that it takes" if spec.has_default_samples else f"correct samples=; {ONE_CALL}"
    if spec.reference is not None:
        part, advice = "reference=", f"it gets exactly {given}; correct it, or {remedy}"
    else:
        part = "fn"
        advice = f"it is its own reference, and gets xp=numpy and {given}; give reference=, or {remedy}"
    if mistaken := _mistaken_namespace(spec):
        advice = mistaken
    with _as_spec_error(spec, part, advice):
        sample = next(taken, first)
        spec.expected(sample)
    if mistaken and not _takes_any_number(spec.fn):
        raise SpecError(f"{spec.name} cannot be tested: {mistaken}")
    return sample


def _forms(sample: Sample) -> str:
    """The arguments of a call in words: the shapes of arrays, and other arguments as they are."""
    shown = [f"an array {one.shape}" if hasattr(one, "shape") else repr(one)[:40] for one in sample.args]
    shown += [f"{name}={value!r}"[:40] for name, value in sample.kwargs.items()]
    return ", ".join(shown) or "none"


def _mistaken_namespace(spec: OpSpec) -> str:
    """Advice if the reference takes the array module, or the function does not take it; otherwise empty."""
    if spec.fn is None or spec.reference is None:
        return ""
    own, others = _parameters(spec.fn), _parameters(spec.reference)
    if others and others[0] == "xp":
        return "a reference is called without xp: write reference=lambda a: ..."
    if own and own == others:
        return (
            f"fn takes ({', '.join(own)}), as reference= does; its first parameter must be xp, the array module: write "
            f"fn=lambda xp, {', '.join(own)}: ..."
        )
    return ""


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The names of required positional parameters; empty if the function has no signature."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return required_names(found)


def _takes_any_number(function: Callable[..., Any] | None) -> bool:
    """Whether the function has a parameter such as ``*arrays``."""
    found = inspect.signature(function).parameters.values() if function is not None else ()
    return any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in found)


def _check_result_dtype(spec: OpSpec, given: Callable[..., Any], sample: Sample) -> None:
    """Check that a callable `result_dtype` returns the name of a dtype."""
    names = [dtype_name(one.dtype) for one in sample.host()[0] if isinstance(one, np.ndarray)]
    with _as_spec_error(
        spec, "result_dtype=", "it is called with the names of its arrays' dtypes: write result_dtype=lambda a: a"
    ):
        word = dtype_word(given(*names))
    if word not in DTYPE_NAMES:
        raise SpecError(f"{spec.name}: result_dtype= gives {word!r} for {', '.join(names)}: {unknown_dtype(word)}")


def _check_work(spec: OpSpec, sample: Sample) -> None:
    """Check that `work` declares the least that must be moved, not several times the size of the arrays."""
    least = spec.least_work(sample).bytes
    if spec.op is None and least > _MOST_READS * (there := spec.touched(sample)):
        raise SpecError(
            f"{spec.name}: work= declares {least:,.0f} bytes for a call whose arrays have {there:,} in all; it is the "
            "least that must be moved, for most functions every array once"
        )


@contextmanager
def _as_spec_error(spec: OpSpec, part: str, advice: str) -> Iterator[None]:
    """Turn any error of `part` of the spec into a `SpecError`."""
    try:
        yield
    except CuassayError:
        raise
    except Exception as error:
        raise SpecError(
            f"{spec.name} cannot be tested: its {part} raises {type(error).__name__}: {error}; "
            f"{advice}{index_advice(error)}"
        ) from error


def _check_sample_dtype(spec: OpSpec, dtype: str) -> None:
    """Check that samples have the dtype under test: an array that `make` did not make has always the same dtype."""
    with _as_spec_error(spec, "samples=", f"they are drawn in {dtype}, which it claims"):
        first = next(spec.draw(0, dtype, "values"), None)
    given = () if first is None else (*first.args, *first.kwargs.values())
    arrays = [one for one in each(given) if hasattr(one, "dtype")]
    if not arrays:
        raise SpecError(
            f"{spec.name}: its samples hold no array, {', '.join(map(repr, given))[:200]}; make them with make((3, 5))"
        )
    found = {dtype_name(one.dtype) for one in arrays}
    if all(isinstance(one, np.ndarray) for one in arrays) and dtype not in found:
        raise SpecError(
            f"{spec.name} claims {dtype}, but its samples are arrays of {', '.join(sorted(found))}; make them in the "
            "dtype under test, with make(shape) or make.of(numbers), or claim the dtypes that they have"
        )
