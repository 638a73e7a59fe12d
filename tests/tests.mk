# How the tests are built and run; included by the Makefile.

# ---- Programs: one for each test_*.c, in whatever room; the names of all are different ----------------------
# The objects of sources of tests, by name.
test_objects = $(foreach n,$1,$(addprefix $B/,$(addsuffix .o,$(basename $(wildcard $(foreach e,c cc,tests/*/$n.$e tests/*/*/$n.$e))))))
TESTS   := $(notdir $(basename $(wildcard tests/*/test_*.c tests/*/*/test_*.c)))
TESTS   := $(filter-out $(if $(filter yes,$(JANSSON)),,test_zero_config%),$(TESTS))
TESTS   := $(filter-out $(if $(filter yes,$(URING)),,test_zero_disk%),$(TESTS))
TESTS   := $(filter-out $(if $(filter yes,$(OPENBLAS)),,test_zerotrain test_zerotrain_context test_zerotrain_growth),$(TESTS))
# What has one thread has no races.
ONE_THREAD    := $(addprefix test_,convert kernels gpu_kernels lane parallel_partition parallel_pipeline plan ringinfo_rule \
	zero_kernels zero_layout zero_config zero_config_errors zero_config_keys zerotrain)
ifneq ($(findstring thread,$(FLAVOUR)),)
TESTS         := $(filter-out $(ONE_THREAD),$(TESTS))
endif
TEST_BINARIES := $(TESTS:%=$B/tests/%)
TEST_SCRIPTS  := $(wildcard tests/*/test_*.py tests/*/*/test_*.py) $(filter-out %/deb.sh,$(wildcard tests/install/*.sh)) # deb.sh: make check-deb
# What no flavour changes, and programs of others, run plain only; what tests the tools from outside, with sanitizers among which is the address one too.
TEXT_SCRIPTS  := tests/mpi/test_codes.py tests/tools/test_plot.py tests/tools/test_python.py tests/tools/test_torch.py tests/hosts/test_cluster.py tests/install/man.sh tests/install/lint_rooms.sh
TOOL_SCRIPTS  := $(addprefix %/test_,tools.py ringrun_options.py zeroconfig.py zeroplan.py ringinfo.py launchers.py log.py zero_checkpoint.py \
	zerotrain.py zerotrain_grid.py zerotrain_context.py zerotrain_data.py zerotrain_foreign.py zerotrain_texts.py zero_optimizers.py)
# ringrun on several hosts mostly waits: with sanitizers in `make check-long` only.
RUN_SCRIPTS   := $(if $(T_LONG),,tests/hosts/test_ringrun.py tests/hosts/test_names.py)
ifneq ($(FLAVOUR),)
TEST_SCRIPTS  := $(filter-out $(TEXT_SCRIPTS) $(RUN_SCRIPTS) $(if $(findstring address,$(FLAVOUR)),,$(TOOL_SCRIPTS)),$(TEST_SCRIPTS))
endif
CMOCKA  := $(shell pkg-config --exists cmocka 2>/dev/null && echo yes)
CMOCKA_LIBS := $(if $(CMOCKA),$(shell pkg-config --libs cmocka))

# What they share.
TEST_COMMON := $(call test_objects,t trial host_driver gpu_zero_kernels) $B/tools/common/values.o

# They see the library from within: its objects, not the archive that hides what they share.
.SECONDEXPANSION:
$(TEST_BINARIES): $B/tests/%: $$(call test_objects,$$*) $(TEST_COMMON) $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -rdynamic $(TEST_LDFLAGS) -o $@ $^ $(LIBS) $(CMOCKA_LIBS)

# The kernels of GPUs as C++ of the host's.
CXX_HOST := $(if $(findstring clang,$(CC)),clang++,g++)
$B/tests/cuda/gpu_kernels.o: cuda/libcuda/kernels.cu
$B/tests/cuda/gpu_zero_kernels.o: cuda/libcuda/zero_kernels.cu
$(call test_objects,gpu_kernels gpu_zero_kernels nccl_group): $B/%.o: %.cc $B/flags
	@mkdir -p $(@D)
	$(call say,CXX )
	$Q$(CXX_HOST) -std=c++17 -O2 -g -Wall -Wextra -Wno-unknown-pragmas -fno-exceptions -fno-strict-aliasing -ffp-contract=off \
		-fPIC -fvisibility=hidden $(SANFLAGS) -D_GNU_SOURCE -Iinclude -I. -MMD -MP -c -o $@ $<
$B/tests/test_gpu_kernels: $(call test_objects,gpu_kernels)

# Programs that need no test library: the README's, ranks of test_hosts.py and test_zero_checkpoint.py, and an optimizer.
TEST_PROGRAMS := $(addprefix $B/tests/,host_rank host_pairs zero_optimize zero_checkpoint)
PROGRAMS := $B/tools/examples/all_reduce $(TEST_PROGRAMS)
$B/tools/examples/all_reduce: $B/tools/examples/all_reduce.o
$(TEST_PROGRAMS): $B/tests/%: $$(call test_objects,$$*)
$(PROGRAMS): $B/libkolo.a
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $B/libkolo.a $(LIBS)

# It brings its own driver of GPUs, which the archive would hide.
$B/tests/host_gpu: $(call test_objects,host_gpu host_driver gpu_zero_kernels) $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) $(if $(filter yes,$(VERBS)),-Wl$(comma)--wrap=ibv_reg_dmabuf_mr) -o $@ $^ $(LIBS)

# libkolo_cuda.so and libcuda of threads, for tools.
FAKE_CUDA := $B/tests/fake/libkolo_cuda.so.0
$(FAKE_CUDA): $(call test_objects,fake_cuda host_driver gpu_zero_kernels) $(patsubst %,$B/%.o,cuda/driver/load comm/reduce/reduce comm/base/error) \
		$(KERNELS:%=$B/comm/reduce/kernels_%.o) tests/cuda/fake_cuda.map
	@mkdir -p $(@D)
	$(call say,LINK)
	$Q$(CC) -shared $(SANFLAGS) -Wl,--version-script=tests/cuda/fake_cuda.map $(LDFLAGS) -o $@ $(filter %.o,$^) -lpthread -ldl
	@ln -f $@ $(@D)/libcuda.so.1

# A program that was built for NCCL, beside libnccl and what it needs, on GPUs made of threads.
FAKE_NCCL := $B/tests/fake/libnccl.so.2
$(FAKE_NCCL): $(NCCL_LIB) $(FAKE_CUDA)
	@ln -f $B/libkolo.so.$(SOVERSION) $(@D)/ && ln -f $< $@
$B/tests/nccl_client: $(call test_objects,nccl_client nccl_program nccl_bundle) $(FAKE_NCCL)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$B/tests/fake -l:libnccl.so.2 -l:libcuda.so.1 -Wl,--allow-shlib-undefined -lpthread
$B/tests/nccl_group: $(call test_objects,nccl_group) $(FAKE_NCCL)
	$(call say,LINK)
	$Q$(CXX_HOST) $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$B/tests/fake -l:libnccl.so.2 -l:libcuda.so.1 -Wl,--allow-shlib-undefined -lpthread

# Ranks with streams.
GPU_TESTS := $(addprefix $B/tests/test_,cuda cuda_faults cuda_registered cuda_alltoall cuda_messages)
$(GPU_TESTS): $(call test_objects,gpu_ranks)

# It tests what ringinfo decides and prints.
$B/tests/test_ringinfo_rule: $(patsubst %,$B/tools/%.o,ringinfo/rule ringinfo/environment ringinfo/text ringinfo/json common/json common/tool)

# The model of zerotrain, without an engine; that which counts with double for differences of the loss.
TRAIN_MODEL := $(addprefix tools/zerotrain/,$(addprefix model/,attention block extend linear memory merge model ring rotary tensors ulysses) math/loops_best math/products)
TRAIN_F64 := $(patsubst %,$B/f64/%.o,$(TRAIN_MODEL) tools/zerotrain/math/loops $(addprefix tests/tools/,divided gpt growth zerotrain_gradients))
$B/f64/%.o: %.c $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) $(TRAIN_FLAGS) $(TRAIN_CFLAGS) -DZEROTRAIN_F64 -UKO_HAVE_X86_KERNELS -DLOOPS=loops_plain -c -o $@ $<
$B/tests/test_zerotrain: LIBS += $(TRAIN_LIBS)
$B/tests/tools/test_zerotrain.o: ALL_CFLAGS += -DZEROTRAIN_F64
$B/tests/test_zerotrain: $(filter-out %/zerotrain_gradients.o,$(TRAIN_F64)) $(patsubst %,$B/%.o,$(addprefix tools/zerotrain/data/,bpe data documents jsonl))

$B/tests/test_zerotrain_context $B/tests/test_zerotrain_growth: LIBS += $(TRAIN_LIBS)
$B/tests/test_zerotrain_context: $(call test_objects,divided gpt)
$B/tests/test_zerotrain_growth: $(call test_objects,gpt growth)
$B/tests/test_zerotrain_context $B/tests/test_zerotrain_growth: $(TRAIN_MODEL:%=$B/%.o) $(KERNELS:%=$B/tools/zerotrain/math/loops_%.o)

GRADIENTS := $(if $(filter yes,$(OPENBLAS)),$B/tests/zerotrain_gradients $B/f64/tests/zerotrain_gradients $(if $(filter yes,$(JANSSON)),$B/tests/zerotrain_foreign $B/tests/zerotrain_bpe))
$B/tests/zerotrain_gradients: $(call test_objects,gpt zerotrain_gradients) $B/libkolo.a $(TRAIN_MODEL:%=$B/%.o) $(KERNELS:%=$B/tools/zerotrain/math/loops_%.o)
$B/f64/tests/zerotrain_gradients: $(TRAIN_F64) $B/libkolo.a
$B/tests/zerotrain_foreign: $(call test_objects,zerotrain_foreign) $B/libkolo.a $(TRAIN_MODEL:%=$B/%.o) $(KERNELS:%=$B/tools/zerotrain/math/loops_%.o) $(addprefix $B/tools/zerotrain/foreign/,config.o foreign.o names.o safetensors.o)
$B/tests/zerotrain_bpe: $(call test_objects,zerotrain_bpe) $B/tools/zerotrain/data/bpe.o $B/libkolo.a
$(GRADIENTS):
	@mkdir -p $(@D)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $(sort $(filter %.o,$^)) $(filter %.a,$^) $(LIBS) $(TRAIN_LIBS)

# A model for the engine.
$(addprefix $B/tests/test_,zero zero_schedule zero_checkpoint zero_config): $(call test_objects,mlp)

# Another one, for offload; and the rules of files, which it must keep.
$B/tests/test_zero_offload: $(call test_objects,stack disk_rules)
$B/tests/test_zero_device_fails: $(call test_objects,stack)
$B/tests/test_zero_offload: TEST_LDFLAGS := $(patsubst %,-Wl$(comma)--wrap=zero_disk_%,read write wait close)

# A training run with a log.
$B/tests/test_zero_log $B/tests/test_zero_log_files: $(call test_objects,log_run)
# An engine with memory in more places than there are is the test's own.
$B/tests/test_zero_log: TEST_LDFLAGS := -Wl,--wrap=kolo_zero_memory_get

# Allocations and system calls that fail when a test says so.
WRAPPED := malloc calloc realloc free mmap memfd_create socket pthread_create
FAILING := $(addprefix $B/tests/test_,memory zero_config_errors zero_work)
$(FAILING): $(call test_objects,failing)
$(FAILING): TEST_LDFLAGS := $(WRAPPED:%=-Wl,--wrap=%)

# The cases of devices; here the system may have addresses but no pages too.
$B/tests/test_zero_device: $(call test_objects,failing device_cases device_work)
$B/tests/test_zero_device: TEST_LDFLAGS := $(patsubst %,-Wl$(comma)--wrap=%,$(WRAPPED) madvise)

# Files for state in memory that runs out, on systems that lack something.
WRAPPED_DISK := $(WRAPPED) fallocate fcntl flock io_uring_queue_init io_uring_register_buffers io_uring_submit io_uring_submit_and_wait
DISK_TESTS := $B/tests/test_zero_disk $B/tests/test_zero_disk_files
$(DISK_TESTS): $(call test_objects,failing failing_disk)
$(DISK_TESTS): TEST_LDFLAGS := $(WRAPPED_DISK:%=-Wl,--wrap=%)

# Reading and writing another process fails or stops half way there.
$B/tests/test_direct: TEST_LDFLAGS := -Wl,--wrap=process_vm_readv -Wl,--wrap=process_vm_writev

.SECONDARY:
.PHONY: check check-long check-programs
check-programs: all $(PROGRAMS) $(GRADIENTS) $B/tests/host_gpu $(FAKE_CUDA) $B/tests/nccl_client $B/tests/nccl_group $(if $(CMOCKA),$(TEST_BINARIES))

# What measures is built too, so that no change leaves it behind.
check: check-programs $(if $(FLAVOUR),,perf-programs)
	@$(if $(CMOCKA),:,echo "make check: the test library cmocka is missing: make deps"; exit 1)
	@$(if $(FLAVOUR),T_SLOW=1) B=$B MAKE='$(MAKE_COMMAND)' CC="$(CC)" SAN="$(SAN)" TOOLS="$(TOOLS)" tests/run $(TEST_BINARIES) $(TEST_SCRIPTS)

-include $(patsubst %,$B/%.d,$(basename $(wildcard $(foreach e,c cc,tests/*/*.$e tests/*/*/*.$e)))) $B/tools/examples/all_reduce.d $(TRAIN_F64:.o=.d)

