#!/usr/bin/env bash
# finds phrases that readers stumble on; ci/words.txt has the list; arguments are files, otherwise all that git knows
# groups:
set -euo pipefail
exec "$PYTHON" ci/words.py "$@"
