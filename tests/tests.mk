# How the tests are built and run; included by the Makefile.

# ---- Programs: one for each tests/test_*.c -------------------------------------------------------------------
TESTS   := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))
TESTS   := $(filter-out $(if $(filter yes,$(JANSSON)),,test_zero_config%),$(TESTS))
TESTS   := $(filter-out $(if $(filter yes,$(URING)),,test_zero_disk%),$(TESTS))
TESTS   := $(filter-out $(if $(filter yes,$(OPENBLAS)),,test_zerotrain),$(TESTS))
# What has one thread has no races.
ONE_THREAD    := $(addprefix test_,convert kernels gpu_kernels plan ringinfo_rule zero_kernels zero_layout zero_config zero_config_errors \
	zero_config_keys zerotrain)
ifneq ($(findstring thread,$(FLAVOUR)),)
TESTS         := $(filter-out $(ONE_THREAD),$(TESTS))
endif
TEST_BINARIES := $(TESTS:%=$B/tests/%)
TEST_SCRIPTS  := $(wildcard tests/test_*.py) $(filter-out tests/deb.sh,$(wildcard tests/*.sh)) # deb.sh: make check-deb
# What no flavour changes runs plain only; what tests the tools from outside, with sanitizers among which is the address one too.
TEXT_SCRIPTS  := $(addprefix tests/,test_plot.py man.sh)
TOOL_SCRIPTS  := $(addprefix tests/,test_tools.py test_zeroconfig.py test_zeroplan.py test_ringinfo.py test_launchers.py test_log.py \
	test_zero_checkpoint.py test_zerotrain.py)
ifneq ($(FLAVOUR),)
TEST_SCRIPTS  := $(filter-out $(TEXT_SCRIPTS) $(if $(findstring address,$(FLAVOUR)),,$(TOOL_SCRIPTS)),$(TEST_SCRIPTS))
endif
CMOCKA  := $(shell pkg-config --exists cmocka 2>/dev/null && echo yes)
CMOCKA_LIBS := $(if $(CMOCKA),$(shell pkg-config --libs cmocka))

# What they share.
TEST_COMMON := $(patsubst %,$B/tests/%.o,t trial host_driver gpu_zero_kernels) $B/tools/values.o

# They see the library from within: its objects, not the archive that hides what they share.
$B/tests/%: $B/tests/%.o $(TEST_COMMON) $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -rdynamic $(TEST_LDFLAGS) -o $@ $^ $(LIBS) $(CMOCKA_LIBS)

# The kernels of GPUs as C++ of the host's.
CXX_HOST := $(if $(findstring clang,$(CC)),clang++,g++)
$B/tests/gpu_kernels.o: cuda/kernels.cu
$B/tests/gpu_zero_kernels.o: cuda/zero_kernels.cu
$(patsubst %,$B/tests/%.o,gpu_kernels gpu_zero_kernels): $B/tests/%.o: tests/%.cc $B/flags
	@mkdir -p $(@D)
	$(call say,CXX )
	$Q$(CXX_HOST) -std=c++17 -O2 -g -Wall -Wextra -Wno-unknown-pragmas -fno-exceptions -fno-strict-aliasing -ffp-contract=off \
		-fPIC -fvisibility=hidden $(SANFLAGS) -D_GNU_SOURCE -Iinclude -MMD -MP -c -o $@ $<
$B/tests/test_gpu_kernels: $B/tests/gpu_kernels.o

# Programs that need no test library: the README's, ranks of test_hosts.py and test_zero_checkpoint.py, and an optimizer.
PROGRAMS := $B/tools/examples/all_reduce $B/tests/host_rank $B/tests/host_pairs $B/tests/zero_optimize $B/tests/zero_checkpoint
$(PROGRAMS): $B/%: $B/%.o $B/libkolo.a
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# It brings its own driver of GPUs, which the archive would hide.
$B/tests/host_gpu: $B/tests/host_gpu.o $B/tests/host_driver.o $B/tests/gpu_zero_kernels.o $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) $(if $(filter yes,$(VERBS)),-Wl$(comma)--wrap=ibv_reg_dmabuf_mr) -o $@ $^ $(LIBS)

# libkolo_cuda.so and libcuda of threads, for tools.
FAKE_CUDA := $B/tests/fake/libkolo_cuda.so.0
$(FAKE_CUDA): $(patsubst %,$B/%.o,tests/fake_cuda tests/host_driver tests/gpu_zero_kernels cuda/load comm/mem comm/error) $(KERNELS:%=$B/comm/kernels_%.o)
	@mkdir -p $(@D)
	$(call say,LINK)
	$Q$(CC) -shared $(SANFLAGS) $(LDFLAGS) -o $@ $^ -lpthread -ldl
	@ln -f $@ $(@D)/libcuda.so.1

# Ranks with streams.
GPU_TESTS := $(addprefix $B/tests/test_,cuda cuda_registered cuda_exchange)
$(GPU_TESTS): $B/tests/gpu_ranks.o

# It tests what ringinfo decides and prints.
$B/tests/test_ringinfo_rule: $(patsubst %,$B/tools/ringinfo_%.o,rule environment text json) $B/tools/json.o $B/tools/tool.o

# The model of zerotrain, without an engine; that which counts with double for differences of the loss.
TRAIN_MODEL := $(addprefix tools/zerotrain/,attention block linear loops_best memory model products tensors)
TRAIN_F64 := $(patsubst %,$B/f64/%.o,$(TRAIN_MODEL) tools/zerotrain/loops tests/gpt tests/zerotrain_gradients)
$B/f64/%.o: %.c $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) $(TRAIN_FLAGS) $(TRAIN_CFLAGS) -DZEROTRAIN_F64 -UKO_HAVE_X86_KERNELS -DLOOPS=loops_plain -c -o $@ $<
$B/tests/test_zerotrain: LIBS += $(TRAIN_LIBS)
$B/tests/test_zerotrain.o: ALL_CFLAGS += -DZEROTRAIN_F64
$B/tests/test_zerotrain: $(filter-out %/zerotrain_gradients.o,$(TRAIN_F64)) $B/tools/zerotrain/data.o

GRADIENTS := $(if $(filter yes,$(OPENBLAS)),$B/tests/zerotrain_gradients $B/f64/tests/zerotrain_gradients)
$B/tests/zerotrain_gradients: $B/tests/gpt.o $(TRAIN_MODEL:%=$B/%.o) $(KERNELS:%=$B/tools/zerotrain/loops_%.o)
$B/f64/tests/zerotrain_gradients: $(TRAIN_F64)
$(GRADIENTS): $B/%: $B/%.o
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $(sort $^) $(LIBS) $(TRAIN_LIBS)

# A model for the engine.
$(addprefix $B/tests/test_,zero zero_schedule zero_checkpoint zero_config): $B/tests/mlp.o

# Another one, for offload; and the rules of files, which it must keep.
$B/tests/test_zero_offload: $B/tests/stack.o $B/tests/disk_rules.o
$B/tests/test_zero_device_fails: $B/tests/stack.o
$B/tests/test_zero_offload: TEST_LDFLAGS := $(patsubst %,-Wl$(comma)--wrap=zero_disk_%,read write wait close)

# A training run with a log.
$B/tests/test_zero_log $B/tests/test_zero_log_files: $B/tests/log_run.o
# An engine with memory in more places than there are is the test's own.
$B/tests/test_zero_log: TEST_LDFLAGS := -Wl,--wrap=kolo_zero_memory_get

# Allocations and system calls that fail when a test says so.
WRAPPED := malloc calloc realloc free mmap memfd_create socket pthread_create
FAILING := $(addprefix $B/tests/test_,memory zero_config_errors zero_work)
$(FAILING): $B/tests/failing.o
$(FAILING): TEST_LDFLAGS := $(WRAPPED:%=-Wl,--wrap=%)

# The cases of devices; here the system may have addresses but no pages too.
$B/tests/test_zero_device: $(patsubst %,$B/tests/%.o,failing device_cases device_work)
$B/tests/test_zero_device: TEST_LDFLAGS := $(patsubst %,-Wl$(comma)--wrap=%,$(WRAPPED) madvise)

# Files for state in memory that runs out, on systems that lack something.
WRAPPED_DISK := $(WRAPPED) fallocate fcntl flock io_uring_queue_init io_uring_register_buffers io_uring_submit io_uring_submit_and_wait
DISK_TESTS := $B/tests/test_zero_disk $B/tests/test_zero_disk_files
$(DISK_TESTS): $B/tests/failing.o $B/tests/failing_disk.o
$(DISK_TESTS): TEST_LDFLAGS := $(WRAPPED_DISK:%=-Wl,--wrap=%)

# Reading and writing another process fails or stops half way there.
$B/tests/test_direct: TEST_LDFLAGS := -Wl,--wrap=process_vm_readv -Wl,--wrap=process_vm_writev

.SECONDARY:
.PHONY: check check-programs
check-programs: all $(PROGRAMS) $(GRADIENTS) $B/tests/host_gpu $(FAKE_CUDA) $(if $(CMOCKA),$(TEST_BINARIES))

check: check-programs
	@$(if $(CMOCKA),:,echo "make check: the test library cmocka is missing: make deps"; exit 1)
	@$(if $(FLAVOUR),T_SLOW=1) B=$B MAKE='$(MAKE_COMMAND)' CC="$(CC)" SAN="$(SAN)" TOOLS="$(TOOLS)" tests/run $(TEST_BINARIES) $(TEST_SCRIPTS)

-include $(TESTS:%=$B/tests/%.d) $B/tests/mlp.d $B/tests/stack.d $B/tests/disk_rules.d $B/tests/log_run.d $B/tests/failing.d $B/tests/failing_disk.d $B/tests/device_cases.d $B/tests/device_work.d $B/tests/gpu_ranks.d $(TEST_COMMON:.o=.d) $B/tests/gpu_kernels.d $B/tests/host_gpu.d $B/tests/fake_cuda.d $(PROGRAMS:%=%.d) $(TRAIN_F64:.o=.d) $B/tests/gpt.d $B/tests/zerotrain_gradients.d

# ---- valgrind: no report from the tools, nor from the tests that fit into its slowness -----------------------
.PHONY: check-valgrind
check-valgrind: check-programs
	@$(if $(CMOCKA),:,echo "make check-valgrind: the test library cmocka is missing: make deps"; exit 1)
	@B=$B tests/valgrind

# ---- Several hosts: network namespaces; part of make check -------------------------------------------------------
.PHONY: check-net
check-net: check-programs
	@B=$B python3 -B tests/test_hosts.py

# ---- RDMA in virtual machines: part of make check; here with what was measured -----------------------------------
.PHONY: check-verbs
check-verbs: check-programs
	@B=$B T_ROUNDS=$(or $(T_ROUNDS),3) python3 -B tests/test_verbs.py

# ---- Random bytes for who serves a meeting point: clang's libFuzzer ----------------------------------------------
FUZZ_SECONDS ?= 30
.PHONY: fuzz run-fuzz
fuzz:
	@command -v clang >/dev/null || { echo "make fuzz: clang is missing: make deps"; exit 1; }
	@$(MAKE) --no-print-directory CC=clang SAN=address,fuzzer-no-link run-fuzz
run-fuzz: $B/tests/fuzz_boot
	@mkdir -p $B/tests/corpus
	$B/tests/fuzz_boot -max_total_time=$(FUZZ_SECONDS) -max_len=1024 -print_final_stats=1 $B/tests/corpus
$B/tests/fuzz_boot: $B/tests/fuzz_boot.o $(filter-out $B/comm/boot_server.o,$(OBJECTS))
	$(call say,LINK)
	$Q$(CC) -fsanitize=address,fuzzer -o $@ $^ $(LIBS)

# ---- On a GPU: what these tests do on threads, without a test library; wants gcc, make, nvcc and a driver ---------------
.PHONY: check-cuda
ifeq ($(CUDA),yes)
CHECK_CUDA := $(patsubst %,$B/check_cuda/%,test_cuda test_cuda_registered test_cuda_exchange test_zero_gpu_kernels test_zero_cuda_device)
CHECK_CUDA_COMMON := $(patsubst %,$B/check_cuda/%.o,t trial real_gpu gpu_ranks)
$(CHECK_CUDA:=.o) $(CHECK_CUDA_COMMON): $B/check_cuda/%.o: tests/%.c $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) -DT_PLAIN -isystem $(CUDA_INCLUDE) -c -o $@ $<
$(CHECK_CUDA): %: %.o $(CHECK_CUDA_COMMON) $B/tools/values.o $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS) -L$(CUDA_INCLUDE)/../lib64/stubs -lcuda
check-cuda: lib $(CHECK_CUDA)
	@[ -e /dev/nvidiactl ] || { echo "make check-cuda: skipped: no GPU here (/dev/nvidiactl)"; exit 0; }; \
		export CUDA_DEVICE_MAX_CONNECTIONS=32; \
		ln -sf ../libkolo_cuda.so.$(SOVERSION) $B/check_cuda/ && for t in $(CHECK_CUDA); do $$t || exit 1; done
-include $(CHECK_CUDA:=.d) $(CHECK_CUDA_COMMON:.o=.d)
else
check-cuda:
	@echo "make check-cuda: skipped: nvcc is not found (NVCC=PATH names it)"
endif
