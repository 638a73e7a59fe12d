# libkolo_mpi: programs of MPI on Kolo's collectives; included by the Makefile. One library for each binary interface whose
# header is there, from the same sources. It needs kolo.h only, and looks for libkolo one folder above its own, as it lies
# here, or two, as it is installed.
OPENMPI_CFLAGS ?= $(shell pkg-config --cflags ompi-c 2>/dev/null)
MPICH_CFLAGS   ?= $(shell pkg-config --cflags mpich 2>/dev/null)
STANDARD_CFLAGS ?= $(filter -I% -D%,$(shell mpicc_abi -show 2>/dev/null))
MPI_ABIS       := $(if $(OPENMPI_CFLAGS),openmpi) $(if $(MPICH_CFLAGS),mpich) $(if $(STANDARD_CFLAGS),standard)
MPI_LIBS       := $(MPI_ABIS:%=$B/mpi/libkolo_mpi_%.so)
MPI_SOURCES    := $(wildcard tools/mpi/*.c)
mpi_cflags      = $(patsubst -I%,-isystem %,$(if $(filter openmpi,$1),$(OPENMPI_CFLAGS),$(if $(filter mpich,$1),$(MPICH_CFLAGS),$(STANDARD_CFLAGS))))

lib: $(MPI_LIBS) $(if $(MPI_LIBS),$B/mpi/kolo-mpi)
$B/mpi/kolo-mpi: tools/mpi/kolo-mpi
	@mkdir -p $(@D)
	@cp $< $@
define mpi_library
$B/mpi/$1/%.o: tools/mpi/%.c $B/flags
	@mkdir -p $$(@D)
	$$(call say,CC  )
	$$Q$$(CC) $$(ALL_CFLAGS) -ftls-model=initial-exec $(call mpi_cflags,$1) -c -o $$@ $$<
$B/mpi/libkolo_mpi_$1.so: $(MPI_SOURCES:tools/mpi/%.c=$B/mpi/$1/%.o) tools/mpi/mpi.map $B/libkolo.so.$(SOVERSION)
	$$(call say,LINK)
	$$Q$$(CC) -shared $(SANFLAGS) -Wl,-soname,libkolo_mpi_$1.so -Wl,--version-script=tools/mpi/mpi.map -Wl,-z,nodelete \
		$(if $(SAN),,-Wl,-z,defs) '-Wl,-rpath,$$$$ORIGIN/..:$$$$ORIGIN/../..' $$(LDFLAGS) -o $$@ $$(filter %.o,$$^) \
		$B/libkolo.so.$(SOVERSION) -lpthread -ldl
-include $(MPI_SOURCES:tools/mpi/%.c=$B/mpi/$1/%.d)
endef
$(foreach abi,$(MPI_ABIS),$(eval $(call mpi_library,$(abi))))
