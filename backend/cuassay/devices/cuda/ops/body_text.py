"""The CUDA C++ of a kernel around a body: the body's text, and code that loads operands and stores results.

This needs no CUDA library, so every form can be compiled on a machine without a GPU. It includes kernels/body.cuh, or
kernels/complex.cuh, which adds the arithmetic of complex numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from cuassay.arrays.dtypes import compute_dtype, dtype_name
from cuassay.jit import Body

__all__ = ["OPTIONS", "kernel_text", "reduction_text"]

#: Options for NVRTC: functions without a specifier are device functions, because users write them without specifiers.
OPTIONS = ("--device-as-default-execution-space",)

#: The type of a body's scalars where the arrays are complex, so that a parameter such as ``bool is_train`` has a value.
_NUMBERS = {"complex64": "float32", "complex128": "float64"}


def kernel_text(body: Body, operands: Sequence[str], out: str, scalars: int, pack: int) -> str:
    """Return the CUDA C++ of a kernel ``run``.

    Parameters
    ----------
    body : Body
        What the kernel computes for each element.
    operands : sequence of str
        The dtype of each array that is read; ``""`` for a Python number in its place.
    out : str
        The dtype of the outputs; it decides the template's type, in which the body computes.
    scalars : int
        The number of the body's parameters that are numbers.
    pack : int
        The elements that a thread takes of contiguous arrays; 0 for any strides.
    """
    wide = "bool" if out == "bool" else dtype_name(compute_dtype(out))
    arrays = [place for place, dtype in enumerate(operands) if dtype]
    outs = range(max(1, len(body.outputs)))
    stored = _c(out)
    parameters = [f"const {_c(dtype)}* a{i}" if dtype else f"const {wide} a{i}" for i, dtype in enumerate(operands)]
    parameters += [f"const {_NUMBERS.get(wide, wide)} s{i}" for i in range(scalars)]
    parameters += [f"{stored}* out{i}" for i in outs]
    names = {f"a{place}": _c(operands[place]) for place in arrays}
    if pack:
        parameters.append("const int64 n")
        steps = _dense(body, names, wide, stored, len(operands), scalars, pack)
    else:
        parameters.append(f"const __grid_constant__ Layout<{len(outs) + len(arrays)}> layout")
        steps = _strided(body, names, wide, stored, len(operands), scalars)
    lines = "\n    ".join(steps)
    header = "complex.cuh" if wide in _NUMBERS else "body.cuh"
    short = "#define exp short_exp\n" if out in ("float16", "bfloat16") else ""
    return (
        f'#include "{header}"\n{short}\nnamespace body {{\nusing namespace std;\n{body.code}\n}}  // namespace body\n\n'
        f"__global__ void run({', '.join(parameters)}) {{\n    {lines}\n}}\n"
    )


def reduction_text(body: Body, operands: Sequence[str], out: str, scalars: int) -> str:
    """Return the CUDA C++ of two kernels: ``run`` maps and combines parts of rows, ``last`` combines and finishes them.

    Parameters
    ----------
    body : Body
        The functions ``map`` (the entry), ``combine`` and optionally ``finish``.
    operands : sequence of str
        The dtype of each array.
    out : str
        The dtype of the result; it decides the type of the parts, in which the body computes.
    scalars : int
        How many of the last parameters of ``map`` are numbers.
    """
    wide = dtype_name(compute_dtype(out))
    parameters = [f"const {_c(dtype)}* a{i}" for i, dtype in enumerate(operands)]
    parameters += [f"const {wide} s{i}" for i in range(scalars)]
    values = [f"operand<{wide}>(a{i}[at[{i}]])" for i in range(len(operands))] + [f"s{i}" for i in range(scalars)]
    finished = f"body::finish<{wide}>(total)" if "finish" in body.functions else "total"
    return _REDUCTION.substitute(
        code=body.code, parameters=", ".join(parameters), values=", ".join(values), count=len(operands), wide=wide,
        out=_c(out), finished=finished,
    )  # fmt: skip


#: A block takes a part of a row, of which thread t takes every 256th element; then lanes and warps combine their
#: totals.
_REDUCTION = Template("""#include "body.cuh"

namespace body {
using namespace std;
$code
}  // namespace body

__device__ $wide joined($wide a, $wide b) { return static_cast<$wide>(body::combine<$wide>(a, b)); }

