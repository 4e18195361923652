#!/usr/bin/env bash
# runs the allocator's long random programs against a model of the machine, and kills sessions: endurance [OPERATIONS] [SEED]
# groups: test
set -uo pipefail
status=0
"$PYTHON" suites/pure/test_memory_endurance.py "$@" || status=$?
"$PYTHON" ci/kills.py --kills 100 || status=$?
exit "$status"
