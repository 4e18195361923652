"""Every kernel of ours compiles for its architectures, without a GPU, within a budget of registers and spills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

from cuassay.devices.cuda.launch import source
from cuassay.errors import LibraryNotFoundError


@dataclass(frozen=True)
class Budget:
    """The most registers, bytes spilled and bytes of stack that a thread may use."""

    file: str
    name: str
    registers: int
    why: str
    spilled: int = 0
    stack: int = 0


# What streams shall leave room for 1,536 threads a multiprocessor (40 registers, 48 for the heavier ones); a warp that
# keeps its row in registers, and a block that waits for shared memory rather than for registers, may use 64.
BUDGETS = (
    Budget("agreement.cu", "compare<bfloat16>", 48, "three sums in double"),
    Budget("agreement.cu", "compare<float64>", 48, "three sums in double"),
    Budget("condition.cu", "set_condition", 32, "one load, and a call of the driver's"),
    Budget("elementwise.cu", "dense_unary<Exp, float32, 4>", 40, "streams"),
    Budget("elementwise.cu", "dense_cast<bfloat16, float32, 4>", 40, "streams"),
    Budget("elementwise.cu", "strided_cast<bfloat16, float64>", 48, "64-bit divisions of an index"),
    Budget("elementwise.cu", "dense_unary<Gelu, bfloat16, 8>", 48, "eight polynomials"),
    Budget("elementwise.cu", "dense_binary<Add, bfloat16, 8>", 40, "streams"),
    Budget("elementwise.cu", "packed_binary<Add, bfloat16, 8>", 40, "streams"),
    Budget("elementwise.cu", "dense_binary<Sub, complex64, 2>", 40, "streams"),
    Budget("elementwise.cu", "dense_scalar<Swapped<Div>, bfloat16, 8>", 40, "streams"),
    Budget("elementwise.cu", "dense_unary<Silu, bfloat16, 8>", 40, "streams"),
    Budget("elementwise.cu", "dense_unary<Erf, float32, 4>", 48, "two polynomials"),
    Budget("elementwise.cu", "dense_unary<Log1P, float32, 4>", 48, "a polynomial"),
    Budget("elementwise.cu", "dense_unary<Expm1, bfloat16, 8>", 48, "a polynomial"),
    Budget("elementwise.cu", "dense_binary<Pow, float32, 4>", 48, "a logarithm in two parts"),
    Budget(
        "elementwise.cu",
        "dense_binary<Pow, bfloat16, 8>",
        56,
        "eight logarithms; 40 but on Turing, which has 1,024 threads",
    ),
    Budget(
        "elementwise.cu",
        "dense_unary<Sin, bfloat16, 8>",
        48,
        "eight sines and their arguments; CUDA's sinf keeps the digits of large ones on the stack",
        stack=32,
    ),
    Budget("elementwise.cu", "dense_unary<Cos, float16, 8>", 40, "streams"),
    Budget("elementwise.cu", "dense_clamp<bfloat16, 8>", 40, "streams"),
    Budget("elementwise.cu", "dense_comparison<LogicalAnd, float32, 4>", 40, "streams"),
    Budget("elementwise.cu", "dense_comparison<Less, int8, 16>", 64, "16 elements of two arrays"),
    Budget("elementwise.cu", "strided_comparison<GreaterEqual, float32, float16, float32>", 48, "64-bit divisions"),
    Budget("elementwise.cu", "dense_unary<Sigmoid, float32, 4>", 40, "streams"),
    Budget("elementwise.cu", "dense_unary<Tanh, bfloat16, 8>", 40, "streams"),
    Budget("elementwise.cu", "dense_binary<GeluBackward, bfloat16, 8>", 64, "eight polynomials of three factors"),
    Budget("elementwise.cu", "dense_binary<GeluTanhBackward, float32, 4>", 48, "an exponential and seven products"),
    Budget("elementwise.cu", "strided_comparison<Equal, float64, int64, float32>", 48, "64-bit divisions"),
    Budget("elementwise.cu", "dense_comparison_scalar<Equal, float32, bfloat16, 8>", 40, "streams"),
    Budget("elementwise.cu", "strided_comparison_scalar<Less, float64, float64>", 48, "64-bit divisions of an index"),
    Budget("elementwise.cu", "strided_where<uint64>", 48, "64-bit divisions of an index"),
    Budget("elementwise.cu", "packed_where<uint8, 16>", 64, "16 elements of two arrays, 64-bit divisions"),
    Budget("elementwise.cu", "packed_where<uint16, 8>", 48, "64-bit divisions of an index"),
    Budget("elementwise.cu", "dense_where<uint8, 16>", 64, "16 elements of two arrays"),
    Budget("elementwise.cu", "dense_where<uint32, 4>", 40, "streams"),
    Budget("elementwise.cu", "strided_gather<uint64, int64>", 48, "64-bit divisions of an index"),
    Budget("elementwise.cu", "strided_scatter_sum<bfloat16, int32>", 56, "64-bit divisions of an index"),
    Budget("indexing.cu", "gather_rows<uint16, int64, 8>", 40, "streams"),
    Budget("indexing.cu", "segment_sum<bfloat16, int64, false, 32>", 64, "places and values of eight rows"),
    Budget("indexing.cu", "segment_sum<float64, int32, true, 16>", 80, "places and values of eight rows"),
    Budget("scan.cu", "cumsum_rows<bfloat16, float32, bfloat16>", 48, "four sums"),
    Budget("scan.cu", "cumsum_rows<int8, int64, int64>", 56, "four sums of 64 bits"),
    Budget("scan.cu", "cumsum_columns<float32, float32, float32>", 64, "sixteen rows under way"),
    Budget("scan.cu", "cumsum_columns<float64, float64, float64>", 64, "eight rows under way"),
    Budget("scan.cu", "cumsum_parts<float32, float32>", 64, "sixteen rows under way"),
    Budget("argmax.cu", "argmax_rows<float32, float32, 4>", 64, "a value and its place"),
    Budget("argmax.cu", "argmax_parts<bfloat16, float32>", 48, "a value and its place"),
    Budget("argmax.cu", "argmax_columns<float64, float64>", 48, "a value and its place"),
    Budget("argmax.cu", "argmax_rows<int8, int64, 16>", 64, "16 values of 64 bits"),
    Budget(
        "reduce.cu", "reduce_short_rows<Mean, bfloat16, float32, bfloat16, 8>", 40, "a quotient by a number of 64 bits"
    ),
    Budget("reduce.cu", "reduce_columns<Min, float32, float32, float32, 4, 8>", 64, "4 packs in flight"),
    Budget("reduce.cu", "reduce_rows<Prod, bfloat16, float32, bfloat16, 8>", 64, "8 products and 4 packs in flight"),
    Budget("reduce.cu", "reduce_rows<Sum, bfloat16, float32, bfloat16, 8>", 64, "8 partial sums and 4 packs in flight"),
    Budget("reduce.cu", "reduce_columns<Max, float32, float32, float32, 4, 8>", 48, "4 packs in flight"),
    Budget("reduce.cu", "reduce_columns<Sum, bfloat16, float32, bfloat16, 8, 1>", 64, "8 sums and 4 packs in flight"),
    Budget(
        "reduce.cu", "reduce_columns<Sum, int8, int64, int64, 16, 8>", 128, "16 sums of 64 bits, 512 threads a block"
    ),
    Budget(
        "skinny_narrow.cu", "skinny_narrow<bfloat16, bfloat16, true, 8, 16, 1, 8, 4>", 128, "two blocks of 256 threads"
    ),
    Budget(
        "skinny_narrow.cu", "skinny_narrow<bfloat16, bfloat16, true, 32, 32, 1, 4, 4>", 168, "one block of 128 threads"
    ),
    Budget(
        "skinny_narrow.cu", "skinny_narrow<bfloat16, bfloat16, true, 32, 16, 3, 4, 4>", 168, "one block of 384 threads"
    ),
    Budget(
        "skinny_narrow.cu", "skinny_narrow<float16, float32, false, 16, 16, 4, 2, 6>", 128, "one block of 256 threads"
    ),
    *(
        Budget("skinny_mixed.cu", f"skinny_mixed<{numbers}>", registers, "the warps that fit")
        for numbers, registers in (
            ("bfloat16, float32, 8, false, 8, 32, 1, 16, 2, 1", 128),
            ("bfloat16, bfloat16, 4, true, 8, 16, 1, 8, 2, 3", 80),
            ("float16, float32, 8, false, 16, 32, 1, 8, 2, 2", 128),
            ("bfloat16, float32, 4, true, 16, 16, 1, 4, 2, 3", 168),
        )
    ),
    Budget(
        "skinny_mixed.cu",
        "skinny_mixed<float16, float16, 4, true, 16, 32, 1, 4, 2, 4>",
        128,
        "four blocks, by some compilers with a few numbers in memory; of three blocks it takes a sixth longer",
        96,
    ),
    Budget("dequantize.cu", "dequantize<bfloat16, 4, 8, true>", 40, "streams"),
    Budget("dequantize.cu", "dequantize<float64, 8, 8, false>", 40, "streams"),
    Budget("skinny_wide.cu", "skinny_wide<bfloat16, bfloat16, true, 64, 3, 1, 5>", 144, "one block of 416 threads"),
    Budget("skinny_wide.cu", "skinny_wide<float16, float32, false, 128, 3, 1, 3>", 144, "one block of 416 threads"),
    Budget("skinny_wide.cu", "skinny_wide<bfloat16, bfloat16, true, 128, 1, 1, 3>", 200, "two blocks of 160 threads"),
    Budget("skinny_wide.cu", "skinny_wide<bfloat16, bfloat16, true, 64, 2, 1, 4>", 112, "two blocks of 288 threads"),
    Budget("padding.cu", "pad<uint16, 8, true>", 48, "64-bit divisions of an index"),
    Budget("padding.cu", "pad<uint16, 8, false>", 64, "eight elements of several rows"),
    Budget(
        "columns.cu",
        "statistic_of_part<Variance<float32>, bfloat16, 8>",
        80,
        "eight variances and four packs in flight",
    ),
    Budget("columns.cu", "statistic_of_part<LogSum<float64>, float64, 2>", 128, "exp in double"),
    Budget("variance.cu", "var_rows<bfloat16, 8, 256>", 48, "four packs in flight"),
    Budget("variance.cu", "var_rows<float64, 2, 32>", 64, "four packs of doubles in flight"),
    Budget("softmax.cu", "logsumexp_rows<bfloat16, 8, 256>", 64, "four packs in flight"),
    Budget("softmax.cu", "logsumexp_rows<float32, 4, 32>", 64, "four packs in flight"),
    Budget("softmax.cu", "softmax_short<float32, 4, 8, true>", 80, "32 values a lane in registers"),
    Budget("softmax.cu", "softmax_long<bfloat16, 8, true, true>", 64, "1,024 threads a block leave no more"),
    Budget("softmax.cu", "softmax_cluster<float32, 4, 8, true>", 40, "6 blocks of 256 threads side by side"),
    Budget("softmax.cu", "softmax_short<float32, 4, 8>", 64, "32 values a lane in registers"),
    Budget("softmax.cu", "softmax_short<bfloat16, 8, 4>", 64, "32 values a lane in registers"),
    Budget("softmax.cu", "softmax_long<float32, 4, true>", 64, "1,024 threads a block leave no more"),
    Budget("softmax.cu", "softmax_long<bfloat16, 8, true>", 64, "1,024 threads a block leave no more"),
    Budget("softmax.cu", "softmax_cluster<float32, 4, 8>", 40, "6 blocks of 256 threads side by side"),
    Budget(
        "softmax.cu", "softmax_cluster<bfloat16, 8, 4>", 48, "5 blocks of 256 threads side by side; 6 before Blackwell"
    ),
    Budget("softmax.cu", "softmax_long<float64, 2, true>", 128, "exp in double; 512 threads a block"),
    Budget("softmax.cu", "softmax_long<float16, 8, false>", 64, "1,024 threads a block leave no more"),
    Budget("emulated_gemm.cu", "split_parts<2>", 64, "32 elements a thread in flight"),
    Budget("emulated_gemm.cu", "split_parts<3>", 64, "32 elements a thread in flight"),
    Budget("emulated_gemm.cu", "multiply_parts<2, 3, 3, 4>", 168, "128 sums a thread, one block a multiprocessor"),
    Budget("emulated_gemm.cu", "multiply_parts<3, 6, 2, 1>", 168, "128 sums a thread, one block a multiprocessor"),
    Budget("emulated_gemm.cu", "multiply_parts<3, 9, 2, 1>", 168, "128 sums a thread, one block a multiprocessor"),
    Budget("layer_norm.cu", "layer_norm_short<float32, 4, 6>", 64, "24 values a lane in registers"),
    Budget("layer_norm.cu", "layer_norm_short<bfloat16, 8, 3>", 64, "24 values a lane in registers"),
    Budget("layer_norm.cu", "layer_norm_long<float32, 4, true>", 64, "1,024 threads a block leave no more"),
    Budget("layer_norm.cu", "layer_norm_long<bfloat16, 8, true>", 64, "1,024 threads a block leave no more"),
    Budget("layer_norm.cu", "layer_norm_long<float64, 2, false>", 64, "1,024 threads a block leave no more"),
    Budget("row_gradients.cu", "softmax_backward_short<float32, 4, 8>", 112, "64 values a lane in registers"),
    Budget("row_gradients.cu", "softmax_backward_short<bfloat16, 8, 4>", 96, "64 values of 16 bits a lane"),
    Budget("row_gradients.cu", "softmax_backward_long<float32, 4>", 64, "two blocks of 512 threads"),
    Budget("row_gradients.cu", "layer_norm_backward_short<float32, 4, 6>", 80, "48 values a lane in registers"),
    Budget("row_gradients.cu", "layer_norm_backward_short<bfloat16, 8, 3>", 80, "48 values a lane in registers"),
    Budget("row_gradients.cu", "layer_norm_backward_long<float32, 4>", 64, "three packs in flight"),
    Budget("row_gradients.cu", "layer_norm_backward_long<float64, 2>", 64, "three packs in flight"),
    Budget("joining.cu", "join_few<int4>", 40, "a 64-bit division"),
    Budget("joining.cu", "join_many<char>", 40, "a 64-bit division"),
    Budget("pitched.cu", "copy_columns<int4>", 40, "four words of 16 bytes in flight"),
    Budget("pitched.cu", "copy_columns<short>", 40, "four words in flight"),
    Budget("transpose.cu", "transpose<uint8, 4>", 64, "four packs in flight"),
    Budget("transpose.cu", "transpose<uint16, 2>", 64, "eight packs in flight"),
    Budget("transpose.cu", "transpose<uint32, 1>", 64, "sixteen words in flight"),
    Budget("transpose.cu", "transpose<uint64, 1>", 64, "four words of 8 bytes in flight"),
    Budget("transpose.cu", "transpose<uint4, 1>", 64, "four words of 16 bytes in flight"),
    Budget("spin.cu", "spin", 16, "reads a clock"),
    Budget("tags.cu", "write_tag", 16, "one store"),
    Budget("tags.cu", "check_tag", 24, "one load, and a count"),
    Budget("random.cu", "random_fill<Uniform<float32>, float32, 4, false>", 48, "four calls in flight, 16 words"),
    Budget("random.cu", "random_fill<Uniform<bfloat16>, bfloat16, 8, false>", 56, "four calls in flight, 16 words"),
    Budget("random.cu", "random_fill<Normal<float32>, float32, 4, true>", 64, "four calls in flight, 16 words"),
    Budget("random.cu", "random_fill<Normal<float64>, float64, 2, false>", 64, "logarithm and sine in double"),
    Budget("random.cu", "random_fill<LongIntegers<int64>, int64, 2, false>", 48, "products of 128 bits"),
    Budget("random.cu", "random_fill<Keep<uint8>, uint8, 16, false>", 56, "four calls in flight, 16 words"),
    Budget("random.cu", "random_map<Dropout<bfloat16>, bfloat16, 8, false>", 64, "16 words with two packs"),
    Budget("random.cu", "random_map<Dropout<float64>, float64, 2, false>", 104, "16 words with 16 doubles"),
    Budget("random.cu", "random_map<Bernoulli<float32>, float32, 4, true>", 72, "16 words with four packs"),
    Budget("random.cu", "random_permutation<int64, 2, false>", 40, "the round keys are in shared memory"),
    Budget("adam.cu", "adam<float32, float32, float32, false, false, 0, false, 0, 6>", 64, "four packs in flight"),
    Budget("adam.cu", "adam<float32, float32, float32, false, false, 2, false, 0, 6>", 64, "four packs in flight"),
    Budget("adam.cu", "adam<float32, float32, float32, false, true, 0, false, 3, 4>", 72, "five packs, two shifted"),
    Budget("adam.cu", "adam<bfloat16, bfloat16, bfloat16, false, false, 0, false, 0, 6>", 64, "four packs in flight"),
    Budget("adam.cu", "adam<bfloat16, bfloat16, bfloat16, false, false, 0, false, 3, 5>", 80, "four, two shifted"),
    Budget("adam.cu", "adam<bfloat16, bfloat16, bfloat16, false, false, 0, true, 0, 4>", 104, "and their bits"),
    Budget("adam.cu", "adam<bfloat16, bfloat16, float32, true, false, 0, false, 0, 6>", 64, "four packs in flight"),
    Budget("adam.cu", "adam<float64, float64, float64, false, false, 0, false, 0, 3>", 88, "division in double"),
    Budget("loss_scale.cu", "update_scale", 40, "one thread"),
    Budget("tags.cu", "write_tag", 32, "one word a thread"),
    Budget("tags.cu", "check_tag", 32, "one word a thread"),
    Budget("multi_tensor.cu", "pointwise<Add, float32, float32, true, 0, 1>", 40, "streams"),
    Budget("multi_tensor.cu", "pointwise<Copy, bfloat16, float16, true, 2, 1>", 40, "streams"),
    Budget("multi_tensor.cu", "pointwise<Lerp, bfloat16, bfloat16, true, 0, 1>", 48, "two forms of eight elements"),
    Budget("multi_tensor.cu", "unscale<bfloat16, 1>", 40, "streams"),
    Budget("multi_tensor.cu", "norms<SumOfSquares, bfloat16, float32, 64>", 64, "four packs in flight"),
    Budget("multi_tensor.cu", "global_norm<float32, 64>", 64, "four packs in flight"),
)
FILES = sorted({budget.file for budget in BUDGETS})

#: Files of kernels that use what one architecture alone has.
SPECIFIC = dict.fromkeys(("emulated_gemm.cu", "skinny_narrow.cu", "skinny_wide.cu"), ("sm_90a",))
SPECIFIC["skinny_mixed.cu"] = ("sm_90",)


def compiled(file: str, arch: str) -> source.Compiled:
    names = [budget.name for budget in BUDGETS if budget.file == file]
    try:
        return source.compile_source(source.kernel_source(file), name_expressions=names, arch=arch, file=file)
    except LibraryNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("file", "arch"), [(file, arch) for file in FILES for arch in SPECIFIC.get(file, source.ARCHITECTURES)]
)
def test_no_kernel_spills_or_exceeds_its_budget(
    file: str, arch: str, record_property: Callable[[str, object], None]
) -> None:
    found = compiled(file, arch)

    over = []
    for budget in (budget for budget in BUDGETS if budget.file == file):
        used = found.resources[found.names[budget.name]]
        record_property(
            budget.name,
            f"{used.registers} registers, {used.stack} bytes of stack, {used.spill_stores + used.spill_loads} spilled",
        )
        spilled = used.spill_stores + used.spill_loads
        in_local_memory = spilled > budget.spilled or (used.stack > budget.stack and not budget.spilled)
        if used.registers > budget.registers or in_local_memory:
            over.append((budget.name, used, f"allowed {budget.registers}: {budget.why}"))
    assert over == []


def test_every_kernel_file_is_in_the_table() -> None:
    assert sorted(path.name for path in source.kernels_directory().glob("*.cu")) == FILES


@pytest.mark.parametrize("file", SPECIFIC)
def test_products_of_a_tile_run_side_by_side(file: str) -> None:
    assert "wgmma.mma_async instructions are serialized" not in compiled(file, *SPECIFIC[file]).log


@pytest.mark.parametrize("file", FILES)
def test_a_kernel_file_begins_with_its_formula_and_names_its_caller(file: str) -> None:
    head = source.kernel_source(file).partition("#include")[0]

    assert head.startswith("// out")
    for part in ("Shapes:", "Launch:", "Caller: devices/cuda/", "OpSpecs: cuassay/testing/specs/"):
        assert part in head
