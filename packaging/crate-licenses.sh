#!/bin/sh
# Prints name, version, licence and licence files of the Rust crates that the native library contains.
#
#   cd kvstore/native && ../../packaging/crate-licenses.sh > THIRD-PARTY-LICENSES.txt
#
# Reads Cargo.lock through cargo and the sources that cargo has downloaded, so it runs after a build.
set -eu

sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
lines=$("${CARGO:-cargo}" tree --locked --offline --edges normal --prefix none --no-dedupe \
    --format '{p}|{l}')

echo "Rust crates compiled into the native library of kvstack"
echo "$lines" | LC_ALL=C sort -u | while IFS='|' read -r package license; do
    name=${package%% *}
    version=${package#* v}
    version=${version%% *}
    case "$name" in kvstore-native | "") continue ;; esac
    printf '\n======== %s %s: %s\n' "$name" "$version" "$license"
    for file in "$sources"/*/"$name-$version"/LICEN[CS]E* "$sources"/*/"$name-$version"/COPYING* \
        "$sources"/*/"$name-$version"/COPYRIGHT* "$sources"/*/"$name-$version"/NOTICE*; do
        if [ -f "$file" ]; then
            printf '\n-------- %s\n\n' "${file##*/}"
            case "$file" in
            *APACHE*) echo "Apache License 2.0, as in LICENSE of this distribution" ;;
            *) cat "$file" ;;
            esac
        fi
    done
done
