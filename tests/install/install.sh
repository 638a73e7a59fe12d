#!/bin/sh
# Programs outside the tree against an installed copy: through pkg-config and CMake, shared and static, also after
# the copy has been moved. Writes TAP.
. tests/lib/tap
flags="-Wall -Wextra -Werror ${SAN:+-fsanitize=$SAN}"
usr=$dir/usr moved=$dir/moved/kolo

install_to() { # PREFIX LIBDIR MAKE'S ARGUMENTS...
	prefix=$1 libdir=$2
	shift 2
	$MAKE install PREFIX="$prefix" LIBDIR="$libdir" CC="$CC" SAN="$SAN" "$@"
}
# What three ranks print, when nothing else is printed.
prints_sums() { # PROGRAM...
	"$usr/bin/ringrun" -n 3 "$@" >"$dir/out"
	cat "$dir/out"
	[ "$(sort "$dir/out" | tr '\n' ,)" = \
		"rank 0 of 3: the sum is 6,rank 1 of 3: the sum is 6,rank 2 of 3: the sum is 6," ]
}
needs_libkolo() { # PROGRAM: its shared libraries include libkolo.so.0
	readelf -d "$1" | grep 'NEEDED.*libkolo\.so\.0'
}

staged() {
	install_to /opt/kolo /opt/kolo/lib/here DESTDIR="$dir/stage"
	grep -qx 'prefix=/opt/kolo' "$dir/stage/opt/kolo/lib/here/pkgconfig/kolo.pc"
	not grep -r "$dir" "$dir/stage/opt/kolo/lib/here/pkgconfig" "$dir/stage/opt/kolo/lib/here/cmake"
	mkdir -p "$dir/moved"
	mv "$dir/stage/opt/kolo" "$moved"
}
shared() { # COMPILER SOURCE
	$1 $flags $(pkg-config --cflags kolo) -o "$dir/shared" "$here/tools/examples/$2" $(pkg-config --libs kolo)
	needs_libkolo "$dir/shared"
	LD_LIBRARY_PATH=$usr/lib prints_sums "$dir/shared"
}
static() {
	$CC $flags $(pkg-config --cflags kolo) -o "$dir/static" "$here/tools/examples/all_reduce.c" \
		$(pkg-config --static --libs kolo | sed 's/-lkolo/-l:libkolo.a/')
	not needs_libkolo "$dir/static"
	prints_sums "$dir/static"
}
# Without hwloc, RDMA, jansson and liburing nothing but libc is needed, which can be linked statically too.
all_static() {
	install_to "$dir/alone" "$dir/alone/lib" DESTDIR= HWLOC=no VERBS=no JANSSON=no URING=no CFLAGS=-O0 B="$dir/build" -j"$(nproc)"
	export PKG_CONFIG_PATH="$dir/alone/lib/pkgconfig"
	$CC $flags -static $(pkg-config --cflags kolo) -o "$dir/all_static" "$here/tools/examples/all_reduce.c" \
		$(pkg-config --static --libs kolo)
	readelf -d "$dir/all_static" >"$dir/out"
	not grep NEEDED "$dir/out"
	prints_sums "$dir/all_static"
}
no_configs() {
	cat >"$dir/no_configs.c" <<-'END'
		#include <kolo/kolo_zero_config.h>
		#include <string.h>
		int main(void)
		{
			struct kolo_zero_settings *settings;
			struct kolo_zero_model model;

			kolo_zero_model_init(&model);
			if (kolo_zero_settings_parse("{}", &model, &settings) != KOLO_ENOTSUP || settings)
				return 1;
			return !strstr(kolo_last_error(), "jansson");
		}
	END
	export PKG_CONFIG_PATH="$dir/alone/lib/pkgconfig"
	$CC $flags $(pkg-config --cflags kolo) -o "$dir/no_configs" "$dir/no_configs.c" \
		$(pkg-config --static --libs kolo | sed 's/-lkolo/-l:libkolo.a/')
	"$dir/no_configs"
}
moved_pc() {
	for what in --cflags --libs; do
		pkg-config --define-variable=prefix="$moved" $what "$moved/lib/here/pkgconfig/kolo.pc"
	done >"$dir/out"
	cat "$dir/out"
	not grep /opt "$dir/out"
	grep -q -- "-I\"*$moved/include" "$dir/out"
	grep -q -- "-L\"*$moved/lib/here" "$dir/out"
}
python_finds() {
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/tools/python LD_LIBRARY_PATH=$usr/lib prints_sums "$python" "$here/tools/examples/all_reduce.py"
}
readme() {
	# Both programs as the README has them: between ```c and ```, without the comment on top of the file.
	sed -n '/^```c$/,/^```$/p' README.md | grep -v '^```' >"$dir/readme.c"
	for program in all_reduce zero; do
		sed '1,/\*\/$/d' tools/examples/$program.c
	done | diff - "$dir/readme.c"
}

