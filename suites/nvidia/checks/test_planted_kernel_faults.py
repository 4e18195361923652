"""Faults planted in the text of the CUDA kernels: a generated check finds each.

That every fault still has its place in the source, and that the spoilt source compiles, needs no GPU and runs
everywhere; that the check fails needs one. No fault reads or writes outside an array: that would end the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda.launch import launch, source
from cuassay.errors import DriverError, LibraryNotFoundError
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.own_specs import own_specs

SPECS = {spec.name: spec for spec in own_specs()}


#: Kernels, by the first word of their names, that are not in a file of that name.
UNITS = {
    "update": "loss_scale.cu",
    "dense": "elementwise.cu",
    "strided": "elementwise.cu",
    "packed": "elementwise.cu",
    "join": "joining.cu",
    "var": "variance.cu",
    "pad": "padding.cu",
    "logsumexp": "softmax.cu",
    "statistic": "columns.cu",
    "layer": "layer_norm.cu",
    "skinny": "skinny_mixed.cu",
    "cumsum": "scan.cu",
    **dict.fromkeys(("gather", "segment"), "indexing.cu"),
    **dict.fromkeys(("pointwise", "unscale", "norms", "global"), "multi_tensor.cu"),
}


@dataclass(frozen=True)
class Fault:
    """`right`, once in `file`, becomes `wrong`; `check` of `op` must fail in `dtype` where `kernel` runs."""

    op: str
    what: str
    check: str
    dtype: str
    file: str
    kernel: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.op}: {self.what}".replace(" ", "-")

    @property
    def unit(self) -> str:
        """The ``.cu`` file that is compiled: what a header is tested by."""
        if "_backward_" in self.kernel:
            return "row_gradients.cu"
        name = self.kernel.partition("<")[0].partition("_")[0]
        return UNITS.get(name, f"{name}.cu")

    def spoilt(self) -> str:
        """The text to compile, its headers that hold the fault written out in place."""
        text = source.kernel_source(self.unit)
        if self.file == self.unit:
            return text.replace(self.right, self.wrong)
        if self.file == "element.cuh":  # rows.cuh includes it
            text = text.replace('#include "rows.cuh"', _header("rows.cuh"))
        return text.replace(f'#include "{self.file}"', _header(self.file).replace(self.right, self.wrong))


def _header(file: str) -> str:
    return source.kernel_source(file).replace("#pragma once", "")


ADD4, ADD8 = "dense_binary<Add, float32, 4>", "dense_binary<Add, bfloat16, 8>"
GELU16 = "dense_unary<Gelu, bfloat16, 8>"
STRIDED_ADD = "strided_binary<Add, float32, float32, float32>"
SHORT_SUM = "reduce_short_rows<Sum, int32, int64, int64, 4>"
SHORT_SUM16 = "reduce_short_rows<Sum, bfloat16, float32, bfloat16, 8>"
SUM = "reduce_rows<Sum, int32, int64, int64, 4>"
SUM16 = "reduce_rows<Sum, bfloat16, float32, bfloat16, 8>"
COLUMNS = "reduce_columns<Sum, int32, int64, int64, 1, 1>"
COLUMNS16 = "reduce_columns<Sum, bfloat16, float32, bfloat16, 1, 8>"
SHORT_MAX = "reduce_short_rows<Max, float32, float32, float32, 1>"
VAR, VAR_COLUMNS = "var_rows<float32, 4, 32>", "statistic_of_part<Variance<float32>, float32, 1>"
LOG_SOFT = "softmax_short<float32, 1, 2, true>"
ARGMAX, LONG_ARGMAX = "argmax_short_rows<float32, float32, 4>", "argmax_rows<float32, float32, 4>"
SOFT, SOFT16 = "softmax_short<float32, 1, 2>", "softmax_short<bfloat16, 1, 8>"
LONG_SOFT = "softmax_long<float32, 4, true>"
SOFT_GRAD, LONG_SOFT_GRAD = "softmax_backward_short<float32, 1, 2>", "softmax_backward_long<float32, 4>"
NORM_GRAD, LONG_NORM_GRAD = "layer_norm_backward_short<float32, 1, 2>", "layer_norm_backward_long<float32, 4>"
CLUSTER_SOFT, CLUSTER_SOFT16 = "softmax_cluster<float32, 4, 8>", "softmax_cluster<bfloat16, 8, 4>"
NORM, NORM16 = "layer_norm_short<float32, 4, 6>", "layer_norm_short<bfloat16, 8, 1>"
UNIFORM = "random_fill<Uniform<float32>, float32, 4, false>"
LONG_NORM, LONG_NORM16 = "layer_norm_long<float32, 1, true>", "layer_norm_long<bfloat16, 1, true>"

MIXED8 = "skinny_mixed<bfloat16, float32, 8, false, 8, 32, 1, 16, 2, 1>"
MIXED4 = "skinny_mixed<bfloat16, float32, 4, true, 16, 16, 1, 16, 2, 1>"
ADAM = "adam<float32, float32, float32, false, false, 0, false, 0, 6>"
ADAM16 = "adam<bfloat16, bfloat16, bfloat16, false, false, 0, false, 14, 4>"
AMSGRAD = "adam<float32, float32, float32, false, true, 2, false, 0, 5>"
POINTWISE = "pointwise<{}, float32, float32, true, 0, 1>"
GLOBAL_NORM = "global_norm<float32, 64>"

EACH_PACK = """#pragma unroll
        for (int i = 0; i < N; ++i) {
            values[p][i] -= mean;
            if (inside) squares += values[p][i] * values[p][i];
        }
    }
    const W scale = inverse_root(warp_sum(squares) / W(columns)"""
CANCELLING = """#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (inside) squares += values[p][i] * values[p][i];
            values[p][i] -= mean;
        }
    }
    const W scale = inverse_root(warp_sum(squares) / W(columns) - mean * mean"""

FAULTS = (
    # -------------------------------------------------------------------------------------------- elementwise.cu
    Fault("add", "last element not stored", "values", "float32", "elementwise.cu", ADD4,
          "if (first + i < n) out[first + i]", "if (first + i + 1 < n) out[first + i]"),
    Fault("add", "last element not loaded", "values", "float32", "elementwise.cu", ADD4,
          "if (first + i < n) pack.at[i]", "if (first + i + 1 < n) pack.at[i]"),
    Fault("add", "subtracts", "values", "bfloat16", "elementwise.cu", ADD8,
          "{ return a + b; } };", "{ return a - b; } };"),
    Fault("mul", "adds", "values", "float64", "elementwise.cu", "dense_binary<Mul, float64, 2>",
          "{ return a * b; } };", "{ return a + b; } };"),
    Fault("exp", "base two", "values", "float32", "elementwise.cu", "dense_unary<Exp, float32, 4>",
          "return expf(a);", "return exp2f(a);"),
    Fault("exp", "float64 in float32", "values", "float64", "elementwise.cu", "dense_unary<Exp, float64, 2>",
          "return exp(a);", "return expf(float(a));"),
    Fault("relu", "NaN swallowed", "extremal", "float32", "elementwise.cu", "dense_unary<Relu, float32, 4>",
          "is_nan(a) || a > W(0)", "a > W(0)"),
    Fault("gelu", "three digits of a constant", "values", "float32", "elementwise.cu", "dense_unary<Gelu, float32, 4>",
          "0.10772066f", "0.108f"),
    Fault("gelu", "right for positive numbers only", "values", "bfloat16", "elementwise.cu", GELU16,
          "a < 0.0f ? tail : 1.0f - tail", "1.0f - tail"),
    Fault("gelu", "square for cube", "values", "float32", "elementwise.cu", "dense_unary<GeluTanh, float32, 4>",
          "fmaf(0.044715f, a * a, 1.0f)", "fmaf(0.044715f, a, 1.0f)"),
    Fault("add", "scalar rounded to 16 bits", "python_scalars", "bfloat16", "elementwise.cu",
          "dense_scalar<Add, bfloat16, 1>",
          "right[i] = b;", "right[i] = widen<W>(narrow<T>(b));"),
    Fault("mul", "scalar ignored with strides", "python_scalars", "float32", "elementwise.cu",
          "strided_scalar<Mul, float32>", "right[1] = {b};", "right[1] = {W(1)};"),
    Fault("relu", "stride of the input ignored", "layouts", "float32", "elementwise.cu",
          "strided_unary<Relu, float32>", "at.a += position * layout.stride[1][axis];", "at.a += position;"),
    Fault("add", "stride of out ignored", "out", "float32", "elementwise.cu", STRIDED_ADD,
          "at.out += position * layout.stride[0][axis];", "at.out += position;"),
    Fault("add", "broadcast operand not moved", "broadcast", "float32", "elementwise.cu", STRIDED_ADD,
          "at.b += position * layout.stride[2][axis];", ""),
    Fault("add", "outer axes ignored", "broadcast", "float32", "elementwise.cu", STRIDED_ADD,
          "        index = quotient;\n", ""),
    Fault("add", "second operand cast to the first", "promotion", "int32", "elementwise.cu",
          "strided_binary<Add, float64, int32, float32>", "right[1] = {widen<W>(b[at.b])};",
          "right[1] = {widen<W>(A(b[at.b]))};"),
    Fault("abs", "negative numbers kept", "values", "float32", "elementwise.cu", "dense_unary<Abs, float32, 4>",
          "return fabsf(a);", "return a;"),
    Fault("abs", "sign of zero kept", "signed_zeros", "float32", "elementwise.cu", "dense_unary<Abs, float32, 4>",
          "return fabsf(a);", "return a < 0.0f ? -a : a;"),
    Fault("sign", "NaN is positive", "extremal", "float32", "elementwise.cu", "dense_unary<Sign, float32, 1>",
          "W(a > W(0)) - W(a < W(0))", "W(!(a <= W(0))) - W(a < W(0))"),
    Fault("log1p", "logarithm", "values", "float32", "elementwise.cu", "dense_unary<Log1P, float32, 4>",
          "return log1pf(a);", "return logf(a);"),
    Fault("silu", "sigmoid", "values", "float32", "elementwise.cu", "dense_unary<Silu, float32, 4>",
          "return a * Sigmoid::of(a);", "return Sigmoid::of(a);"),
    Fault("silu", "sigmoid in 16 bits", "values", "bfloat16", "elementwise.cu", "dense_unary<Silu, bfloat16, 8>",
          "return a * RoughSigmoid::of(a);", "return RoughSigmoid::of(a);"),
    Fault("pow", "exchanged", "values", "float32", "elementwise.cu", "dense_binary<Pow, float32, 4>",
          "const Power found(fabsf(a), b);", "const Power found(fabsf(b), a);"),
    Fault("pow", "sign of an odd power lost", "extremal", "float32", "elementwise.cu", "dense_binary<Pow, float32, 4>",
          "(reinterpreted<uint32>(found) + (reinterpreted<uint32>(rounded) << 31))", "(reinterpreted<uint32>(found))"),
    Fault("clamp", "upper bound ignored", "values", "float32", "elementwise.cu", "dense_clamp<float32, 4>",
          "return nan_minimum(nan_maximum(a, low), high);", "return nan_maximum(a, low);"),
    Fault("less", "or equal", "values", "float32", "elementwise.cu", "dense_comparison<Less, float32, 4>",
          "{ return a < b; } };\nstruct Greater ", "{ return a <= b; } };\nstruct Greater "),
    Fault("where", "second array taken for the first", "values", "float32", "elementwise.cu", "dense_where<uint32, 4>",
          "if (a) left = load<T, N>(a, first, n);", "if (a) left = load<T, N>(b, first, n);"),
    Fault("where", "one number of a row for all", "broadcast", "float32", "elementwise.cu",
          "packed_where<uint32, 4>", "if (a) left = along<T, N>(a + at.b, layout.stride[2][0]);",
          "if (a) left = along<T, N>(a + at.b, 0);"),
    Fault("where", "mask of a broadcast axis not moved", "broadcast", "float32", "elementwise.cu",
          "strided_where<uint32>", "at.a += position * layout.stride[1][axis];", ""),
    Fault("logical_not", "compared with 1", "values", "float32", "elementwise.cu",
          "dense_comparison_scalar<Equal, float32, float32, 4>",
          "return uint8(Operation::of(widen<W>(left.at[i]), number));",
          "return uint8(Operation::of(widen<W>(left.at[i]), W(1)));"),
    Fault("gather", "step ignored", "values", "float32", "elementwise.cu", "strided_gather<uint32, int64>",
          "a[at.b + from * step]", "a[at.b + from]"),
    Fault("scatter_sum", "last element left out", "values", "float32", "elementwise.cu",
          "strided_scatter_sum<float32, int64>", "k < length; ++k)", "k + 1 < length; ++k)"),
    # -------------------------------------------------------------------------------------------- joining.cu
    Fault("cat", "rows as far apart as in the last array", "values", "float32", "joining.cu", "join_few<int>",
          "from[row * (end - begin) + column - begin]", "from[row * (parts.columns - begin) + column - begin]"),
    Fault("cat", "second array left out", "values", "float32", "joining.cu", "join_few<int>",
          "for (int next = 1; next < kFew; ++next)", "for (int next = 2; next < kFew; ++next)"),
    Fault("cat", "odd arrays of many", "values", "float32", "joining.cu", "join_many<int>",
          "for (int half = kMany / 2; half > 0; half /= 2)", "for (int half = kMany / 2; half > 1; half /= 2)"),
    Fault("cat", "rows without room for the next launch", "values", "float32", "joining.cu", "join_many<int>",
          "to[row * parts.step + column] = static_cast", "to[row * parts.columns + column] = static_cast"),
    # -------------------------------------------------------------------------------------------- indexing.cu
    Fault("embedding", "row by its place", "values", "float32", "indexing.cu", "gather_rows<uint32, int64, 1>",
          "from = int64(index[row])", "from = int64(index[0])"),
    Fault("segment_sum", "second half of the warps", "values", "float32", "indexing.cu",
          "segment_sum<float32, int64, false, 1>", "if (other < warp) at += found[other];", ""),
    Fault("index_add", "start not read", "values", "float32", "indexing.cu", "segment_sum<float32, int64, true, 1>",
          "is_read = FROM_START && is_inside", "is_read = false && is_inside"),
    # -------------------------------------------------------------------------------------------- scan.cu
    Fault("cumsum", "tiles do not carry", "values", "float32", "scan.cu", "cumsum_rows<float32, float32, float32>",
          "carried += whole;", ""),
    Fault("cumsum", "warps do not add up", "values", "float32", "scan.cu", "cumsum_rows<float32, float32, float32>",
          "if (other == warp) before += whole;", ""),
    Fault("cumsum", "columns share the sums of parts", "values", "float32", "scan.cu",
          "cumsum_columns<float32, float32, float32>", "each_of(sums + column, first", "each_of(sums, first"),
    Fault("cumsum", "a part is left out", "values", "float32", "scan.cu", "cumsum_parts<float32, float32>",
          "sums[int64(blockIdx.y) * outer * inner + column] = sum;",
          "sums[int64(blockIdx.y) * outer * inner + column] = blockIdx.y == 3 ? A(0) : sum;"),
    # -------------------------------------------------------------------------------------------- argmax.cu
    Fault("argmax", "the last of equals", "values", "float32", "argmax.cu", ARGMAX,
          "one.at < other.at ? one : other", "one.at < other.at ? other : one"),
    Fault("argmax", "the last of equals of a thread", "values", "float32", "argmax.cu", ARGMAX,
          "value > best.value", "value >= best.value"),
    Fault("argmax", "NaN loses", "extremal", "float32", "argmax.cu", ARGMAX,
          "return is_nan(one.value) || one.value > other.value ? one : other;",
          "return is_nan(other.value) || one.value > other.value ? one : other;"),
    Fault("argmax", "NaN loses in a thread", "extremal", "float32", "argmax.cu", ARGMAX,
          " || (is_nan(value) && !is_nan(best.value))", ""),
    Fault("argmax", "second half of the warps", "values", "float32", "argmax.cu", LONG_ARGMAX,
          "threadIdx.x == 0 && warp < 8", "threadIdx.x == 0 && warp < 4"),
    Fault("argmax", "last part left out", "values", "float32", "argmax.cu", "argmax_parts<float32, float32>",
          "part < parts; part += 32)", "part + 1 < parts; part += 32)"),
    Fault("argmax", "first row of a column left out", "values", "float32", "argmax.cu",
          "argmax_columns<float32, float32>", "for (int64 at = begin + line; at",
          "for (int64 at = begin + line + 1; at"),
    Fault("argmax", "last line of a column left out", "values", "float32", "argmax.cu",
          "argmax_columns<float32, float32>", "other = 1; other < 8; ++other", "other = 1; other < 7; ++other"),
    # -------------------------------------------------------------------------------------------- element.cuh
    Fault("minimum", "NaN swallowed", "extremal", "float32", "element.cuh", "dense_binary<Minimum, float32, 1>",
          "return is_nan(a) || a < b ? a : b;", "return a < b ? a : b;"),
    Fault("add", "rounds towards zero", "values", "bfloat16", "element.cuh", ADD8,
          "__float2bfloat16_rn(value)", "__float2bfloat16_rz(value)"),
    Fault("mul", "rounds towards zero", "values", "float16", "element.cuh", "dense_binary<Mul, float16, 8>",
          "__float2half_rn(value)", "__float2half_rz(value)"),
    Fault("mul", "imaginary part conjugated", "values", "complex64", "element.cuh", "dense_binary<Mul, complex64, 2>",
          "a.real * b.imaginary + a.imaginary * b.real", "a.real * b.imaginary - a.imaginary * b.real"),
    Fault("amax", "NaN swallowed", "extremal", "float32", "element.cuh", SHORT_MAX,
          "max.NaN.f32", "max.f32"),
    # -------------------------------------------------------------------------------------------- reduce.cu
    Fault("sum", "last of a long row", "values", "int32", "reduce.cu", SUM,
          "for (; at < end; ++at)", "for (; at + 1 < end; ++at)"),
    Fault("sum", "last of a short row", "values", "int32", "reduce.cu", SHORT_SUM,
          "for (; at < reduced; ++at)", "for (; at + 1 < reduced; ++at)"),
    Fault("sum", "half a warp", "values", "int32", "reduce.cu", SHORT_SUM,
          "for (int lane = 16; lane; lane /= 2)", "for (int lane = 8; lane; lane /= 2)"),
    Fault("sum", "second warp dropped", "values", "int32", "reduce.cu", SUM,
          "value = lane < blockDim.x / 32", "value = lane != 1 && lane < blockDim.x / 32"),
    Fault("sum", "parts half as long", "values", "int32", "reduce.cu", SUM,
          "blockIdx.x * length, end = begin + length < reduced ? begin + length :",
          "blockIdx.x * length, end = begin + length / 2 < reduced ? begin + length / 2 :"),
    Fault("sum", "parts of columns begin late", "values", "int32", "reduce.cu", COLUMNS,
          "int64 at = begin + (threadIdx.x >> shift);", "int64 at = begin + (threadIdx.x >> shift) + 1;"),
    Fault("sum", "16-bit accumulator in a warp", "values", "bfloat16", "reduce.cu", SHORT_SUM16,
          "total = Reduction::of(total, partial);", "total = widen<A>(narrow<T>(Reduction::of(total, partial)));"),
    Fault("sum", "16-bit accumulator in a block", "values", "bfloat16", "reduce.cu", SUM16,
          "reduce_block<Reduction>(totals[0])", "reduce_block<Reduction>(widen<A>(narrow<T>(totals[0])))"),
    Fault("sum", "16-bit accumulator in a column", "values", "bfloat16", "reduce.cu", COLUMNS16,
          "total = Reduction::of(total, shared[warp * tile + i]);",
          "total = widen<A>(narrow<T>(Reduction::of(total, shared[warp * tile + i])));"),
    Fault("sum", "last warp of a tile", "values", "int32", "reduce.cu", COLUMNS,
          "warp < warps; ++warp)", "warp < warps - 1; ++warp)"),
    Fault("sum", "every other row", "values", "int32", "reduce.cu", COLUMNS,
          "at < end; at += lines, from += step)", "at < end; at += 2 * lines, from += 2 * step)"),
    Fault("sum", "half the lines of a warp", "values", "int32", "reduce.cu", COLUMNS,
          "for (int line = 16; line;", "for (int line = 8; line;"),
    Fault("sum", "last block of a cluster", "values", "int32", "reduce.cu", COLUMNS.replace("1>", "8>"),
          "other < CLUSTER; ++other)", "other < CLUSTER - 1; ++other)"),
    Fault("sum", "each cluster over the first's", "values", "int32", "reduce.cu", COLUMNS.replace("1>", "8>"),
          "row * (parts / CLUSTER) + part / CLUSTER", "row * (parts / CLUSTER)"),
    Fault("sum", "a cluster's first block for all", "values", "int32", "cluster.cuh", COLUMNS.replace("1>", "8>"),
          ': "r"(rank)', ': "r"(0)'),
    Fault("sum", "unrolled loop steps too far", "values", "int32", "reduce.cu", SUM,
          "+ N <= end; at += kInFlight * step)", "+ N <= end; at += (kInFlight + 1) * step)"),
    Fault("sum", "outer axis ignored", "values", "int32", "reduce.cu", COLUMNS,
          "a + (row * reduced + at) * inner + column", "a + at * inner + column"),
    Fault("sum", "row stride ignored", "values", "int32", "reduce.cu", SHORT_SUM,
          "\n    const T* from = a + row * reduced;", "\n    const T* from = a;"),
    Fault("amax", "starts at zero", "values", "float32", "reduce.cu", "reduce_rows<Max, float32, float32, float32, 4>",
          "__int_as_float(0xff800000)", "0.0f"),
    Fault("amax", "integers start at zero", "values", "int32", "reduce.cu", "reduce_rows<Max, int32, int64, int32, 4>",
          "return int64(1) << 63;", "return 0;"),
    Fault("amin", "starts at zero", "values", "float32", "reduce.cu", "reduce_rows<Min, float32, float32, float32, 4>",
          "__int_as_float(0x7f800000)", "0.0f"),
    Fault("prod", "starts at zero", "values", "float32", "reduce.cu", SHORT_MAX.replace("Max", "Prod"),
          "identity() { return A(1); }", "identity() { return A(0); }"),
    # -------------------------------------------------------------------------------------------- softmax.cu
    Fault("softmax", "not shifted", "values", "float32", "softmax.cu", SOFT,
          "below(values[p][i], maximum)", "below(values[p][i], W(0))"),
    Fault("softmax", "last pack of a row", "values", "float32", "softmax.cu", SOFT,
          "if (at < columns) {  // the host", "if (at + N < columns) {  // the host"),
    Fault("softmax", "row stride ignored", "values", "float32", "softmax.cu", SOFT,
          "const T* from = a + row * columns;\n    W values", "const T* from = a;\n    W values"),
    Fault("softmax", "16-bit accumulator", "values", "bfloat16", "softmax.cu", SOFT16,
          "sum += exponential;\n            if (!LOG)",
          "sum = widen<W>(narrow<T>(sum + exponential));\n            if (!LOG)"),
    Fault("softmax", "long row not shifted", "values", "float32", "softmax.cu", LONG_SOFT,
          "below(widen<W>(packs[c].at[i]), shift)", "below(widen<W>(packs[c].at[i]), W(0))"),
    Fault("softmax", "scaled before the difference", "extremal", "float32", "rows.cuh", LONG_SOFT,
          "(value - maximum) * 1.44269504088896340736f",
          "fmaf(value, 1.44269504088896340736f, -(maximum * 1.44269504088896340736f))"),
    Fault("softmax", "running sum not rescaled", "values", "float32", "softmax.cu", LONG_SOFT,
          "sum = sum * exponential_below(maximum, shift) + added;", "sum = sum + added;"),
    Fault("softmax", "merged sums not rescaled", "values", "float32", "softmax.cu", LONG_SOFT,
          "sum = sum * exponential_below(maximum, shift) + other_sum", "sum = sum + other_sum"),
    Fault("softmax", "empty lanes make NaN", "values", "float32", "rows.cuh", LONG_SOFT,
          "return maximum == minus_infinity<W>() ? W(0) : maximum;", "return maximum;"),
    Fault("softmax", "second half of the warps", "values", "float32", "softmax.cu", LONG_SOFT,
          "sum = lane < blockDim.x / 32", "sum = lane < blockDim.x / 64"),
    Fault("softmax", "misaligned head skipped", "values", "float32", "softmax.cu", LONG_SOFT,
          "        running.add(odd);\n", "        if (threadIdx.x >= head) running.add(odd);\n"),
    Fault("softmax", "tail skipped", "values", "float32", "softmax.cu", LONG_SOFT,
          "if (threadIdx.x < extras) {", "if (threadIdx.x < head) {"),
    Fault("softmax", "last packs skipped", "values", "float32", "softmax.cu", LONG_SOFT,
          "for (; p < packs; p += blockDim.x) {", "for (; p + 1 < packs; p += blockDim.x) {"),
    Fault("softmax", "one block of a cluster left out", "values", "float32", "softmax.cu", CLUSTER_SOFT,
          "other = 0; other < CLUSTER; ++other)\n        total",
          "other = 1; other < CLUSTER; ++other)\n        total"),
    Fault("softmax", "sums of a cluster not rescaled", "values", "float32", "softmax.cu", CLUSTER_SOFT,
          " * exponential_below(*in_block(other, &block_maximum), top_shift);", ";"),
    Fault("softmax", "head and tail not scaled", "values", "float32", "softmax.cu", CLUSTER_SOFT,
          "to[extra] = result(odd, false);", "to[extra] = narrow<T>(exponential_below(odd, shift));"),
    Fault("softmax", "last packs in no share", "values", "float32", "softmax.cu", CLUSTER_SOFT,
          "share = (packs / CLUSTER + 8) / 8 * 8", "share = packs / CLUSTER / 8 * 8"),
    Fault("softmax", "exponentials not kept", "values", "float32", "softmax.cu", CLUSTER_SOFT,
          "if (kExponentials) pack.at[i] = static_cast<K>(exponential);", ""),
    Fault("softmax", "16-bit elements not shifted", "values", "bfloat16", "softmax.cu", CLUSTER_SOFT16,
          "below(value, shift)", "below(value, 0.0f)"),
    Fault("log_softmax", "no logarithm", "values", "float32", "rows.cuh", LOG_SOFT,
          "rest = is_infinite ? maximum : logarithm(sum);", "rest = is_infinite ? maximum : sum;"),
    Fault("log_softmax", "sum below an infinite maximum", "extremal", "float32", "rows.cuh", LOG_SOFT,
          "rest = is_infinite ? maximum : logarithm(sum);", "rest = logarithm(sum);"),
    Fault("log_softmax", "rounded to the maximum's last place", "values", "float32", "softmax.cu", LOG_SOFT,
          "values[p][i] - level.shift - level.rest", "values[p][i] - (level.shift + level.rest)"),
    Fault("log_softmax", "exponentials of a long row", "values", "float32", "softmax.cu",
          "softmax_cluster<float32, 4, 8, true>",
          "kExponentials = Kept<T>::exponentials && !LOG", "kExponentials = Kept<T>::exponentials"),
    Fault("logsumexp", "end of a row left out", "values", "float32", "softmax.cu", "logsumexp_rows<float32, 4, 32>",
          "for (; at < columns; ++at) running", "for (; at + 1 < columns; ++at) running"),
    Fault("logsumexp", "misaligned head skipped", "values", "float32", "softmax.cu", "logsumexp_rows<float32, 4, 32>",
          "if (lane < head) running.add_one(from[lane]);", ""),
    Fault("logsumexp", "row stride ignored", "values", "float32", "softmax.cu", "logsumexp_rows<float32, 4, 32>",
          "    const T* from = a + row * columns;\n    const int64 lane",
          "    const T* from = a;\n    const int64 lane"),
    Fault("softmax", "maximum of half a warp", "values", "float32", "rows.cuh", SOFT,
          "lane = 16; lane; lane /= 2) value = nan_maximum", "lane = 8; lane; lane /= 2) value = nan_maximum"),
    # -------------------------------------------------------------------------------------------- padding.cu
    Fault("pad", "input not moved", "values", "float32", "padding.cu", "pad<uint32, 4, false>",
          "position -= padding.before[axis];", ""),
    Fault("pad", "no value after the input", "values", "float32", "padding.cu", "pad<uint32, 4, false>",
          "position >= 0 && position < padding.length[axis]", "position >= 0"),
    Fault("pad", "last axis decides", "values", "float32", "padding.cu", "pad<uint32, 4, false>",
          "place.is_inside = place.is_inside && position", "place.is_inside = position"),
    Fault("pad", "next row not looked for", "values", "float32", "padding.cu", "pad<uint32, 4, false>",
          "if (place.position + i >= padding.extent[0]) here = place_of(padding, first + i);", ""),
    # -------------------------------------------------------------------------------------------- variance.cu
    Fault("var", "square of the mean of a pack", "values", "float32", "variance.cu", VAR,
          "        const W rest = widen<W>(pack.at[i]) - found.mean;\n        found.squares += rest * rest;",
          "        found.squares += widen<W>(pack.at[i]) * widen<W>(pack.at[i]) - found.mean * found.mean;"),
    Fault("var", "misaligned head left out", "values", "float32", "variance.cu", VAR,
          "if (lane < head) variance.merge(variance_of<W>(load_pack<T, 1>(from + lane)));", ""),
    Fault("var", "second half of the warps", "values", "float32", "variance.cu", "var_rows<float32, 4, 256>",
          "warp < LANES / 32; ++warp", "warp < LANES / 64; ++warp"),
    Fault("var", "divisor ignored", "values", "float32", "rows.cuh", VAR,
          "squares / W(divisor)", "squares / count"),
    Fault("var", "share of a part ignored", "values", "float32", "rows.cuh", VAR,
          "mean += step * share;", "mean += step;"),
    Fault("var", "distance of means ignored", "values", "float32", "rows.cuh", VAR,
          "other.squares + step * (count * share) * step", "other.squares"),
    # -------------------------------------------------------------------------------------------- columns.cu
    Fault("var", "columns: mean not moved", "values", "float32", "rows.cuh", VAR_COLUMNS,
          "mean += step * inverse;", ""),
    Fault("var", "columns: last line left out", "values", "float32", "columns.cu", VAR_COLUMNS,
          "other = 1; other < 8; ++other", "other = 1; other < 7; ++other"),
    Fault("logsumexp", "columns: sum not rescaled", "values", "float32", "columns.cu",
          "statistic_of_part<LogSum<float32>, float32, 1>", "sum * smaller + total", "sum + total"),
    Fault("logsumexp", "columns: last part left out", "values", "float32", "columns.cu",
          "statistic_of_parts<LogSum<float32>, float32>", "part < parts; ++part", "part + 1 < parts; ++part"),
    # -------------------------------------------------------------------------------------------- layer_norm.cu
    Fault("layer_norm", "eps ignored", "values", "float32", "layer_norm.cu", NORM,
          "warp_sum(squares) / W(columns) + W(eps)", "warp_sum(squares) / W(columns)"),
    Fault("layer_norm", "eps ignored in long rows", "values", "float64", "layer_norm.cu",
          "layer_norm_long<float64, 1, true>",
          "block_sum(square, squares) / W(columns) + W(eps)", "block_sum(square, squares) / W(columns)"),
    Fault("layer_norm", "mean of squares less square of the mean", "values", "float32", "layer_norm.cu", NORM,
          EACH_PACK, CANCELLING),
    Fault("layer_norm", "unbiased", "values", "float32", "layer_norm.cu", NORM,
          "inverse_root(warp_sum(squares) / W(columns)", "inverse_root(warp_sum(squares) / W(columns - 1)"),
    Fault("layer_norm", "lanes past the row counted", "values", "float32", "layer_norm.cu", NORM,
          "if (inside) squares +=", "squares +="),
    Fault("layer_norm", "weight for bias", "values", "bfloat16", "layer_norm.cu", NORM16,
          "widen<W>(weights.at[i]) + widen<W>(biases.at[i])", "widen<W>(biases.at[i]) + widen<W>(weights.at[i])"),
    Fault("layer_norm", "16-bit accumulator", "values", "bfloat16", "layer_norm.cu", LONG_NORM16,
          "sum += widen<W>(pack.at[i]);", "sum = widen<W>(narrow<T>(sum + widen<W>(pack.at[i])));"),
    Fault("layer_norm", "row stride ignored", "values", "float32", "layer_norm.cu", LONG_NORM,
          "const T* from = a + int64(blockIdx.x) * columns;", "const T* from = a;"),
    Fault("layer_norm", "last packs of a long row", "values", "float32", "layer_norm.cu", LONG_NORM,
          "for (; p < packs; p += stride) {", "for (; p + 1 < packs; p += stride) {"),
    Fault("layer_norm", "one warp of a block", "values", "float32", "rows.cuh", LONG_NORM,
          "warp_sum(threadIdx.x % 32 < blockDim.x / 32 ?", "warp_sum(threadIdx.x % 32 < 1 ?"),
    Fault("layer_norm", "sum of half a warp", "values", "float32", "rows.cuh", NORM,
          "lane = 16; lane; lane /= 2) value +=", "lane = 8; lane; lane /= 2) value +="),
    # -------------------------------------------------------------------------------------------- row_gradients.cu
    Fault("softmax_backward", "sum left out", "values", "float32", "row_gradients.cu", SOFT_GRAD,
          "(widen<W>(grads[p].at[i]) - total)", "widen<W>(grads[p].at[i])"),
    Fault("softmax_backward", "sum of a thread", "values", "float32", "row_gradients.cu", LONG_SOFT_GRAD,
          "total = block_sum(total, scratch);", ""),
    Fault("softmax_backward", "elements after the packs", "values", "float32", "row_gradients.cu", LONG_SOFT_GRAD,
          "threadIdx.x < columns - packs * N", "threadIdx.x < head"),
    Fault("softmax_backward", "elements before the packs", "values", "float32", "row_gradients.cu", LONG_SOFT_GRAD,
          "(threadIdx.x < head ? 0 : packs * N)", "packs * N"),
    Fault("layer_norm_backward", "mean of the gradient left out", "values", "float32", "row_gradients.cu", NORM_GRAD,
          "(grads[p][i] - first - values[p][i] * second)", "(grads[p][i] - values[p][i] * second)"),
    Fault("layer_norm_backward", "unbiased in long rows", "values", "float32", "row_gradients.cu", LONG_NORM_GRAD,
          "block_sum(squares, scratch[1]) / W(columns)", "block_sum(squares, scratch[1]) / W(columns - 1)"),
    Fault("layer_norm_backward", "eps ignored in long rows", "values", "float32", "row_gradients.cu", LONG_NORM_GRAD,
          "block_sum(squares, scratch[1]) / W(columns) + W(eps)", "block_sum(squares, scratch[1]) / W(columns)"),
    # -------------------------------------------------------------------------------------------- philox.cuh, random.cu
    Fault("uniform", "upper half of the seed ignored", "values", "float32", "philox.cuh", UNIFORM,
          "second = uint32(from.seed >> 32)", "second = 0"),
    Fault("uniform", "nine rounds", "values", "float32", "philox.cuh", UNIFORM,
          "round < 10", "round < 9"),
    Fault("uniform", "upper half of the offset ignored", "values", "float64", "philox.cuh",
          "random_fill<Uniform<float64>, float64, 2, false>", "uint32(low >> 32)", "0"),
    Fault("normal", "a constant of three digits", "values", "float32", "philox.cuh",
          "random_fill<Normal<float32>, float32, 4, false>", "0.3333321f", "0.333f"),
    Fault("normal", "sine and cosine exchanged", "values", "float64", "philox.cuh",
          "random_fill<Normal<float64>, float64, 2, false>", "&sine, &cosine", "&cosine, &sine"),
    Fault("uniform", "16 bits rounded to nearest", "values", "bfloat16", "random.cu",
          "random_fill<Uniform<bfloat16>, bfloat16, 8, false>",
          "__float2bfloat16_rd(value)", "__float2bfloat16_rn(value)"),
    Fault("uniform", "last of a group not stored", "values", "float32", "random.cu", UNIFORM,
          "if (first + from + i < n) out[", "if (first + from + i + 1 < n) out["),
    Fault("uniform", "groups of a thread share their words", "values", "float32", "random.cu", UNIFORM,
          "(start + g * int64(blockDim.x)) * kCalls + call", "start * kCalls + call"),
    Fault("integers", "remainder for product", "values", "int32", "random.cu",
          "random_fill<Integers<int32>, int32, 4, false>",
          "low + __umul64hi(uint64(words.y) << 32 | words.x, range)",
          "low + (uint64(words.y) << 32 | words.x) % range"),
    Fault("integers", "carry forgotten", "values", "int64", "random.cu",
          "random_fill<LongIntegers<int64>, int64, 2, false>", " + (carried < product)", ""),
    Fault("permutation", "twelve rounds", "values", "int32", "random.cu", "random_permutation<int32, 4, false>",
          "round < kRounds;", "round < kRounds / 2;"),
    Fault("permutation", "parity always odd", "values", "int32", "random.cu", "random_permutation<int32, 4, false>",
          "found ^ (keys[kRounds] & 1)", "found ^ 1"),
    Fault("dropout_mask", "drops what it should keep", "values", "float32", "random.cu",
          "random_fill<Keep<uint8>, uint8, 16, false>", "to[0] = words.x >= dropped", "to[0] = words.x < dropped"),
    Fault("dropout", "not scaled", "values", "bfloat16", "random.cu",
          "random_map<Dropout<bfloat16>, bfloat16, 8, false>", "widen<W>(a) * scale", "widen<W>(a)"),
    Fault("dropout", "one word for a whole call", "values", "float32", "random.cu",
          "random_map<Dropout<float32>, float32, 4, false>", "draw.of(to[1], w.y)", "draw.of(to[1], w.x)"),
    Fault("bernoulli", "half the probability", "values", "float32", "random.cu",
          "random_map<Bernoulli<float32>, float32, 4, false>",
          "widen<double>(p) * 0x1p32", "widen<double>(p) * 0x1p31"),
    # -------------------------------------------------------------------------------------------- adam.cu
    Fault("fused_adam_", "gradient not squared", "values", "float32", "adam.cu", ADAM,
          "step.one_minus_beta2 * slope * slope", "step.one_minus_beta2 * slope"),
    Fault("fused_adam_", "moment not corrected", "values", "float32", "adam.cu", ADAM,
          "step.step_size = W(lr) / correction1;", "step.step_size = W(lr);"),
    Fault("fused_adam_", "second moment not corrected", "values", "float32", "adam.cu", ADAM,
          "step.inverse_root = W(1) / root(correction2);", "step.inverse_root = W(1);"),
    Fault("fused_adam_", "step counted twice", "values", "float32", "adam.cu", ADAM,
          "steps[chunk.tensor] + 1.0f", "steps[chunk.tensor] + 2.0f"),
    Fault("fused_adam_", "step not counted", "values", "float32", "adam.cu", ADAM,
          "ticket == uint32(tensor.chunks - 1)", "ticket == uint32(tensor.chunks)"),
    Fault("fused_adam_", "decay left out", "values", "float64", "adam.cu",
          "adam<float64, float64, float64, false, false, 0, false, 0, 3>",
          "fused(step.decay, p, step.sign * g)", "step.sign * g"),
    Fault("fused_adam_", "decoupled decay left out", "values", "float32", "adam.cu", ADAM,
          "        p = fused(-step.shrink, p, p);\n", ""),
    Fault("fused_adam_", "not maximized", "values", "float32", "adam.cu", ADAM,
          "hyper.maximize ? W(-1) : W(1)", "W(1)"),
    Fault("fused_adam_", "maximum forgotten", "values", "float32", "adam.cu", AMSGRAD,
          "AMSGRAD ? nan_maximum(widen<W>(maximum.at(i)), v) : v", "v"),
    Fault("fused_adam_", "found_inf ignored", "values", "float32", "adam.cu", ADAM,
          "step.skipped = cells.found_inf && *cells.found_inf != 0.0f;", "step.skipped = false;"),
    Fault("fused_adam_", "gradients left by a skipped step", "values", "float32", "adam.cu", AMSGRAD,
          "        if (GRADS == kZeroed) {\n", "        if (GRADS == kLeft) {\n"),
    Fault("fused_adam_", "gradients not zeroed", "values", "float32", "adam.cu", AMSGRAD,
          "grad.put(i, narrow<G>(0.0f))", "grad.put(i, narrow<G>(g))"),
    Fault("fused_adam_", "scaled once more", "values", "float32", "adam.cu", ADAM,
          "step.factor /= W(*cells.grad_scale);", "step.factor *= W(*cells.grad_scale);"),
    Fault("fused_adam_", "not clipped", "values", "float32", "adam.cu", ADAM,
          "clip < W(1) || is_nan(clip) ? clip : W(1)", "W(1)"),
    Fault("fused_adam_", "master not written", "values", "bfloat16", "adam.cu",
          "adam<bfloat16, bfloat16, float32, true, false, 2, false, 0, 6>",
          "if (MASTER) weight.put(i, narrow<Weight>(p));", ""),
    # -------------------------------------------------------------------------------------------- casts, loss_scale.cu
    Fault("cast", "rounded twice", "values", "float64", "elementwise.cu", "dense_cast<bfloat16, float64, 2>",
          "struct Middle<bfloat16, float64> { using type = double; };",
          "struct Middle<bfloat16, float64> { using type = float; };"),
    Fault("cast", "stride of the input ignored", "layouts", "float32", "elementwise.cu",
          "strided_cast<float16, float32>",
          "widen<typename Middle<T, A>::type>(a[at.a])", "widen<typename Middle<T, A>::type>(a[index])"),
    Fault("update_scale_", "never backed off", "values", "float32", "loss_scale.cu", "update_scale",
          "*found_inf != 0.0f", "false"),
    Fault("update_scale_", "grown to infinity", "values", "float32", "loss_scale.cu", "update_scale",
          "if (isfinite(grown)) now = grown;", "now = grown;"),
    Fault("update_scale_", "grows a step late", "values", "float32", "loss_scale.cu", "update_scale",
          "*tracker + 1 < interval", "*tracker < interval"),
    Fault("update_scale_", "inverse of the old scale", "values", "float32", "loss_scale.cu", "update_scale",
          "    *scale = now;\n    *inv_scale = float32(1.0 / float64(now));\n",
          "    *inv_scale = float32(1.0 / float64(*scale));\n    *scale = now;\n"),
    # -------------------------------------------------------------------------------------------- multi_tensor.cu
    Fault("foreach_add_", "alpha ignored", "values", "float32", "multi_tensor.cu", POINTWISE.format("Add"),
          "return a + alpha * b;", "return a + b;"),
    Fault("foreach_mul_", "adds", "values", "bfloat16", "multi_tensor.cu", POINTWISE.format("Mul"),
          "{ return a * b; } };", "{ return a + b; } };"),
    Fault("foreach_lerp_", "the other way", "values", "float32", "multi_tensor.cu", POINTWISE.format("Lerp"),
          "a + weight * (b - a)", "b + weight * (a - b)"),
    Fault("foreach_copy_", "rounded on the way", "values", "float64", "multi_tensor.cu",
          "pointwise<Copy, float64, float64, true, 0, 1>",
          "LIST ? widen<W>(b.at(i)) : other", "LIST ? W(widen<float>(b.at(i))) : other"),
    Fault("foreach_zero_", "ones", "values", "float32", "multi_tensor.cu", POINTWISE.format("Zero"),
          "{ return W(0); } };", "{ return W(1); } };"),
    Fault("foreach_unscale_", "infinity not told", "values", "float32", "multi_tensor.cu", "unscale<float32, 1>",
          "if (!finite) *found_inf = 1.0f;", ""),
    Fault("foreach_norm", "sum of numbers", "values", "float32", "multi_tensor.cu",
          "norms<SumOfSquares, float32, float32, 64>", "return fma(x, x, total);", "return total + x;"),
    Fault("foreach_norm", "sign of the largest", "values", "float32", "multi_tensor.cu",
          "norms<Largest, float32, float32, 64>", "nan_maximum(total, fabs(x))", "nan_maximum(total, x)"),
    Fault("foreach_norm", "last chunk left out", "values", "float32", "multi_tensor.cu",
          "norms<SumOfSquares, float32, float32, 64>", "part < count; part +=", "part + 1 < count; part +="),
    Fault("global_norm_", "not unscaled", "values", "float32", "multi_tensor.cu", GLOBAL_NORM,
          "if (grad_scale) mine /= *grad_scale;", ""),
    Fault("global_norm_", "infinity not told", "values", "float32", "multi_tensor.cu", GLOBAL_NORM,
          "!isfinite(total) || (accumulate", "(accumulate"),
    Fault("global_norm_", "squares in float", "values", "float32", "multi_tensor.cu", GLOBAL_NORM,
          "total = Order::of(total, widen<double>(pack.at(i)));",
          "total = float(Order::of(total, widen<double>(pack.at(i))));"),
    # -------------------------------------------------------------------------------------------- multi_tensor.cuh
    Fault("foreach_add_", "last element not stored", "values", "float32", "multi_tensor.cuh", POINTWISE.format("Add"),
          "return i >= begin && i < end;", "return i >= begin && i + 1 < end;"),
    Fault("fused_adam_", "odd bytes of a shift ignored", "values", "bfloat16", "multi_tensor.cuh", ADAM16,
          "words[i + 1], 8 * (shift & 3))", "words[i + 1], 0)"),
    Fault("fused_adam_", "second granule not read", "values", "bfloat16", "multi_tensor.cuh", ADAM16,
          "load_words<T, N>(granule + sizeof(T) * N)", "load_words<T, N>(granule)"),
    Fault("fused_adam_", "next lane's pack for the former's", "values", "bfloat16", "multi_tensor.cuh", ADAM16,
          "__shfl_up_sync(0xffffffffu, words", "__shfl_down_sync(0xffffffffu, words"),
    Fault("fused_adam_", "end of a warp not stored", "values", "bfloat16", "multi_tensor.cuh", ADAM16,
          "|| (lane == 31 && i >= own)", ""),
    Fault("mixed_linear", "the sign of 8 bits lost", "values", "bfloat16", "skinny_mixed.cu", MIXED8,
          "both & 0xff80ff80", "both & 0xff00ff00"),
    Fault("mixed_linear", "the second half of 4 bits is the first", "values", "float16", "skinny_mixed.cu", MIXED4,
          "word >> (8 * part + 4)", "word >> 8 * part"),
    Fault("mixed_linear", "the last lines left out", "values", "bfloat16", "skinny_mixed.cu", MIXED8,
          "start < lines; start", "start + SLICES < lines; start"),
    Fault("mixed_linear", "the scales of the first row for all", "values", "bfloat16", "skinny_mixed.cu", MIXED4,
          "scales_of[t][half] = row * groups;", "scales_of[t][half] = 0;"),
    Fault("mixed_linear", "one slice too few", "values", "bfloat16", "skinny_warps.cuh", MIXED8,
          "for (int s = 0; s < SLICES; ++s)", "for (int s = 1; s < SLICES; ++s)"),
    Fault("mixed_linear", "4 bits without a sign", "values", "float32", "dequantize.cu",
          "dequantize<float32, 4, 8, false>", "& 15) ^ 8) - 8", "& 15) ^ 0) - 0"),
    Fault("mixed_linear", "the scaled weights for what was rounded off", "values", "bfloat16", "dequantize.cu",
          "dequantize<bfloat16, 4, 8, true>", "LOW ? number - widen<W>(narrow<T>(number))", "LOW ? number"),
)  # fmt: skip


def text_of(file: str) -> str:
    return source.kernels_directory().joinpath(file).read_text(encoding="utf-8")


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_has_exactly_one_place(fault: Fault) -> None:
    assert text_of(fault.file).count(fault.right) == 1
    assert fault.check in CHECKS


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_spoilt_kernel_compiles(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
    try:
        right, wrong = compiled_right(fault.unit, fault.kernel), compiled(fault, fault.spoilt())
    except LibraryNotFoundError as error:
        pytest.skip(str(error))

    assert right.cubin != wrong.cubin


@cache
def compiled_right(unit: str, kernel: str) -> source.Compiled:
    """Without a fault: once for all faults of a kernel, because a compilation takes up to a second."""
    return source.compile_source(source.kernel_source(unit), name_expressions=[kernel], arch="sm_90", file=unit)


def compiled(fault: Fault, text: str) -> source.Compiled:
    return source.compile_source(text, name_expressions=[fault.kernel], arch="sm_90", file=fault.unit)


#: Kernels of no op, or of no default mode, which no generated check runs: tests of their own find their faults.
NO_OPS = {
    *("agreement.cu", "condition.cu", "emulated_gemm.cu", "pitched.cu", "spin.cu", "tags.cu", "transpose.cu"),
    *("body.cuh", "complex.cuh", "skinny.cuh", "skinny_narrow.cu", "skinny_wide.cu"),
}


def test_every_kernel_file_has_a_planted_fault() -> None:
    files = {path.name for path in source.kernels_directory().iterdir() if path.suffix in (".cu", ".cuh")}

    assert {fault.file for fault in FAULTS} == files - NO_OPS


# ------------------------------------------------------------------------------------------------ on a device


@pytest.fixture
def no_stale_memory(on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh arrays hold large numbers: what a fault leaves unwritten may not be right from an earlier test."""
    cupy = pytest.importorskip("cupy")

    def poisoned(function: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> Any:
            array = function(*args, **kwargs)
            if array.nbytes:
                array.data.memset_async(0x7B, array.nbytes)
            return array

        return make

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(cupy, name, poisoned(getattr(cupy, name)))
    from cuassay.devices.cuda.blas import product_shortcuts
    from cuassay.devices.cuda.eager import repeated
    from cuassay.devices.cuda.memory import hook

    monkeypatch.setattr(devices.backend("cuda"), "empty", poisoned(hook.empty))
    for module in (product_shortcuts, repeated):
        monkeypatch.setattr(module, "_fresh", poisoned(hook.fresh))


@pytest.fixture
def planted(
    no_stale_memory: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Fault], None]]:
    """Compiles the spoilt text for the fault's kernel, the right one for all others; forgets both afterwards."""
    right = launch.compile_source

    def plant(fault: Fault) -> None:
        def compile_spoilt(text: str, *, name_expressions: Any, **options: Any) -> source.Compiled:
            if name_expressions[0].partition("<")[0] != fault.kernel.partition("<")[0]:
                return right(text, name_expressions=name_expressions, **options)
            with monkeypatch.context() as apart:
                apart.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
                return right(fault.spoilt(), name_expressions=name_expressions, **options)

        monkeypatch.setattr(launch, "compile_source", compile_spoilt)
        forget_kernels()

    yield plant
    forget_kernels()


def forget_kernels() -> None:
    """Compile again at the next call: the launches that shortcuts and plans of products keep hold a kernel too."""
    from cuassay.devices.cuda.blas import controls
    from cuassay.devices.cuda.eager import shortcuts

    controls.renew()
    launch.kernel.cache_clear()
    shortcuts.forget()


def caught_by_its_check(fault: Fault) -> str:
    """All that pytest shows of the failure."""
    with pytest.raises((AssertionError, DriverError)) as caught:
        CHECKS[fault.check](SPECS[fault.op], "cuda:0", as_dtype(fault.dtype))
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_kernel_fault_fails_a_check_that_names_the_op(fault: Fault, planted: Callable[[Fault], None]) -> None:
    planted(fault)

    told = caught_by_its_check(fault)

    assert f"op: {fault.op} on cuda:0 in {fault.dtype}" in told
    assert "sample: " in told
    assert devices.backend("cuda").health(0) is None
