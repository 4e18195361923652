#!/usr/bin/env bash
# runs what takes too long for each commit, such as long random programs of the allocator: endurance [OPERATIONS] [SEED]
# groups: test
set -uo pipefail
status=0
"$PYTHON" suites/pure/memory_stress/test_endurance.py "$@" || status=$?
"$PYTHON" suites/devices/ops/test_random_calls.py 30000 || status=$?
# Other bodies each day; a failure prints its seeds. It takes one to three minutes, and ten at most.
"$PYTHON" ci/bodies.py 10000 "$(($(date +%s) / 86400 * 10000))" --seconds 600 || status=$?
"$PYTHON" ci/kills.py --kills 100 || status=$?
CUASSAY_TEST_FILES=10000 "$PYTHON" -m pytest suites/harness/records/test_hostile_files.py -q || status=$?
# Also what each commit leaves out: the numbers of right functions on sim, most wrong functions of each set, and tests
# that are marked weekly; see the conftest.py of suites and of suites/devices/checks.
CUASSAY_TEST_ALL=1 "$PYTHON" -m pytest suites/devices/checks -k test_right --device sim -q || status=$?
CUASSAY_TEST_ALL=1 "$PYTHON" -m pytest suites/harness -k "set_of_faults or planted_slow_downs" -q || status=$?
exit "$status"
