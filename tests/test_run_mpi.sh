#!/bin/sh
# espalier run as an MPI job: what threads compute, ranks that do not see the files, signals.
set -u
. "$ESP_SOURCE_DIR/tests/mpi/job.sh"

# job OPTIONS...: two ranks, of which the second starts in an empty directory
job() {
    output=$(timeout 60 mpirun $launch -np 1 --wdir "$dir/a" "$ESP_CLI" run plan.json "$@" : \
        -np 1 --wdir "$dir/b" "$ESP_CLI" run plan.json "$@" 2>&1)
    status=$?
}

mkdir "$dir/a" "$dir/b"
cp "$ESP_SOURCE_DIR/examples/digits/digits.onnx" "$dir/a/model.onnx"
cd "$dir/a" || exit 1
cat >two.yaml <<'END'
name: two
nodes:
  - name: n
    devices: [{type: xeon-core, count: 2}]
    intra: {kind: memory, bandwidth: 10 GB/s, latency: 300 ns}
END
"$ESP_CLI" plan model.onnx -c two.yaml --batch 8 --optimizer momentum --strategy dp-allreduce \
    --evaluations 0 -q -o plan.json || exit 1
python3 - <<'END'
import struct
def write(name, descr, shape, data):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)
write("x.npy", "|u1", "(20, 8, 8)", bytes(i * 7 % 11 for i in range(20 * 64)))
write("y.npy", "|u1", "(20,)", bytes(i % 10 for i in range(20)))
END

job --steps 1 --quiet
if [ $status -ne 0 ]; then
    printf 'mpirun does not work here: %s\n' "$output"
    exit 77
fi

# Threads in one run; processes in two. The same floats, whoever adds them.
"$ESP_CLI" run plan.json --steps 6 --log whole.jsonl -q || fail "a run of threads fails"
job --steps 4 --log parts.jsonl --checkpoint c.safetensors
[ $status -eq 0 ] || fail "a job fails: $output"
[ "$(echo "$output" | grep -c '4 steps: loss')" = 1 ] || fail "not one rank prints: $output"
job --steps 6 --log parts.jsonl --resume c.safetensors --map n/cpu1,n/cpu0 -q
[ $status -eq 0 ] || fail "a job does not resume: $output"
cmp whole.jsonl parts.jsonl || fail "threads and processes differ"
job --steps 6 --log mpi.jsonl --collectives mpi -q
[ $status -eq 0 ] || fail "collectives of MPI fail: $output"
python3 - <<'END' || fail "collectives of MPI give other losses"
import json
for own, other in zip(open("whole.jsonl"), open("mpi.jsonl"), strict=True):
    a, b = json.loads(own)["loss"], json.loads(other)["loss"]
    assert abs(a - b) <= 1e-5 * abs(a), (a, b)
END
cat >costs.json <<'END'
{"format": "espalier-costs", "format_version": 1, "espalier": "0.1.0", "precision": "fp32", "types": [], "links": [],
 "collectives": [{"kind": "all-reduce", "algorithm": "mpi", "ranks": 2, "bytes": 64, "ns": 700},
                 {"kind": "all-reduce", "algorithm": "own", "ranks": 2, "bytes": 64, "ns": 800}]}
END
job --steps 6 --log auto.jsonl --collectives auto --costs costs.json -q
[ $status -eq 0 ] || fail "collectives by costs fail: $output"
cmp mpi.jsonl auto.jsonl || fail "costs that MPI is faster do not choose it"
"$ESP_CLI" run plan.json --steps 6 --log auto.jsonl -q --collectives auto --costs costs.json ||
    fail "choosing fails in one process"
cmp whole.jsonl auto.jsonl || fail "one process has other collectives than its own"
[ -z "$(ls "$dir/b")" ] || fail "the second rank wrote: $(ls "$dir/b")"

# Data has to be where each rank is; evaluation and weights come along.
job --data images=x.npy,labels=y.npy --steps 2
[ $status -eq 1 ] && echo "$output" | grep -q "espalier: x.npy: rank 1: cannot open: No such file" ||
    fail "data that one rank does not see: $status $output"
job --data "images=$dir/a/x.npy,labels=$dir/a/y.npy" --epochs 2 --weights model.onnx --json \
    --eval-data "images=$dir/a/x.npy,labels=$dir/a/y.npy"
[ $status -eq 0 ] && echo "$output" | grep -q '"accuracy": ' || fail "data fails: $status $output"

# What is wrong is said once, and all end.
for bad in "--resume plan.json" "--weights nowhere.onnx" "--checkpoint nowhere/c" "--map n/cpu0" \
    "--epochs 2" "--checkpoint /dev/full" "--log /dev/full"; do
    job --steps 3 $bad
    [ $status -ne 0 ] && [ $status -ne 124 ] &&
        [ "$(echo "$output" | grep -c '^espalier: ')" = 1 ] || fail "$bad: $status $output"
done

# SIGUSR1, which mpirun passes on, ends a job with a checkpoint.
timeout 60 mpirun $launch -np 2 "$ESP_CLI" run plan.json --steps 100000000 -q \
    --checkpoint stop.safetensors --checkpoint-every 4 >out 2>&1 &
job=$!
tries=0
while [ ! -e stop.safetensors ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -USR1 "$(ps -o pid= --ppid $job | head -n 1)"
wait $job
status=$?
[ $status -eq 0 ] || fail "stopped by SIGUSR1: $status $(cat out)"
job --resume stop.safetensors --steps 0
echo "$output" | grep -q "0 steps (" || fail "what a stopped job left: $output"
exit $failures
