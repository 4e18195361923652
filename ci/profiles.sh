#!/usr/bin/env bash
# runs the generated tests on the simulated device under every profile of missing features
# groups: test
set -euo pipefail
export CUASSAY_HANG_SECONDS=${CUASSAY_HANG_SECONDS:-300}
profiles=$("$PYTHON" -c 'from cuassay.devices.sim.profiles import PROFILES; print(*sorted(PROFILES.keys() - {"h200"}))')
for profile in $profiles; do # the job test runs h200, the default
    echo "profile $profile"
    CUASSAY_SIM_PROFILE=$profile "$PYTHON" -m pytest --device sim -q -rN -n 2 suites/devices/checks/test_conformance.py "$@"
done
