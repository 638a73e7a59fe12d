#!/bin/sh
# Kolo and an MPI library side by side in one process, for each MPI that is installed. Writes TAP.
. tests/lib/tap

# NAME COMPILER LAUNCHER OPTIONS...: all on this host, over the loopback interface at most.
beside() {
	name=$1 compiler=$2 launcher=$3
	shift 3
	OMPI_CC=$CC MPICH_CC=$CC $compiler -std=c17 $flags -o "$dir/$name" tests/install/with_mpi.c -L"$B" -lkolo \
		-Wl,-rpath,"$here/$B"
	for ranks in 2 3; do
		timeout 60 $launcher "$@" -n $ranks "$dir/$name" >"$dir/out"
		cat "$dir/out"
		[ "$(grep -c "of $ranks: 20 rounds agree" "$dir/out")" = $ranks ]
	done
}
mpi() { # NAME COMPILER LAUNCHER OPTIONS...
	reason=$(missing "$2" "$3")
	reason=${SAN:+the MPI libraries are built without the $SAN sanitizer}$reason
	title="Kolo and $1 take turns in one process"
	if [ -n "$reason" ]; then skip "$reason" "$title"; else try "$title" beside "$@"; fi
}

as_root=
[ "$(id -u)" != 0 ] || as_root=--allow-run-as-root
mpi openmpi mpicc.openmpi mpirun.openmpi $as_root --oversubscribe --bind-to none \
	--mca oob_tcp_if_include lo --mca btl self,vader
mpi mpich mpicc.mpich mpiexec.mpich -launcher fork -iface lo
finish
