#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_run.sh - tests the behaviour of ./run: help, usage errors, and the sentence that it prints if
# packages cannot be installed. test_run.sh ROOT
root=$1
failures=0

# expect EXIT WORDS COMMAND...: the expected exit code, and words that the output must contain.
expect() {
    code=$1 words=$2
    shift 2
    output=$("$@" 2>&1 </dev/null)
    got=$?
    case $output in *"$words"*) found=1 ;; *) found=0 ;; esac
    if [ "$got" -ne "$code" ] || [ $found -eq 0 ]; then
        printf 'FAILED: %s\n  exit %s, expected %s with "%s", output:\n%s\n' \
            "$*" "$got" "$code" "$words" "$output"
        failures=$((failures + 1))
    fi
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
ln -s "$root/run" linked

expect 0 'usage: ./run COMMAND' "$root/run" help
expect 0 'usage: ./run COMMAND' "$root/run"
expect 0 'usage: ./run COMMAND' ./linked --help
expect 2 "no command 'bake'" "$root/run" bake
expect 2 "no part 'icc'" "$root/run" test --part icc
expect 2 '--quick goes without --part' "$root/run" test --quick --part gcc
expect 2 "test knows no '--fast'" "$root/run" test --fast
expect 2 '--filter needs a regular expression' "$root/run" test --filter
expect 2 "'(' is not a regular expression" "$root/run" test --filter '('
expect 2 'fuzz takes a number of seconds' "$root/run" fuzz soon
expect 2 "format knows no '--fast'" "$root/run" format --fast
expect 2 'soak takes a number of minutes' "$root/run" soak forever

# For every command in the usage there must be a file with its function, which bash can parse.
for command in $("$root/run" help | sed -n 's/^  \([a-z]\{2,\}\)\( .*\)*$/\1/p' | sort -u); do
    [ "$command" != help ] || continue
    expect 0 "cmd_$command() {" grep "^cmd_$command() {" "$root/tools/$command.sh"
done
for file in "$root"/tools/*.sh; do expect 0 '' bash -n "$file"; done

# Simulates a machine on which a package is missing and the user may not install it.
mkdir bin
for tool in bash dirname readlink nproc id env; do ln -s "$(command -v $tool)" bin/; done
printf '#!/bin/sh\nexit 1\n' >bin/dpkg-query
printf '#!/bin/sh\necho 1000\n' >bin/id.new && mv -f bin/id.new bin/id
chmod +x bin/dpkg-query bin/id
expect 1 'neither root nor sudo: as root, run: apt-get install gcc g++' \
    env PATH="$scratch/bin" "$root/run" bench
printf '#!/bin/sh\nexit 1\n' >bin/sudo
chmod +x bin/sudo
expect 1 'sudo refused: as root, run: apt-get install gcc g++' \
    env PATH="$scratch/bin" "$root/run" bench
rm bin/dpkg-query
expect 1 'this is not Debian' env PATH="$scratch/bin" "$root/run" bench

# No file may be written to the current folder of the caller.
left=$(ls "$scratch")
if [ "$left" != "$(printf 'bin\nlinked')" ]; then
    echo "FAILED: left behind: $left"
    failures=$((failures + 1))
fi

echo "$failures failures"
[ $failures -eq 0 ]
