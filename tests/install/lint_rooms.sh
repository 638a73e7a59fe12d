#!/bin/sh
# tests/rooms, on a small project of three rooms: it passes, and each breach of the rules is reported. Writes TAP.
. tests/lib/tap
need python3 nm

# low: add and half; mid: scale, which adds; top: main.
make_project() {
	rm -rf "$dir/project"
	mkdir -p "$dir/project/tests" "$dir/project/app/low" "$dir/project/app/mid" "$dir/project/app/top"
	cd "$dir/project"
	cat >tests/rooms.list <<-'END'
		app      a program
		app/low  adds   [small: an example]
		app/mid  scales [small: an example]
		app/top  prints [small: an example]
	END
	echo 'int add(int a, int b);' >app/low/add.h
	printf '#include "app/low/add.h"\nint add(int a, int b)\n{\n\treturn a + b;\n}\n' >app/low/add.c
	echo 'int half(int a);' >app/low/half.h
	printf '#include "app/low/half.h"\nint half(int a)\n{\n\treturn a / 2;\n}\n' >app/low/half.c
	echo 'int scale(int a);' >app/mid/scale.h
	printf '#include "app/mid/scale.h"\n#include "app/low/add.h"\nint scale(int a)\n{\n\treturn add(a, a);\n}\n' >app/mid/scale.c
	printf '#include "app/mid/scale.h"\nint main(void)\n{\n\treturn scale(0);\n}\n' >app/top/main.c
}
compile() {
	for f in */*/*.c; do
		mkdir -p "build/${f%/*}"
		$CC -I. -c -o "build/${f%.c}.o" "$f"
	done
}
rooms() {
	compile
	B=build "$here/tests/rooms"
}
# There are as many complaints as TEXTS, each with one of them.
complains() { # TEXTS...
	not rooms >out
	cat out
	[ "$(wc -l <out)" = $# ]
	for text in "$@"; do grep -qF -e "$text" out; done
}

passes() {
	make_project
	[ "$(rooms)" = 'rooms: 3 rooms, 4 units, 0 circles by includes, 0 by calls' ]
}
include_upward() {
	make_project
	sed -i '1i #include "app/mid/scale.h"' app/low/half.c
	complains 'app/low/half.c:1: app/low may not include app/mid/scale.h of app/mid: app/mid is above app/low'
}
call_upward() {
	make_project
	printf 'extern int scale(int a);\nint twice(int a)\n{\n\treturn scale(a);\n}\n' >>app/low/half.c
	complains 'build/app/low/half.o: app/low may not call scale in build/app/mid/scale.o of app/mid: app/mid is above app/low'
}
table_upward() {
	make_project
	printf 'extern int scale(int a);\nint (*const table[])(int) = { scale };\n' >>app/low/half.c
	complains 'app/low may not call scale in build/app/mid/scale.o'
}
circle() {
	make_project
	sed -i '1i #include "app/low/half.h"' app/low/add.c
	sed -i '1i #include "app/low/add.h"' app/low/half.c
	complains 'a circle by includes of 2 units: app/low/add app/low/half'
	make_project
	printf 'int half(int a);\nint mean(int a, int b)\n{\n\treturn half(add(a, b));\n}\n' >>app/low/add.c
	printf 'int add(int a, int b);\nint more(int a)\n{\n\treturn add(half(a), 1);\n}\n' >>app/low/half.c
	complains 'a circle by calls of 2 units: app/low/add app/low/half'
}
too_many() {
	make_project
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "extern int a$i;" >app/low/a$i.h; done
	rooms # 14
	echo 'extern int a13;' >app/low/a13.h
	complains 'app/low has 15 units'
}
few() {
	make_project
	sed -i 's/ \[small.*//' tests/rooms.list
	rooms >out
	[ "$(grep -c 'remark: app/.* has [12] units' out)" = 3 ]
}
no_room() {
	make_project
	mkdir app/attic
	echo 'extern int a;' >app/attic/a.h
	complains 'app/attic/a.h lies in no room'
	make_project
	echo 'extern int a;' >app/a.h
	complains 'app/a.h lies in no room'
	sed -i 's/^app .*/& [stay a.h]/' tests/rooms.list
	rooms
}
no_folder() {
	make_project
	echo 'app/roof  nothing yet [small: empty]' >>tests/rooms.list
	complains 'app/roof is in tests/rooms.list and not in the tree'
}
relative() {
	make_project
	sed -i 's|"app/low/add.h"|"add.h"|' app/low/add.c
	complains 'app/low/add.c:1: include "add.h" by its path from the root'
	make_project
	sed -i 's|"app/low/add.h"|"../low/add.h"|' app/mid/scale.c
	complains 'app/mid/scale.c:2: include "../low/add.h" by its path from the root'
}
# A second folder sees the first only if the list says so, and include/ always.
folders() {
	make_project
	mkdir -p kit/all include/kolo
	echo 'int kolo_add(int a, int b);' >include/kolo/kolo.h
	sed -i 's|"app/low/add.h"|"kolo/kolo.h"|; s|\badd(|kolo_add(|' app/low/add.c app/mid/scale.c
	printf '#include "kolo/kolo.h"\nint three(void)\n{\n\treturn kolo_add(1, 2);\n}\n' >kit/all/three.c
	printf 'kit      another\nkit/all  counts [small: an example]\n' >>tests/rooms.list
	CPATH=include rooms
	echo 'int half(int a); int one(void) { return half(2); }' >>kit/all/three.c
	CPATH=include complains 'kit/all may not call half in build/app/low/half.o of app/low: kit/ does not see app/'
	sed -i 's/^kit .*/& [sees app]/' tests/rooms.list
	CPATH=include rooms
	sed -i 's/^kit.all .*/& [only app\/mid]/' tests/rooms.list
	CPATH=include complains 'kit/all may not call half in build/app/low/half.o of app/low: kit/all sees only app/mid'
	sed -i 's/^kit.all .*/& [also app\/low]/' tests/rooms.list
	CPATH=include rooms
}
graph() {
	make_project
	compile
	B=build "$here/tests/rooms" --graph app >out
	cat >wanted <<-'END'
		app/top: prints
		    main
		    -> app/mid 1
		app/mid: scales
		    scale
		    -> app/low 1
		app/low: adds
		    add half
		    -> nothing
	END
	diff wanted out
}

try "a project that keeps the rules passes" passes
try "an include of a room above is reported" include_upward
try "a call of a room above is reported, without any include" call_upward
try "a table of functions from a room above counts as a call" table_upward
try "a circle inside a room is reported, by includes and by calls" circle
try "a room has 14 units at most" too_many
try "a room of fewer than three units is remarked on, unless the list gives a reason" few
try "a file that lies in no room is reported, unless the list lets it stay in the folder" no_room
try "a room that is not in the tree is reported" no_folder
try "an include by another path than the root's is reported" relative
try "a folder sees another's rooms if the list says so, and what include/ declares" folders
try "--graph prints each room with what it uses" graph
finish
