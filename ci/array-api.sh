#!/usr/bin/env bash
# runs array-api-tests (a checkout of it, see below) on the simulated device; accepted failures are listed with reasons
# groups: test
#
# The suite is not a package, and this repository holds no part of it. CI checks out data-apis/array-api-tests, tag
# 2026.02.26 with its submodules, into .array-api-tests; CUASSAY_ARRAY_API_TESTS names another folder. Without a
# checkout the job says so and succeeds.
set -euo pipefail
suite=${CUASSAY_ARRAY_API_TESTS:-$PWD/.array-api-tests}
if [ ! -f "$suite/array_api_tests/__init__.py" ]; then
    echo "skipped: there is no checkout of array-api-tests in $suite (repository data-apis/array-api-tests, tag 2026.02.26)"
    exit 0
fi
accepted=$PWD/ci/array-api-accepted.txt
export ARRAY_API_TESTS_MODULE="exec('from cuassay import devices; xp = devices.namespace(\"sim\")')"
unset PYTEST_ADDOPTS
cd "$suite"
# --rootdir is given because pytest would otherwise search from the list's folder too, and find our settings.
exec "$PYTHON" -m pytest -c pytest.ini --rootdir . -q -n 2 -p no:cuassay -p no:cacheprovider --disable-warnings \
    --derandomize --disable-deadline --max-examples 20 --xfails-file="$accepted" array_api_tests "$@"
