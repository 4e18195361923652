#!/usr/bin/env bash
# runs every suite on every device present; arguments go to pytest
# groups: test compile contracts package
set -euo pipefail
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-300}
# Timings mean nothing while a second worker runs, so each benchmark runs once, as a test.
exec "$PYTHON" -m pytest --device all --benchmark-disable -n 2 "$@"
