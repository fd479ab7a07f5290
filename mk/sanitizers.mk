# Sanitizer builds: make SAN=address,undefined ... or SAN=thread ...
#
# These builds check the operands of every op (DUET_CHECK_OPERANDS, core/device/op_check.c).
ifneq ($(SAN),)
FLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer -DDUET_CHECK_OPERANDS

# Such a build mostly compiles, so only folders with loops over elements are optimised. -g1 keeps
# line numbers in reports. One warning needs the value ranges of -O2, so only the plain build has
# it.
OPT := -O0
FLAGS += $(if $(filter -g%,$(CFLAGS)),,-g1)
FLAGS += -Wno-unknown-warning-option -Wno-format-truncation # clang 14 knows only the first

# Under a sanitizer the kernels take minutes to compile and run 20 to 70 times slower. So
# AddressSanitizer watches only the generic kernels and the references, and
# tests/core/device/kernels_common.h checks the borders of the wide ones. ThreadSanitizer gets the
# kernels' operands from core/device/host/race.c. Tests of CUDA kernels compute much, too.
OPT_cuda := -O2 # tests/cuda
OPT_core/device/host/kernels := $(if $(filter thread,$(SAN)),-O3 -fno-sanitize=thread,-O1)
ifeq ($(findstring fuzzer,$(SAN)),)
$(foreach folder,core/base core/data core/device core/device/host core/nn core/nn/tape \
               core/nn/layers core/nn/optimizer allreduce \
    allreduce/plans allreduce/host scatter_gather group/plans,$(eval OPT_$(folder) := -O1))
# Kernels without a sanitizer come from the plain build, since compiling them takes a minute.
PLAIN_KERNELS := $(foreach part,n1 n2 n4 n8 n16 fast,$(patsubst %,\
                   core/device/host/kernels/$(part)_%.o,\
                   $(filter-out $(if $(filter thread,$(SAN)),,generic),$(KERNELS))))
plain-kernels:
	+@$(MAKE) --no-print-directory SAN= EMULATION= H=build B=build $(PLAIN_KERNELS:%=build/%)
$(PLAIN_KERNELS:%=$(H)/%): $(H)/%: plain-kernels
	@mkdir -p $(@D)
	@cmp -s build/$* $@ || cp build/$* $@
.PHONY: plain-kernels
endif

# Fuzzing runs only parsers: their folders are optimised, and no kernel is watched.
ifneq ($(findstring fuzzer,$(SAN)),)
$(foreach folder,core/base app/cli/options core/comm core/data models models/graph app/report rpc \
    core/trace fuzz,\
    $(eval OPT_$(folder) := -O1))
OPT_core/device/host/kernels := -O0 -fno-sanitize=all
endif
endif