# ---- All of the matrices of which make check runs a sample; SEED=N -------------------------------------------------
check-long:
	@SEED='$(SEED)' MAKE='$(MAKE_COMMAND)' tests/long

# ---- valgrind: no report from the tools, nor from the tests that fit into its slowness -----------------------
.PHONY: check-valgrind
check-valgrind: check-programs
	@$(if $(CMOCKA),:,echo "make check-valgrind: the test library cmocka is missing: make deps"; exit 1)
	@B=$B tests/valgrind

# ---- Several hosts: network namespaces; part of make check -------------------------------------------------------
.PHONY: check-net
check-net: check-programs
	@B=$B PYTHONPATH=tests/lib python3 -B tests/hosts/test_hosts.py

# ---- RDMA in virtual machines: part of make check; here with what was measured -----------------------------------
.PHONY: check-verbs
check-verbs: check-programs
	@B=$B T_ROUNDS=$(or $(T_ROUNDS),3) PYTHONPATH=tests/lib python3 -B tests/hosts/test_verbs.py

# ---- Random bytes for who serves a meeting point: clang's libFuzzer ----------------------------------------------
FUZZ_SECONDS ?= 30
.PHONY: fuzz run-fuzz
fuzz: $(OBJECTS)
	@command -v clang >/dev/null || { echo "make fuzz: clang is missing: make deps"; exit 1; }
	@$(MAKE) --no-print-directory CC=clang SAN=address,fuzzer-no-link PLAIN=$B run-fuzz
