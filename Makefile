# make            build/duet, build/libduet.a and .so; no test package needed
# make demo       installs what is missing, builds, trains LeNet as single, DP and DDP side by side
# make test       installs what is missing, builds, runs every test
# make check      the same, but installs nothing
# make lint       checks layers, lengths and format; run it before each commit
# make fuzz T=60  feeds arbitrary bytes to every parser for T seconds
# make soak T=600 kills ranks and commands at random moments for T seconds
# make gpu-check [PARTS="build doctor"] [OUT=DIR]     checks what needs a GPU, in 15 minutes
# make sheet      the worksheet of the lesson and its answers, in build/docs
# make docs       pages of --report and the worksheet, in build/docs
# make bench-report [PYTHON=python3] [ROUNDS=3]        speed compared with PyTorch, on one page
# make bench | examples | data | install PREFIX=... DESTDIR=... | clean
#
#     V=1               shows the commands
#     SAN=thread        a sanitizer build, in build/san-thread; also SAN=address,undefined
#     CC=clang          another compiler; CFLAGS=... are added last, so they win
#     WERROR=1          makes warnings errors, as in .ci/run
#     CUDA=1            builds for GPUs on a machine without one; CUDA= never builds for GPUs
#     EMULATION=1       compiles CUDA's files for the CPU, in build/emulation: mk/emulation.mk
VERSION := $(shell sed -n 's/^.define DUET_VERSION "\(.*\)"/\1/p' duet/core.h)
PREFIX  ?= /usr/local
# Line numbers only; a debugger also needs variables: CFLAGS=-g takes a third longer to compile.
CFLAGS  ?= -g1
comma   := ,
Q       := $(if $(V),,@)
SAN_NAME := san-$(subst $(comma),-,$(SAN))
B       := build$(if $(EMULATION),/emulation)$(if $(SAN),$(if $(EMULATION),-,/)$(SAN_NAME))
# The folder of objects that do not use CUDA. The emulated build reuses those of the plain build.
H       := $(if $(EMULATION),build$(if $(SAN),/$(SAN_NAME)),$(B))

# The library's folders; mk/cuda.mk adds those named `cuda`. The slowest files to compile are first,
# so that all cores are busy to the end.
FOLDERS := core/device/host/kernels core/base core/base/files core/base/text core/trace app/clock \
           core/device core/device/host core/data core/nn core/nn/tape core/nn/layers \
           core/nn/optimizer core/nn/params models models/graph core/comm scatter_gather allreduce \
           allreduce/plans allreduce/host group group/plans dp ddp fsdp syncbn app/train \
           app/train/compare app/train/estimate app/train/files app/report app/report/calls \
           app/report/collective app/report/chrome app/report/pictures app/report/page app/doctor \
           rpc app/cli app/cli/estimate app/cli/options app/cli/results app/cli/run
# The instruction sets whose kernels are built, which takes most of the time: those of this
# processor, as fast.c in core/device/host/kernels asks for them. A program runs on any processor,
# with the best set that it has, and `generic` at worst. For a package give ALL_KERNELS.
ALL_KERNELS  := avx512 avx2 generic
NEEDS_avx512 := avx512f avx512dq avx512bw avx512vl fma
NEEDS_avx2   := avx2 fma
CPU_FLAGS    := $(shell grep -sm1 '^flags' /proc/cpuinfo)
KERNELS      := $(strip $(foreach set,$(ALL_KERNELS),\
                  $(if $(filter-out $(CPU_FLAGS),$(NEEDS_$(set))),,$(set))))
