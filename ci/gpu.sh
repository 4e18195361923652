#!/usr/bin/env bash
# health check, suites and measurements on one GPU, and the run's ledger file: gpu [--device D] [--out DIR]
# groups: test
set -uo pipefail
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-100} PYTHONUNBUFFERED=1
device=cuda:0
out=reports/out/gpu
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?--device needs a device} ;;
        --out) out=${2:?--out needs a folder} ;;
        *)
            echo "ci/run gpu: unknown argument '$1'; it takes --device D and --out DIR" >&2
            exit 2
            ;;
    esac
    shift 2
done
mkdir -p "$out"
rm -f "$out"/*.jsonl "$out"/{gpu.log,junit.xml,report.html,report.md}
rows=$out/rows.jsonl
log=$out/gpu.log
failed=()

# Every step runs, whatever failed before it: a record of a failure is worth more than none. One that outlasts its time
# is interrupted, so that pytest still reports, and killed if the driver holds it.
step() { # NAME SECONDS COMMAND...
    local begun=$SECONDS status=0
    printf '\n== %s\n' "$1" | tee -a "$log"
    timeout --signal=INT --kill-after=15 "$2" "${@:3}" 2>&1 | tee -a "$log"
    status=${PIPESTATUS[0]}
    [ "$status" -eq 0 ] || failed+=("$1 ($status)")
    printf '== %s: status %d, %d s\n' "$1" "$status" $((SECONDS - begun)) | tee -a "$log"
}

health() { # what the driver says, what we say, and one launch with its result read back
    local status=0
    nvidia-smi || status=1
    "$PYTHON" -m cuassay.cli devices -v || status=1
    "$PYTHON" -c '
import sys
import numpy as np
from cuassay import from_host, ops, to_host
zeros = from_host(np.zeros(1024, np.float32), sys.argv[1])
total = float(to_host(ops.sum(ops.add(zeros, 1.0))))
print(f"launched on {sys.argv[1]}: 1,024 ones add up to {total:g}")
sys.exit(total != 1024)' "$device" || status=1
    return "$status"
}
export -f health
export PYTHON device

run=$("$PYTHON" -m cuassay.benchmarking.ledger begin "$rows" --command "ci/run gpu --device $device") || exit 2
recorded=(--device "$device" --require-device "$device" --cuassay-record "$rows" --cuassay-run "$run" -q)

step health 60 bash -c health
step suites 270 "$PYTHON" -m pytest suites/devices suites/nvidia suites/harness/test_cuda_states.py "${recorded[@]}" \
    --benchmark-disable --tb=short --junit-xml "$out/junit.xml"
step speed 170 "$PYTHON" -m pytest suites/speed/test_ops.py suites/speed/test_bandwidth.py suites/speed/test_host_overhead.py suites/speed/test_streams.py suites/speed/test_memory_device.py suites/speed/test_pinned.py suites/speed/test_blas.py suites/speed/test_adam.py "${recorded[@]}" \
    --benchmark-only --benchmark-columns=min,median,iqr,rounds
step ledger 30 "$PYTHON" -m cuassay.benchmarking.ledger write "$rows" --out reports/ledger
if kept=$(grep -ls "\"$run\"" reports/ledger/*.jsonl); then
    rm "$rows" # the same run twice would be counted twice
    cp "$kept" "$out/"
fi
step report 60 "$PYTHON" -m cuassay.cli report reports/ledger --html "$out/report.html" --md "$out/report.md"

printf '\n%d s in all; the record is %s\n' "$SECONDS" "${kept:-$rows}"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'gpu failed:'
    printf ' %s;' "${failed[@]}"
    printf '\n'
    exit 1
fi
echo "gpu passed"
