#!/bin/sh
# What collectives on CUDA streams and work of a training step do on this machine's GPUs, in one run of less than 10 minutes:
# perf/cuda.sh [FOLDER]. Writes the tables (cuda.txt) and one JSON object per line and measurement (cuda.json) into FOLDER
# (build/perf), builds what it needs, and wants gcc, make, nvcc and a driver. compute-sanitizer is used where it is there.
set -u
cd "$(dirname "$0")/.."
out=${1:-build/perf}
[ -e /dev/nvidiactl ] || { echo "perf/cuda.sh: skipped: no GPU here (/dev/nvidiactl)"; exit 0; }
make -s lib build/ringbench build/ringrun build/check_cuda/test_cuda build/check_cuda/test_zero_gpu_kernels \
	build/perf/stream_words build/perf/zero_cuda || exit 1
ln -sf ../libkolo_cuda.so.0 build/check_cuda/
export CUDA_DEVICE_MAX_CONNECTIONS=32 # hardware queues: streams that wait hold up others in theirs
mkdir -p "$out"
table=$out/cuda.txt json=$out/cuda.json
: >"$json"
exec 3>"$table"
say() { echo "$*" | tee /dev/fd/3; }

# bench WHAT N OPTIONS...: a table, and its lines as JSON with WHAT beside them.
bench() {
	what=$1 n=$2
	shift 2
	say ""
	say "# $what: ringbench -n $n --memory cuda $*"
	timeout 90 build/ringbench -n "$n" --memory cuda --json "$out/part.json" "$@" 2>&1 | grep -v '^# time\|^# .!\|^# sequential' | tee /dev/fd/3
	sed "s|^{|{\"what\": \"$what\", |" "$out/part.json" >>"$json"
}

say "# Kolo $(git describe --always --dirty 2>/dev/null), $(uname -m), $(nproc) processors"
nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader 2>/dev/null | while read -r gpu; do say "# GPU $gpu"; done

say ""
say "# what cuda/README.md assumes"
timeout 120 build/perf/stream_words 2>&1 | tee /dev/fd/3

say ""
say "# work of a training step"
timeout 60 build/perf/zero_cuda "$json" 2>&1 | tee /dev/fd/3

# One rank copies from src to dst: what the memory does without neighbours.
bench copy 1 -b 1M -e 1G -f 4 --out-of-place -c 0
for n in 2 4 8; do
	bench "all_reduce $n" "$n" -b 8 -e 512M -f 8
	bench "all_reduce $n threads" "$n" --threads -b 8 -e 512M -f 8
done
# Without slots, on memory that the others reach.
for n in 2 8; do
	bench "registered $n" "$n" --memory cuda-registered -b 8 -e 512M -f 8 -c 0
	bench "registered $n threads" "$n" --threads --memory cuda-registered -b 8 -e 512M -f 8 -c 0
done
bench "others, registered" 2 --memory cuda-registered broadcast reduce reduce_scatter all_gather -b 64K -e 256M -f 16
bench others 2 broadcast reduce reduce_scatter all_gather -b 64K -e 256M -f 16
bench types 2 -t all -b 64M -e 64M --out-of-place
bench barrier 2 barrier
# How long should a slot be?
for memory in 8388608 33554432 134217728 536870912; do
	KOLO_CUDA_MEMORY=$memory bench "slots of $memory" 2 -b 256M -e 256M --in-place -c 0
done
bench "staged, shm" 2 --transport shm -b 64K -e 64M -f 32

if command -v compute-sanitizer >/dev/null; then
	for tool in memcheck racecheck; do
		say ""
		say "# compute-sanitizer --tool $tool: uneven blocks of all collectives"
		T_ONLY=blocks_may timeout 120 compute-sanitizer --target-processes all --tool $tool build/check_cuda/test_cuda 2>&1 | tail -n 4 | tee /dev/fd/3
		say "# compute-sanitizer --tool $tool: work of a training step"
		timeout 120 compute-sanitizer --tool $tool build/check_cuda/test_zero_gpu_kernels 2>&1 | tail -n 4 | tee /dev/fd/3
	done
fi
rm -f "$out/part.json"
echo "perf/cuda.sh: $table, $json"
