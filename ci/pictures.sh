#!/usr/bin/env bash
# draws the pictures of README and the documentation from real output; needs Chromium on PATH
# groups: pictures
set -euo pipefail
PYTHONPATH=ci${PYTHONPATH:+:$PYTHONPATH} exec "$PYTHON" -m pages.pictures "$@"
