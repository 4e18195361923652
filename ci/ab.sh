#!/usr/bin/env bash
# compares two commits on the GPU and writes the comment for a pull request: ab BASE HEAD [ARGUMENT of cuassay ab...]
# groups: test
set -uo pipefail
if [ $# -lt 2 ]; then
    echo "ci/run ab: two commits are needed, such as: ci/run ab main HEAD" >&2
    exit 2
fi
base=$1 head=$2
shift 2
out=reports/out/ab
mkdir -p "$out"
profile=${CUASSAY_PROFILE:-$HOME/.cache/cuassay/noise.json} # of this runner; measured once
if command -v nvidia-smi >/dev/null && ! bash ci/health.sh | tee "$out/health.txt"; then
    echo "The GPU is not fit to be measured." >"$out/comment.md"
    exit 2
fi
[ -f "$profile" ] || "$PYTHON" -m cuassay aa --out "$profile" || exit 2
"$PYTHON" -m cuassay ab "$base" "$head" --profile "$profile" --state "$out/state" --json "$out/ab.json" --fail-on slower "$@" |
    tee "$out/ab.txt"
status=${PIPESTATUS[0]}
words=([0]="no benchmark is slower" [1]="**at least one benchmark is slower**" [2]="the comparison failed")
{
    echo "cuassay ab \`${base:0:10}\` \`${head:0:10}\`: ${words[$status]:-the comparison failed}"
    printf '\n```text\n'
    head -c 60000 "$out/ab.txt"
    printf '\n```\n'
} >"$out/comment.md"
exit "$status"
