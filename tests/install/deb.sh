#!/bin/sh
# make check-deb: the Debian packages are built, checked, installed, used, and removed without a trace. As root, where
# no Kolo is installed, they go into the running system; else they are unpacked into a folder. Writes TAP.
. tests/lib/tap
need dpkg-buildpackage dh lintian fakeroot
debs=build/deb
packages="libkolo0 libkolo-dev kolo-tools kolo-nccl kolo-mpi"

installed=
clean_up() {
	[ -z "$installed" ] || dpkg --purge $packages >/dev/null 2>&1 || :
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

build() {
	$MAKE deb
	for p in $packages; do
		ls "$debs/${p}_${VERSION}_$(dpkg --print-architecture).deb" >>"$dir/debs"
	done
}
lint() {
	root=$([ "$(id -u)" != 0 ] || echo --allow-root)
	lintian $root --fail-on=error,warning --display-level='>=warning' "$debs"/*.changes
}
# All that is in the packages, one absolute path per line.
contents() {
	xargs -n 1 dpkg-deb --fsys-tarfile <"$dir/debs" | tar -it | sed -n 's|^\.\(/.*[^/]\)/*$|\1|p' | sort -u
}
there() { # which of the paths in FILE exist
	while read -r path; do
		[ ! -e "$path" ] && [ ! -L "$path" ] || echo "$path"
	done <"$1"
}
# None of the packages is known to dpkg, and no file of theirs would be overwritten.
may_install() {
	[ "$(id -u)" = 0 ] && ! dpkg-query -W $packages 2>/dev/null | grep -q . || return 1
	while read -r path; do
		[ -d "$path" ] || { echo "$path is there already"; return 1; }
	done <"$dir/before"
}
install_packages() {
	if [ -z "$root" ]; then
		xargs dpkg -i <"$dir/debs"
	else
		while read -r deb; do dpkg-deb -x "$deb" "$root"; done <"$dir/debs"
	fi
}
bench() {
	"$root/usr/bin/ringbench" -n 2 all -t all -b 64K -e 64K -i 3 >"$dir/bench"
	cat "$dir/bench"
	grep -q ' 0 wrong elements' "$dir/bench"
	grep -q 'traffic as the model says' "$dir/bench"
}
other_nccl() {
	"$root/usr/bin/kolo-nccl" sh -c 'grep -o "/.*libnccl.so.2" /proc/self/maps | sort -u' >"$dir/out"
	cat "$dir/out"
	[ "$(cat "$dir/out")" = "$(cd "$libdir" && pwd)/kolo/nccl/libnccl.so.2" ]
}
# A program that goes from its launcher to the installed library, with each MPI that is there.
other_mpi() {
	for abi in openmpi mpich; do
		KOLO_MPI_ABI=$abi "$root/usr/bin/kolo-mpi" sh -c 'grep -o "/.*libkolo_mpi_.*so" /proc/self/maps | sort -u' >"$dir/out"
		cat "$dir/out"
		[ "$(cat "$dir/out")" = "$(cd "$libdir" && pwd)/kolo/mpi/libkolo_mpi_$abi.so" ]
	done
	[ -z "$(missing mpicc.openmpi mpirun.openmpi)" ] || return 0
	mpicc.openmpi -std=c17 -O1 -o "$dir/mpi_program" tests/mpi/mpi_program.c
	KOLO_MPI_REPORT=- OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe --bind-to none \
		--mca oob_tcp_if_include lo --mca btl self,vader -n 2 "$root/usr/bin/kolo-mpi" "$dir/mpi_program" progress 1 \
		>"$dir/out" 2>&1
	cat "$dir/out"
	grep -q "^good" "$dir/out"
	grep -q 'Barrier .* 30 calls' "$dir/out"
}
pages() {
	for page in 1/ringrun 1/ringbench 1/ringinfo 1/kolo-nccl 1/kolo-mpi 3/kolo_all_reduce 3/kolo_op_name 7/kolo 7/kolo-environment; do
		file=$root/usr/share/man/man${page%/*}/${page#*/}.${page%/*}.gz
		ls "$file"
	done
}
compile_shared() {
	gcc -Wall -Werror -o "$dir/program" "$here/tools/examples/all_reduce.c" $(pkg-config --cflags --libs kolo)
	readelf -d "$dir/program" | grep 'NEEDED.*libkolo.so.0'
	"$root/usr/bin/ringrun" -n 3 "$dir/program" >"$dir/out"
	grep -x "rank 2 of 3: the sum is 6" "$dir/out"
}
compile_static() {
	gcc -o "$dir/static" "$here/tools/examples/all_reduce.c" $(pkg-config --cflags kolo) -Wl,-Bstatic -lkolo -Wl,-Bdynamic \
		-L"$libdir" $(pkg-config --static --libs-only-l kolo | sed "s/-lkolo//")
	"$root/usr/bin/ringrun" -n 2 "$dir/static" >"$dir/out"
	grep -x "rank 1 of 2: the sum is 3" "$dir/out"
}
remains() {
	dpkg-query -W $packages 2>/dev/null | grep . || :
	grep libkolo "$dir/libraries" || :
}
purge() {
	dpkg --purge $packages
	there "$dir/files" >"$dir/after"
	ldconfig -p >"$dir/libraries"
	silent remains
	diff "$dir/before" "$dir/after"
}

: >"$dir/debs"
try "make deb builds $packages" build
[ $status = 0 ] || { echo "Bail out! no packages"; exit 1; }
try "lintian has no error and no warning" lint
contents >"$dir/files"
there "$dir/files" >"$dir/before"
root=
if may_install >/dev/null; then installed=yes; else root=$dir/root; fi
try "the packages are installed${root:+ (unpacked: not root, or a Kolo is there already)}" install_packages
libdir=$root/usr/lib/$(gcc -print-multiarch)
if [ -n "$root" ]; then
	export LD_LIBRARY_PATH="$libdir" PKG_CONFIG_LIBDIR="$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
fi
try "the installed ringbench finds nothing wrong" bench
try "a program that kolo-nccl runs has the installed libnccl" other_nccl
try "a program that kolo-mpi runs has the installed libraries" other_mpi
try "the manual is installed" pages
try "a program links the installed shared library and runs" compile_shared
try "a program links the installed static library and runs" compile_static
name="purged, they leave nothing behind"
if [ -z "$root" ]; then try "$name" purge; else skip "nothing was installed" "$name"; fi
finish
