#!/usr/bin/env bash
# runs every suite on every device present; arguments go to pytest
# groups: test compile contracts package
set -euo pipefail
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-300}
# Tests start a thousand processes. If PYTHONDONTWRITEBYTECODE is set, each would compile our modules again, a quarter
# of its time. Files that tests write stay without bytecode then.
"$PYTHON" -m compileall -q -j 2 backend/cuassay reports/cuassay_reports || true # the tree may be read-only
# BLAS threads spin while they wait for each other: if workers share the cores, that is half the time of products.
cores=$(nproc)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 4 ? cores / 4 : 1))}
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-$OMP_NUM_THREADS}
# Four workers for a runner's two cores, because a worker waits a fifth of its time for processes that a test started.
# An idle worker takes tests from another (worksteal): otherwise one of them has all the slow ones of the last minutes.
# Timings are meaningless while a second worker runs, so each benchmark runs once, as a test.
exec "$PYTHON" -m pytest --device all --benchmark-disable -n 4 --dist worksteal "$@"
