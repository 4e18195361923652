"""The names that NumPy and CuPy share: the list, and tables of facts, refusals and draws; calls are in `shared_calls`.

The names are those of CuPy 14.2.0 (`cupy`, `cupy.linalg`, `cupy.fft`, `cupy.random`) that NumPy 2.4 has, too. Each
is in one table; a row gets a namespace and operands made in it (see `shared_calls.operands`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Row = Callable[[Any, Any], Any]

SHARED = frozenset(
    """
    abs absolute acos acosh add all allclose amax amin angle any append apply_along_axis apply_over_axes arange arccos
    arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argpartition argsort argwhere around array
    array2string array_equal array_equiv array_repr array_split array_str asanyarray asarray asarray_chkfinite
    ascontiguousarray asfortranarray asin asinh astype atan atan2 atanh atleast_1d atleast_2d atleast_3d average
    bartlett base_repr binary_repr bincount bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor blackman bool bool_ broadcast broadcast_arrays broadcast_shapes
    broadcast_to byte c_ can_cast cbrt cdouble ceil choose clip column_stack common_type complex128 complex64
    complexfloating compress concat concatenate conj conjugate convolve copy copysign copyto corrcoef correlate cos
    cosh count_nonzero cov cross csingle cumprod cumsum cumulative_prod cumulative_sum deg2rad degrees delete diag
    diag_indices diag_indices_from diagflat diagonal diff digitize divide divmod dot double dsplit dstack dtype dtypes
    e ediff1d einsum empty empty_like equal euler_gamma exceptions exp exp2 expand_dims expm1 extract eye fabs fft
    fill_diagonal finfo fix flatiter flatnonzero flip fliplr flipud float16 float32 float64 float_power floating floor
    floor_divide fmax fmin fmod format_float_positional format_float_scientific frexp from_dlpack frombuffer fromfile
    fromfunction fromiter fromstring full full_like gcd generic genfromtxt get_printoptions gradient greater
    greater_equal half hamming hanning heaviside histogram histogram2d histogramdd hsplit hstack hypot i0 identity
    iinfo imag index_exp indices inexact inf inner int16 int32 int64 int8 int_ intc integer interp intersect1d intp
    invert isclose iscomplex iscomplexobj isdtype isfinite isfortran isin isinf isnan isneginf isposinf isreal
    isrealobj isscalar issubdtype iterable ix_ kaiser kron lcm ldexp left_shift less less_equal lexsort linalg
    linspace load loadtxt log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
    logspace long longlong mask_indices matmul matrix_transpose max maximum may_share_memory mean median meshgrid
    mgrid min min_scalar_type minimum mintypecode mod modf moveaxis multiply nan nan_to_num nanargmax nanargmin
    nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar ndarray ndim ndindex negative
    newaxis nextafter nonzero not_equal number ogrid ones ones_like outer packbits pad partition percentile
    permute_dims pi piecewise place poly poly1d polyadd polyfit polymul polynomial polysub polyval positive pow power
    printoptions prod promote_types ptp put put_along_axis putmask quantile r_ rad2deg radians random ravel
    ravel_multi_index real real_if_close reciprocal remainder repeat require reshape resize result_type right_shift
    rint roll rollaxis roots rot90 round row_stack s_ save savetxt savez savez_compressed searchsorted select
    set_printoptions setdiff1d setxor1d shape shares_memory short show_config sign signbit signedinteger sin sinc
    single sinh size sort sort_complex split sqrt square squeeze stack std subtract sum swapaxes take take_along_axis
    tan tanh tensordot testing tile trace transpose trapezoid tri tril tril_indices tril_indices_from trim_zeros triu
    triu_indices triu_indices_from true_divide trunc typename ubyte ufunc uint uint16 uint32 uint64 uint8 uintc uintp
    ulong ulonglong union1d unique unique_all unique_counts unique_inverse unique_values unpackbits unravel_index
    unsignedinteger unwrap ushort vander var vdot vectorize vsplit vstack where zeros zeros_like

    linalg.LinAlgError linalg.cholesky linalg.cond linalg.cross linalg.det linalg.eig linalg.eigh linalg.eigvals
    linalg.eigvalsh linalg.inv linalg.lstsq linalg.matmul linalg.matrix_power linalg.matrix_rank
    linalg.matrix_transpose linalg.norm linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.tensorinv
    linalg.tensorsolve

    fft.fft fft.fft2 fft.fftfreq fft.fftn fft.fftshift fft.hfft fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft
    fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftfreq fft.rfftn

    random.BitGenerator random.Generator random.RandomState random.beta random.binomial random.bytes random.chisquare
    random.choice random.default_rng random.dirichlet random.exponential random.f random.gamma random.geometric
    random.gumbel random.hypergeometric random.laplace random.logistic random.lognormal random.logseries
    random.multinomial random.multivariate_normal random.negative_binomial random.noncentral_chisquare
    random.noncentral_f random.normal random.pareto random.permutation random.poisson random.power random.rand
    random.randint random.randn random.random random.random_integers random.random_sample random.ranf random.rayleigh
    random.sample random.seed random.shuffle random.standard_cauchy random.standard_exponential random.standard_gamma
    random.standard_normal random.standard_t random.triangular random.uniform random.vonmises random.wald
    random.weibull random.zipf
    """.split()
)

#: What CuPy has and NumPy has not, and a word of what a namespace says to use.
CUPY_ONLY: dict[str, str] = {
    "ElementwiseKernel": "cuda",
    "ReductionKernel": "cuda",
    "RawKernel": "cuda",
    "RawModule": "cuda",
    "fuse": "cuda",
    "get_array_module": "__array_namespace__",
    "cuda": "cuassay.devices.backend",
    "get_default_memory_pool": "cuassay.memory",
    "get_default_pinned_memory_pool": "cuassay.memory",
    "clear_memo": "no compiled kernels",
    "memoize": "functools.cache",
    "is_available": "--device",
}


_DTYPES = """
    bool bool_ byte cdouble complex128 complex64 complexfloating csingle double float16 float32 float64 floating generic
    half inexact int16 int32 int64 int8 int_ intc integer intp long longlong number short signedinteger single ubyte
    uint uint16 uint32 uint64 uint8 uintc uintp ulong ulonglong unsignedinteger ushort
