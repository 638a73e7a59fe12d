#!/bin/sh
# What the libraries show to a linker, and the state that they keep. Writes TAP.
. tests/lib/tap
so=$B/libkolo.so.0 a=$B/libkolo.a

versioned() {
	# Defined dynamic symbols: name@@KOLO_0, and the node itself.
	readelf --dyn-syms -W "$so" | awk '$5 ~ /GLOBAL|WEAK|UNIQUE/ && $7 != "UND" { print $8 }' | grep -vx KOLO_0 >"$dir/out"
	[ "$(grep -c . "$dir/out")" = "$(grep -c '	kolo_.*;' comm/symbols.map)" ]
	not grep -vE '^kolo_[a-z_0-9]+@@KOLO_0$' "$dir/out"
}
calls_itself() {
	readelf -rW "$so" >"$dir/out"
	not grep kolo_ "$dir/out"
}
stays() {
	readelf -d "$so" | grep 'FLAGS_1.*NODELETE'
}
hidden() {
	nm -g --defined-only "$a" | awk 'NF == 3 { print $3 }' | sort >"$dir/archive"
	grep -o 'kolo_[a-z_0-9]*;' comm/symbols.map | tr -d ';' | sort | diff - "$dir/archive"
}
clash() {
	cat >"$dir/clash.c" <<-'END'
		#include <kolo/kolo.h>
		int ko_fail(int code);
		int ko_fail(int code) { return code + 1000; }
		int main(void)
		{
			if (kolo_comm_create(0, 0) != KOLO_EINVAL || !*kolo_last_error())
				return 1;
			return ko_fail(1) != 1001;
		}
	END
	$CC $flags -o "$dir/clash" "$dir/clash.c" "$a" $(pkg-config --libs-only-L --libs-only-l hwloc libibverbs jansson liburing 2>/dev/null) -lpthread -lm
	"$dir/clash"
}
# All objects that may change while the program runs. comm/README.md tells why each is harmless.
state() {
	# ADDRESS FLAGS SECTION<tab>SIZE NAME. A static of a function is NAME.NUMBER for gcc, FUNCTION.NAME for clang;
	# clang also makes a NAME.NUMBER of each member of a static struct that it can keep apart.
	objdump -t "$a" | awk -F'\t' '$1 ~ / \.(data|bss|tdata|tbss)(\.|$)/ && $1 !~ /rel\.ro/ && $2 !~ /^0+ / { print $2 }' |
		sed -E 's/.* //; s/\.[0-9]+$//; s/.*\.//' | sort -u >"$dir/out"
	printf '%s\n' allocated driver group inside joinings kept ko_generation last_error n offered own | diff - "$dir/out"
}

try "every exported symbol begins with kolo_ and has the version KOLO_0" versioned
try "the shared library calls its own functions and nobody else's of that name" calls_itself
try "the shared library stays in memory after dlclose" stays
try "the static library shows what the shared one exports, and nothing else" hidden
try "a program may have names of its own that begin with ko_" clash
name="the only state of the library is what its README lists"
if [ -n "$SAN" ]; then skip "sanitizers add state" "$name"; else try "$name" state; fi
finish
