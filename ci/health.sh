#!/usr/bin/env bash
# is the GPU fit to be measured: ECC, Xid, clocks, memory in use: health [--device N] [--most-memory MIB]
# groups: test
set -uo pipefail
device=0
most=500 # MiB that other processes may use
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?--device needs the number of a GPU} ;;
        --most-memory) most=${2:?--most-memory needs a number of MiB} ;;
        *)
            echo "ci/run health: unknown argument '$1'; it takes --device N and --most-memory MIB" >&2
            exit 2
            ;;
    esac
    shift 2
done
bad=0

ask() { # FIELD: the driver's value, without units
    nvidia-smi --id="$device" --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null
}

say() { # WHAT FOUND WHETHER-BAD WHAT-TO-DO
    if [ "$3" = 1 ]; then
        echo "UNFIT $1: $2; $4"
        bad=1
    else
        echo "ok    $1: $2"
    fi
}

is_above() { [[ $1 =~ ^[0-9]+$ ]] && [ "$1" -gt "$2" ] && echo 1 || echo 0; }

if ! name=$(ask name) || [ -z "$name" ]; then
    echo "UNFIT nvidia-smi knows no GPU $device; look at: nvidia-smi" >&2
    exit 1
fi
echo "GPU $device: $name"
errors=$(ask ecc.errors.uncorrected.volatile.total)
say "uncorrected ECC errors" "${errors:-unknown}" "$(is_above "$errors" 0)" "reset or replace the GPU"
pending=$(ask retired_pages.pending)
say "pages waiting to be retired" "${pending:-unknown}" "$([ "$pending" = Yes ] && echo 1 || echo 0)" "reboot the machine"
if log=$(dmesg 2>/dev/null); then
    found=$(grep -c 'NVRM: Xid' <<<"$log")
    say "Xid lines in the kernel's log" "$found" "$(is_above "$found" 0)" "look at: dmesg | grep Xid; reboot the machine"
else
    echo "?     Xid: the kernel's log cannot be read here"
fi
reasons=$(ask clocks_throttle_reasons.hw_slowdown)
say "hardware slow-down" "${reasons:-unknown}" "$([ "$reasons" = Active ] && echo 1 || echo 0)" "look at cooling and power"
used=$(ask memory.used)
say "memory in use, MiB" "${used:-unknown}" "$(is_above "$used" "$most")" "end the other processes: nvidia-smi"
echo "clocks: $(ask clocks.sm) of $(ask clocks.max.sm) MHz, memory $(ask clocks.mem) MHz, $(ask temperature.gpu) °C"
exit $bad