""".split()
_CONSTANTS = (
    "e euler_gamma inf newaxis pi dtype dtypes exceptions ndindex ufunc index_exp s_ linalg.LinAlgError".split()
)

#: Facts: of dtypes, shapes and settings, and names that are NumPy's own objects. The host knows them.
FACTS: dict[str, Row] = {
    **{name: lambda xp, o, name=name: _found(xp, name) for name in [*_DTYPES, *_CONSTANTS]},  # type: ignore[misc]
    "nan": lambda xp, o: repr(xp.nan),
    "base_repr": lambda xp, o: xp.base_repr(10, 3),
    "binary_repr": lambda xp, o: xp.binary_repr(10),
    "broadcast_shapes": lambda xp, o: xp.broadcast_shapes((2, 1), (3,)),
    "can_cast": lambda xp, o: xp.can_cast("int8", "int16"),
    "common_type": lambda xp, o: xp.common_type(o.x, o.z),
    "finfo": lambda xp, o: float(xp.finfo("float32").eps),
    "format_float_positional": lambda xp, o: xp.format_float_positional(0.5),
    "format_float_scientific": lambda xp, o: xp.format_float_scientific(0.5),
    "get_printoptions": lambda xp, o: xp.get_printoptions()["precision"],
    "iinfo": lambda xp, o: xp.iinfo("int8").max,
    "iscomplexobj": lambda xp, o: xp.iscomplexobj(o.z),
    "isdtype": lambda xp, o: xp.isdtype(o.x.dtype, "real floating"),
    "isfortran": lambda xp, o: xp.isfortran(o.x.T),
    "isrealobj": lambda xp, o: xp.isrealobj(o.z),
    "isscalar": lambda xp, o: xp.isscalar(o.x),
    "issubdtype": lambda xp, o: xp.issubdtype(o.x.dtype, xp.floating),
    "iterable": lambda xp, o: xp.iterable(o.x),
    "may_share_memory": lambda xp, o: xp.may_share_memory(o.x, o.x.T),
    "min_scalar_type": lambda xp, o: xp.min_scalar_type(300),
    "mintypecode": lambda xp, o: xp.mintypecode("fd"),
    "ndim": lambda xp, o: xp.ndim(o.x),
    "printoptions": lambda xp, o: xp.printoptions(precision=3).__class__,
    "promote_types": lambda xp, o: xp.promote_types("int8", "float16"),
    "result_type": lambda xp, o: xp.result_type(o.x, "complex64"),
    "set_printoptions": lambda xp, o: xp.set_printoptions(),
    "shape": lambda xp, o: xp.shape(o.x),
    "shares_memory": lambda xp, o: xp.shares_memory(o.x, o.y),
    "show_config": lambda xp, o: sorted(xp.show_config(mode="dicts")),
    "size": lambda xp, o: xp.size(o.x, 0),
    "typename": lambda xp, o: xp.typename("S1"),
}

#: Refused by name, with a word of what to use instead.
REFUSED: dict[str, str] = {
    "broadcast": "xp.broadcast_arrays",
    "flatiter": "array.ravel",
    "frombuffer": "xp.asarray",
    "fromfile": "numpy.fromfile",
    "load": "numpy.load",
    "poly1d": "xp.polyval",
    "polynomial": "xp.polyval",
    "save": "numpy.save",
    "savetxt": "numpy.savetxt",
    "savez": "numpy.savez",
    "savez_compressed": "numpy.savez_compressed",
    "testing": "cuassay.testing.assert_close",
    "random.BitGenerator": "default_rng",
    "random.Generator": "default_rng",
}

#: Namespaces and the class of arrays: looked at as such.
OURS = frozenset("fft linalg ndarray random".split())

#: Arguments of the functions that draw numbers; `size=3` is added. Those without a row take none.
_DRAWN: dict[str, tuple[Any, ...]] = {
    "beta": (2.0, 3.0),
    "binomial": (5, 0.5),
    "chisquare": (2.0,),
    "choice": (5,),
    "dirichlet": ((1.0, 2.0),),
    "exponential": (),
    "f": (2.0, 3.0),
    "gamma": (2.0,),
    "geometric": (0.5,),
    "gumbel": (),
    "hypergeometric": (5, 5, 3),
    "laplace": (),
    "logistic": (),
    "lognormal": (),
    "logseries": (0.5,),
    "multinomial": (5, [0.5, 0.5]),
    "multivariate_normal": ([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]]),
    "negative_binomial": (5, 0.5),
    "noncentral_chisquare": (2.0, 1.0),
    "noncentral_f": (2.0, 3.0, 1.0),
    "normal": (),
    "pareto": (2.0,),
    "poisson": (),
    "power": (2.0,),
    "randint": (9,),
    "random": (),
    "random_integers": (5,),
    "random_sample": (),
    "ranf": (),
    "rayleigh": (),
    "sample": (),
    "standard_cauchy": (),
    "standard_exponential": (),
    "standard_gamma": (2.0,),
    "standard_normal": (),
    "standard_t": (2.0,),
    "triangular": (0.0, 1.0, 2.0),
    "uniform": (),
    "vonmises": (0.0, 1.0),
    "wald": (1.0, 2.0),
    "weibull": (2.0,),
    "zipf": (2.0,),
}


def _drawn(name: str) -> Row:
    return lambda xp, o: getattr(xp.random.RandomState(7), name)(*_DRAWN[name], size=3)


def _of_module(name: str) -> Row:
    def row(xp: Any, o: Any) -> Any:
        del o
        xp.random.seed(7)
        return getattr(xp.random, name)(*_DRAWN[name], size=3)

    return row


def after_seed(draw: Callable[[Any, Any], Any]) -> Row:
    def row(xp: Any, o: Any) -> Any:
        xp.random.seed(7)
        return draw(xp.random, o)

    return row


#: Calls that draw the numbers that NumPy draws after the same seed.
DRAWS: dict[str, Row] = {
    **{f"random.{name}": _of_module(name) for name in _DRAWN},
    "random.RandomState": _drawn("normal"),
    "random.bytes": after_seed(lambda random, o: random.bytes(4)),
    "random.default_rng": lambda xp, o: xp.random.default_rng(7).integers(0, 9, size=5),
    "random.permutation": after_seed(lambda random, o: random.permutation(5)),
    "random.rand": after_seed(lambda random, o: random.rand()),
    "random.randn": after_seed(lambda random, o: random.randn(2, 3)),
    "random.seed": after_seed(lambda random, o: random.rand(2)),
}


def _found(xp: Any, name: str) -> Any:
    for part in name.split("."):
        xp = getattr(xp, part)
    return xp


def is_here(name: str) -> bool:
    """Whether the NumPy that is installed has the name: some went, and some came, with its versions."""
    try:
        _found(np, name.partition("-")[0])
    except AttributeError:
        return False
    return True
