#!/bin/sh
# A program outside the tree, built against an installed copy through pkg-config, shared and static. Writes TAP.
set -eu
here=$(pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
CC=${CC:-gcc}
flags=${SAN:+-fsanitize=$SAN}
echo "1..5"

n=0
result() { # NAME STATUS
	n=$((n + 1))
	if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' "$dir/log" >&2; fi
}
try() { # NAME COMMAND...
	name=$1
	shift
	status=0
	"$@" >"$dir/log" 2>&1 || status=$?
	result "$name" $status
}

shared() {
	$CC $flags -Wall -Werror $(pkg-config --cflags kolo) -o "$dir/shared" "$here/tests/program.c" $(pkg-config --libs kolo)
	LD_LIBRARY_PATH=$dir/usr/lib "$dir/usr/bin/ringrun" -n 3 "$dir/shared" | sort >"$dir/out"
	cat "$dir/out"
	[ "$(wc -l <"$dir/out")" = 3 ] && grep -qx "rank 2 of 3: the sum is 6" "$dir/out"
}
static() {
	$CC $flags -o "$dir/static" "$here/tests/program.c" $(pkg-config --cflags kolo) "$dir/usr/lib/libkolo.a" \
		$(pkg-config --static --libs kolo | sed "s/-lkolo//")
	"$dir/usr/bin/ringrun" -n 2 "$dir/static" | grep -x "rank 1 of 2: the sum is 3"
}
staged() {
	$MAKE install PREFIX=/opt/kolo LIBDIR=/opt/kolo/lib DESTDIR="$dir/stage" CC="$CC" SAN="${SAN:-}"
	[ -e "$dir/stage/opt/kolo/lib/libkolo.so.0" ] && grep -q '^prefix=/opt/kolo$' "$dir/stage/opt/kolo/lib/pkgconfig/kolo.pc"
}
readme() {
	# The program as the README has it: between ```c and ```, without the comment on top of the file.
	sed -n '/^```c$/,/^```$/p' README.md | sed '1d;$d' >"$dir/readme.c"
	sed '1,/^ \*.*\*\/$/d' tests/program.c | diff - "$dir/readme.c"
}

export PKG_CONFIG_PATH="$dir/usr/lib/pkgconfig"
MAKE=${MAKE:-make}
try "make install puts the library under PREFIX" $MAKE install PREFIX="$dir/usr" LIBDIR="$dir/usr/lib" DESTDIR= CC="$CC" SAN="${SAN:-}"
try "make install keeps DESTDIR out of kolo.pc" staged
try "a program links the shared library through pkg-config and runs" shared
try "a program links the static library and runs" static
try "the README shows the program that was just built" readme
