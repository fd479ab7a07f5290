# Targets that install the requirements of a build, data sets, and Duet itself.
#
# A second make looks for optional parts again after setup.sh has installed them. It uses all cores
# unless -j was given.
SUBMAKE = case "$$MAKEFLAGS" in *-j*) j= ;; *) j=-j$$(nproc) ;; esac; \
          $(MAKE) --no-print-directory $$j

# The demo's build has only the best kernels of this processor. What `make` builds later has all
# that it can run.
demo:
	@scripts/setup.sh demo
	+@$(SUBMAKE) KERNELS=$(firstword $(KERNELS)) found $(B)/duet
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
