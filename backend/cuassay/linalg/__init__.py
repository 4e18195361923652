"""Linear algebra on any device for matrices and stacks: solve, inv, det, cholesky, qr, svd, eigh, lstsq.

Names and meanings follow ``torch.linalg`` and ``numpy.linalg``: the last two axes are a matrix, and the axes before
them are a stack. Supported dtypes are float32, float64 and their complex forms, because LAPACK and cuSOLVER have no
others.

A matrix that is singular, not positive definite, or whose decomposition does not converge raises `LinAlgError`. To
detect this, the host waits for the device once. With ``check_errors=False`` it does not wait (as torch's ``_ex``
functions), and the results of such a matrix are meaningless. A capture cannot wait, so ``check_errors`` must be False
there. On cuda these functions cannot be captured at all, because CuPy does not call cuSOLVER during a capture.

All eight functions have derivatives by `cuassay.autograd`. As in torch, a function that reads one triangle has a
symmetric gradient, and the gradient of a decomposition is infinite if it depends on the vectors of equal singular
values or eigenvalues.
"""

from __future__ import annotations

from cuassay.errors import LinAlgError
from cuassay.linalg.derivatives import cholesky, det, eigh, inv, lstsq, qr, solve, svd
from cuassay.linalg.functions import QR, SVD, Eigen, LeastSquares
from cuassay.ops.decompositions import preferred_linalg_library

__all__ = [
    "QR",
    "SVD",
    "Eigen",
    "LeastSquares",
    "LinAlgError",
    "cholesky",
    "det",
    "eigh",
    "inv",
    "lstsq",
    "preferred_linalg_library",
    "qr",
    "solve",
    "svd",
]
