#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_mpi_ranks.sh - links between two ranks: through shared memory, through TCP, and when one of
# them dies. test_mpi_ranks.sh openmpi|mpich 2 [PROGRAM]
here=$(dirname "$0") mpi=$1
[ $# -ge 3 ] || exec "$here/mpirun.sh" "$@" # which says that this MPI is missing, and skips
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$here/mpirun.sh" "$@" "$folder" threads
code=$?
[ $code -eq 0 ] || exit $code

if ! "$here/mpirun.sh" "$@" "$folder" finalized; then
    echo "FAILED: dw_mpi_destroy after MPI_Finalize"
    exit 1
fi

# Launchers end a job when one of its ranks dies, unless they are told to let the others live.
# Hydra's process on a host does not outlive a rank there, so two "hosts" are used.
if [ "$mpi" = openmpi ]; then
    keep=--enable-recovery
else
    keep="-disable-auto-cleanup -launcher fork -hosts localhost,127.0.0.1"
fi
MPIRUN_OPTIONS=$keep timeout 100 "$here/mpirun.sh" "$@" "$folder" death >"$folder/death.log" 2>&1 &
death=$!

failures=0
for way in "" :tcp; do
    echo "== $mpi$way"
    rm -f "$folder/received" "$folder"/passed.* "$folder/stuck"
    "$here/mpirun.sh" "$mpi$way" "$2" "$3" "$folder" && continue
    # See stop_finalizing in test_mpi_ranks.c; seen with no other MPI, and no other way.
    if [ "$mpi$way" = mpich:tcp ] && [ -e "$folder/stuck" ] && [ -e "$folder/passed.0" ] &&
        [ -e "$folder/passed.1" ]; then
        echo "$mpi$way: all tests passed, and then MPI_Finalize did not end"
    else
        failures=$((failures + 1))
    fi
done

wait $death # its exit code does not matter, because a rank was killed
cat "$folder/death.log"
if [ ! -e "$folder/noticed" ]; then
    echo "FAILED: nobody noticed that rank 1 was killed"
    failures=$((failures + 1))
fi
exit $failures
