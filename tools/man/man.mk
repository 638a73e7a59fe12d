# The manual; included by the Makefile. Its sources are the public headers, --help of the tools and the README.
MANUAL := $(shell perl -MPod::Man -MFindBin -MFile::Path -e 'print "yes"' 2>/dev/null)
ifneq ($(MANUAL),)
HEADERS := $(addprefix include/kolo/,kolo.h kolo_cuda.h kolo_zero.h kolo_zero_checkpoint.h kolo_zero_log.h)

.PHONY: man install-man
all: man
man: $B/man/made
$B/man/made: $(HEADERS) README.md $(TOOL_BINARIES) $(wildcard tools/man/*.pm) tools/man/pages
	$(call say,MAN )
	$Qtools/man/pages $B/man $(VERSION) $(subst $(space),$(comma),$(HEADERS)) README.md $(TOOL_BINARIES)
	@touch $@

install: install-man
install-man: all
	for s in 1 3 7; do \
		install -d "$(DESTDIR)$(MANDIR)/man$$s" && \
		install -m 644 $B/man/man$$s/* "$(DESTDIR)$(MANDIR)/man$$s" || exit 1; \
	done

endif
