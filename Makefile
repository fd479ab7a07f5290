# make            build/duet and build/libduet.a; no test package needed
# make demo       installs what is missing, builds, trains LeNet as single, DP and DDP side by side
# make test       installs what is missing, builds, runs every test      (make check: the same, installs nothing)
# make gpu-check [PARTS="build doctor"] [OUT=DIR]                  all that needs a GPU, in 8 minutes
# make bench | data | install PREFIX=... DESTDIR=... | clean      V=1 shows the commands
# make SAN=address,undefined ... | SAN=thread ...                  the same in build/san-<name>
# make CUDA= ...                                                   without CUDA, as if there were no nvcc
# make EMULATION=1 ...   all of CUDA's files on the CPU, in build/emulation: for tests, docs/cuda.md "Without a GPU"
VERSION := 0.1.0
PREFIX  ?= /usr/local
comma   := ,
B       := build$(if $(EMULATION),/emulation)$(if $(SAN),$(if $(EMULATION),-,/)san-$(subst $(comma),-,$(SAN)))
Q       := $(if $(V),,@)

FOLDERS := base trace device device/math data nn models comm scatter_gather allreduce dp ddp syncbn train report doctor api
CUDA_SRC := $(wildcard $(FOLDERS:=/*cuda*.c) $(FOLDERS:=/*cuda*.cu))
# A kind of file is there twice: *cuda_absent.c where CUDA is not, all other *cuda* where it is.
# So are the files that need a library's header: *_absent.c where it is not.
LIB_SRC = $(filter-out $(CUDA_SRC),$(wildcard $(FOLDERS:=/*.c))) \
          $(if $(CUDA),$(filter-out %cuda_absent.c $(NO_HEADER),$(CUDA_SRC)),$(filter %cuda_absent.c,$(CUDA_SRC)))
NO_HEADER = %cuda_library_blas$(if $(CUBLAS),_absent).c %cuda_library_conv$(if $(CUDNN),_absent).c \
            $(if $(NCCL),%cuda_nccl_absent.c,%cuda_nccl.c %cuda_nccl_calls.c)
LIB_OBJ = $(patsubst %.cu,$(B)/%.o,$(patsubst %.c,$(B)/%.o,$(LIB_SRC)))
CLI_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard cli/*.c))
TESTS   := $(patsubst %.c,$(B)/%,$(wildcard tests/test_*.c))
HELPERS := $(patsubst %.c,$(B)/%,$(wildcard tests/helper_*.c))# programs that tests start: ranks by fork and exec
BENCHES := $(patsubst %.c,$(B)/%,$(wildcard bench/*.c))
# Tests that look at a GPU where there is one, for make gpu-check.
GPU_TESTS = $(sort $(filter-out test_cuda_index% test_cuda_emulated% test_gpu_check,$(basename $(notdir \
            $(shell ls tests/test_*cuda*.c; grep -lE 'DEVICE_CUDA|device cuda' tests/test_*.c)))))
# What `make check` runs. A test of a shell script learns nothing from a sanitizer. A race takes two threads: under SAN=thread programs that
# have but one are left out, and those that only run what others try there too.
CHECKS  := $(filter-out $(if $(SAN),$(addprefix $(B)/tests/,test_gpu_check test_data_download)) \
           $(if $(filter thread,$(SAN)),$(addprefix $(B)/tests/,test_math_% test_cuda_index% test_allreduce_plan test_allreduce_channels test_doctor% \
           test_cli_bad_files test_base_random)),$(TESTS))
EXAMPLES := $(patsubst %.c,$(B)/%,$(wildcard examples/*.c))
PROGRAM := $(if $(CLI_OBJ),$(B)/duet)

# Optional parts, each by the header its development package brings. `make HAVE_ZLIB=` builds as if it were absent.
has = $(shell $(CC) -E -x c -include $(1) /dev/null >/dev/null 2>&1 && echo yes)
HAVE_ZLIB      := $(call has,zlib.h)
HAVE_CRITERION := $(call has,criterion/criterion.h)
# CUDA: what scripts/find_cuda.sh says, as words. Not under a sanitizer: the driver maps memory where ASan wants its own.
# EMULATION: the headers alone, and in place of the runtime the one in tests/cuda_emulation.
CUDA_FOUND := $(if $(EMULATION),$(shell scripts/find_cuda.sh headers),$(if $(SAN),,$(shell scripts/find_cuda.sh)))
cuda_word = $(patsubst $(1)=%,%,$(filter $(1)=%,$(CUDA_FOUND)))
CUDA  := $(call cuda_word,version)
$(if $(EMULATION),$(if $(CUDA),,$(error EMULATION=1: no cuda_runtime_api.h: install the headers of the CUDA toolkit, or set CUDA_HOME)))
EMULATION_OBJ := $(if $(EMULATION),$(patsubst %.c,$(B)/%.o,$(wildcard tests/cuda_emulation/*.c)))
EMULATION_LIB := $(if $(EMULATION),$(B)/libcuda_emulation.a)
# In place of CUDA's libraries, loaded at run time as those are.
FAKE_LIBRARIES := $(if $(EMULATION),$(patsubst %.c,$(B)/%.so,$(wildcard tests/fake_cuda_libraries/*.c)))
CUBLAS := $(call cuda_word,cublas)
CUDNN := $(call cuda_word,cudnn)
NCCL  := $(call cuda_word,nccl)
CUDA_LIB := $(call cuda_word,lib)
CUDA_FLAGS := $(patsubst %,-isystem %,$(filter-out /usr/include,$(sort $(call cuda_word,include)))) \
              -DHAVE_CUDA $(if $(CUBLAS),-DHAVE_CUBLAS) $(if $(CUDNN),-DHAVE_CUDNN) $(if $(NCCL),-DHAVE_NCCL) $(if $(call cuda_word,nvtx),-DHAVE_NVTX)
# Code for Ampere and Hopper, and PTX for what comes later. {0} zeroes a struct in C, where C++ wants {}: no warning for it. --fmad=false: a*b+c fuses where it says fmaf, as on the host.
NVCC_FLAGS := -std=c++17 -O3 --fmad=false -lineinfo -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
              -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror,-pthread,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wno-missing-field-initializers -I.
# Under a sanitizer, or without Criterion, tests use the small runner: tests/harness.h says why.
PLAIN := $(or $(SAN),$(if $(HAVE_CRITERION),,yes))

FLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -ffp-contract=off -pthread -I. $(if $(HAVE_ZLIB),-DHAVE_ZLIB) \
         $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer -DDUET_CHECK_OPERANDS)
TEST_FLAGS := -DBUILD_DIR='"$(B)"' $(if $(PLAIN),-DHARNESS_PLAIN) $(if $(EMULATION),-DCUDA_EMULATION)
# A .cu file is nvcc's, or, emulated, C++ with a header before it that gives CUDA's words a meaning. Shared memory starts as rubbish; fmaf is one instruction where the CPU has it.
takes = $(shell $(CXX) $(1) -E -x c++ /dev/null >/dev/null 2>&1 && echo $(1))
EMULATED_FLAGS := $(if $(EMULATION),-x c++ -std=c++17 $(filter-out -std=c11,$(FLAGS)) -O2 $(if $(shell grep -sw fma /proc/cpuinfo),$(call takes,-mfma)) \
                  $(call takes,-ftrivial-auto-var-init=pattern) $(if $(SAN),-fno-sanitize=vptr) -fno-exceptions -fno-rtti -fno-threadsafe-statics \
                  -Wno-missing-field-initializers -include tests/cuda_emulation/launch.h)
COMPILE_CU = $(if $(EMULATION),$(CXX) $(EMULATED_FLAGS),$(call cuda_word,nvcc) $(NVCC_FLAGS)) $(CUDA_FLAGS) $(CFLAGS)
# -O2, or a folder's own OPT_<folder>; what you give in CFLAGS comes last and wins.
# Under a sanitizer kernels in full take minutes to compile, and run 20 to 70 times slower. So AddressSanitizer watches the
# generic ones and the references, unoptimised; the others have tests/test_math_common.h. ThreadSanitizer is told of their
# operands instead: device/host_race.c.
OPT_device/math := $(if $(filter thread,$(SAN)),-O3 -fno-sanitize=thread,$(if $(SAN),-O1,-O3))
$(if $(SAN),$(B)/device/math/n16_avx2.o $(B)/device/math/n16_avx512.o): COMPILE += -O3 -fno-sanitize=all
CFLAGS ?= -g
COMPILE = $(CC) $(FLAGS) $(or $(OPT_$(*D)),-O2) $(CFLAGS)
LINK    = $(CC) $(FLAGS) $(CFLAGS) $(LDFLAGS) $(if $(EMULATION),-Wl$(comma)--export-dynamic-symbol=cuda*) $(filter %.o %.a,$^)
# Of CUDA only the runtime, and that statically: cuBLAS, cuDNN and NCCL are loaded when they are asked for.
LIBS   := -lm -pthread $(if $(HAVE_ZLIB),-lz) $(if $(CUDA),$(filter %.a,$(CUDA_LIB)) -ldl -lrt)

# The file of a library as found here, tried first where it is loaded.
library_file = '"$(firstword $(foreach file,$(CUDA_LIB),$(if $(findstring /$(1).so,$(file)),$(file))))"'
$(B)/device/cuda_library_blas.o: COMPILE += -DCUBLAS_FILE=$(call library_file,libcublas)
$(B)/device/cuda_library_conv.o: COMPILE += -DCUDNN_FILE=$(call library_file,libcudnn)
$(B)/allreduce/cuda_nccl.o: COMPILE += -DNCCL_FILE=$(call library_file,libnccl)
$(B)/cli/main.o: COMPILE += -DDUET_VERSION='"$(VERSION)"'

all: found $(PROGRAM) $(B)/libduet.a

found:
	@echo "cuda:      $(if $(EMULATION),emulated by tests/cuda_emulation: for tests$(comma) no hardware,$(if $(SAN),not used: under a sanitizer devices are emulated,$(if $(CUDA),found $(CUDA) ($(call cuda_word,nvcc)): not yet run on hardware,$(if $(filter command%,$(origin CUDA)),not used: CUDA= was given,$(if $(call cuda_word,missing),nvcc without $(call cuda_word,missing): emulated devices,not found: emulated devices)))))"
	@echo "libraries: $(if $(CUDA),cublas $(or $(CUBLAS),not found)$(comma) cudnn $(or $(CUDNN),not found)$(comma) loaded for --cuda-math library; nccl $(or $(NCCL),not found)$(comma) for --allreduce nccl,none of CUDA's)"
	@echo "math:      own kernels, no library needed"
	@echo "zlib:      $(if $(HAVE_ZLIB),found,not found: raw IDX files only)"
	@echo "criterion: $(if $(SAN),not used: under a sanitizer tests use the small runner,$(if $(HAVE_CRITERION),found,not found: tests use the small runner))"

# Everything compiled depends on the words of its command, so that other flags never meet old objects.
$(B)/flags $(B)/tests/flags: FORCE
	@mkdir -p $(@D)
	@echo "$(CC) $(FLAGS) $(CFLAGS) $(if $(findstring tests,$@),$(subst ",,$(TEST_FLAGS)),$(if $(CUDA),$(CUDA_FLAGS) $(if $(EMULATION),$(EMULATED_FLAGS),$(NVCC_FLAGS))))" > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(B)/tests/%.o: tests/%.c $(B)/tests/flags
	@mkdir -p $(@D)
	$(if $(Q),@echo "cc $<")
	$(Q)$(COMPILE) $(TEST_FLAGS) -MMD -MP -c $< -o $@

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(if $(Q),@echo "cc $<")
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@

# The half that calls CUDA is C like the rest; kernels are nvcc's.
$(patsubst %.c,$(B)/%.o,$(filter %.c,$(CUDA_SRC)) $(wildcard tests/*cuda*.c)) $(EMULATION_OBJ): COMPILE += $(if $(CUDA),$(CUDA_FLAGS))

$(B)/%.o: %.cu $(B)/flags
	@mkdir -p $(@D)
	$(if $(Q),@echo "$(if $(EMULATION),c++,nvcc) $<")
	$(Q)$(COMPILE_CU) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(B)/libcuda_emulation.a: $(EMULATION_OBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

# The command, tests and benches see every name inside; a user's program sees duet_* alone.
$(B)/libinternal.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(B)/libduet.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)$(LD) -r $^ -o $(B)/libduet-all.o
	$(Q)objcopy --wildcard --keep-global-symbol='duet_*' $(B)/libduet-all.o $(B)/libduet.o
	$(Q)$(AR) rcs $@ $(B)/libduet.o

$(B)/duet: $(CLI_OBJ) $(B)/libinternal.a $(EMULATION_LIB)
	$(Q)$(LINK) $(LIBS) -o $@

$(B)/tests/fake_cuda_libraries/%.so: tests/fake_cuda_libraries/%.c $(B)/tests/flags
	@mkdir -p $(@D)
	$(if $(Q),@echo "cc $<")
	$(Q)$(COMPILE) $(CUDA_FLAGS) -fPIC -shared -MMD -MP -MF $(@:.so=.d) $< -o $@

$(TESTS): | $(FAKE_LIBRARIES)
$(TESTS): $(B)/%: $(B)/%.o $(if $(PLAIN),$(B)/tests/tsan_runner.o) $(B)/libinternal.a $(EMULATION_LIB)
	$(Q)$(LINK) $(if $(PLAIN),,-lcriterion) $(LIBS) -o $@

$(HELPERS) $(BENCHES): $(B)/%: $(B)/%.o $(B)/libinternal.a $(EMULATION_LIB)
	$(Q)$(LINK) $(LIBS) -o $@

# Examples are compiled as a user would: duet.h in a folder of its own, libduet.a, nothing else.
$(B)/examples/%: examples/%.c duet.h $(B)/libduet.a $(EMULATION_LIB)
	@mkdir -p $(@D) $(B)/include && cp duet.h $(B)/include/
	$(if $(Q),@echo "cc $<")
	$(Q)$(CC) $(filter-out -I.,$(FLAGS)) -I$(B)/include -O2 $(CFLAGS) $< $(B)/libduet.a $(EMULATION_LIB) $(LIBS) -o $@

check: all $(CHECKS) $(HELPERS) $(BENCHES) $(EXAMPLES)
	@scripts/run_tests.sh $(B) $(CHECKS)

bench: found $(BENCHES)
examples: $(EXAMPLES)

# Everything that needs a GPU, in at most 8 minutes: scripts/gpu_check.sh says what.
gpu-check:
	@B='$(B)' EMULATION=$(EMULATION) OUT='$(OUT)' TESTS="$(GPU_TESTS)" scripts/gpu_check.sh $(PARTS)
gpu-check-programs: $(GPU_TESTS:%=$(B)/tests/%) $(HELPERS) $(BENCHES)

# The parts are looked for again after setup.sh has installed them: hence a second make, on all cores unless -j was given.
SUBMAKE = case "$$MAKEFLAGS" in *-j*) j= ;; *) j=-j$$(nproc) ;; esac; $(MAKE) --no-print-directory $$j

test:
	@scripts/setup.sh test
	+@$(SUBMAKE) check

demo:
	@scripts/setup.sh demo
	+@$(SUBMAKE) all
	@$(B)/duet demo

data:
	@scripts/download_data.sh

install: $(PROGRAM) $(B)/libduet.a
	$(if $(EMULATION),$(error EMULATION=1: a build for tests: it is not installed))
	install -D -m 755 $(B)/duet $(DESTDIR)$(PREFIX)/bin/duet
	install -D -m 644 $(B)/libduet.a $(DESTDIR)$(PREFIX)/lib/libduet.a
	install -D -m 644 duet.h $(DESTDIR)$(PREFIX)/include/duet.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@LIBS@|$(strip $(LIBS))|' duet.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/duet.pc

clean:
	rm -rf build

FORCE:
.PHONY: all found check bench examples test demo data gpu-check gpu-check-programs install clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:
-include $(wildcard $(B)/*/*.d $(B)/*/*/*.d)
