#!/usr/bin/env bash
# measures this commit, adds it to the branch `history`, reports, and measures suspects again by turns: night [DEVICE]
# groups: test
set -uo pipefail
device=${1:-cuda:0}
branch=history # holds only results, so that main stays small
out=reports/out/night
rm -rf "$out" && mkdir -p "$out"
if command -v nvidia-smi >/dev/null; then
    bash ci/health.sh | tee "$out/health.txt" || exit 2
fi
git worktree prune
git fetch --quiet origin "$branch:refs/remotes/origin/$branch" || echo "night: there is no branch $branch yet; it begins"
if git rev-parse --verify --quiet "origin/$branch" >/dev/null; then
    git worktree add --quiet --force --detach "$out/history" "origin/$branch"
else
    git worktree add --quiet --force --detach "$out/history"
    git -C "$out/history" switch --quiet --orphan "$branch"
fi
status=0
name=$(date -u +%Y-%m-%dT%H%M%SZ)
"$PYTHON" -m cuassay run --device "$device" --no-tests --out "$out/run" || status=$?
if ! cat "$out"/run/*.jsonl >"$out/history/$name.jsonl" || [ ! -s "$out/history/$name.jsonl" ]; then
    echo "night: the run wrote no results (status $status), so nothing joins the branch $branch" >&2
    exit 2
fi
git -C "$out/history" add "$name.jsonl"
git -C "$out/history" -c user.name=ci -c user.email=ci@localhost commit --quiet --message "Timings of $(git rev-parse --short HEAD)"
git -C "$out/history" push --quiet origin "HEAD:refs/heads/$branch" || status=$?
"$PYTHON" -m cuassay report "$out/history" --html "$out/report.html" --md "$out/report.md" --fail-on slower,vanished || status=$?
"$PYTHON" -m cuassay report "$out/history" --suspects >"$out/suspects.json" &&
    "$PYTHON" -m cuassay ab - --state "$out/ab" --fail-on slower <"$out/suspects.json" | tee "$out/ab.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
exit "$status"
