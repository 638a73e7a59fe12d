#!/bin/sh
# The manual: nothing that is public lacks a page, and every page is one that man shows as it should. Writes TAP.
. tests/lib/tap
man=$(cd "$B" && pwd)/man
[ -e "$man/made" ] || skip_all "the manual is not built (package perl): make deps"
need man groff lexgrog
pages=$(find "$man" -name '*.[137]' | sort)
# Those that are more than a reference to another.
written=$(grep -L '^\.so ' $pages)

functions() {
	for f in $(grep -oE 'kolo_[a-z_0-9]+;' comm/symbols.map | tr -d ';'); do
		[ -s "$man/man3/$f.3" ] || echo "$f has no page"
	done
	(cd "$man/man3" && ls) | while read -r page; do
		grep -q "\<${page%.3};" comm/symbols.map || echo "$page is for no exported function"
	done
}
tools() {
	for tool in $TOOLS; do
		[ -s "$man/man1/$tool.1" ] || echo "$tool has no page"
	done
	for page in kolo kolo-environment; do
		[ -s "$man/man7/$page.7" ] || echo "there is no $page.7"
	done
}
# Each variable with what the library's table says of it.
variables() {
	"$B/ringinfo" --environment | awk '$1 ~ /^KOLO_/ { print $1, $3 }' >"$dir/variables"
	grep -oE '"KOLO_[A-Z0-9_]+"' comm/base/env.c | tr -d '"' | sort -u >"$dir/table"
	cut -d' ' -f1 "$dir/variables" | sort | diff "$dir/table" -
	while read -r name default; do
		grep -A4 "^ *$name\$" "$dir/kolo-environment.7.80" | tr -s ' \n' '  ' >"$dir/entry"
		case $default in
		-) grep -q "Values: " "$dir/entry" || echo "$name has no values" ;;
		*) grep -qF "Default: $default. Range: " "$dir/entry" || echo "$name lacks its default, $default" ;;
		esac
	done <"$dir/variables"
}
warnings() {
	for page in $pages; do
		for width in 80 60; do
			(cd "$man" && groff -man -ww -Tutf8 -P-cbou -rLL=${width}n "$page" >"$dir/${page##*/}.$width") 2>&1
			(cd "$man" && MANWIDTH=$width man --warnings=w -l "$page" 2>&1 >/dev/null)
		done
	done
}
wide_lines() {
	for page in $written; do
		perl -CSD -ne 'chomp; print "$ARGV: $_\n" if length > 80' "$dir/${page##*/}.80"
	done
}
names() {
	for page in $pages; do
		names=$(cd "$man" && lexgrog "$page") || { echo "$page: lexgrog finds no name"; continue; }
		base=${page##*/}
		echo "$names" | grep -qF "\"${base%.*} - " || echo "$base: $names"
		echo "$names" | awk -v page="$base" 'length($0) - length($1) > 100 { print page ": too long: " $0 }'
	done
}
members() {
	cat "$dir"/*.80 | tr -s ' \n' '  ' >"$dir/all"
	awk '/^(struct|enum) [a-z_]+ \{/ { inside = 1; next }
		/^\};/ { inside = 0 }
		inside { sub(/^[ \t]*\/\*.*/, ""); sub(/[ \t]*\/\*.*/, ""); print }' include/kolo/kolo.h |
		sed -nE 's/^[ \t]+([A-Za-z].*)[;,]$/\1/p' >"$dir/members"
	while read -r member; do
		grep -qF -- "$member" "$dir/all" || echo "no page has the member: $member"
	done <"$dir/members"
	[ "$(wc -l <"$dir/members")" -gt 40 ] || echo "found too few members in kolo.h"
}
common() {
	for f in all_reduce reduce broadcast reduce_scatter all_gather barrier; do
		for part in "All collectives: every rank" "KOLO_EMISMATCH = -7" "installs no signal handler"; do
			tr -s ' \n' '  ' <"$dir/kolo_$f.3.80" | grep -qF "$part" || echo "kolo_$f lacks: $part"
		done
	done
}
installed() {
	# Compared with what was built: every page is where man looks for it, and nothing else is.
	$MAKE install DESTDIR="$dir/stage" PREFIX=/usr CC="$CC" SAN="$SAN" >"$dir/install" 2>&1 ||
		{ cat "$dir/install"; return 1; }
	(cd "$man" && find . -name '*.[137]' | sort) >"$dir/built"
	(cd "$dir/stage/usr/share/man" && find . -type f | sort) 2>&1 | diff "$dir/built" -
}
# What the README marks as of no use in the manual is not in it, told by how it begins.
left_out() {
	tr -s ' \n' '  ' <"$dir/kolo.7.80" >"$dir/overview"
	sed -n '/^<!-- not in the manual -->$/ { n; s/^ *//; s/`//g; s/^\(.\{28\}\).*/\1/p }' README.md >"$dir/marked"
	[ -s "$dir/marked" ] || echo "the README marks nothing"
	while read -r begin; do
		not grep -F -- "$begin" "$dir/overview"
	done <"$dir/marked"
	not grep -F "not in the manual" "$dir/overview"
}
# Each installed file, or its folder, is in the overview.
files() {
	tr -s ' ,' '\n' <"$dir/kolo.7.80" | grep '^PREFIX/' >"$dir/files"
	(cd "$dir/stage/usr" && find . -path ./share/man -prune -o ! -type d -print) >"$dir/installed"
	sed 's|^\./||' "$dir/installed" | while read -r file; do
		grep -qxe "PREFIX/$file" -e "PREFIX/${file%/*}" "$dir/files" || echo "kolo(7) lacks: $file"
	done
}

try "every exported function has a page, and nothing else in section 3" silent functions
try "every tool has a page, and so have the whole and its environment" silent tools
try "groff and man have no warning, at 80 columns and at 60" silent warnings
try "no line is wider than 80 columns" silent wide_lines
try "lexgrog finds each page's own name, and a line behind it" silent names
try "every member of every struct and enum is in some page" silent members
try "what holds for all collectives is in the page of each" silent common
try "kolo-environment(7) has every variable of the library's table, with its default" silent variables
try "kolo(7) leaves out what the README marks" silent left_out
try "make install puts every page below PREFIX/share/man" silent installed
try "kolo(7) has every installed file" silent files
finish