NO_KERNELS   := $(filter-out $(KERNELS),$(ALL_KERNELS))
LIB_C    = $(filter-out app/cli/main.c $(addprefix %_,$(NO_KERNELS:=.c)),\
           $(wildcard $(FOLDERS:=/*.c))) $(MPI_C)
CUDA_OBJ = $(patsubst %,$(B)/%.o,$(basename $(CUDA_SOURCES)))
LIB_OBJ  = $(patsubst %.c,$(H)/%.o,$(LIB_C)) $(CUDA_OBJ)

# zlib is optional. `make HAVE_ZLIB=` builds as if it were absent.
has = $(shell $(CC) -E -x c -include $(1) /dev/null >/dev/null 2>&1 && echo yes)
HAVE_ZLIB := $(call has,zlib.h)

FLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra $(if $(WERROR),-Werror) -ffp-contract=off -pthread \
         -I. -Icore -Iapp $(if $(HAVE_ZLIB),-DHAVE_ZLIB)
LIBS   = -lm -pthread $(if $(HAVE_ZLIB),-lz) $(CUDA_LIBS)
# OPT, or a folder's own OPT_<folder>.
OPT := -O2
# The compiler then vectorises loops over numbers. No code reads errno or traps after them.
VECTORS := -O3 -fno-math-errno -fno-trapping-math
# gcc would compile a function again for arguments that are constants in one of its calls.
ONE_COPY := $(shell $(CC) -fno-ipa-cp-clone -E -x c /dev/null >/dev/null 2>&1 && \
                    echo -fno-ipa-cp-clone)
OPT_core/device/host/kernels := $(VECTORS) $(ONE_COPY)
OPT_core/base := $(VECTORS)
# The largest stack frame of a function, because the command runs with a stack of 512 KiB. The
# matrix product keeps its panels on the stack.
COMMAND_FRAME = -Wframe-larger-than=$(if $(filter core/device/host/kernels,$(*D)),294912,81920)
FRAME = $(if $(SAN)$(filter $(B)/tests/% $(H)/bench/%,$@),,$(COMMAND_FRAME))
# One set of objects for libduet.a and libduet.so. Debian's compilers make position-independent
# programs anyway, and without interposition a call inside the library stays direct and may be
# inlined.
PIC := -fPIC -fno-semantic-interposition
COMPILE = $(CC) $(FLAGS) $(FRAME) $(or $(OPT_$(*D)),$(OPT)) $(CFLAGS)
LINK    = $(CC) $(FLAGS) $(CFLAGS) $(LDFLAGS) $(filter %.o %.a,$^)
LINK_SO = $(CC) $(FLAGS) $(CFLAGS) $(LDFLAGS) -shared

# Builds for tests have no shared library: programs link their objects.
SHARED := $(if $(SAN)$(EMULATION),,$(B)/libduet.so)

all: found $(B)/duet $(B)/libduet.a $(SHARED)

include mk/sanitizers.mk mk/cuda.mk mk/mpi.mk mk/emulation.mk mk/programs.mk mk/tests.mk \
        mk/fuzz.mk mk/setup.mk

$(LIB_OBJ): COMPILE += $(PIC)

found:
	@scripts/find_cuda.sh report '$(CUDA_USE)' $(CUDA_FOUND)
	@echo "math:      own kernels for $(KERNELS), no library needed"
	@echo "zlib:      $(or $(HAVE_ZLIB:yes=found),not found: raw IDX files only)"
	@echo "MPI:       $(if $(MPI),Open MPI $(MPI),not found (libopenmpi-dev): one machine only)"
	@echo "criterion: $(CRITERION_USE)"

# Every object depends on the text of its command, so that other flags rebuild it. The files of MPI,
# or the one in their place, are compiled again if another version is found, and so all that is
# linked with them is linked again.
FLAGS_OF_C = $(CC) $(FLAGS) $(CFLAGS) $(PIC)
$(H)/flags: words = $(FLAGS_OF_C)
$(H)/mpi_found: words = $(MPI)
$(B)/cuda_flags: words = $(FLAGS_OF_C) $(CUDA_ALL_FLAGS)
$(H)/kernels: words = $(KERNELS)
$(H)/flags $(H)/mpi_found $(H)/kernels $(B)/cuda_flags $(B)/tests/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ',,$(words))' | cmp -s - $@ || echo '$(subst ',,$(words))' > $@

define compile_c
$(1)/%.o: %.c $(H)/flags
	@mkdir -p $$(@D)
	$(if $(Q),@echo "cc $$<")
	$(Q)$$(COMPILE) -MMD -MP -c $$< -o $$@
endef
$(foreach folder,$(sort $(B) $(H)),$(eval $(call compile_c,$(folder))))
$(CUDA_OBJ): $(B)/cuda_flags

# fast.o chooses among the kernels that are built. It is new when they change, and so is all that is
# linked with it.
FAST := $(H)/core/device/host/kernels/fast.o
$(FAST): $(H)/kernels
$(FAST): COMPILE += $(KERNELS:%=-DHAVE_%=1) $(NO_KERNELS:%=-DHAVE_%=0)

# The assembler includes these files, so the compiler does not list them as dependencies.
$(H)/app/report/page/html.o: app/report/page/page.css
$(H)/app/clock/hardware.o: app/clock/hardware.txt
$(H)/app/clock/validation.o: app/clock/published.txt
$(H)/models/nets.o: $(wildcard models/nets/*.duet)

$(addprefix $(H)/,app/cli/command.o app/cli/manual.o app/report/origin.o \
    core/comm/network.o): COMPILE += \
    -DDUET_VERSION='"$(VERSION)"'

# The command, tests and benches see all internal names; a user's program sees only duet_*.
$(B)/libinternal.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

# The same for some three hundred test programs. With it a build takes a tenth of the space, and a
# change in the library relinks one file instead of all of them.
$(B)/libinternal.so: $(LIB_OBJ) $(EMULATION_LIB)
	$(Q)$(LINK_SO) $(filter %.o,$^) -Wl,--whole-archive $(EMULATION_LIB) -Wl,--no-whole-archive \
	    $(LIBS) -o $@

$(B)/libduet.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)$(LD) -r $^ -o $(B)/libduet-all.o
	$(Q)objcopy --wildcard --keep-global-symbol='duet_*' $(B)/libduet-all.o $(B)/libduet.o
	$(Q)$(AR) rcs $@ $(B)/libduet.o

# The same names for programs that load it: dlopen, ctypes.
# Before 1.0 each minor version may change the ABI.
SONAME := libduet.so.$(basename $(VERSION))
$(B)/libduet.so: $(LIB_OBJ) mk/libduet.map
	$(Q)$(LINK_SO) -Wl,-soname,$(SONAME) -Wl,-Bsymbolic \
	    -Wl,--version-script=mk/libduet.map $(LIB_OBJ) $(LIBS) -o $@
	@ln -sf libduet.so $(B)/$(SONAME)

$(B)/duet: $(H)/app/cli/main.o $(B)/libinternal.a $(EMULATION_LIB)
	$(Q)$(LINK) $(LIBS) -o $@

clean:
	rm -rf build

FORCE:
.PHONY: all found clean FORCE
# Objects of programs are kept. (.SECONDARY would treat missing library objects as built.)
.PRECIOUS: %.o %.d
.DELETE_ON_ERROR:
-include $(patsubst %.o,%.d,$(LIB_OBJ) $(H)/app/cli/main.o)
-include $(wildcard $(H)/bench/*.d $(B)/tests/*/*.d $(B)/tests/*/*/*.d)
