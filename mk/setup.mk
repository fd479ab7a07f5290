# Targets that install the requirements of a build, data sets, and Duet itself.
#
# A second make looks for optional parts again after setup.sh has installed them. It uses all cores
# unless -j was given.
SUBMAKE = case "$$MAKEFLAGS" in *-j*) j= ;; *) j=-j$$(nproc) ;; esac; \
          $(MAKE) --no-print-directory $$j

# The demo's build has kernels for this processor alone, because they take most of the time. What
# `make` builds later has all of them. The sets are those that fast.c in core/device/host/kernels
# asks for.
NEEDS_avx512 := avx512f avx512dq avx512bw avx512vl fma
NEEDS_avx2 := avx2 fma
CPU_FLAGS = $(shell grep -m1 '^flags' /proc/cpuinfo)
BEST_KERNELS = $(firstword $(foreach set,avx512 avx2,\
                 $(if $(filter-out $(CPU_FLAGS),$(NEEDS_$(set))),,$(set))) generic)

demo:
	@scripts/setup.sh demo
	+@$(SUBMAKE) KERNELS=$(BEST_KERNELS) found $(B)/duet
	@$(B)/duet demo

test:
	@scripts/setup.sh test
	+@$(SUBMAKE) check

data:
	@scripts/download_data.sh

install: $(B)/duet $(B)/libduet.a $(SHARED)
	$(if $(EMULATION),$(error EMULATION=1: a build for tests: it is not installed))
	PREFIX='$(PREFIX)' VERSION='$(VERSION)' LIBS='$(strip $(LIBS))' \
    SONAME='$(SONAME)' \
	    scripts/install.sh $(B) '$(DESTDIR)'
.PHONY: demo test data install
