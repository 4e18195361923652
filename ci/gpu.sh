#!/usr/bin/env bash
# health check, suites and measurements on one GPU, and the run's ledger: gpu [--device D] [--out DIR] [--jobs N] [--seconds S] [--without M,...]
# groups: test
set -uo pipefail
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-100} PYTHONUNBUFFERED=1
device=cuda:0
out=reports/out/gpu
cores=$(nproc)
jobs=$((cores < 8 ? cores : 8))
seconds=0 # for everything; 0 means only the steps' own limits
without=  # optional modules to hide, as if they were not installed
optional=" nvmath torch cuda.core numba "
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?--device needs a device} ;;
        --out) out=${2:?--out needs a folder} ;;
        --jobs) jobs=${2:?--jobs needs a number of processes} ;;
        --seconds) seconds=${2:?--seconds needs a number} ;;
        --without) without=${2:?--without needs names of modules, with commas:$optional} ;;
        *)
            echo "ci/run gpu: unknown argument '$1'; it takes --device D, --out DIR, --jobs N, --seconds S and --without M,..." >&2
            exit 2
            ;;
    esac
    shift 2
done
command="ci/run gpu --device $device"
for name in ${without//,/ }; do # a name that hides nothing would be recorded as a machine without a module
    if [[ $optional != *" $name "* ]]; then
        echo "ci/run gpu: $name is not an optional module; --without takes:$optional" >&2
        exit 2
    fi
done
if [ -n "$without" ]; then
    export WITHOUT_MODULES=$without PYTHONPATH=$PWD/ci/without${PYTHONPATH:+:$PYTHONPATH}
    command+=" --without $without"
fi
mkdir -p "$out"
rm -f "$out"/*.jsonl "$out"/status-* "$out"/junit*.xml "$out"/{gpu,suites-*}.log "$out"/report.{html,md}
rows=$out/rows.jsonl
log=$out/gpu.log
failed=()
notes=

# Every step runs even if earlier ones failed, because a record of a failure is better than none.
step() { # NAME COMMAND...
    local begun=$SECONDS status=0
    printf '\n== %s\n' "$1" | tee -a "$log"
    "${@:2}" 2>&1 | tee -a "$log"
    status=${PIPESTATUS[0]}
    if [ "$1" = speed ] && [ "$status" -eq 124 ] && [ "$seconds" -gt 0 ]; then
        notes="; speed was cut short by --seconds $seconds: what it had measured is kept"
    elif [ "$1" = report ] && [ "$status" -eq 1 ] && [ -n "$notes" ]; then
        notes="$notes; the report says so first"
    elif [ "$status" -ne 0 ]; then
        failed+=("$1 ($status)")
    fi
    printf '== %s: status %d, %d s\n' "$1" "$status" $((SECONDS - begun)) | tee -a "$log"
}

# A command over its time is interrupted, so that pytest still reports, and killed if the driver blocks it. It replaces
# the shell, which is part of a pipe or in the background, so that signals reach the command itself.
within() { # SECONDS COMMAND...
    exec timeout --signal=INT --kill-after=10 "$@"
}

left() { # MOST: the seconds for a step, so that 15 are left for the record and the page
    local rest=$((seconds - SECONDS - 15))
    [ "$seconds" -gt 0 ] && [ "$rest" -lt "$1" ] || rest=$1
    echo $((rest > 1 ? rest : 1))
}

health() { # what the driver reports, what cuassay reports, and one launch whose result is read back
    local status=0
    nvidia-smi || status=1
    [ -z "${WITHOUT_MODULES:-}" ] || echo "hidden, as if not installed: $WITHOUT_MODULES"
    "$PYTHON" -m cuassay devices -v || status=1
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

run=$("$PYTHON" -m cuassay.benchmarking.ledger begin "$rows" --command "$command") || exit 2
recorded=(--device "$device" --require-device "$device" --cuassay-record "$rows" --cuassay-run "$run" -q)
suites=(suites/devices suites/nvidia suites/harness/package/test_{cuda_states,documents,new_op}.py "${recorded[@]}" --benchmark-disable --tb=short
    -p no:cacheprovider)
ledger=(within 30 "$PYTHON" -m cuassay.benchmarking.ledger write "$rows" --out reports/ledger)

part() { # SECONDS NAME ARGUMENT...: one process over the suites
    within "$1" "$PYTHON" -m pytest "${suites[@]}" --junit-xml "$out/junit$2.xml" "${@:3}"
}

parts() { # SECONDS: as many processes as jobs in parallel, each over its part; each appends to the record row by row
    local status=0 found number pids=()
    trap 'kill "${pids[@]}"; exit 130' INT TERM
    # The references are computed on the host; with as many threads as cores in each process they would block each
    # other.
    export OMP_NUM_THREADS=$((cores > jobs ? cores / jobs : 1))
    export OPENBLAS_NUM_THREADS=$OMP_NUM_THREADS
    for ((number = 1; number <= jobs; number++)); do
        (
            part "$1" "-$number" --cuassay-shard "$number/$jobs" >"$out/suites-$number.log" 2>&1 &
            trap 'kill $!' TERM
            wait $!
            echo $? >"$out/status-$number"
        ) &
        pids+=($!)
    done
    wait "${pids[@]}"
    for ((number = 1; number <= jobs; number++)); do
        # not by wait: tests start processes until a number is given again, and bash then forgets its status
        found=$(cat "$out/status-$number" || echo 1)
        printf '%s/%s: status %d: %s\n' "$number" "$jobs" "$found" "$(tail -n 1 "$out/suites-$number.log")"
        if [ "$found" -ne 0 ]; then
            status=$found
            tail -n 60 "$out/suites-$number.log"
        fi
    done
    return "$status"
}

# The most important files come first, because the last ones are missing if time runs out. Omitted are whole traces
# through three allocators, which take as long as all the rest, and softmax over a vocabulary, which is also in
# test_bandwidth.py.
measured=()
for name in ops bandwidth bodies training adam graphs streams memory_device random blas emulation host_overhead pinned; do
    measured+=("suites/speed/test_$name.py")
done
measured+=(--deselect suites/speed/test_memory_device.py::test_replay)
for dtype in float32 bfloat16; do
    measured+=(--deselect "suites/speed/test_ops.py::test_op_second[$device-$dtype-softmax]")
done

step health within 60 bash -c health
if [ "$jobs" -gt 1 ]; then
    step suites parts "$(left 360)"
    step alone part "$(left 120)" -alone --cuassay-shard alone # runs alone on the device
else
    step suites part "$(left 540)" ""
fi
step outcomes within 30 "$PYTHON" -m cuassay.benchmarking.ledger check "$rows" --require-device "$device"
step ledger "${ledger[@]}" # now too, so that an interruption later loses nothing
step speed within "$(left 170)" "$PYTHON" -m pytest "${measured[@]}" "${recorded[@]}" \
    --benchmark-only --benchmark-max-time=0.05 --benchmark-columns=min,median,iqr,rounds
step end within 30 "$PYTHON" -m cuassay.benchmarking.ledger end "$rows" --run "$run"
step ledger "${ledger[@]}"
if kept=$(zgrep -ls "\"$run\"" reports/ledger/*.jsonl.gz); then
    rm "$rows" # the run would be counted twice
    cp "$kept" "$out/"
fi
step report within 60 "$PYTHON" -m cuassay report reports/ledger --html "$out/report.html" --md "$out/report.md"

printf '\n%d s in all; the record is %s\n' "$SECONDS" "${kept:-$rows}"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'gpu failed:'
    printf ' %s;' "${failed[@]}"
    printf '%s\n' "${notes#;}"
    exit 1
fi
echo "gpu passed$notes"
