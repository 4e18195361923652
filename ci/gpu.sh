#!/usr/bin/env bash
# health check, suites and measurements on cuda:0, and the run's record for reports/ledger
# groups: test
set -euo pipefail
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-120}
device=cuda:0
out=reports/out/gpu
rm -rf "$out"
mkdir -p "$out"

nvidia-smi
"$PYTHON" -m cuassay.cli devices -v

# All of them run, whatever fails: a record of a failure is worth more than none.
status=0
"$PYTHON" -m pytest suites/devices suites/nvidia --device "$device" --require-device "$device" \
    --benchmark-disable --junit-xml "$out/junit.xml" "$@" || status=$?
"$PYTHON" -m cuassay.cli run --device "$device" --out "$out" || status=$?
"$PYTHON" -m cuassay.cli report "$out" --html "$out/report.html" --md "$out/report.md"
echo "The record is in $out; keep its .jsonl in reports/ledger"
exit "$status"
