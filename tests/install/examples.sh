#!/bin/sh
# The programs of tools/examples, as a newcomer builds and starts them. Writes TAP.
. tests/lib/tap
library="-L$B -lkolo -Wl,-rpath,$here/$B"
run="timeout 60 $B/ringrun"

# Each rank says the sum of 1 to N, times what rank ROOT gives.
right() { # N ROOT COMMAND...
	ranks=$1 root=$2
	shift 2
	$run -n "$ranks" "$@" >"$dir/out"
	for rank in $(seq 0 $((ranks - 1))); do
		echo "rank $rank of $ranks: the sum is $(((root + 1) * ranks * (ranks + 1) / 2))"
	done >"$dir/expected"
	sort "$dir/out" | diff "$dir/expected" -
}
one_two_three() { # COMMAND...
	right 1 0 "$@"
	right 2 0 "$@"
	right 3 0 "$@"
}
fails() { # TEXT COMMAND...: it ends with a status that is not 0 and says TEXT
	text=$1
	shift
	if "$@" >"$dir/out" 2>&1; then echo "$*: status 0"; return 1; fi
	cat "$dir/out"
	grep -q "$text" "$dir/out"
}
refuses() { # COMMAND...: its last argument is no number
	status=0
	"$@" >"$dir/out" 2>&1 || status=$?
	cat "$dir/out"
	[ $status = 2 ]
	grep -qi "root.* 2x\|root.*'2x'" "$dir/out"
	not grep -i "traceback\|backtrace\|stoi" "$dir/out"
}
# A program in which rank ROOT, the last argument, broadcasts.
roots() { # LANGUAGE COMMAND...
	language=$1
	shift
	try "$language: the root may be another rank" right 3 2 "$@" 2
	try "$language: a root that is none shows the library's text" \
		fails "kolo_broadcast: root 7: want 0 to 1" $run -n 2 "$@" 7
	try "$language: a root that is no number is told" refuses "$@" 2x
	try "$language: ranks with different roots show the library's text" \
		fails "ranks disagree: .*root [01].*root [01]" $run -n 2 sh -c '"$@" $KOLO_RANK' sh "$@"
}
example() { # LANGUAGE REASON BUILD COMMAND...
	language=$1 reason=$2 build=$3
	shift 3
	if [ -n "$reason" ]; then
		skip "$reason" "$language: the example builds, without a warning, and runs with 1, 2 and 3 ranks"
		return
	fi
	try "$language: the example builds, without a warning" $build
	try "$language: the example runs with 1, 2 and 3 ranks" one_two_three "$@"
	try "$language: without ringrun the example shows the library's text" fails "start the program with 'ringrun" "$@"
	[ "$language" = C ] || roots "$language" "$@"
}

in_c() {
	$CC -std=c17 $flags -o "$dir/c" tools/examples/all_reduce.c $library
}
zero_in_c() {
	$CC -std=c17 $flags -o "$dir/zero" tools/examples/zero.c $library
}
# It ends with status 0 if it has learnt.
trains() {
	for ranks in 1 2 3; do
		$run -n $ranks "$dir/zero" >"$dir/out"
		cat "$dir/out"
		[ "$(grep -c '^step 400: loss 0.000[0-9]*$' "$dir/out")" = 1 ]
	done
}
in_cxx() {
	$CXX -std=c++17 -Wpedantic $flags -o "$dir/cxx" tools/examples/all_reduce.cpp $library
}
in_fortran() {
	gfortran -std=f2018 -Wall -Wextra -Werror -J "$dir" -o "$dir/fortran" tools/examples/all_reduce.f90 $library
}
in_python() {
	"$python" -W error -m py_compile tools/examples/all_reduce.py
}
# All ranks have the same trees, and they have learnt.
boosts() {
	for ranks in 1 2 3; do
		$run -n $ranks "$boosting" tools/examples/lightgbm_rows.py --library "$B/libkolo.so.0" >"$dir/out"
		cat "$dir/out"
		[ "$(grep -c "of $ranks: 50 trees, squared error 0.1[0-9]*$" "$dir/out")" = $ranks ]
		[ "$(sed -n 's/.*squared error//p' "$dir/out" | sort -u | wc -l)" = 1 ]
	done
}
sanitized=${SAN:+"the $SAN sanitizer is not in this language's programs"}
no_python=$sanitized
[ -n "$python" ] || no_python="python3 with numpy is missing: make deps-all"
export PYTHONPYCACHEPREFIX="$dir" PYTHONPATH=tools/python

example C "" in_c "$dir/c"
try "C: the training loop builds, without a warning" zero_in_c
try "C: the training loop learns on 1, 2 and 3 ranks" trains
example C++ "$(missing $CXX)" in_cxx "$dir/cxx"
example Fortran "${sanitized:-$(missing gfortran)}" in_fortran "$dir/fortran"
example Python "$no_python" in_python \
	"$python" tools/examples/all_reduce.py --library "$B/libkolo.so.0"
boosting=${T_LIGHTGBM:-$python}
no_boosting=$no_python
[ -n "$no_python" ] || "$boosting" -c 'import lightgbm' 2>/dev/null || no_boosting="no lightgbm: T_LIGHTGBM names a Python that has it"
if [ -n "$no_boosting" ]; then
	skip "$no_boosting" "LightGBM: the example learns the same trees on all of 1, 2 and 3 ranks"
else
	try "LightGBM: the example learns the same trees on all of 1, 2 and 3 ranks" boosts
fi
finish