# ---- CMake: the examples as a project outside the tree --------------------------------------------------------
cmake_builds() {
	cp -r tools/examples "$dir/project"
	CC=$CC CXX=$CXX cmake -S "$dir/project" -B "$dir/project/build" -Dkolo_DIR="$moved/lib/here/cmake/kolo" \
		-DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags"
	cmake --build "$dir/project/build"
}
cmake_runs() {
	needs_libkolo "$dir/project/build/all_reduce_c"
	not needs_libkolo "$dir/project/build/all_reduce_static"
	for program in c cpp static; do
		prints_sums "$dir/project/build/all_reduce_$program"
	done
}
# What find_package takes beside the installed version, and what it refuses.
cmake_versions() {
	version=$(pkg-config --modversion kolo)
	major=${version%%.*}
	cat >"$dir/versions.cmake" <<-END
		function(accepts expected request)
			execute_process(COMMAND \${CMAKE_COMMAND} -S $dir/probe -B $dir/probe/build "-DREQUEST=\${request}"
				RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
			if(expected AND status OR NOT expected AND NOT status)
				message(SEND_ERROR "find_package(kolo \${request}): \${text}")
			endif()
		endfunction()
		accepts(TRUE "")
		accepts(TRUE "$major")
		accepts(TRUE "$version")
		accepts(TRUE "$version;EXACT")
		accepts(TRUE "$major.0...$((major + 1)).0")
		accepts(TRUE "$major.0...$version")
		accepts(FALSE "$major.0...<$version")
		accepts(FALSE "$major.0.0;EXACT")
		accepts(FALSE "$version.1")
		accepts(FALSE "$major.999")
		accepts(FALSE "$((major + 1)).0")
		accepts(FALSE "$version;COMPONENTS;none")
	END
	mkdir -p "$dir/probe"
	cat >"$dir/probe/CMakeLists.txt" <<-END
		cmake_minimum_required(VERSION 3.19)
		project(probe NONE)
		find_package(kolo \${REQUEST} REQUIRED PATHS $usr NO_DEFAULT_PATH)
	END
	cmake -P "$dir/versions.cmake"
}

export PKG_CONFIG_PATH="$usr/lib/pkgconfig"
try "make install puts the library under PREFIX" install_to "$usr" "$usr/lib" DESTDIR=
try "make install keeps DESTDIR out of what it installs" staged
try "a C program links the shared library through pkg-config and runs" shared "$CC" all_reduce.c
name="a C++ program links the shared library through pkg-config and runs"
no_cxx=$(missing $CXX)
if [ -n "$no_cxx" ]; then skip "$no_cxx" "$name"; else try "$name" shared "$CXX" all_reduce.cpp; fi
try "a program links the static library through pkg-config and runs" static
name="a program links everything statically when hwloc, RDMA, jansson and liburing are left out"
if [ -n "$SAN" ]; then skip "sanitizers are shared libraries" "$name"; else try "$name" all_static; fi
name="a build without jansson refuses configs and says why"
if [ -n "$SAN" ]; then skip "the build of the test before is needed" "$name"; else try "$name" no_configs; fi
try "pkg-config follows a moved copy" moved_pc

name="the Python example finds the installed library"
no_python=${SAN:+"python is built without the $SAN sanitizer"}
[ -n "$python" ] || no_python="python3 with numpy is missing: make deps-all"
if [ -n "$no_python" ]; then skip "$no_python" "$name"; else try "$name" python_finds; fi

no_cmake=$(missing cmake $CXX)
cmake_test() { # NAME COMMAND...
	if [ -n "$no_cmake" ]; then skip "$no_cmake" "$1"; else try "$@"; fi
}
cmake_test "a CMake project finds a moved copy and builds" cmake_builds
cmake_test "what the CMake project built runs" cmake_runs
cmake_test "CMake takes older versions of the same major number, and no others" cmake_versions
try "the README shows the C example" readme
finish
