# SPDX-License-Identifier: Apache-2.0
# abi.sh - ./run abi: stores the interface of the libraries anew.

. "$root/tools/packages.sh"
. "$root/tools/parts.sh"

cmd_abi() {
    [ $# -eq 0 ] || usage_error "abi takes no arguments"
    need "${packages_build[@]}" "${packages_test[@]}"
    mkdir -p "$results"
    build_part_gcc everything || die "the build failed"
    "$python" "$root/tests/house/abi.py" "$root" "$build/gcc" --renew
}
