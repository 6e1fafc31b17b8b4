#!/bin/sh
# Executors and communication as MPI jobs: results, failures, refusals.
set -u
. "$ESP_SOURCE_DIR/tests/mpi/job.sh"

# job SECONDS RANKS PROGRAM ARGUMENTS...: its output in $output, its status in $status
job() {
    seconds=$1 ranks=$2 program=$3
    shift 3
    # shellcheck disable=SC2086 # several words
    output=$(timeout "$seconds" mpirun $launch -np "$ranks" "$ESP_MPI_PROGRAMS/$program" "$@" 2>&1)
    status=$?
}

job 60 2 mpi_exec probe
if [ $status -ne 0 ] && ! echo "$output" | grep -q "failed: "; then
    printf 'mpirun does not work here: %s\n' "$output"
    exit 77
fi
expect 1 "the plan uses 4 devices, but the job has 2 processes"

job 60 4 mpi_traffic
expect 0 "traffic among 4 ranks"
job 60 4 mpi_exec same
expect 0 "same: [0-9]* plans"
for ranks in 3 4; do
    job 60 $ranks mpi_collectives
    expect 0 "combinations: [1-9][0-9]* all-reduces, [1-9][0-9]* reduce-scatters, [1-9][0-9]* all-ga"
    expect 0 "thers; [1-9][0-9]* in buckets, [1-9][0-9]* among some ranks, [1-9][0-9]* of uneven"
done

job 60 4 mpi_exec kernel
expect 1 "failed: rank 2 (n/gpu2): step 1, op [a-z]"
job 60 4 mpi_exec library
expect 1 "failed: rank 2 (n/gpu2): step 1, op [a-z]"
job 60 4 mpi_exec wait
expect 1 "failed: rank 1 (n/gpu1): no more"
job 60 4 mpi_exec options
expect 1 "rank 1 (n/gpu1) has another plan or other options than rank 0"
job 60 4 mpi_exec whose
expect 1 "rank 1 (n/gpu1) has another plan or other options than rank 0"
job 60 4 mpi_exec plan
expect 1 "rank 3 (n/gpu3) has another plan"

job 60 4 mpi_exec killed "$dir/status"
expect 1 "signal 9"
output=$(cat "$dir/status")
expect 1 "^rank 2 n/gpu2 step 1 task [0-9]* compute [a-z]"
exit $failures
