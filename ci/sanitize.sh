#!/usr/bin/env bash
# the suites that run kernels, on cuda:0 under compute-sanitizer: sanitize [--tool T] [--jobs N] [--seconds S]
# groups: test
set -uo pipefail
tool=memcheck # or racecheck, initcheck, synccheck
cores=$(nproc)
jobs=$((cores < 12 ? cores : 12))
seconds=540 # for each process; its log shows what it did not reach
while [ $# -gt 0 ]; do
    case $1 in
        --tool) tool=${2:?--tool needs a tool of compute-sanitizer} ;;
        --jobs) jobs=${2:?--jobs needs a number of processes} ;;
        --seconds) seconds=${2:?--seconds needs a number} ;;
        *)
            echo "ci/run sanitize: unknown argument '$1'; it takes --tool T, --jobs N and --seconds S" >&2
            exit 2
            ;;
    esac
    shift 2
done
out=reports/out/sanitize
mkdir -p "$out"
rm -f "$out/$tool"-*.{log,status}

skip() {
    echo "sanitize skipped: $1"
    exit 0
}

sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) ||
    skip "compute-sanitizer is not on PATH; it comes with the CUDA toolkit"
"$PYTHON" -c 'import sys; from cuassay import devices; sys.exit(devices.backend("cuda").why_absent())' ||
    skip "there is no CUDA device"

# Every kernel in the two dtypes with separate code paths, by the checks of edge cases: sizes, layouts, outputs. From
# the other suites these are omitted: tests that start processes, that count device memory, of which the tool takes
# some, that show overlap by time, which the tool may prevent, and that repeat something many times.
edges="test_values or test_layouts or test_zero_size or test_broadcast or test_out or test_inplace"
apart="process or fork or interpreter or launches or before or pending or go_on or time or blocking or default_stream"
apart="$apart or thousand or external or digits or memory or leak or overlap or _pool or many_sizes or again_within"
apart="$apart or raw_handles or every_replay"
# Under the tool a graph's conditional nodes fail with a misaligned address, without naming an access.
apart="$apart or an_if_node or a_while_node or conditional"
files=(suites/devices/{checks/test_conformance,memory/test_copy,streams/test_streams,random/test_random}.py
    suites/devices/graphs/test_{graphs,graph_hooks,graphed_callables,graphed_step}.py
    suites/devices/training/test_{adam,foreach,grad_scaler}.py suites/devices/blas/test_{blas,conv}.py
    suites/nvidia/{streams/test_streams,graphs/test_graphs,random/test_random,training/test_adam,blas/test_blas}.py
    suites/nvidia/{ops/test_rows_on_device,ops/test_shortcuts,launch/test_user_kernel}.py)
chosen="(test_conformance or test_rows_on_device) and ($edges or test_rows_on_device) and (float32 or bfloat16)
    and not test_out_refused or not test_conformance and not test_rows_on_device and not ($apart)"
if [ "$tool" = racecheck ]; then # checks only shared memory, and is slow: only kernels that use it, and streams
    chosen="($chosen) and (softmax or layer_norm or sum or amax or norm or rows or streams or skinny or split)"
fi

part() { # NUMBER: each array has its own allocation; reads past an array's end in a pool's block raise no error
    # API errors are not reported: tests provoke some on purpose, and each return value is checked.
    exec timeout --signal=INT --kill-after=20 "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 99 \
        --report-api-errors no --print-limit 20 "$PYTHON" -c '
import contextlib, sys
import pytest
class Unpooled:
    def pytest_configure(self):  # not earlier: pytest rewrites modules only before their import
        import cupy
        from cuassay.cuda import memory
        from cuassay.testing import guards
        guards.memory_returned = contextlib.nullcontext  # the tool keeps the frames of each launch, and so their arrays
        cupy.cuda.set_allocator(None)
        memory.caching_allocator_enable(False)
sys.exit(pytest.main(sys.argv[1:], plugins=[Unpooled()]))' "${files[@]}" -k "${chosen//$'\n'/ }" --device cuda:0 \
        --require-device cuda:0 --cuassay-shard "$1/$jobs" --benchmark-disable -p no:cacheprovider -q --tb=short
}

status=0
pids=()
trap 'kill "${pids[@]}"; exit 130' INT TERM
# With two GPUs the tool breaks a capture in which a kernel is launched for the first time.
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONUNBUFFERED=1
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-$((seconds < 180 ? seconds / 2 : 90))} # seconds per test; the log then has its stacks
for ((number = 1; number <= jobs; number++)); do
    (
        part "$number" >"$out/$tool-$number.log" 2>&1 &
        trap 'kill $!' TERM
        wait $!
        echo $? >"$out/$tool-$number.status"
    ) &
    pids+=($!)
done
wait "${pids[@]}"
for ((number = 1; number <= jobs; number++)); do
    # not by wait: tests start processes until a number is given again, and bash then forgets its status
    found=$(cat "$out/$tool-$number.status" || echo 1)
    log=$out/$tool-$number.log
    printf '%s/%s: status %d: %s; %s\n' "$number" "$jobs" "$found" "$(grep -E ' (passed|failed|error)' "$log" | tail -n 1)" \
        "$(grep -E '^=+ (ERROR|RACECHECK) SUMMARY' "$log" | tail -n 1)"
    if [ "$found" -ne 0 ]; then
        status=$found
        tail -n 60 "$log"
    fi
done
if grep -qs "Device not supported" "$out/$tool"-*.log; then
    skip "compute-sanitizer says that this device is not supported, as it does inside some containers"
fi
[ "$status" -eq 0 ] && echo "sanitize passed: $tool" || echo "sanitize failed: $tool, status $status; see $out/$tool-*.log"
exit "$status"
