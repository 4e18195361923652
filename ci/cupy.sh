#!/usr/bin/env bash
# runs the suites of the CUDA backend with CuPy installed and without a GPU; arguments go to pytest
# groups: test cupy
set -euo pipefail
exec "$PYTHON" -m pytest --device cpu --benchmark-disable -n 2 suites/nvidia suites/speed "$@"
