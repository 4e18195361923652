#!/usr/bin/env bash
# plants small faults in what a commit changed and reports those that its tests miss: mutate [BASE] [--seconds S]
# groups: test
set -euo pipefail
base=HEAD~1
if [ $# -gt 0 ] && [[ $1 != --* ]]; then
    base=$1
    shift
fi
if ! git rev-parse --verify --quiet "$base" >/dev/null; then
    echo "ci/run mutate: there is no commit '$base'; give one that this checkout holds" >&2
    exit 2
fi
sources=()
modules=()
while IFS= read -r file; do
    sources+=(--source "$file")
    module=${file#*/}
    modules+=("${module//\//.}")
done < <(git diff --name-only --diff-filter=d "$base" -- 'backend/cuassay/*.py' 'reports/cuassay_reports/*.py')
if [ ${#sources[@]} -eq 0 ]; then
    echo "mutate: no Python file of the packages differs from $base"
    exit 0
fi
# The tests that import a changed module by name. Other tests run it too, but would take far too long for one commit.
tests=()
while IFS= read -r test; do tests+=("$test"); done < <("$PYTHON" ci/importers.py "${modules[@]}")
if [ ${#tests[@]} -eq 0 ]; then
    echo "mutate: no test file imports what changed since $base"
    exit 0
fi
exec "$PYTHON" -m cuassay mutate "${tests[@]}" "${sources[@]}" --device cpu --device sim --seconds 600 --limit 200 \
    --equivalents suites/data/equivalent_mutants.toml "$@"
