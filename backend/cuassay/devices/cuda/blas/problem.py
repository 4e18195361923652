"""A `Problem` is everything that decides the kernel of a matrix product, in the library's column-major terms.

Only arithmetic.

Every input of a plan's choice is a field, so that equal problems can share a plan and a tuner can store them.
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

#: The ``cudaDataType_t`` of each dtype.
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

#: The ``cublasComputeType_t`` by its name after ``CUBLAS_COMPUTE_``.
COMPUTE_TYPES: dict[str, int] = {
    "16F": 64,
    "32F": 68,
    "64F": 70,
    "32F_FAST_16F": 74,
    "32F_FAST_16BF": 75,
    "32F_FAST_TF32": 77,
}

#: For float32 operands, by mode. A split mode without an emulation is computed as ieee, which is not less precise.
_FLOAT32_MODES: dict[str, str] = {"tf32": "32F_FAST_TF32", "bf16": "32F_FAST_16BF", "fp16": "32F_FAST_16F"}

Epilogue = Literal["none", "bias", "relu", "relu_bias", "gelu", "gelu_bias"]

#: How fp8 operands are scaled: not at all, by one float32 each, or by one for each row of `a` and each column of `b`.
Scaling = Literal["none", "tensor", "outer"]

#: ``cublasLtReductionScheme_t`` as a mask: 1: in place, adding in the output's type; 2: in the compute type; 4: in the
#: output's type.
_NO_SPLIT, _WIDE, _ANY = 0, 2, 7


@dataclass(frozen=True, slots=True)
class Operand:
    """A stack of matrices in column-major order: rows and columns as stored, and strides in elements."""

    rows: int
    columns: int
    leading: int
    batch_stride: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """``d = activation(alpha * op(a) op(b) + beta * c + bias)``, for `batch` matrices.

    Attributes
    ----------
    m, n, k, batch : int
        ``op(a)`` is (m, k), ``op(b)`` is (k, n), `c` and `d` are (m, n).
    transpose_a, transpose_b : bool
        Whether ``op`` transposes.
    a, b, c, d : Operand
        The operands as stored. `c` is `d` if beta is 0.
    compute : str
        One of `COMPUTE_TYPES`.
    alpha, beta : complex or float
        The factors, on the host.
    epilogue : str
        The bias has m elements of `d`'s dtype; gelu is the tanh approximation.
    scaling : str
        One of `Scaling`.
    fast_accumulation : bool
        Whether fp8 sums may stay in the tensor cores for longer, with fewer bits.
    alignment : int
        The alignment that all addresses have, in bytes.
    reductions : int
        A mask of the schemes by which the parts of a product split along K may be added; 0: no split.
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
        """The number of operations in the definition of the product."""
        return 2 * self.m * self.n * self.k * self.batch * (4 if self.d.dtype in COMPLEX else 1)

    @property
    def nbytes(self) -> int:
        """The bytes of the operands, counting each element once."""
        sizes = (operand.rows * operand.columns * as_dtype(operand.dtype).itemsize for operand in (self.a, self.b))
        return self.batch * (sum(sizes) + self.m * self.n * as_dtype(self.d.dtype).itemsize * (2 if self.beta else 1))

    def plain(self) -> dict[str, Any]:
        """Return the fields as JSON data; for a `representative`, whose factors are real."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Problem:
        """Make a problem from the data of `plain`.

        Raises
        ------
        ArgumentError
            If a field is missing or unknown, or has another type.
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
    """Check `data` as the fields of `kind`; numbers, flags and strings are distinguished as in JSON."""
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

#: The types of a field's values in JSON; all other fields are strings.
_PLAIN: dict[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "complex | float": (int, float)}


def representative(problem: Problem) -> Problem:
    """Return the problem that represents all problems that differ from `problem` only in the values of the factors.

    The kernel depends on whether alpha is 1 and whether beta is 0 or 1, so any other factor becomes 2.
    """
    alpha, beta = (1.0 if problem.alpha == 1 else 2.0), (float(problem.beta.real) if problem.beta in (0, 1) else 2.0)
    return replace(problem, alpha=alpha, beta=beta)


def compute_of(dtype: Any, mode: str, options: MatmulOptions) -> str:
    """Return the compute type for operands of `dtype` in a precision mode; 16-bit products accumulate in float32."""
    name = dtype_name(dtype)
    if name in ("float64", "complex128"):
        return "64F"
    if name == "float16" and options.fp16_accumulation:
        return "16F"
    return _FLOAT32_MODES.get(mode, "32F") if name == "float32" else "32F"


def reductions_of(dtype: Any, options: MatmulOptions) -> int:
    """Return which reductions a product in `dtype` may use; by default 16-bit parts are added in float32."""
    prefix = {"float16": "fp16", "bfloat16": "bf16"}.get(dtype_name(dtype))
    if prefix is None:
        return _ANY
    if not getattr(options, f"{prefix}_split_k"):
        return _NO_SPLIT
    return _ANY if getattr(options, f"{prefix}_reduced_precision_reduction") else _WIDE
