#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun.sh - starts the ranks of a test with the launcher of one MPI, as any user and on any number
# of processors. mpirun.sh openmpi|mpich[:tcp] RANKS PROGRAM [ARGUMENT...]; ":tcp": not through
# shared memory. Exits 77 if that MPI is not installed. MPIRUN_OPTIONS: options for the launcher.
mpi=${1%%:*} way=${1#*:} ranks=$2
shift 2
if ! command -v "mpirun.$mpi" >/dev/null || [ $# -eq 0 ]; then
    echo "no $mpi here (no mpirun.$mpi, or not found by pkg-config when this was built):" \
        "nothing is tested"
    exit 77
fi
# Leaks inside of MPI are not ours.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}suppressions=$(dirname "$0")/mpi.supp"
case $mpi in
openmpi)
    # Several tests may run at the same time, so none may bind itself to processors.
    set -- --allow-run-as-root --oversubscribe --bind-to none -n "$ranks" "$@"
    [ "$way" = tcp ] && set -- --mca btl tcp,self "$@"
    ;;
mpich)
    set -- -n "$ranks" "$@"
    [ "$way" = tcp ] && set -- -genv MPIR_CVAR_NOLOCAL 1 -genv UCX_TLS tcp,self "$@"
    ;;
esac
# shellcheck disable=SC2086 # the options are several words
exec "mpirun.$mpi" $MPIRUN_OPTIONS "$@"
