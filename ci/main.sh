#!/usr/bin/env bash
# tests and measures the declared ops on every device present, and writes the report
# groups: benchmark report
set -euo pipefail
runs=reports/out/main # one folder per run: the page shows changes since the previous run
status=0
"$PYTHON" -m cuassay run --device all --out "$runs/$(date -u +%Y%m%dT%H%M%SZ)" "$@" || status=$?
"$PYTHON" -m cuassay report "$runs" --html "$runs/report.html" --md "$runs/report.md" || status=$?
echo "The report is in $PWD/$runs/report.html"
exit "$status"
