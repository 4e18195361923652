#!/usr/bin/env bash
# a reduced selection of tests on cuda:0 under compute-sanitizer: sanitize [memcheck|racecheck|initcheck|synccheck]
# groups: test
set -uo pipefail
tool=${1:-memcheck}
log=reports/out/sanitize/$tool.log
mkdir -p "$(dirname "$log")"

skip() {
    echo "sanitize skipped: $1"
    exit 0
}

sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) ||
    skip "compute-sanitizer is not on PATH; it comes with the CUDA toolkit"

# An array of its own allocation each: inside a pool's block, reading past an array's end is no error to the tool.
under_sanitizer() { # SECONDS PYTEST_ARGUMENT...
    # API errors are left out: tests provoke some, and each is checked by its return value.
    timeout --kill-after=15 "$1" "$sanitizer" --tool "$tool" --error-exitcode 99 --report-api-errors no --print-limit 20 \
        "$PYTHON" -c '
import sys
import cupy
import pytest
cupy.cuda.set_allocator(None)
sys.exit(pytest.main(sys.argv[1:]))' --device cuda:0 --require-device cuda:0 --benchmark-disable -p no:cacheprovider -q "${@:2}"
}

"$PYTHON" -c 'import sys; from cuassay import devices; sys.exit(devices.backend("cuda").why_absent())' ||
    skip "there is no CUDA device"

# Every kernel in the two dtypes that have paths of their own, by the checks that walk edges: sizes, layouts, outputs.
checks="test_values or test_layouts or test_zero_size or test_broadcast or test_out or test_inplace"
under_sanitizer 540 suites/devices/test_conformance.py suites/nvidia/test_rows_on_device.py \
    -k "($checks or test_rows_on_device) and (float32 or bfloat16) and not test_out_refused" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# Streams, events and captures. Left out: what starts processes or counts the card's memory, of which the tool takes
# some, and what shows by time that two things overlap, which under the tool they need not.
apart="process or fork or interpreter or launches or before or pending or go_on or time or blocking or default_stream or thousand"
under_sanitizer 240 suites/devices/test_streams.py suites/nvidia/test_streams.py -k "not ($apart or external)" 2>&1 |
    tee -a "$log"
second=${PIPESTATUS[0]}
[ "$status" -ne 0 ] || status=$second
if grep -q "Device not supported" "$log"; then
    skip "compute-sanitizer says that this device is not supported, as it does inside some containers"
fi
[ "$status" -eq 0 ] && echo "sanitize passed: $tool" || echo "sanitize failed: $tool, status $status; see $log"
exit "$status"
