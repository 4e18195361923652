#!/usr/bin/env bash
# runs the allocator's long random programs against a model of the machine: endurance [OPERATIONS] [SEED]
# groups: test
set -euo pipefail
exec "$PYTHON" suites/pure/test_memory_endurance.py "$@"
