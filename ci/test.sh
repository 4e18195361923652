#!/usr/bin/env bash
# runs every suite on every device present; arguments go to pytest
# groups: test compile contracts package
set -euo pipefail
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-300}
# Tests start a thousand processes. Where PYTHONDONTWRITEBYTECODE is set, each would compile our modules again, a quarter of
# its time; what tests themselves write stays without bytecode then.
"$PYTHON" -m compileall -q -j 2 backend/cuassay reports/cuassay_reports || true # a tree that cannot be written
# Threads of BLAS spin while they wait for one another: where workers share the cores, that is half the time of products.
cores=$(nproc)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 4 ? cores / 4 : 1))}
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-$OMP_NUM_THREADS}
# Four workers for the two cores of a runner: a fifth of a worker's time is spent waiting for processes that a test began.
# Timings mean nothing while a second worker runs, so each benchmark runs once, as a test.
exec "$PYTHON" -m pytest --device all --benchmark-disable -n 4 "$@"