run-fuzz: $B/tests/fuzz_boot
	@mkdir -p $B/tests/corpus
	$B/tests/fuzz_boot -max_total_time=$(FUZZ_SECONDS) -max_len=1024 -print_final_stats=1 $B/tests/corpus
# The sanitizer and the fuzzer look at what reads strangers' bytes; the rest is as the library has it.
SEEN := $(filter $B/comm/base/% $B/comm/bootstrap/%,$(OBJECTS))
$B/tests/fuzz_boot: $(call test_objects,fuzz_boot) $(filter-out $B/comm/bootstrap/server.o,$(SEEN)) $(patsubst $B/%,$(PLAIN)/%,$(filter-out $(SEEN),$(OBJECTS)))
	$(call say,LINK)
	$Q$(CC) -fsanitize=address,fuzzer -o $@ $^ $(LIBS)

# ---- On a GPU: what these tests do on threads, without a test library; wants gcc, make, nvcc and a driver ---------------
.PHONY: check-cuda
ifeq ($(CUDA),yes)
CHECK_CUDA := $(patsubst %,$B/check_cuda/%,test_cuda test_cuda_faults test_cuda_registered test_cuda_alltoall test_cuda_messages test_zero_gpu_kernels test_zero_cuda_device)
CHECK_CUDA_COMMON := $(patsubst %,$B/check_cuda/%.o,t trial real_gpu gpu_ranks)
$(CHECK_CUDA:=.o) $(CHECK_CUDA_COMMON): $B/check_cuda/%.o: $$(wildcard tests/*/$$*.c) $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) -DT_PLAIN -isystem $(CUDA_INCLUDE) -c -o $@ $<
$(CHECK_CUDA): %: %.o $(CHECK_CUDA_COMMON) $B/tools/common/values.o $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS) -L$(CUDA_INCLUDE)/../lib64/stubs -lcuda
check-cuda: lib $(CHECK_CUDA)
	@[ -e /dev/nvidiactl ] || { echo "make check-cuda: skipped: no GPU here (/dev/nvidiactl)"; exit 0; }; \
		export CUDA_DEVICE_MAX_CONNECTIONS=32; \
		ln -sf ../libkolo_cuda.so.$(SOVERSION) $B/check_cuda/ && for t in $(CHECK_CUDA); do $$t || bad=1; done; exit $${bad:-0}
-include $(CHECK_CUDA:=.d) $(CHECK_CUDA_COMMON:.o=.d)
else
check-cuda:
	@echo "make check-cuda: skipped: nvcc is not found (NVCC=PATH names it)"
endif
