#!/usr/bin/env bash
# tests and measures the declared ops on every device present, and writes the report
# groups:
set -euo pipefail
out=reports/out/main
status=0
rm -rf "$out"
"$PYTHON" -m cuassay.cli run --device all --out "$out" "$@" || status=$?
"$PYTHON" -m cuassay.cli report "$out" --html "$out/report.html" --md "$out/report.md"
echo "The report is in $out/report.html"
exit "$status"
