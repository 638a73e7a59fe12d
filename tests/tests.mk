# How the tests are built and run; included by the Makefile.

# ---- Programs: one for each tests/test_*.c -------------------------------------------------------------------
TESTS   := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))
TEST_BINARIES := $(TESTS:%=$B/tests/%)
TEST_SCRIPTS  := $(wildcard tests/test_*.py) $(filter-out tests/deb.sh,$(wildcard tests/*.sh)) # deb.sh: make check-deb
CMOCKA  := $(shell pkg-config --exists cmocka 2>/dev/null && echo yes)
CMOCKA_LIBS := $(if $(CMOCKA),$(shell pkg-config --libs cmocka))

# They see the library from within: its objects, not the archive that hides what they share.
$B/tests/%: $B/tests/%.o $B/tests/t.o $B/tools/values.o $(OBJECTS)
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -rdynamic $(TEST_LDFLAGS) -o $@ $^ $(LIBS) $(CMOCKA_LIBS) -lm

# The README's program, which needs no test library.
$B/tools/examples/all_reduce: $B/tools/examples/all_reduce.o $B/libkolo.a
	$(call say,LINK)
	$Q$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# It tests what ringinfo decides and prints.
$B/tests/test_ringinfo_rule: $(patsubst %,$B/tools/ringinfo_%.o,rule environment text json) $B/tools/tool.o

# Allocations and system calls that test_memory makes fail.
WRAPPED := malloc calloc realloc free mmap memfd_create socket pthread_create
$B/tests/test_memory: TEST_LDFLAGS := $(WRAPPED:%=-Wl,--wrap=%)

# Reading and writing another process fails or stops half way there.
$B/tests/test_direct: TEST_LDFLAGS := -Wl,--wrap=process_vm_readv -Wl,--wrap=process_vm_writev

.SECONDARY:
.PHONY: check check-programs
check-programs: all $B/tools/examples/all_reduce $(if $(CMOCKA),$(TEST_BINARIES))

check: check-programs
	@$(if $(CMOCKA),:,echo "make check: the test library cmocka is missing: make deps"; exit 1)
	@B=$B MAKE='$(MAKE_COMMAND)' CC="$(CC)" SAN="$(SAN)" TOOLS="$(TOOLS)" tests/run $(TEST_BINARIES) $(TEST_SCRIPTS)

-include $(TESTS:%=$B/tests/%.d) $B/tests/t.d $B/tools/examples/all_reduce.d

# ---- valgrind: no report from the tools, nor from the tests that fit into its slowness -----------------------
.PHONY: check-valgrind
check-valgrind: check-programs
	@$(if $(CMOCKA),:,echo "make check-valgrind: the test library cmocka is missing: make deps"; exit 1)
	@B=$B tests/valgrind