__global__ void run($parameters, $wide* partial, const $wide identity, const int64 rows, const int64 width,
                    const int64 length, const __grid_constant__ Layout<$count> layout) {
    __shared__ $wide totals[8];
    for (int64 row = blockIdx.y; row < rows; row += gridDim.y) {  // grid.y stops at 65,535
        const int64 begin = blockIdx.x * length, end = begin + length < width ? begin + length : width;
        $wide total = identity;
        for (int64 place = begin + threadIdx.x; place < end; place += blockDim.x) {
            int64 at[$count];
            locate(layout, row * width + place, at);
            total = joined(total, static_cast<$wide>(body::map<$wide>($values)));
        }
        for (int lane = 16; lane; lane /= 2)
            total = joined(total, static_cast<$wide>(__shfl_xor_sync(0xffffffffu, total, lane)));
        if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = total;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int warp = 1; warp < 8; ++warp) total = joined(total, totals[warp]);
            partial[row * gridDim.x + blockIdx.x] = total;
        }
        __syncthreads();  // the next row uses the same shared memory
    }
}

__global__ void last(const $wide* partial, $out* out, const $wide identity, const int64 rows, const int64 parts) {
    const int64 row = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    $wide total = identity;
    for (int64 part = 0; part < parts; ++part) total = joined(total, partial[row * parts + part]);
    out[row] = narrow<$out>(static_cast<$wide>($finished));
}
""")


def _c(dtype: str) -> str:
    """Return the type of element.cuh that holds a dtype."""
    return "uint8" if dtype == "bool" else dtype


def _dense(
    body: Body, arrays: Mapping[str, str], wide: str, stored: str, operands: int, scalars: int, pack: int
) -> list[str]:
    outs = range(max(1, len(body.outputs)))
    read = {name: f"operand<{wide}>(x_{name}.at[i])" for name in arrays}
    single = {name: f"operand<{wide}>({name}[i])" for name in arrays}
    return [
        f"const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * {pack};",
        f"if (first + {pack} > n) {{  // the last pack; a body is not computed of elements that are not there",
        "    for (int64 i = first; i < n; ++i) {",
        *(f"        {line}" for line in _computed(body, single, wide, operands, scalars)),
        *(f"        out{i}[i] = narrow<{stored}>(r{i});" for i in outs),
        "    }",
        "    return;",
        "}",
        *(f"const auto x_{name} = load_pack<{dtype}, {pack}>({name} + first);" for name, dtype in arrays.items()),
        *(f"Pack<{stored}, {pack}> y{i};" for i in outs),
        "#pragma unroll",
        f"for (int i = 0; i < {pack}; ++i) {{",
        *(f"    {line}" for line in _computed(body, read, wide, operands, scalars)),
        *(f"    y{i}.at[i] = narrow<{stored}>(r{i});" for i in outs),
        "}",
        *(f"store_pack<{stored}, {pack}>(out{i} + first, y{i});" for i in outs),
    ]


def _strided(body: Body, arrays: Mapping[str, str], wide: str, stored: str, operands: int, scalars: int) -> list[str]:
    outs = range(max(1, len(body.outputs)))
    read = {name: f"operand<{wide}>({name}[at[{place}]])" for place, name in enumerate(arrays, len(outs))}
    return [
        "const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;",
        "if (index >= layout.n) return;",
        f"int64 at[{len(outs) + len(arrays)}];",
        "locate(layout, index, at);",
        *_computed(body, read, wide, operands, scalars),
        *(f"out{i}[at[{i}]] = narrow<{stored}>(r{i});" for i in outs),
    ]


def _computed(body: Body, read: Mapping[str, str], wide: str, operands: int, scalars: int) -> list[str]:
    """Return the call of the body with its parameters in order; the results are ``r0``, ``r1``, ..."""
    values = iter([*(read.get(f"a{i}", f"a{i}") for i in range(operands)), *(f"s{i}" for i in range(scalars))])
    results = iter(range(len(body.outputs)))
    arguments = [f"r{next(results)}" if one.is_reference else next(values) for one in body.entry.parameters]
    call = f"body::{body.entry.name}<{wide}>({', '.join(arguments)})"
    if not body.outputs:
        return [f"const {wide} r0 = static_cast<{wide}>({call});"]
    declared = ", ".join(f"r{i}" for i in range(len(body.outputs)))
    return [f"{wide} {declared};", f"{call};"]
