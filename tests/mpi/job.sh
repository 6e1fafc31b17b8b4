# What tests of MPI jobs share, to be sourced: a folder in $dir, words for mpirun in $launch.
if ! command -v mpirun >/dev/null; then
    echo "there is no mpirun"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" # what MPI keeps
export ASAN_OPTIONS
launch="--oversubscribe --mca mpi_yield_when_idle 1 --mca btl self,vader,tcp"
[ "$(id -u)" = 0 ] && launch="--allow-run-as-root $launch"
failures=0

# expect STATUS PATTERN: of $status, 0 or other, and of $output
expect() {
    if { [ "$1" = 0 ] && [ $status -ne 0 ]; } || { [ "$1" != 0 ] && [ $status -eq 0 ]; } ||
        [ $status -eq 124 ] || ! echo "$output" | grep -q "$2"; then
        printf 'expected status %s and "%s"\nstatus %s, said: %s\n' "$1" "$2" $status "$output"
        failures=1
    fi
}
fail() {
    echo "$*"
    failures=1
}
