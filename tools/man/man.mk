# The manual; included by the Makefile. Its sources are the public headers, --help of the tools and the README.
MANUAL := $(shell perl -MPod::Man -MFindBin -MFile::Path -e 'print "yes"' 2>/dev/null)
ifneq ($(MANUAL),)
HEADERS := $(patsubst %,include/kolo/%.h,kolo kolo_mailbox kolo_cuda kolo_zero kolo_zero_device kolo_zero_config kolo_zero_checkpoint kolo_zero_log kolo_parallel)

.PHONY: man install-man
all: man
man: $B/man/made
$B/man/made: $(HEADERS) README.md $(TOOL_BINARIES) $(NCCL_LIB) $(if $(MPI_LIBS),$B/mpi/kolo-mpi) $(wildcard tools/man/*.pm) tools/man/pages
	$(call say,MAN )
	$Qtools/man/pages $B/man $(VERSION) $(subst $(space),$(comma),$(HEADERS)) README.md $(TOOL_BINARIES) $B/nccl/kolo-nccl $(if $(MPI_LIBS),$B/mpi/kolo-mpi)
	@touch $@

install: install-man
install-man: all
	for s in 1 3 7; do \
		install -d "$(DESTDIR)$(MANDIR)/man$$s" && \
		install -m 644 $B/man/man$$s/* "$(DESTDIR)$(MANDIR)/man$$s" || exit 1; \
	done

endif
