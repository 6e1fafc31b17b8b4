#!/bin/sh
# Four ranks on an emulated cluster (network namespaces, unequal CPU quotas): whatever the strategy,
# they train what one device trains. ESP_EMULATED=full: twenty combinations instead of four.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" # what MPI keeps
export ASAN_OPTIONS
cluster=$ESP_SOURCE_DIR/clusters/emulated4.yaml
emulate="$ESP_SOURCE_DIR/tools/emulate_cluster"
failures=0

"$emulate" "$cluster" -- true
status=$?
[ $status -eq 77 ] && exit 77
[ $status -eq 0 ] || exit 1

"$emulate" "$cluster" -- "$ESP_MPI_PROGRAMS/mpi_exec" same >"$dir/out" 2>&1 || {
    cat "$dir/out"
    failures=1
}

python3 "$ESP_SOURCE_DIR/examples/digits/get_data.py" --synthetic --out "$dir" || exit 1
plan() { # MODEL BATCH OPTIMIZER STRATEGY OPTION...
    model=$1 batch=$2 optimizer=$3 strategy=$4
    shift 4
    "$ESP_CLI" plan "$model" --quiet --batch "$batch" --optimizer "$optimizer" -c "$cluster" \
        --strategy "$strategy" "$@" -o "$dir/plan"
}
run() { # CHECKPOINT DATA COMMAND...: ten steps
    checkpoint=$1 data=$2
    shift 2
    # shellcheck disable=SC2086 # several words
    "$@" run "$dir/plan" --quiet --steps 10 $data --checkpoint "$checkpoint" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
}
# compare MODEL BATCH OPTIMIZER DATA STRATEGY...: ten steps of each, beside those of one device
compare() {
    model=$1 batch=$2 optimizer=$3 data=$4
    shift 4
    plan "$model" "$batch" "$optimizer" single && run "$dir/one" "$data" "$ESP_CLI" || {
        failures=1
        return
    }
    for strategy; do
        name="$(basename "$model") $optimizer $strategy"
        # shellcheck disable=SC2086 # a strategy with options
        plan "$model" "$batch" "$optimizer" $strategy &&
            run "$dir/four" "$data" "$emulate" "$cluster" --plan "$dir/plan" -- "$ESP_CLI" &&
            "$ESP_SOURCE_DIR/tests/checkpoint_diff" "$dir/one" "$dir/four" 1e-4 >"$dir/diff"
        if [ $? -ne 0 ]; then
            echo "failed: $name"
            failures=1
        fi
        echo "$name: $(cat "$dir/diff")"
    done
}

digits="$ESP_SOURCE_DIR/examples/digits/digits.onnx"
rows="--data images=$dir/x_train.npy --data labels=$dir/y_train.npy"
if [ "${ESP_EMULATED-}" = full ]; then
    for optimizer in sgd momentum adam adamw; do
        compare "$digits" 24 $optimizer "$rows" dp-allreduce dp-proportional dp-ps mp-pipeline \
            "search --evaluations 40"
    done
else
    compare "$digits" 24 momentum "$rows" dp-allreduce dp-ps
    compare "$digits" 24 adam "$rows" dp-proportional mp-pipeline
fi
exit $failures
