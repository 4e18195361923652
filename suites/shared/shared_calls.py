"""Calls of the names that NumPy and CuPy share, by what they do to their operands; see `shared_names`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from shared_names import Row, after_seed


def operands(xp: Any) -> SimpleNamespace:
    """Arrays of one namespace: `x` and `y` matrices, `v` a vector, `z` complex, `i` integers, `b` a mask, `u` bytes."""
    x = np.arange(16.0).reshape(4, 4) % 7 + 5 * np.eye(4)
    return SimpleNamespace(
        x=xp.asarray(x),
        y=xp.asarray((x[::-1] + 1) / 4),
        s=xp.asarray(x @ x.T),
        v=xp.asarray(np.linspace(0.125, 0.75, 6)),
        z=xp.asarray(x + 1j * x.T),
        i=xp.asarray(np.array([3, 1, 2, 0, 3, 1])),
        j=xp.asarray(np.array([1, 2, 2, 5, 4, 7])),
        b=xp.asarray(x > 4),
        u=xp.asarray(np.array([1, 128, 255], np.uint8)),
        n=xp.asarray(np.array([1.0, np.nan, -np.inf, 2.5])),
        m=xp.asarray(np.array([1.0, np.nan, 3.0, 2.5])),
    )


#: Ufuncs of two floats, of one in the domain of arcsine, of integers, and the rest.
_BINARY = """
    add arctan2 atan2 copysign divide divmod equal float_power floor_divide fmax fmin fmod greater greater_equal
    heaviside hypot less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor matmul maximum minimum mod
    multiply nextafter not_equal pow power remainder subtract true_divide
""".split()
_UNARY = """
    abs absolute acos arccos arcsin arcsinh arctan arctanh asin asinh atan atanh cbrt ceil conj conjugate cos cosh
    deg2rad degrees exp exp2 expm1 fabs floor frexp isfinite isinf isnan log log10 log1p log2 logical_not modf negative
    positive rad2deg radians reciprocal rint sign signbit sin sinh sqrt square tan tanh trunc
""".split()
_INTEGERS = """
    bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd lcm left_shift right_shift
