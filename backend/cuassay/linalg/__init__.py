"""Linear algebra on any device: solve, inv, det, cholesky, qr, svd, eigh, lstsq; of matrices and stacks of them.

Names and meanings are those of ``torch.linalg`` and ``numpy.linalg``: the last two axes are a matrix, those before a
stack. float32, float64 and their complex forms; LAPACK and cuSOLVER have nothing narrower.

A matrix that is singular, not positive definite, or whose decomposition does not converge raises `LinAlgError`. To see
that, the host waits for the device once; with ``check_errors=False`` it does not (torch's ``_ex`` functions), and the
results of such a matrix mean nothing. In a capture nothing can be waited for: there it must be False; and on cuda all
of this is refused there, since CuPy calls cuSOLVER in no capture.

All eight have derivatives by `cuassay.autograd`. A function that reads one triangle has a symmetric gradient, as in
torch; that of a decomposition is infinite where singular values, or eigenvalues, are equal and their vectors count.
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
