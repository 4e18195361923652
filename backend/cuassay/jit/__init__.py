"""Operations from a body: a few lines of C++ that compute one element.

`elementwise` declares an operation from the text that torch's jiterator takes. Kind `cpu` computes it with NumPy, `sim`
delegates to `cpu` as for every operation, and `cuda` compiles a kernel that contains the text.

::

    text          from C++ to C, with the place of each character
    body          the functions, parameters and types of a text; unsupported constructs raise
    arithmetic    C's conversions and operators on arrays
    mathematics   the functions of <cmath>, and those of <complex>
    complexes     what a body may do with complex numbers
    run           a body on NumPy arrays
    tangent       the derivative of a body, as a body
    declared      a body as an operation
    reduced       a body and a reduction after it, as an operation
"""

from __future__ import annotations

from cuassay.jit.body import Body
from cuassay.jit.declared import Elementwise, elementwise, provide
from cuassay.jit.reduced import Reduction, provide_reductions, reduction

__all__ = ["Body", "Elementwise", "Reduction", "elementwise", "provide", "provide_reductions", "reduction"]
