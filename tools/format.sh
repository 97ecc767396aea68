# SPDX-License-Identifier: Apache-2.0
# format.sh - ./run format: lays out the sources, then looks at every line of text.

. "$root/tools/packages.sh"

cmd_format() {
    case ${1:-} in '' | --check) ;; *) usage_error "format knows no '$1'" ;; esac
    need "${packages_format[@]}"
    if [ $# -eq 0 ]; then "$python" "$root/tests/lint/format.py" "$root" --write; fi
    "$python" "$root/tests/lint/format.py" "$root"
}
