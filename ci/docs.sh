#!/usr/bin/env bash
# builds the documentation site in reports/out/site; fails on dead links and undocumented names
# groups: docs
set -euo pipefail
export COLUMNS=100 # the width of the help texts on the page of the commands
PYTHONPATH=ci${PYTHONPATH:+:$PYTHONPATH} exec "$PYTHON" -m pages "$@"
