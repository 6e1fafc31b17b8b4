#!/bin/sh
# Combinations of the execution matrix as an MPI job.
set -u
if ! command -v mpirun >/dev/null; then
    echo "there is no mpirun"
    exit 77
fi
ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" # what MPI keeps
export ASAN_OPTIONS
set -- --oversubscribe --mca mpi_yield_when_idle 1 --mca btl self,vader,tcp -np 4
[ "$(id -u)" = 0 ] && set -- --allow-run-as-root "$@"
if ! timeout 30 mpirun "$@" true >/dev/null 2>&1; then
    echo "mpirun does not work here"
    exit 77
fi
output=$(timeout 100 mpirun "$@" "$ESP_MPI_PROGRAMS/mpi_matrix" 2>&1)
status=$?
echo "$output"
[ $status -eq 0 ] && echo "$output" | grep -q "^matrix: 20 combinations"
