#!/bin/sh
# What collectives on CUDA streams and work of a training step do on this machine's GPUs, in one run of less than 8 minutes:
# perf/cuda.sh [FOLDER]. Writes the tables (cuda.txt) and one JSON object per line and measurement (cuda.json) into FOLDER
# (build/perf), builds what it needs, and wants gcc, make, nvcc and a driver. compute-sanitizer is used where it is there.
set -u
end=$(($(date +%s) + 470))
cd "$(dirname "$0")/.."
out=${1:-build/perf}
[ -e /dev/nvidiactl ] || { echo "perf/cuda.sh: skipped: no GPU here (/dev/nvidiactl)"; exit 0; }
make -s lib build/nccl/libnccl.so.2 build/ringbench build/ringrun build/check_cuda/test_cuda build/check_cuda/test_cuda_registered build/check_cuda/test_zero_gpu_kernels \
	build/perf/stream_words build/perf/gpu_moves build/perf/zero_cuda || exit 1
ln -sf ../libkolo_cuda.so.0 build/check_cuda/
export CUDA_DEVICE_MAX_CONNECTIONS=32 # hardware queues: streams that wait hold up others in theirs
mkdir -p "$out"
table=$out/cuda.txt json=$out/cuda.json
: >"$json"
exec 3>"$table"
say() { echo "$*" | tee /dev/fd/3; }

# within SECONDS COMMAND...: for so long at most, and what is left of the whole run.
within() {
	left=$((end - $(date +%s)))
	[ "$left" -lt "$1" ] || left=$1
	shift
	if [ "$left" -lt 3 ]; then
		echo "# left out: no time is left"
	else
		timeout "$left" "$@" 2>&1 || echo "# it ended with status $? (124: after $left s)"
	fi
}

# bench WHAT N OPTIONS...: a table, and its lines as JSON with WHAT beside them.
bench() {
	what=$1 n=$2
	shift 2
	say ""
	say "# $what: ringbench -n $n --memory cuda $*"
	rm -f "$out/part.json"
	within 60 build/ringbench -n "$n" --memory cuda --json "$out/part.json" "$@" | grep -v '^# time\|^# .!\|^# sequential' | tee /dev/fd/3
	[ ! -s "$out/part.json" ] || sed "s|^{|{\"what\": \"$what\", |" "$out/part.json" >>"$json"
}

say "# Kolo $(git describe --always --dirty 2>/dev/null), $(uname -m), $(nproc) processors"
nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader 2>/dev/null | while read -r gpu; do say "# GPU $gpu"; done

say ""
say "# what cuda/README.md assumes"
within 120 build/perf/stream_words | tee /dev/fd/3

say ""
say "# what an operation on streams is made of"
within 30 build/perf/gpu_moves "$json" | tee /dev/fd/3

say ""
say "# work of a training step"
within 60 build/perf/zero_cuda "$json" | tee /dev/fd/3

# One rank copies from src to dst: what the memory does without neighbours. Results are make check-cuda's to check.
bench copy 1 -b 1M -e 1G -f 4 --out-of-place -c 0
for n in 2 4 8; do
	bench "all_reduce $n threads" "$n" --threads -b 4 -e 512M -f 8 -c 0
	bench "registered $n threads" "$n" --threads --memory cuda-registered -b 4 -e 512M -f 8 -c 0
	bench "all_reduce $n" "$n" -b 4 -e 512M -f 8 -c 0
	bench "registered $n" "$n" --memory cuda-registered -b 4 -e 512M -f 8 -c 0
done
for memory in cuda cuda-registered; do
	bench "others, $memory" 2 --memory $memory broadcast reduce reduce_scatter all_gather -b 64K -e 256M -f 16 -c 0
done
bench "blocks" 4 --threads all_to_all gather scatter -b 64K -e 256M -f 16 -c 0
bench types 2 -t all -b 64M -e 64M --out-of-place
bench barrier 2 barrier
# How long should a slot be?
for memory in 8388608 33554432 134217728 536870912; do
	KOLO_CUDA_MEMORY=$memory bench "slots of $memory" 2 --threads -b 256M -e 256M --in-place -c 0
done
bench "staged, shm" 2 --transport shm -b 64K -e 64M -f 32 -c 0

# In a Python that has torch and kolo_torch (make torch), beside the NCCL that torch has.
python=${PYTHON:-build/torch/venv/bin/python}
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
if [ "$gpus" -lt 2 ]; then
	say "# torch.distributed beside NCCL: left out: a GPU for each of two ranks is wanted"
elif ! "$python" -c 'import kolo_torch, pykolo' 2>/dev/null; then
	say "# torch.distributed beside NCCL: left out: $python has no kolo_torch (make torch; PYTHON=PATH)"
else
	say ""
	say "# torch.distributed: perf/torch/collectives.py --device cuda"
	within 90 "$python" perf/torch/collectives.py --device cuda --ranks 2 --rounds 5 | tee /dev/fd/3
fi

# nccl-tests with NVIDIA's library and with Kolo's. They refuse several ranks on one GPU, so one GPU has one rank.
if command -v all_reduce_perf >/dev/null; then
	say ""
	say "# nccl-tests: perf/cuda/nccl_tests.py --gpus $gpus"
	within 90 python3 perf/cuda/nccl_tests.py --gpus "$gpus" --rounds 5 | tee /dev/fd/3
else
	say "# nccl-tests: left out: no all_reduce_perf in PATH"
fi

# sanitize TOOL PROGRAM: what it has to say last.
sanitize() {
	say ""
	say "# compute-sanitizer --tool $1: $2"
	within 90 compute-sanitizer --target-processes all --tool "$1" "build/check_cuda/$2" | tail -n 4 | tee /dev/fd/3
}
if command -v compute-sanitizer >/dev/null; then
	export T_SLOW=1
	sanitize racecheck test_zero_gpu_kernels # the others have next to no shared memory
	sanitize memcheck test_zero_gpu_kernels
	export T_ONLY=blocks_may
	sanitize memcheck test_cuda
	sanitize memcheck test_cuda_registered
fi
rm -f "$out/part.json"
echo "perf/cuda.sh: $table, $json"
