# SPDX-License-Identifier: Apache-2.0
# builds.sh - build directories under build/: their options, set up and compiled.

# configure DIR CC [MESON OPTIONS]: sets up build/DIR, anew when anything it depends on has changed.
configure() {
    local dir=$build/$1 cc=$2 cxx
    shift 2
    case $cc in clang) cxx=clang++ ;; *) cxx=g++ ;; esac
    local stamp="$root $cc $(meson --version) $*"
    if [ ! -f "$dir/build.ninja" ] || [ "$(cat "$dir/.run-stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$dir"
        mkdir -p "$build"
        if ! CC=$cc CXX=$cxx meson setup --wrap-mode=nodownload "$dir" "$root" "$@" \
            </dev/null >"$build/setup.log" 2>&1; then
            tail -n 30 "$build/setup.log" >&2
            return 1
        fi
        printf '%s\n' "$stamp" >"$dir/.run-stamp"
    elif ! ninja -C "$dir" build.ninja </dev/null >"$build/setup.log" 2>&1; then
        # Meson runs again if a meson.build has changed, so that it knows all tests from now on.
        tail -n 30 "$build/setup.log" >&2
        return 1
    fi
}

# compile DIR [FILES]: quiet when it works, the compiler's words when it does not.
compile() {
    if ! ninja -C "$build/$1" -j "$jobs" "${@:2}" </dev/null >"$build/$1/compile.log" 2>&1; then
        grep -v '^\[[0-9]*/[0-9]*\]' "$build/$1/compile.log" | head -n 60 >&2
        return 1
    fi
}

# The same options wherever a build directory is used, so that no command tears down another's.
options_checked=(-Dwerror=true -Dtests=enabled -Dtransports=enabled -Dtls=enabled -Dtrainer=enabled
    -Dmpi=enabled -Dcuda=auto)
options_no_gpu=(-Dgpu_archs=) # kernels are compiled by nvcc once, not in every build
options_sanitized=("${options_checked[@]}" "${options_no_gpu[@]}" -Db_lundef=false -Dbench=disabled
    -Doptimization=1 "-Dc_args=-fno-sanitize-recover=all -g1") # quick to compile

# Every finding ends its test.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
