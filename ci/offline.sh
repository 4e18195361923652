#!/usr/bin/env bash
# bundles wheels, our own too, for a runner without network; see ci/offline.py --help
# groups: package
set -euo pipefail
exec "$PYTHON" ci/offline.py "$@"
