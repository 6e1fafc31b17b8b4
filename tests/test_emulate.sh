#!/bin/sh
# tools/emulate_cluster: what it would do, and, where it can, that it does it and leaves nothing.
set -eu
emulate=$ESP_SOURCE_DIR/tools/emulate_cluster
four=$ESP_SOURCE_DIR/clusters/emulated4.yaml
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

failures=0
fail() {
    echo "$*"
    failures=1
}
# would PATTERN CLUSTER [OPTION...]: a dry run prints it
would() {
    pattern=$1
    shift
    "$emulate" "$@" --cores 1.7 --dry-run -- program argument >"$dir/out"
    grep -Eq -e "$pattern" "$dir/out" || fail "no '$pattern' for $*"
}
refuse() {
    pattern=$1
    shift
    if "$emulate" "$@" >"$dir/out" 2>&1; then fail "should refuse $*"; fi
    grep -q -e "$pattern" "$dir/out" || fail "no '$pattern' for $*: $(cat "$dir/out")"
}

# rates of routes, quotas, ranks in the order of devices
would 'emu0 .* classid 1:3 .* ceil 2000000000bit' "$four"
would 'emu0 .* classid 1:4 .* ceil 200000000bit' "$four"
would 'dst 10.77.0.4/32 flowid 1:5' "$four"
would '5667.*rank1/' "$four"
would '2833.*rank2/' "$four"
would '1000.*rank2/' "$four" --quota slow0/cpu0=0.1
would '10000.*rank3/' "$four" --quota slow1=1
would '56667.*rank1/' "$four" --quota-period-ms 100
would 'host 10.77.0.1:1,10.77.0.2:1,10.77.0.3:1,10.77.0.4:1 -np 4 .*program argument' "$four"
would 'host 10.77.0.1:4,10.77.0.2:4,10.77.0.3:4,10.77.0.4:4 -np 16' \
    "$ESP_SOURCE_DIR/clusters/cpu4.yaml"
# ranks on the devices of a plan only
cat >"$dir/plan" <<'END'
{"devices": [{"name": "fast0/cpu0", "arena_bytes": 0}, {"name": "fast1/cpu0", "arena_bytes": 9},
  {"name": "slow0/cpu0", "arena_bytes": 0}, {"name": "slow1/cpu0", "arena_bytes": 9}]}
END
would 'host 10.77.0.2:1,10.77.0.4:1 -np 2 ' "$four" --plan "$dir/plan"
would '2833.*rank1/' "$four" --plan "$dir/plan"
# all routes of a node leave by its port of the switch, and come in by it
would 'emu2 .* parent 1: classid 1:1 .* ceil 1000000000bit' "$ESP_SOURCE_DIR/clusters/lab.yaml"
would 'dev n2 parent 1: classid 1:1 .* ceil 1000000000bit' "$ESP_SOURCE_DIR/clusters/lab.yaml"
"$emulate" "$four" --dry-run --check >"$dir/out"
if grep -q 'dev n2 parent' "$dir/out"; then fail "a limit that nothing shares"; fi

refuse 'not a cluster file' "$dir/none.yaml" -- true
refuse 'want either' "$four"
refuse 'is not a plan' "$four" --plan "$four" -- true
refuse 'is not a plan for' "$ESP_SOURCE_DIR/clusters/lab.yaml" --plan "$dir/plan" -- true
refuse 'want DEVICE=CORES' "$four" --quota fast9=1 -- true
refuse 'want DEVICE=CORES' "$four" --quota fast0=nan -- true
refuse 'need --quota-period-ms 50' "$four" --quota fast0=0.02 -- true

# for real
status=0
"$emulate" "$four" -- sh -c 'echo $OMPI_COMM_WORLD_RANK $(hostname)' >"$dir/out" || status=$?
if [ $status -eq 77 ]; then exit $((failures ? 1 : 77)); fi
sort "$dir/out" | sed 's/-.*//' | tr '\n' ' ' >"$dir/ranks"
[ "$(cat "$dir/ranks")" = "0 emu0 1 emu1 2 emu2 3 emu3 " ] || fail "ranks: $(cat "$dir/ranks")"

status=0
"$emulate" "$four" -- sh -c 'exit $((OMPI_COMM_WORLD_RANK == 2 ? 5 : 0))' 2>"$dir/out" || status=$?
[ $status -eq 5 ] || fail "status $status, not that of the command"

groups() { ls -d /sys/fs/cgroup/cpu/"$1" /sys/fs/cgroup/"$1" 2>/dev/null; }
started() { # waits for a rank of the run in the background
    until [ -e "$dir/started" ]; do kill -0 "$1" || break; sleep 0.1; done
    rm -f "$dir/started"
}
for signal in TERM KILL; do
    "$emulate" "$four" -- sh -c "touch '$dir/started'; exec sleep 1000" 2>"$dir/out" &
    run=$!
    started $run
    kill -$signal $run
    wait $run && fail "ended well in spite of $signal"
    # after a KILL, the next run removes what is left
    [ $signal = TERM ] || "$emulate" "$four" -- true || fail "no run after a killed one"
    if groups "espalier-$run-*"; then fail "left after $signal"; fi
done
exit $failures
