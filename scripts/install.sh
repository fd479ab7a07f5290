#!/usr/bin/env bash
# The work of `make install`: PREFIX=... VERSION=... LIBS=... scripts/install.sh BUILD_DIR [DESTDIR]
set -eu
build=$1 root=${2:-}$PREFIX
set -x
install -D -m 755 "$build/duet" "$root/bin/duet"
install -D -m 644 "$build/libduet.a" "$root/lib/libduet.a"
install -D -m 644 duet.h "$root/include/duet.h"
install -d "$root/lib/pkgconfig"
sed "s|@PREFIX@|$PREFIX|; s|@VERSION@|$VERSION|; s|@LIBS@|$LIBS|" duet.pc.in \
    >"$root/lib/pkgconfig/duet.pc"
