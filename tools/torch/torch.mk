# kolo_torch, for the Python that PYTHON names; included by the Makefile. Built from a copy, since pip builds where the sources are.
PYTHON ?= $(if $(wildcard build/torch/venv/bin/python),build/torch/venv/bin/python,python3)

.PHONY: torch
torch: lib
	@$(PYTHON) -c 'import torch' 2>/dev/null || { echo "torch: $(PYTHON) has no torch (make deps WITH=torch makes one that has; PYTHON=PATH)" >&2; exit 1; }
	$(call say,PIP )
	@mkdir -p $B/torch/copy && rm -rf $B/torch/copy/src $B/torch/copy/kolo_torch && cp -rpT tools/torch $B/torch/copy
	$QKOLO_LIBRARY=$(abspath $B)/libkolo.so.$(SOVERSION) KOLO_INCLUDE=$(abspath include) \
		$(PYTHON) -m pip install --quiet --no-build-isolation --no-deps --force-reinstall $B/torch/copy
