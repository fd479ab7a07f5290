# make EMULATION=1 compiles CUDA's files for the CPU, for tests (docs/cuda.md, "Without a GPU").
#
# It needs the toolkit's headers. tests/stand_ins/cuda_emulation replaces the runtime, and
# tests/stand_ins/fake_cuda_libraries replaces CUDA's libraries, which are loaded at run time.
ifneq ($(EMULATION),)
NO_HEADERS := no cuda_runtime_api.h of CUDA 12.0 or newer: install CUDA's headers, or set CUDA_HOME
$(if $(CUDA),,$(error EMULATION=1: $(NO_HEADERS)))
STAND_INS := tests/stand_ins
EMULATION_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard $(STAND_INS)/cuda_emulation/*.c))
EMULATION_LIB := $(B)/libcuda_emulation.a
FAKES := $(STAND_INS)/fake_cuda_libraries
FAKE_LIBRARIES := $(patsubst %.c,$(B)/%.so,$(wildcard $(FAKES)/*.c))
# NVIDIA's cuBLAS cannot be opened without a GPU, so the tests' own takes its place.
library_found = $(abspath $(filter %/fake_$(patsubst lib%,%,$(1)).so,$(filter-out %nccl.so,$\
                $(FAKE_LIBRARIES))))
$(B)/duet: | $(filter $(if $(CUBLAS),%/fake_cublas.so),$(FAKE_LIBRARIES))

# A .cu file is compiled as C++, with a header in front that defines CUDA's keywords. Shared memory
# starts as garbage; fmaf is one instruction if the CPU has it.
takes = $(shell $(CXX) $(1) -E -x c++ /dev/null >/dev/null 2>&1 && echo $(1))
EMULATED_FLAGS := -x c++ -std=c++17 $(filter-out -std=c11,$(FLAGS)) -O2 \
                  $(if $(shell grep -sw fma /proc/cpuinfo),$(call takes,-mfma)) \
                  $(call takes,-ftrivial-auto-var-init=pattern) $(if $(SAN),-fno-sanitize=vptr) \
                  -fno-exceptions -fno-rtti -fno-threadsafe-statics -fPIC \
                  -Wno-missing-field-initializers \
                  -include $(STAND_INS)/cuda_emulation/launch.h
COMPILE_CU = $(CXX) $(EMULATED_FLAGS) $(CUDA_FLAGS) $(CFLAGS)
LINK += -Wl,--export-dynamic-symbol=cuda*

$(EMULATION_OBJ): COMPILE += $(CUDA_FLAGS)
$(EMULATION_LIB): $(EMULATION_OBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(B)/$(STAND_INS)/fake_cuda_libraries/%.so: $(STAND_INS)/fake_cuda_libraries/%.c $(B)/tests/flags
	@mkdir -p $(@D)
	$(if $(Q),@echo "cc $<")
	$(Q)$(COMPILE) $(CUDA_FLAGS) -fPIC -shared -MMD -MP -MF $(@:.so=.d) $< -o $@
endif
