#!/usr/bin/env bash
# The work of `make install`:
# PREFIX=... VERSION=... LIBS=... SONAME=... scripts/install.sh BUILD_DIR [DESTDIR]
set -eu
build=$1 root=${2:-}$PREFIX
set -x
install -D -m 755 "$build/duet" "$root/bin/duet"
install -D -m 644 "$build/libduet.a" "$root/lib/libduet.a"
if [[ -e $build/libduet.so ]]; then # a sanitizer build has none
    install -D -m 755 "$build/libduet.so" "$root/lib/libduet.so.$VERSION"
    ln -sf "libduet.so.$VERSION" "$root/lib/$SONAME"
    ln -sf "$SONAME" "$root/lib/libduet.so"
fi
install -D -m 644 duet.h "$root/include/duet.h"
for part in duet/*.h; do
    install -D -m 644 "$part" "$root/include/$part"
done
install -d "$root/share/man/man1" "$root/share/bash-completion/completions" "$root/share/doc/duet"
"$build/duet" manual man >"$root/share/man/man1/duet.1"
"$build/duet" manual bash >"$root/share/bash-completion/completions/duet"
install -D -m 644 LICENSE "$root/share/doc/duet/LICENSE"
for example in examples/*.[ch] examples/mlp/* examples/notebooks/*.ipynb; do
    install -D -m 644 "$example" "$root/share/doc/duet/$example"
done
install -d "$root/lib/pkgconfig"
sed "s|@PREFIX@|$PREFIX|; s|@VERSION@|$VERSION|; s|@LIBS@|$LIBS|" \
    duet.pc.in >"$root/lib/pkgconfig/duet.pc"
