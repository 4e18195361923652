#!/usr/bin/env bash
# measures suites/speed on every device present, one process at a time; arguments go to pytest
# groups: test
set -euo pipefail
mkdir -p reports/out/bench
exec "$PYTHON" -m pytest suites/speed --device all --benchmark-only --benchmark-json reports/out/bench/speed.json "$@"
