#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# logged.sh - LOG COMMAND...: runs a command and shows its output only if it fails.
set -u
log=$1
shift
"$@" >"$log" 2>&1
status=$?
[ $status -eq 0 ] || cat "$log" >&2
exit $status
