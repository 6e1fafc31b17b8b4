#!/bin/sh
# Profiles and traces of MPI jobs: what rank 0 writes, and that it reads back.
set -u
. "$ESP_SOURCE_DIR/tests/mpi/job.sh"
model=$ESP_SOURCE_DIR/examples/digits/digits.onnx

# job RANKS ARGUMENTS...: of the command; its output in $output, its status in $status
job() {
    ranks=$1
    shift
    # shellcheck disable=SC2086 # several words
    output=$(timeout 100 mpirun $launch -np "$ranks" "$ESP_CLI" "$@" 2>&1)
    status=$?
}

cat >"$dir/two.yaml" <<'END'
name: two
types:
  alpha: {kind: cpu, fp32: 50 GFLOP/s, memory: 4 GiB, memory_bandwidth: 6 GB/s, launch: 1 us}
  beta: {kind: cpu, fp32: 50 GFLOP/s, memory: 4 GiB, memory_bandwidth: 6 GB/s, launch: 1 us}
nodes:
  - {name: a, devices: [{type: alpha}], host: {bandwidth: 10 GB/s, latency: 1 us}}
  - {name: b, devices: [{type: beta}], host: {bandwidth: 10 GB/s, latency: 1 us}}
links:
  - {from: a, to: b, bandwidth: 1 Gbit/s, latency: 50 us}
END

job 2 profile "$model" --batch 32 -c "$dir/two.yaml" --links -q --seconds 0.02 --runs 1 \
    --shares 2 -o "$dir/costs.json"
if [ $status -ne 0 ] && ! echo "$output" | grep -q "espalier:"; then
    printf 'mpirun does not work here: %s\n' "$output"
    exit 77
fi
expect 0 ""
output=$(tr -d '\n' <"$dir/costs.json")
expect 0 '"name": "alpha", *"launch_ns": .*"comm_compute_s_per_byte": .*"name": "beta", *"launch_ns"'
expect 0 '"from": "a/cpu0", "to": "b/cpu0".*"from": "b/cpu0", "to": "a/cpu0"'

expect 0 '"kind": "all-reduce", "algorithm": "mpi", "ranks": 2, "bytes": 1024, "ns": .*"algorithm": "own"'

job 2 profile --links -c "$dir/two.yaml" --seconds 0.01 -o "$dir/costs.json"
expect 0 "^all-reduce among 2 ranks: [a-z]* is faster from 1024 bytes on (own [0-9]* us, mpi [0-9]* us)"

job 3 profile "$model" -c "$dir/two.yaml" -q -o "$dir/other.json"
expect 1 "the cluster has 2 devices, but the job has 3 processes"
[ ! -e "$dir/other.json" ] || failures=1

# What is bad is said once.
job 2 profile "$dir/none.onnx" -c "$dir/two.yaml" -o "$dir/other.json"
expect 1 "none.onnx: cannot open"
[ "$(echo "$output" | grep -c "^espalier: ")" = 1 ] || failures=1

output=$("$ESP_CLI" plan "$model" --batch 32 -c "$dir/two.yaml" --costs "$dir/costs.json" \
    --strategy dp-allreduce -q -o "$dir/plan.json" 2>&1)
status=$?
expect 0 ""
job 2 run "$dir/plan.json" --steps 20 -q --trace "$dir/trace.json"
expect 0 ""
output=$("$ESP_CLI" compare --measured "$dir/trace.json" "$dir/plan.json" 2>&1)
status=$?
expect 0 "^replay: .* for 2 recorded steps"
exit $failures
