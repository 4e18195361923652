"""What decides the kernel of a matrix product: a `Problem`, in the library's column-major words. Pure numbers.

Everything a plan depends on is a field, so that equal problems may share one and a tuner can write them down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np

from cuassay.arrays.dtypes import COMPLEX, as_dtype, dtype_name
from cuassay.core.precision import MatmulOptions
from cuassay.errors import ArgumentError

__all__ = [
    "COMPUTE_TYPES",
    "DATA_TYPES",
    "Epilogue",
    "Operand",
    "Problem",
    "Scaling",
    "compute_of",
    "reductions_of",
    "representative",
]

#: ``cudaDataType_t`` of a dtype.
DATA_TYPES: dict[str, int] = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "complex64": 4,
    "complex128": 5,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
    "float8_e5m2": 29,
}

#: ``cublasComputeType_t`` by the name it has after ``CUBLAS_COMPUTE_``.
COMPUTE_TYPES: dict[str, int] = {
    "16F": 64,
    "32F": 68,
    "64F": 70,
    "32F_FAST_16F": 74,
    "32F_FAST_16BF": 75,
    "32F_FAST_TF32": 77,
}

#: Of float32 operands in a mode other than ieee. A split mode without an emulation computes as ieee does: not worse.
_FLOAT32_MODES: dict[str, str] = {"tf32": "32F_FAST_TF32", "bf16": "32F_FAST_16BF", "fp16": "32F_FAST_16F"}

Epilogue = Literal["none", "bias", "relu", "relu_bias", "gelu", "gelu_bias"]

#: How fp8 operands are scaled: not, by one float32 each, or by one a row of `a` and a column of `b`.
Scaling = Literal["none", "tensor", "outer"]

#: ``cublasLtReductionScheme_t`` as a mask: 1, in place, which adds in the output's type; 2, in the compute type; 4, in
#: the output's.
_NO_SPLIT, _WIDE, _ANY = 0, 2, 7


@dataclass(frozen=True, slots=True)
class Operand:
    """A stack of matrices in column-major order: rows and columns as stored, and how they lie, in elements."""

    rows: int
    columns: int
    leading: int
    batch_stride: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """``d = activation(alpha * op(a) op(b) + beta * c + bias)``, `batch` of them.

    Attributes
    ----------
    m, n, k, batch : int
        ``op(a)`` is (m, k), ``op(b)`` (k, n), `c` and `d` (m, n).
    transpose_a, transpose_b : bool
        Whether ``op`` transposes.
    a, b, c, d : Operand
        As stored. `c` is `d` where beta is 0.
    compute : str
        One of `COMPUTE_TYPES`.
    alpha, beta : complex or float
        On the host.
    epilogue : str
        The bias has m elements of `d`'s dtype; gelu is the one by tanh.
    scaling : str
        One of `Scaling`.
    fast_accumulation : bool
        fp8 sums may stay in the tensor core for longer, with fewer bits.
    alignment : int
        Of all addresses together, bytes.
    reductions : int
        Mask of the schemes by which a product split along K may be added; 0: no split.
    """

    m: int
    n: int
    k: int
    batch: int
    transpose_a: bool
    transpose_b: bool
    a: Operand
    b: Operand
    c: Operand
    d: Operand
    compute: str
    alpha: complex | float = 1.0
    beta: complex | float = 0.0
    epilogue: Epilogue = "none"
    scaling: Scaling = "none"
    fast_accumulation: bool = False
    alignment: int = 256
    reductions: int = _WIDE

    @property
    def scale_dtype(self) -> np.dtype[Any]:
        """The dtype of alpha and beta."""
        if self.d.dtype in COMPLEX:
            return as_dtype(self.d.dtype)
        return as_dtype({"16F": "float16", "64F": "float64"}.get(self.compute, "float32"))

    @property
    def flops(self) -> int:
        """Operations of the definition."""
        return 2 * self.m * self.n * self.k * self.batch * (4 if self.d.dtype in COMPLEX else 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the operands, each element once."""
        sizes = (operand.rows * operand.columns * as_dtype(operand.dtype).itemsize for operand in (self.a, self.b))
        return self.batch * (sum(sizes) + self.m * self.n * as_dtype(self.d.dtype).itemsize * (2 if self.beta else 1))

    def plain(self) -> dict[str, Any]:
        """As JSON data; of a `representative`, whose factors are real."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Problem:
        """From what `plain` gave.

        Raises
        ------
        ArgumentError
            If a field is missing, unknown, or of another type.
        """
        operands = {name: Operand(**_checked(Operand, data.get(name), name)) for name in "abcd"}
        return cls(**_checked(cls, data, "a problem") | operands)

    def __str__(self) -> str:
        letters = "".join("NT"[flag] for flag in (self.transpose_a, self.transpose_b))
        batch = f" x {self.batch}" if self.batch > 1 else ""
        more = "".join(f", {text}" for text in self._particulars())
        return (
            f"gemm {letters} m={self.m} n={self.n} k={self.k}{batch}, "
            f"{self.a.dtype} {self.b.dtype} -> {self.d.dtype} in {self.compute}{more}"
        )

    def _particulars(self) -> Mapping[str, None]:
        texts = {
            f"epilogue {self.epilogue}": self.epilogue != "none",
            f"alpha {self.alpha}": self.alpha != 1,
            f"beta {self.beta}": self.beta != 0,
            f"scales by {self.scaling}": self.scaling != "none",
            f"aligned to {self.alignment} bytes": self.alignment < 16,
        }
        return dict.fromkeys(text for text, holds in texts.items() if holds)


def _checked(kind: type, data: Any, name: str) -> dict[str, Any]:
    """`data` as the fields of `kind`; numbers, flags and words are told apart, as JSON tells them."""
    wanted = {field.name: str(field.type) for field in fields(kind)}
    if not isinstance(data, Mapping) or set(data) != set(wanted):
        raise ArgumentError(f"{name} should have the fields {', '.join(wanted)}; got {data!r}")
    for field, value in data.items():
        types = _PLAIN.get(wanted[field], (str,))
        if wanted[field] != "Operand" and (not isinstance(value, types) or (bool not in types and value is True)):
            raise ArgumentError(f"field {field} of {name} should be {wanted[field]}; got {value!r}")
        if field in _WORDS and value not in _WORDS[field]:
            raise ArgumentError(f"field {field} of {name} should be one of {', '.join(_WORDS[field])}; got {value!r}")
    return dict(data)


_WORDS: dict[str, Collection[str]] = {
    "dtype": DATA_TYPES,
    "compute": COMPUTE_TYPES,
    "epilogue": get_args(Epilogue),
    "scaling": get_args(Scaling),
}

#: What a field's values are in JSON; what is not here is a word.
_PLAIN: dict[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "complex | float": (int, float)}


def representative(problem: Problem) -> Problem:
    """What represents all problems that differ from `problem` in the value of a factor only.

    The kernel depends on whether alpha is 1 and beta 0 or 1, so another factor is 2.
    """
    alpha, beta = (1.0 if problem.alpha == 1 else 2.0), (float(problem.beta.real) if problem.beta in (0, 1) else 2.0)
    return replace(problem, alpha=alpha, beta=beta)


def compute_of(dtype: Any, mode: str, options: MatmulOptions) -> str:
    """The compute type of operands of `dtype` in a precision mode; 16-bit products accumulate in float32."""
    name = dtype_name(dtype)
    if name in ("float64", "complex128"):
        return "64F"
    if name == "float16" and options.fp16_accumulation:
        return "16F"
    return _FLOAT32_MODES.get(mode, "32F") if name == "float32" else "32F"


def reductions_of(dtype: Any, options: MatmulOptions) -> int:
    """Which reductions a product in `dtype` may use: by default 16-bit parts are added in float32."""
    prefix = {"float16": "fp16", "bfloat16": "bf16"}.get(dtype_name(dtype))
    if prefix is None:
        return _ANY
    if not getattr(options, f"{prefix}_split_k"):
        return _NO_SPLIT
    return _ANY if getattr(options, f"{prefix}_reduced_precision_reduction") else _WIDE
