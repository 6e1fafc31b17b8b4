#!/bin/sh
# A rank is killed at some moment of a run on four ranks: the job ends soon and badly, its checkpoint
# is whole, and going on from it gives the curve of the run that nobody killed.
# ESP_KILLS: how many (default 3).
set -u
if ! command -v pgrep >/dev/null; then
    echo "there is no pgrep"
    exit 77
fi
. "$ESP_SOURCE_DIR/tests/mpi/job.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

python3 "$ESP_SOURCE_DIR/examples/digits/get_data.py" --synthetic --out "$dir" || exit 1
"$ESP_CLI" plan "$ESP_SOURCE_DIR/examples/digits/digits.onnx" --quiet --batch 24 --optimizer adam \
    -c "$ESP_SOURCE_DIR/clusters/emulated4.yaml" --strategy dp-proportional -o "$dir/plan" || exit 1
steps=300
train() { # STEPS OPTIONS...
    until=$1
    shift
    # shellcheck disable=SC2086 # several words
    exec mpirun $launch -np 4 "$ESP_CLI" run "$dir/plan" --quiet --steps "$until" "$@" \
        --data "images=$dir/x_train.npy" --data "labels=$dir/y_train.npy" >"$dir/out" 2>&1
}

(train $steps --log "$dir/reference") || { cat "$dir/out"; exit 1; }
[ "$(wc -l <"$dir/reference")" -eq $steps ] || fail "$steps steps, $(wc -l <"$dir/reference") lines"

# kill_one NUMBER: kills rank NUMBER % 4, a while that grows with NUMBER after the first checkpoint
kill_one() {
    rm -f "$dir/checkpoint" "$dir/log"
    (train $steps --checkpoint "$dir/checkpoint" --checkpoint-every 1) &
    job=$!
    until [ -e "$dir/checkpoint" ] || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
    sleep "0.$(printf %02d $(($1 * 37 % 60)))"
    victim=$(pgrep -P $job | sed -n "$(($1 % 4 + 1))p")
    if ! { [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; }; then
        wait $job || fail "kill $1: ended badly before: $(cat "$dir/out")"
        return
    fi
    waited=0
    while kill -0 $job 2>/dev/null && [ $waited -lt 100 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    if [ $waited -ge 100 ]; then
        kill -9 $job
        fail "kill $1: still there after 10 s"
    fi
    wait $job && fail "kill $1: ended well"
    step=$(head -c 1000 "$dir/checkpoint" | LC_ALL=C sed -n 's/.*"step": "\([0-9]*\)".*/\1/p')
    if ! [ "${step:-0}" -gt 0 ]; then
        fail "kill $1: a checkpoint of step '$step'"
        return
    fi
    last=$((step + 10 < steps ? step + 10 : steps))
    [ "$step" -lt $steps ] || return # too late: all was done
    if ! (train $last --resume "$dir/checkpoint" --log "$dir/log"); then
        fail "kill $1: no resuming: $(cat "$dir/out")"
    fi
    sed -n "$((step + 1)),${last}p" "$dir/reference" | cmp -s - "$dir/log" ||
        fail "kill $1: another curve from step $step"
    echo "kill $1: rank $(($1 % 4)), resumed from step $step"
}

kill=0
while [ $kill -lt "${ESP_KILLS:-3}" ]; do
    kill_one $kill
    kill=$((kill + 1))
done
exit $failures
