# SPDX-License-Identifier: Apache-2.0
# packages.sh - Debian packages: which are missing, and how they are installed.

installed() { [ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]; }

# Installs those of the packages named that are missing; asks for the network only then.
need() {
    local missing=() package as_root=()
    command -v dpkg-query >/dev/null ||
        die "this is not Debian: install the equivalents of: $* ..." \
            "and build with Meson as README.md says"
    for package in "$@"; do installed "$package" || missing+=("$package"); done
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            die "neither root nor sudo: as root, run: apt-get install ${missing[*]}"
        fi
        as_root=(sudo)
        [ -t 0 ] || as_root=(sudo -n) # nobody there to type a password
        "${as_root[@]}" true || die "sudo refused: as root, run: apt-get install ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    mkdir -p "$build"
    local log=$build/apt.log
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q)
    if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1; then
        "${apt[@]}" update </dev/null >>"$log" 2>&1 || true # old or empty lists: fetch, try again
        if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" \
            </dev/null >>"$log" 2>&1; then
            tail -n 15 "$log" >&2
            die "apt-get could not install: ${missing[*]} (all of its output: $log)"
        fi
    fi
}
