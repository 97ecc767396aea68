# SPDX-License-Identifier: Apache-2.0
# docs.sh - ./run docs: the API reference of the public headers in HTML.

. "$root/tools/packages.sh"

cmd_docs() {
    [ $# -eq 0 ] || usage_error "docs takes no arguments"
    need "${packages_docs[@]}"
    "$python" "$root/tests/house/reference.py" "$root" --out "$build/reference"
    say "begin at $build/reference/html/index.html"
}
