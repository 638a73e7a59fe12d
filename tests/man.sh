#!/bin/sh
# The manual: nothing that is public lacks a page, and every page is one that man shows as it should. Writes TAP.
set -u
B=${B:-build}
man=$(cd "$B" && pwd)/man
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

[ -e "$man/made" ] || { echo "1..0 # SKIP the manual is not built (package perl; make deps)"; exit 0; }
MAKE=${MAKE:-make}
for tool in man groff lexgrog; do
	command -v $tool >/dev/null || { echo "1..0 # SKIP $tool is missing (make deps)"; exit 0; }
done
echo "1..8"

n=0
result() { # NAME; what is wrong has been written to $dir/log
	n=$((n + 1))
	if [ -s "$dir/log" ]; then echo "not ok $n - $1"; sed 's/^/# /' "$dir/log" >&2; else echo "ok $n - $1"; fi
}
pages=$(find "$man" -name '*.[137]' | sort)
# Those that are more than a reference to another.
written=$(grep -L '^\.so ' $pages)

for f in $(grep -oE 'kolo_[a-z_0-9]+;' comm/symbols.map | tr -d ';'); do
	[ -s "$man/man3/$f.3" ] || echo "$f has no page"
done >"$dir/log"
(cd "$man/man3" && ls) | while read -r page; do
	grep -q "\<${page%.3};" comm/symbols.map || echo "$page is for no exported function"
done >>"$dir/log"
result "every exported function has a page, and nothing else in section 3"

for tool in $TOOLS; do
	[ -s "$man/man1/$tool.1" ] || echo "$tool has no page"
done >"$dir/log"
[ -s "$man/man7/kolo.7" ] || echo "there is no kolo.7" >>"$dir/log"
result "every tool has a page, and the whole has one"

for page in $pages; do
	for width in 80 60; do
		(cd "$man" && groff -man -ww -Tutf8 -P-cbou -rLL=${width}n "$page" >"$dir/${page##*/}.$width") 2>&1
		(cd "$man" && MANWIDTH=$width man --warnings=w -l "$page" 2>&1 >/dev/null)
	done
done >"$dir/log"
result "groff and man have no warning, at 80 columns and at 60"

for page in $written; do
	perl -CSD -ne 'chomp; print "$ARGV: $_\n" if length > 80' "$dir/${page##*/}.80"
done >"$dir/log"
result "no line is wider than 80 columns"

for page in $pages; do
	names=$(cd "$man" && lexgrog "$page") || { echo "$page: lexgrog finds no name"; continue; }
	base=${page##*/}
	echo "$names" | grep -qF "\"${base%.*} - " || echo "$base: $names"
	echo "$names" | awk -v page="$base" 'length($0) - length($1) > 100 { print page ": too long: " $0 }'
done >"$dir/log"
result "lexgrog finds each page's own name, and a line behind it"

cat "$dir"/*.80 | tr -s ' \n' '  ' >"$dir/all"
awk '/^(struct|enum) [a-z_]+ \{/ { inside = 1; next }
	/^\};/ { inside = 0 }
	inside { sub(/^[ \t]*\/\*.*/, ""); sub(/[ \t]*\/\*.*/, ""); print }' include/kolo/kolo.h |
	sed -nE 's/^[ \t]+([A-Za-z].*)[;,]$/\1/p' >"$dir/members"
while read -r member; do
	grep -qF -- "$member" "$dir/all" || echo "no page has the member: $member"
done <"$dir/members" >"$dir/log"
[ "$(wc -l <"$dir/members")" -gt 40 ] || echo "found too few members in kolo.h" >>"$dir/log"
result "every member of every struct and enum is in some page"

for f in all_reduce reduce broadcast reduce_scatter all_gather barrier; do
	for part in "All collectives: every rank" "KOLO_EMISMATCH = -7" "installs no signal handler"; do
		tr -s ' \n' '  ' <"$dir/kolo_$f.3.80" | grep -qF "$part" || echo "kolo_$f lacks: $part"
	done
done >"$dir/log"
result "what holds for all collectives is in the page of each"

# Compared with what was built: every page is where man looks for it, and nothing else is.
if $MAKE install DESTDIR="$dir/stage" PREFIX=/usr CC="${CC:-gcc}" SAN="${SAN:-}" >"$dir/log" 2>&1; then
	(cd "$man" && find . -name '*.[137]' | sort) >"$dir/built"
	(cd "$dir/stage/usr/share/man" && find . -type f | sort) 2>&1 | diff "$dir/built" - >"$dir/log"
fi
result "make install puts every page below PREFIX/share/man"
