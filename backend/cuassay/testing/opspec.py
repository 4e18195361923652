"""`OpSpec`: the declaration of an operation, from which its tests and benchmarks are generated.

A function is enough. `cuassay.testing.generated` decides what is checked, `samples` how numbers are drawn, and
`compare` how they are compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.core.capability import dtype_word
from cuassay.core.device import Device
from cuassay.core.precision import default_precision, set_default_precision
from cuassay.errors import CuassayError, SpecError
from cuassay.ops import functional, registry
from cuassay.ops.operation import Op
from cuassay.testing.answers import LastAnswers, as_arrays, called, magnitude_of, one_on, single, widened, written
from cuassay.testing.check_names import AROUND_FORMULA, OF_DEVICES, OF_OTHER_KIND
from cuassay.testing.declared import FORMS, GPT2, REDUCED, Declared, ErrorInput, KnownFailure, ModelSizes, Work, several
from cuassay.testing.default_samples import default_samples
from cuassay.testing.once import once_for
from cuassay.testing.samples import BenchSamples, Kind, Sample, Samples, normalized
from cuassay.testing.spec_checks import check, check_fields
from cuassay.testing.terms import arrays_of, terms_of
from cuassay.testing.tolerance import BY_CLASS, FUNCTION, Tolerance

__all__ = ["GPT2", "REDUCED", "ErrorInput", "KnownFailure", "ModelSizes", "OpSpec", "Work"]

SampleFunction = Callable[..., Iterable[Any]]

#: Errors with which NumPy and this package reject inputs.
_REFUSALS = (ValueError, TypeError, IndexError, ArithmeticError, NotImplementedError, CuassayError)


@dataclass(frozen=True, kw_only=True, eq=False)
class OpSpec(Declared):
    """One operation under test.

    Give `fn` or `op`; every other field has a default.

    Parameters
    ----------
    fn : callable, optional
        The function under test, ``fn(xp, *arrays, **kwargs)``, where `xp` is the array module of the device.
    op : Op, optional
        The operation under test, declared with `cuassay.ops.declare`.
    name : str
        The name in test ids and messages. Default: the name of `fn` or `op`. A lambda gets the name of the variable
        that holds its tests, without ``test_``.
    samples : callable, optional
        ``samples(make)`` yields the inputs: `Sample` objects, tuples of arguments, or single arrays.
        ``make(shape, low=None, high=None, dtype=None)`` makes random numbers from -3 to 3, in the dtype under test or
        in `dtype`, such as ``"int64"`` for indices, `high` included. Checks also fill the array with others, unless
        `low` or `high` says what `fn` is meant for. ``make.of(numbers)``, ``make.full(shape, number)`` make given ones.
        Default: elementwise inputs, one or two arrays, by the number of parameters of `fn`.
    error_inputs : callable, optional
        ``error_inputs(make)`` yields `ErrorInput`: calls that must raise, with the error that is expected.
    reference : callable, optional
        The right result, computed by NumPy. It is called as `fn` without `xp`, with the inputs in float64 or
        complex128; integers and truth values keep their dtype, so a reference that must not wrap around widens them
        itself. Where `fn` gives a list or tuple of arrays it gives one of as many; their dtypes are of one kind.
        Default: `fn` itself with ``xp=numpy``; that finds wrong dtypes, layouts and streams, but not a wrong
        formula. An op needs it. For an op that returns nothing or several arrays, the reference returns the arrays that
        the op writes, as `cuassay.testing.answers.written` flattens them.
    dtypes : sequence of str
        The dtypes in which `fn` works, on every device that has them. Default for a function: float32 and float64; for
        an op: the dtypes of its schema.
    result_dtype : str or callable, optional
        The dtype of the result, or a function from the names of the input dtypes to its name. Default: the dtype that
        `fn` returns for NumPy arrays; if `fn` does not accept NumPy arrays, the dtype is not checked. A function gets
        one name for each array that is passed by position, and the first of them again for a Python number.
    unclaimed : mapping
        Device kind to the dtypes that are not supported there. `fn` is not tested in them. For an op, the check is
        that no kernel is registered for them.
    tolerance : Tolerance, optional
        How far a result may be from the reference. Default for a function: derived from the number of inputs that
        affect one result. Default for an op: by its class.
    terms : callable, optional
        The number of terms that are added up for one element of the result, from the arguments of a sample. Default
        for a function: counted by changing inputs of the reference.
    magnitude : callable, optional
        The values that errors are relative to, from the arguments of a sample. Default for a function: the larger of
        results and inputs.
    meaning : callable, optional
        For an op whose outputs have more than one right answer, such as the signs in a QR factorization: from its
        arguments and outputs by name, the arrays that have one, such as ``q @ r``. The reference returns the same.
    work : callable, optional
        The bytes moved and the operations done, as a `Work`, from the arguments of a sample. Default: each array is
        read or written once.
    bench : callable, optional
        ``bench(make, sizes)`` yields the samples that ``test_speed`` measures, one case each. `sizes` is a
        `ModelSizes`.
    known_failures : sequence of KnownFailure
        Cases that are expected to fail, each with a reason.
    requires : sequence of str
        Capabilities that the device needs, besides the dtype.
    supports_grad : bool
        Whether gradients of the op are tested: against central differences in float64, and those of other dtypes and
        layouts against float64's. For an op that has a derivative.
    deterministic : bool
        Whether two equal calls of `fn` return the same bits. For an op its schema says so.
    waits : bool
        Whether `fn` may make the host wait for the device. False: a check runs it in sync debug mode and reports the
        line that waits.
    relations : sequence of str
        Relations that hold between two results of `fn`, by the words of `cuassay.testing.generated.relations`:
        ``"even"``, ``"odd"``, ``"shift_invariant"``, ``"permutation_of_axis"``, ``"linear"``, ``"batch_invariant"``,
        ``"idempotent"``. They find wrong formulas without a reference.
    without : mapping
        Generated checks to leave out, such as ``"aliasing"``, each with the reason. Their tests are skipped. A function
        that works in place leaves out ``"inputs_unchanged"``, ``"aliasing"`` and ``"deterministic"``.
    like : mapping
        For an op: device kind to what shares code with it there. The name of another op means that all but the formula
        is shared; the checks of `cuassay.testing.check_names.AROUND_FORMULA` (streams, graphs, layouts, outputs) are
        then generated for the other op only. The name of a device kind means that the implementation of that kind runs
        here too, as that of `cpu` does on `sim`; only the checks of `OF_OTHER_KIND` are generated then, and those of
        `OF_DEVICES` where there is no other op.

    Raises
    ------
    SpecError
        At declaration, if it says nothing testable or contradicts itself.
    """

    fn: Callable[..., Any] | None = None
    op: Op | None = None
    name: str = ""
    samples: SampleFunction | None = None
    error_inputs: SampleFunction | None = None
    reference: Callable[..., Any] | None = None
    dtypes: tuple[str, ...] = ()
    result_dtype: str | Callable[..., str] | None = None
    unclaimed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tolerance: Tolerance | None = None
    terms: Callable[..., int] | None = None
    magnitude: Callable[..., Any] | None = None
    meaning: Callable[..., Sequence[Any]] | None = None
    work: Callable[..., Work] | None = None
    bench: SampleFunction | None = None
    known_failures: tuple[KnownFailure, ...] = ()
    requires: tuple[str, ...] = ()
    supports_grad: bool = False
    deterministic: bool = True
    waits: bool = True
    relations: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    like: Mapping[str, str] = field(default_factory=dict)
    has_default_samples: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        check_fields(vars(self))
        if (self.fn is None) == (self.op is None):
            raise SpecError(
                f"an OpSpec needs either fn= or op=; got {'both' if self.fn else 'neither'}; give exactly one"
            )
        self._set("name", self.name or _name(self.fn, self.op))
        default = ("float32", "float64") if self.op is None else self.op.schema.dtypes
        self._set("dtypes", tuple(map(dtype_word, several(self.dtypes))) or default)
        unclaimed = {kind: tuple(map(dtype_word, several(dtypes))) for kind, dtypes in self.unclaimed.items()}
        self._set("unclaimed", unclaimed)
        self._set("result_dtype", dtype_word(self.result_dtype))
        self._set("known_failures", tuple(self.known_failures))
        self._set("requires", several(self.requires))
        self._set("relations", several(self.relations))
        self._set("has_default_samples", self.samples is None)
        self._set("deterministic", self.deterministic if self.op is None else self.op.schema.deterministic)
        has_reference = self.reference is not None
        drawn = None if self.samples else default_samples(self.name, self.fn, self.op, has_reference=has_reference)
        self._set("samples", self.samples or drawn)
        before, mode = dict(os.environ), default_precision()
        with np.printoptions(), np.errstate():  # state that the function changes must be found by its tests instead
            check(self)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        set_default_precision(mode)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"OpSpec({self.name})"

    def name_after(self, variable: str) -> None:
        """Take the name of the variable that holds the tests, if the function is a lambda."""
        if self.name == _UNNAMED:
            self._set("name", variable.removeprefix("test_"))

    # ---------------------------------------------------------------------------------------- what runs where

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of samples that the spec has."""
        return frozenset(sample.kind for sample in self.draw(0, self.dtypes[0]))

    @cached_property
    def has_lists(self) -> bool:
        """Whether it is a function that takes lists of arrays, or returns a list or tuple of them."""
        if self.op is not None:
            return False
        drawn = list(self.draw(0, self.dtypes[0], "values"))
        if any(isinstance(one, list) for sample in drawn for one in (*sample.args, *sample.kwargs.values())):
            return True
        taken = next((sample for sample in drawn if self.refusal(sample) is None), None)
        return taken is not None and isinstance(self.answers(taken), list | tuple)

    @property
    def declared(self) -> Op:
        """The declared op. Raises `SpecError` if the spec is of a function."""
        if self.op is None:
            raise SpecError(f"{self.name} is a function: it has no schema, out=, meta or plan; declare it for these")
        return self.op

    @property
    def is_its_own_reference(self) -> bool:
        """Whether a function without `reference` is compared with itself on NumPy arrays in wide dtypes."""
        return self.reference is None

    @property
    def rule(self) -> Tolerance:
        """The tolerance in force: the given one, or else that of the op's class or of functions."""
        if self.tolerance is not None:
            return self.tolerance
        return FUNCTION if self.op is None else BY_CLASS[self.op.schema.op_class]

    @property
    def op_class(self) -> str:
        """The class of the operation; with a dtype it names a capability."""
        return "elementwise" if self.op is None else self.op.schema.op_class

    def claims(self, device: str | Device) -> tuple[str, ...]:
        """The dtypes expected to run on `device`: those claimed for its kind that the device supports."""
        found = devices.find(device)
        has = devices.capabilities(found)
        here = (dtype for dtype in self.dtypes if dtype not in self.unclaimed.get(found.kind, ()))
        return tuple(
            dtype
            for dtype in here
            if has.missing(f"storage:{dtype}") is None and has.missing(f"{self.op_class}:{dtype}") is None
        )

    def leaves_to_other(self, check: str, kind: str) -> bool:
        """Whether `check` is generated for another op or kind with the same code on `kind` instead; see `like`."""
        other = self.like.get(kind)
        if other is None:
            return False
        if registry.is_declared(other):
            return check in AROUND_FORMULA
        return check not in (OF_OTHER_KIND if other in self.like else OF_OTHER_KIND | OF_DEVICES)

    def why_unsupported(self, device: str | Device, dtype: str) -> str | None:
        """Why cases of `dtype` cannot run on `device`, or None; this queries the device."""
        found = devices.find(device)
        reason = next((text for need in self.requires if (text := devices.capabilities(found).missing(need))), None)
        if reason is not None:
            return reason
        if self.op is not None:
            return devices.why_unsupported(self.op, found, dtype)
        if dtype in self.unclaimed.get(found.kind, ()):
            return f"{found}: {self.name} does not claim {dtype} there"
        has = devices.capabilities(found)
        return has.missing(f"storage:{dtype}") or has.missing(f"{self.op_class}:{dtype}")

    def known_failure(self, device: str | Device, dtype: str | None, check: str) -> KnownFailure | None:
        """The entry that expects this case to fail, or None; this does not use the device."""
        return next((one for one in self.known_failures if one.covers(Device(device).kind, dtype, check)), None)

    # ---------------------------------------------------------------------------------------- inputs and answers

    def draw(self, seed: int, dtype: str, *kinds: Kind) -> Iterator[Sample]:
        """The samples of these kinds (by default all), the same in each call; `SpecError` for an unknown kind."""
        if self.samples is None:
            raise SpecError(f"{self.name} has no samples; give samples=")
        drawn = normalized(self.samples(Samples(seed, dtype, self.name)))
        yield from (sample for sample in drawn if not kinds or sample.kind in kinds)

    def draw_errors(self, seed: int, dtype: str) -> Iterator[ErrorInput]:
        """The calls that must raise."""
        if self.error_inputs is not None:
            for place, bad in enumerate(self.error_inputs(Samples(seed, dtype, self.name))):
                if not isinstance(bad, ErrorInput):
                    raise SpecError(f"{self.name}: error_inputs= yields ErrorInput(sample, error, match); got {bad!r}")
                (sample,) = normalized([bad.sample], first=place)
                yield ErrorInput(sample, bad.error, bad.match)

    def draw_bench(self, seed: int, dtype: str, sizes: ModelSizes) -> Iterator[Sample]:
        """The calls to measure."""
        if self.bench is not None:
            yield from normalized(self.bench(BenchSamples(seed, dtype, self.name), sizes))

    def run(self, device: str | Device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the operation on arrays of `device`; several results of a function are joined into one array."""
        if self.op is not None:
            is_single = self.op.schema.is_single
            return self.op(*args, **kwargs) if is_single else written(self.op, device, args, kwargs, self.meaning)
        found = Device(device)
        with devices.backend(found.kind).activate(found.index):  # operators of array libraries need a current device
            return one_on(found, self.apply(found, args, kwargs), in_place="inputs_unchanged" in self.without)

    def apply(self, device: Device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function on arrays of `device`, which is current; the result may be several arrays."""
        if self.fn is None:
            raise SpecError("an OpSpec needs fn= or op=")
        return self.fn(devices.namespace(device), *args, **kwargs)

    def answers(self, sample: Sample) -> Any:
        """The reference's result in wide dtypes: an array, or several."""
        return self._computed(*self._widened(sample))

    def expected(self, sample: Sample) -> NDArray[Any]:
        """The reference's result in wide dtypes, as one array, for exactly the sample's numbers; do not write to it."""
        return self.timed(sample)[0]

    def timed(self, sample: Sample) -> tuple[NDArray[Any], float]:
        """`expected`, and the seconds that the reference took. A function that is its own reference runs each time."""
        keeps = self.reference is not None
        return self._last.of(sample, lambda: self._answer(*self._widened(sample)), keeps=keeps)

    _last = cached_property(lambda self: LastAnswers())

    def _widened(self, sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = widened(sample)
        is_asked = sample.kind == "python" and self.op is None and self.reference is not None
        return as_arrays(args) if is_asked else args, kwargs

    def refusal(self, sample: Sample) -> Exception | None:
        """The error with which a function's reference rejects `sample`, or None; an op's reference accepts all.

        It may be undefined for a generated input, such as an empty one. `SpecError` for an ordinary sample is raised.
        """
        if self.op is not None:
            return None
        try:
            self.expected(sample)
        except _REFUSALS as error:
            if sample.kind == "values" and isinstance(error, SpecError):
                raise
            return error
        return None

    def _answer(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NDArray[Any]:
        return single(f"{'the reference of ' if self.reference else ''}{self.name}", self._computed(args, kwargs))

    def _computed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with np.errstate(all="ignore"):
            if self.reference is not None:
                return self.reference(*args, **kwargs)
            return self.apply(Device("cpu"), args, kwargs)  # only a function: an op must have a reference

    def scale(self, sample: Sample, expected: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """The magnitude that errors are relative to, and the number of terms added up for one element."""
        with np.errstate(all="ignore"):
            size = np.abs(expected) if self.magnitude is None else np.abs(called(self.magnitude, sample))
        if self.terms is not None:
            return size, int(called(self.terms, sample))
        if self.op is not None:
            return size, 1
        args, kwargs = self._widened(sample)
        terms = once_for(sample, expected, "terms", lambda: terms_of(self, self._answer, args, kwargs, expected))
        return size if self.magnitude is not None else magnitude_of(arrays_of(args, kwargs), size, terms), terms

    def least_work(self, sample: Sample) -> Work:
        """The least work of the call. Raises `SpecError` if `work` returns anything but a `Work`."""
        if self.work is not None:
            args, kwargs = sample.copied()
            least = self.work(*args, **kwargs)
            if not isinstance(least, Work):
                raise SpecError(f"{self.name}: work= gives a Work; got {least!r}; write work={FORMS['work']}")
            return least
        return Work(bytes=self.touched(sample))

    def touched(self, sample: Sample) -> int:
        """The bytes of all arrays that the call reads or writes."""
        return sum(one.nbytes for one in arrays_of(*sample.host())) + self._written(sample)

    def _written(self, sample: Sample) -> int:
        if self.op is not None:
            args, kwargs = sample.host()
            return sum(one.nbytes for one in functional.each(self.op.meta(*args, **kwargs)))
        try:
            return np.asarray(self.run("cpu", *sample.copied())).nbytes
        except Exception:  # noqa: BLE001  a function for one device may fail in any way on the host's arrays
            return self._answer(*sample.copied()).nbytes


def _name(fn: Callable[..., Any] | None, op: Op | None) -> str:
    name = getattr(fn, "__name__", "") if op is None else op.name
    return _UNNAMED if name in ("", "<lambda>") else name


#: The name of a lambda until a variable gives it another.
_UNNAMED = "function"
