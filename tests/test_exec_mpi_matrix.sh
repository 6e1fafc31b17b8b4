#!/bin/sh
# Combinations of the execution matrix as an MPI job.
set -u
. "$ESP_SOURCE_DIR/tests/mpi/job.sh"
# shellcheck disable=SC2086 # several words, here and below
if ! timeout 30 mpirun $launch -np 4 true >/dev/null 2>&1; then
    echo "mpirun does not work here"
    exit 77
fi
output=$(timeout 100 mpirun $launch -np 4 "$ESP_MPI_PROGRAMS/mpi_matrix" 2>&1)
status=$?
echo "$output"
[ $status -eq 0 ] && echo "$output" | grep -q "^matrix: 20 combinations"
