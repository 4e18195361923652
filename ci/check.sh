#!/usr/bin/env bash
# lints, checks types, import contracts and wording, and looks into the wheel; `check --fix` mends what ruff can
# groups: test lint
set -uo pipefail
failed=()

step() { # NAME COMMAND...
    printf '== %s\n' "$1"
    "${@:2}" || failed+=("$1")
}

if [ "${1:-}" = --fix ]; then
    "$PYTHON" -m ruff check --quiet --fix .
    "$PYTHON" -m ruff format --quiet .
fi
step "ruff check" "$PYTHON" -m ruff check --quiet .
step "ruff format" "$PYTHON" -m ruff format --check --quiet .
step "mypy" "$PYTHON" -m mypy
step "import contracts" lint-imports
step "words" "$PYTHON" ci/words.py
step "wheel contents" "$PYTHON" ci/wheel.py

if [ ${#failed[@]} -gt 0 ]; then
    printf 'check failed:'
    printf ' %s;' "${failed[@]}"
    printf '\n'
    exit 1
fi
echo "check passed"
