#!/usr/bin/env bash
# runs the suites of the CUDA backend with CuPy and without a GPU, then its kernels on the host; arguments go to pytest
# groups: test cupy
set -uo pipefail
failed=0
"$PYTHON" -m pytest --device cpu --benchmark-disable -n 2 suites/nvidia suites/speed "$@" || failed=$?

# The kind `host` replaces the driver in its process. pytest gives each device one process, so each half is a process.
export PYTHONPATH=$PWD/suites/data/host_kind:$PWD/suites/data/toy_kind${PYTHONPATH:+:$PYTHONPATH}
kernels=(suites/nvidia/launch/test_kernel_emulator.py suites/nvidia/launch/test_kernels_on_host.py suites/devices/ops/test_{bodies,body_reductions,long_sums}.py suites/devices/training/test_foreach.py suites/nvidia/ops/test_{columns_on_device,indices_on_device,rounded_on_device,transposed}.py suites/nvidia/blas/test_{agreement,dequantized,pitched,skinny_mixed}.py)
on_host=("$PYTHON" -m pytest --device host --require-device host:0 --benchmark-disable)
"${on_host[@]}" --cuassay-shard 1/2 "${kernels[@]}" --pyargs cuassay.testing.generated "$@" &
"${on_host[@]}" --cuassay-shard 2/2 "${kernels[@]}" --pyargs cuassay.testing.generated "$@" || failed=$?
wait $! || failed=$?
exit "$failed"
