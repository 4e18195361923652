#!/usr/bin/env bash
# runs long random programs of the allocator and random calls with bad values, kills sessions: endurance [OPERATIONS] [SEED]
# groups: test
set -uo pipefail
status=0
"$PYTHON" suites/pure/memory_stress/test_endurance.py "$@" || status=$?
"$PYTHON" suites/devices/ops/test_random_calls.py 30000 || status=$?
"$PYTHON" ci/kills.py --kills 100 || status=$?
exit "$status"
