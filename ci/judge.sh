#!/usr/bin/env bash
# judges honest candidates and planted cheats under many nonces: judge [--nonces N] [--device D] [FOLDER...]
# groups: test
exec "$PYTHON" ci/judge.py "$@"