""".split()


def _binary(name: str) -> Row:
    return lambda xp, o: getattr(xp, name)(o.x, o.y)


def _unary(name: str) -> Row:
    return lambda xp, o: getattr(xp, name)(o.v)


def _integers(name: str) -> Row:
    return lambda xp, o: getattr(xp, name)(o.i, o.j)


def _method(module: str, name: str) -> Row:
    return lambda xp, o: getattr(getattr(xp, module), name)(o.x)


#: Calls that read their operands, and give arrays, or numbers that the host waits for.
READS: dict[str, Row] = {
    **{name: _binary(name) for name in _BINARY},
    **{name: _unary(name) for name in _UNARY},
    **{name: _integers(name) for name in _INTEGERS},
    "acosh": lambda xp, o: xp.acosh(o.v + 1),
    "arccosh": lambda xp, o: xp.arccosh(o.v + 1),
    "bitwise_count": lambda xp, o: xp.bitwise_count(o.j),
    "bitwise_invert": lambda xp, o: xp.bitwise_invert(o.j),
    "bitwise_not": lambda xp, o: xp.bitwise_not(o.j),
    "invert": lambda xp, o: xp.invert(o.j),
    "ldexp": lambda xp, o: xp.ldexp(o.v, o.i),
    "all": lambda xp, o: xp.all(o.b, axis=0),
    "allclose": lambda xp, o: xp.allclose(o.x, o.y),
    "amax": lambda xp, o: xp.amax(o.x, axis=1),
    "amin": lambda xp, o: xp.amin(o.x),
    "angle": lambda xp, o: xp.angle(o.z),
    "any": lambda xp, o: xp.any(o.b),
    "append": lambda xp, o: xp.append(o.x, o.v),
    "apply_along_axis": lambda xp, o: xp.apply_along_axis(lambda row: row[:2] * row.sum(), 0, o.x),
    "apply_over_axes": lambda xp, o: xp.apply_over_axes(xp.sum, o.x, [0, 1]),
    "argmax": lambda xp, o: xp.argmax(o.x, axis=0),
    "argmin": lambda xp, o: xp.argmin(o.x),
    "argpartition": lambda xp, o: xp.argpartition(o.v, 2),
    "argsort": lambda xp, o: xp.argsort(o.x, axis=0),
    "argwhere": lambda xp, o: xp.argwhere(o.b),
    "around": lambda xp, o: xp.around(o.v, 1),
    "array": lambda xp, o: xp.array(o.x, dtype="float32", ndmin=3),
    "array2string": lambda xp, o: xp.array2string(o.x),
    "array_equal": lambda xp, o: xp.array_equal(o.x, o.y),
    "array_equiv": lambda xp, o: xp.array_equiv(o.x, o.x),
    "array_repr": lambda xp, o: xp.array_repr(o.x),
    "array_str": lambda xp, o: xp.array_str(o.x),
    "asarray_chkfinite": lambda xp, o: xp.asarray_chkfinite(o.x),
    "ascontiguousarray": lambda xp, o: xp.ascontiguousarray(o.x.T),
    "asfortranarray": lambda xp, o: xp.asfortranarray(o.x),
    "astype": lambda xp, o: xp.astype(o.x, "float32"),
    "average": lambda xp, o: xp.average(o.x, axis=0, weights=o.y),
    "bincount": lambda xp, o: xp.bincount(o.i, weights=o.v),
    "choose": lambda xp, o: xp.choose(o.i[:4], o.x),
    "clip": lambda xp, o: xp.clip(o.x, 1, o.y),
    "column_stack": lambda xp, o: xp.column_stack((o.x, o.y)),
    "compress": lambda xp, o: xp.compress([True, False, True], o.x, axis=0),
    "concat": lambda xp, o: xp.concat([o.x, o.y], axis=1),
    "concatenate": lambda xp, o: xp.concatenate([o.x, o.y], axis=None),
    "convolve": lambda xp, o: xp.convolve(o.v, o.v, "same"),
    "copy": lambda xp, o: xp.copy(o.x.T),
    "corrcoef": lambda xp, o: xp.corrcoef(o.x),
    "correlate": lambda xp, o: xp.correlate(o.v, o.v),
    "count_nonzero": lambda xp, o: xp.count_nonzero(o.b),
    "cov": lambda xp, o: xp.cov(o.x),
    "cross": lambda xp, o: xp.cross(o.v[:3], o.v[3:]),
    "cumprod": lambda xp, o: xp.cumprod(o.x, axis=1),
    "cumsum": lambda xp, o: xp.cumsum(o.x),
    "cumulative_prod": lambda xp, o: xp.cumulative_prod(o.v, include_initial=True),
    "cumulative_sum": lambda xp, o: xp.cumulative_sum(o.v, include_initial=True),
    "delete": lambda xp, o: xp.delete(o.x, 1, axis=0),
    "diag": lambda xp, o: xp.diag(o.v),
    "diagflat": lambda xp, o: xp.diagflat(o.v, 1),
    "diff": lambda xp, o: xp.diff(o.x, n=2),
    "digitize": lambda xp, o: xp.digitize(o.v, o.v[::2]),
    "dot": lambda xp, o: xp.dot(o.x, o.y),
    "dstack": lambda xp, o: xp.dstack([o.x, o.y]),
    "ediff1d": lambda xp, o: xp.ediff1d(o.v, to_end=9.0),
    "einsum": lambda xp, o: xp.einsum("ij,kj->ik", o.x, o.y),
    "extract": lambda xp, o: xp.extract(o.b, o.x),
    "fix": lambda xp, o: xp.fix(o.x),
    "flatnonzero": lambda xp, o: xp.flatnonzero(o.b),
    "gradient": lambda xp, o: xp.gradient(o.x),
    "histogram": lambda xp, o: xp.histogram(o.x, bins=4),
    "histogram2d": lambda xp, o: xp.histogram2d(o.v, o.v, bins=3),
    "histogramdd": lambda xp, o: xp.histogramdd(o.x, bins=2),
    "hstack": lambda xp, o: xp.hstack([o.x, o.y]),
    "i0": lambda xp, o: xp.i0(o.v),
    "inner": lambda xp, o: xp.inner(o.x, o.y),
    "interp": lambda xp, o: xp.interp(o.v, [0.0, 1.0], [1.0, 3.0]),
    "intersect1d": lambda xp, o: xp.intersect1d(o.i, o.j),
    "isclose": lambda xp, o: xp.isclose(o.x, o.y),
    "iscomplex": lambda xp, o: xp.iscomplex(o.z),
    "isin": lambda xp, o: xp.isin(o.i, o.j),
    "isneginf": lambda xp, o: xp.isneginf(o.n),
    "isposinf": lambda xp, o: xp.isposinf(o.n),
    "isreal": lambda xp, o: xp.isreal(o.z),
    "kron": lambda xp, o: xp.kron(o.x, o.y),
    "lexsort": lambda xp, o: xp.lexsort((o.i, o.j)),
    "max": lambda xp, o: xp.max(o.x, axis=(0, 1)),
    "mean": lambda xp, o: xp.mean(o.x, axis=0),
    "median": lambda xp, o: xp.median(o.x, axis=0),
    "min": lambda xp, o: xp.min(o.x, axis=0, keepdims=True),
    "nan_to_num": lambda xp, o: xp.nan_to_num(o.n),
    "nanargmax": lambda xp, o: xp.nanargmax(o.m),
    "nanargmin": lambda xp, o: xp.nanargmin(o.m),
    "nancumprod": lambda xp, o: xp.nancumprod(o.m),
    "nancumsum": lambda xp, o: xp.nancumsum(o.m),
    "nanmax": lambda xp, o: xp.nanmax(o.m),
    "nanmean": lambda xp, o: xp.nanmean(o.m),
    "nanmedian": lambda xp, o: xp.nanmedian(o.m),
    "nanmin": lambda xp, o: xp.nanmin(o.m),
    "nanprod": lambda xp, o: xp.nanprod(o.m),
    "nanstd": lambda xp, o: xp.nanstd(o.m),
    "nansum": lambda xp, o: xp.nansum(o.m),
    "nanvar": lambda xp, o: xp.nanvar(o.m),
    "nonzero": lambda xp, o: xp.nonzero(o.b),
    "outer": lambda xp, o: xp.outer(o.v, o.v),
    "packbits": lambda xp, o: xp.packbits(o.b, axis=1),
    "pad": lambda xp, o: xp.pad(o.x, ((1, 2), (0, 1)), mode="reflect"),
    "partition": lambda xp, o: xp.partition(o.v, 2),
    "percentile": lambda xp, o: xp.percentile(o.x, [25, 50], axis=0),
    "piecewise": lambda xp, o: xp.piecewise(o.v, [o.v < 0.3, o.v > 0.5], [lambda part: -part, 2.0, 7.0]),
    "poly": lambda xp, o: xp.poly(o.v),
    "polyadd": lambda xp, o: xp.polyadd(o.v, o.v[2:]),
    "polyfit": lambda xp, o: xp.polyfit(o.v, o.v * 2, 1),
    "polymul": lambda xp, o: xp.polymul(o.v, o.v),
    "polysub": lambda xp, o: xp.polysub(o.v, o.v[2:]),
    "polyval": lambda xp, o: xp.polyval(o.v, o.x),
    "prod": lambda xp, o: xp.prod(o.v),
    "ptp": lambda xp, o: xp.ptp(o.x, axis=0),
    "quantile": lambda xp, o: xp.quantile(o.x, 0.3),
    "ravel_multi_index": lambda xp, o: xp.ravel_multi_index((o.i, o.i), (4, 5)),
    "real_if_close": lambda xp, o: xp.real_if_close(o.z - 1j * o.z.imag),
    "repeat": lambda xp, o: xp.repeat(o.x, [1, 0, 2, 1], axis=1),
    "resize": lambda xp, o: xp.resize(o.x, (3, 7)),
    "roll": lambda xp, o: xp.roll(o.x, 2, axis=1),
    "roots": lambda xp, o: xp.roots(o.v),
    "round": lambda xp, o: xp.round(o.v, 2),
    "row_stack": lambda xp, o: xp.row_stack([o.x, o.y]),
    "searchsorted": lambda xp, o: xp.searchsorted(o.v, o.x),
    "select": lambda xp, o: xp.select([o.x > 6, o.x > 2], [o.x, o.y], 5.0),
    "setdiff1d": lambda xp, o: xp.setdiff1d(o.i, o.j),
    "setxor1d": lambda xp, o: xp.setxor1d(o.i, o.j),
    "sinc": lambda xp, o: xp.sinc(o.v),
    "sort": lambda xp, o: xp.sort(o.x, axis=0),
    "sort_complex": lambda xp, o: xp.sort_complex(o.v[::-1]),
    "stack": lambda xp, o: xp.stack([o.x, o.y], axis=1),
    "std": lambda xp, o: xp.std(o.x, axis=0, ddof=1),
    "sum": lambda xp, o: xp.sum(o.x, axis=1, dtype="float32"),
    "take": lambda xp, o: xp.take(o.x, o.i),
    "take_along_axis": lambda xp, o: xp.take_along_axis(o.v, o.i, axis=0),
    "tensordot": lambda xp, o: xp.tensordot(o.x, o.y, axes=1),
    "tile": lambda xp, o: xp.tile(o.x, (2, 1)),
    "trace": lambda xp, o: xp.trace(o.x, 1),
    "trapezoid": lambda xp, o: xp.trapezoid(o.x, dx=0.5),
    "tril": lambda xp, o: xp.tril(o.x),
    "trim_zeros": lambda xp, o: xp.trim_zeros(o.v * (o.v > 0.3)),
    "triu": lambda xp, o: xp.triu(o.x, 1),
    "union1d": lambda xp, o: xp.union1d(o.i, o.j),
    "unique": lambda xp, o: xp.unique(o.i, return_counts=True),
    "unique_all": lambda xp, o: xp.unique_all(o.i),
    "unique_counts": lambda xp, o: xp.unique_counts(o.i),
    "unique_inverse": lambda xp, o: xp.unique_inverse(o.i),
    "unique_values": lambda xp, o: xp.sort(xp.unique_values(o.i)),  # NumPy gives them in any order
    "unpackbits": lambda xp, o: xp.unpackbits(o.u),
    "unravel_index": lambda xp, o: xp.unravel_index(o.i, (2, 3)),
    "unwrap": lambda xp, o: xp.unwrap(o.v * 30),
    "vander": lambda xp, o: xp.vander(o.v, 3),
    "var": lambda xp, o: xp.var(o.x, axis=0, keepdims=True),
    "vdot": lambda xp, o: xp.vdot(o.z, o.z),
    "vectorize": lambda xp, o: xp.vectorize(lambda one, other: min(one, 2 * other))(o.x, o.y),
    "vstack": lambda xp, o: xp.vstack([o.x, o.y]),
    "where": lambda xp, o: xp.where(o.b, o.x, o.y),
    "linalg.cholesky": lambda xp, o: xp.linalg.cholesky(o.s),
    "linalg.cross": lambda xp, o: xp.linalg.cross(o.v[:3], o.v[3:]),
    "linalg.lstsq": lambda xp, o: xp.linalg.lstsq(o.x, o.y),
    "linalg.matmul": lambda xp, o: xp.linalg.matmul(o.x, o.y),
    "linalg.matrix_power": lambda xp, o: xp.linalg.matrix_power(o.x, -2),
    "linalg.eigh": lambda xp, o: xp.linalg.eigh(o.s),
    "linalg.eigvalsh": lambda xp, o: xp.linalg.eigvalsh(o.s),
    "linalg.solve": lambda xp, o: xp.linalg.solve(o.x, o.y),
    "linalg.tensorinv": lambda xp, o: xp.linalg.tensorinv(o.x.reshape(4, 2, 2), ind=1),
    "linalg.tensorsolve": lambda xp, o: xp.linalg.tensorsolve(o.x, o.y[0]),
    **{
        f"linalg.{name}": _method("linalg", name)
        for name in "cond det eig eigvals inv matrix_rank norm pinv qr slogdet svd".split()
    },
    "random.permutation-x": after_seed(lambda random, o: random.permutation(o.x)),
    **{
        f"fft.{name}": _method("fft", name)
        for name in """fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2
        rfftn""".split()
    },
}

#: Calls whose results show the memory of `x`; nothing is read.
VIEWS: dict[str, Row] = {
    "array_split": lambda xp, o: xp.array_split(o.x, 3)[1],
    "asanyarray": lambda xp, o: xp.asanyarray(o.x),
    "asarray": lambda xp, o: xp.asarray(o.x, dtype=o.x.dtype),
    "atleast_1d": lambda xp, o: xp.atleast_1d(o.x),
    "atleast_2d": lambda xp, o: xp.atleast_2d(o.x),
    "atleast_3d": lambda xp, o: xp.atleast_3d(o.x),
    "broadcast_arrays": lambda xp, o: xp.broadcast_arrays(o.x, o.x[0])[1],
    "broadcast_to": lambda xp, o: xp.broadcast_to(o.x, (2, 4, 4)),
    "diagonal": lambda xp, o: xp.diagonal(o.x, 1),
    "dsplit": lambda xp, o: xp.dsplit(o.x[None], 2)[1],
    "expand_dims": lambda xp, o: xp.expand_dims(o.x, (0, 2)),
    "flip": lambda xp, o: xp.flip(o.x),
    "fliplr": lambda xp, o: xp.fliplr(o.x),
    "flipud": lambda xp, o: xp.flipud(o.x),
    "from_dlpack": lambda xp, o: xp.from_dlpack(o.x),
    "hsplit": lambda xp, o: xp.hsplit(o.x, 2)[1],
    "imag": lambda xp, o: xp.imag(o.z),
    "matrix_transpose": lambda xp, o: xp.matrix_transpose(o.x),
    "moveaxis": lambda xp, o: xp.moveaxis(o.x, 0, 1),
    "permute_dims": lambda xp, o: xp.permute_dims(o.x, (1, 0)),
    "ravel": lambda xp, o: xp.ravel(o.x),
    "real": lambda xp, o: xp.real(o.z),
    "require": lambda xp, o: xp.require(o.x, None, ["C", "W", "A"]),
    "reshape": lambda xp, o: xp.reshape(o.x, (2, -1)),
    "rollaxis": lambda xp, o: xp.rollaxis(o.x, 1),
    "rot90": lambda xp, o: xp.rot90(o.x),
    "split": lambda xp, o: xp.split(o.x, [1, 3])[1],
    "squeeze": lambda xp, o: xp.squeeze(o.x[None]),
    "swapaxes": lambda xp, o: xp.swapaxes(o.x, 0, 1),
    "transpose": lambda xp, o: xp.transpose(o.x),
    "vsplit": lambda xp, o: xp.vsplit(o.x, 2)[0],
    "linalg.matrix_transpose": lambda xp, o: xp.linalg.matrix_transpose(o.x),
}

#: Calls that write `x`, each followed by it.
WRITES: dict[str, Row] = {
    "copyto": lambda xp, o: (xp.copyto(o.x, o.y), o.x)[1],
    "fill_diagonal": lambda xp, o: (xp.fill_diagonal(o.x, 3.0), o.x)[1],
    "place": lambda xp, o: (xp.place(o.x, o.b, [1.0, 2.0]), o.x)[1],
    "put": lambda xp, o: (xp.put(o.x, [0, 5], [7.0, 8.0]), o.x)[1],
    "put_along_axis": lambda xp, o: (xp.put_along_axis(o.x, o.y.argmax(axis=1, keepdims=True), 9.0, axis=1), o.x)[1],
    "putmask": lambda xp, o: (xp.putmask(o.x, o.b, 0.5), o.x)[1],
    "random.shuffle": after_seed(lambda random, o: (random.shuffle(o.x), o.x)[1]),
}

#: Calls that touch no memory of their operands, and make arrays.
MAKES: dict[str, Row] = {
    "arange": lambda xp, o: xp.arange(2, 10, 3),
    "bartlett": lambda xp, o: xp.bartlett(5),
    "blackman": lambda xp, o: xp.blackman(5),
    "c_": lambda xp, o: xp.c_[1:4, 4:7],
    "diag_indices": lambda xp, o: xp.diag_indices(3),
    "diag_indices_from": lambda xp, o: xp.diag_indices_from(o.x),
    "eye": lambda xp, o: xp.eye(3, 4, k=1),
    "fromfunction": lambda xp, o: xp.fromfunction(lambda i, j: i + 2 * j, (2, 3)),
    "fromiter": lambda xp, o: xp.fromiter(iter([1, 2, 3]), dtype="int32"),
    "fromstring": lambda xp, o: xp.fromstring("1 2 3", sep=" "),
    "full": lambda xp, o: xp.full((2, 3), 7),
    "full_like": lambda xp, o: xp.full_like(o.x, 7, dtype="int8"),
    "genfromtxt": lambda xp, o: xp.genfromtxt(["1 2", "3 4"]),
    "hamming": lambda xp, o: xp.hamming(5),
    "hanning": lambda xp, o: xp.hanning(5),
    "identity": lambda xp, o: xp.identity(3),
    "indices": lambda xp, o: xp.indices((2, 3)),
    "ix_": lambda xp, o: xp.ix_([0, 1], [2, 3]),
    "kaiser": lambda xp, o: xp.kaiser(5, 14),
    "linspace": lambda xp, o: xp.linspace(0, 1, 5, endpoint=False),
    "loadtxt": lambda xp, o: xp.loadtxt(["1 2", "3 4"]),
    "logspace": lambda xp, o: xp.logspace(0, 2, 3),
    "mask_indices": lambda xp, o: xp.mask_indices(3, np.triu),
    "meshgrid": lambda xp, o: xp.meshgrid([1, 2], [3, 4, 5]),
    "mgrid": lambda xp, o: xp.mgrid[0:2, 0:3],
    "ogrid": lambda xp, o: xp.ogrid[0:2, 0:3],
    "ones": lambda xp, o: xp.ones((2, 3), "int8"),
    "ones_like": lambda xp, o: xp.ones_like(o.x),
    "r_": lambda xp, o: xp.r_[1:4, 0, 4],
    "tri": lambda xp, o: xp.tri(3, 4),
    "tril_indices": lambda xp, o: xp.tril_indices(3),
    "tril_indices_from": lambda xp, o: xp.tril_indices_from(o.x),
    "triu_indices": lambda xp, o: xp.triu_indices(3),
    "triu_indices_from": lambda xp, o: xp.triu_indices_from(o.x),
    "zeros": lambda xp, o: xp.zeros((2, 3), order="F"),
    "zeros_like": lambda xp, o: xp.zeros_like(o.x, shape=(2,)),
    "fft.fftfreq": lambda xp, o: xp.fft.fftfreq(5),
    "fft.rfftfreq": lambda xp, o: xp.fft.rfftfreq(5),
}

#: Calls whose arrays are not initialised: shape and dtype are looked at.
EMPTY: dict[str, Row] = {
    "empty": lambda xp, o: xp.empty((2, 3), "float32", order="F"),
    "empty_like": lambda xp, o: xp.empty_like(o.x, dtype="int8"),
}
