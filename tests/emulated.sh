#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# emulated.sh - runs a program on an older x86-64 processor than this one.
# emulated.sh MODEL PROGRAM [ARGUMENTS]: a MODEL of `qemu-x86_64 -cpu help`. If the program uses an
# instruction that the model lacks, it ends with an error.
if ! command -v qemu-x86_64 >/dev/null; then
    echo 'no qemu-x86_64 here: on Debian it is in the package qemu-user'
    exit 77
fi
model=$1
shift
exec qemu-x86_64 -cpu "$model" "$@"
