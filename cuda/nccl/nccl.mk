# libnccl.so.2: programs that were built for NCCL run on Kolo; included by the Makefile. It needs kolo.h and kolo_cuda.h
# only, and looks for libkolo one folder above its own, as it lies here, or two, as it is installed.
NCCL_LIB     := $B/nccl/libnccl.so.2
NCCL_OBJECTS := $(patsubst %.c,$B/%.o,$(wildcard cuda/nccl/*.c))

lib: $(NCCL_LIB)
$(NCCL_LIB): $(NCCL_OBJECTS) cuda/nccl/nccl.map cuda/nccl/kolo-nccl $B/libkolo.so.$(SOVERSION)
	@mkdir -p $(@D)
	$(call say,LINK)
	$Q$(CC) -shared $(SANFLAGS) -Wl,-soname,libnccl.so.2 -Wl,--version-script=cuda/nccl/nccl.map -Wl,-z,nodelete \
		-Wl,-Bsymbolic-functions $(if $(SAN),,-Wl,-z,defs) '-Wl,-rpath,$$ORIGIN/..:$$ORIGIN/../..' $(LDFLAGS) -o $@ $(NCCL_OBJECTS) \
		$B/libkolo.so.$(SOVERSION) -lpthread -ldl
	@mkdir -p $(@D)/python/nvidia/nccl/lib && ln -sf ../../../../libnccl.so.2 $(@D)/python/nvidia/nccl/lib/ && cp cuda/nccl/kolo-nccl $(@D)/
-include $(NCCL_OBJECTS:.o=.d)
