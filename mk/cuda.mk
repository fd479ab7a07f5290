# Builds with CUDA if scripts/find_cuda.sh finds it. All CUDA files are in folders named `cuda`.
#
# In such a folder absent.c is compiled if CUDA is not found, and all other files if it is. Files
# that need a library's header work the same way: *_absent.c is compiled if it is not found.
CUDA_FOLDERS := core/device/cuda core/device/cuda/kernels scatter_gather/cuda allreduce/cuda \
                app/doctor/cuda

# What was found, as words. A sanitizer build does without CUDA: the driver maps memory where
# AddressSanitizer needs its own. The emulation needs only the headers.
CUDA_FOUND := $(if $(EMULATION),$(shell scripts/find_cuda.sh headers),\
              $(if $(SAN),,$(shell scripts/find_cuda.sh)))
cuda_word = $(patsubst $(1)=%,%,$(filter $(1)=%,$(CUDA_FOUND)))
# nvcc takes longer than all the rest together, so CUDA is built only if there is a GPU (/dev/dxg:
# WSL) or if CUDA=1 requests it. The emulation has its own variable.
GPU_HERE := $(wildcard /dev/nvidiactl /dev/nvidia[0-9]* /dev/dxg)
CUDA   := $(if $(EMULATION)$(GPU_HERE),$(call cuda_word,version))
ifneq ($(and $(CUDA),$(if $(call cuda_word,version),,absent)),)
$(error CUDA=$(CUDA): $(if $(SAN),a sanitizer build goes without CUDA,no nvcc with the static \
runtime of CUDA 12 or newer was found: scripts/find_cuda.sh says where it looks))
endif
CUBLAS := $(call cuda_word,cublas)
NCCL   := $(call cuda_word,nccl)
CUDA_LIB := $(call cuda_word,lib)

# How CUDA is used in this build, for the line that `make` prints.
CUDA_USE := $(strip $(if $(EMULATION),emulated,$(if $(SAN),sanitizer,\
            $(if $(CUDA),hardware,$(if $(filter command%,$(origin CUDA)),given,\
            $(if $(call cuda_word,version),no_gpu,absent))))))

CUDA_ALL := $(wildcard $(CUDA_FOLDERS:=/*.c) $(CUDA_FOLDERS:=/*.cu))
CUDA_LEFT_OUT := %/cuda/absent.c %/library_blas$(if $(CUBLAS),_absent).c \
                 $(if $(NCCL),%/nccl_absent.c,%/nccl.c %/nccl_library.c)
CUDA_SOURCES := $(if $(CUDA),$(filter-out $(CUDA_LEFT_OUT),$(CUDA_ALL)),\
                $(filter %/cuda/absent.c,$(CUDA_ALL)))

# Only CUDA's runtime is linked, statically; cuBLAS and NCCL are loaded on request.
CUDA_LIBS := $(if $(CUDA),$(filter %.a,$(CUDA_LIB)) -ldl -lrt)

ifneq ($(CUDA),)
CUDA_INCLUDE := $(filter-out /usr/include,$(sort $(call cuda_word,include)))
CUDA_FLAGS := $(patsubst %,-isystem %,$(CUDA_INCLUDE)) \
              -DHAVE_CUDA $(if $(CUBLAS),-DHAVE_CUBLAS) \
              $(if $(NCCL),-DHAVE_NCCL) $(if $(call cuda_word,nvtx),-DHAVE_NVTX)
# Code for the GPUs that nvcc knows, and PTX for all others, which the driver compiles when a device
# is opened (core/device/cuda/code.c). --fmad=false: a*b+c fuses only where the
# source says fmaf, as on the host. ptxas also compiles the PTX of compute_90 for newer GPUs, so
# each kernel is parsed twice instead of five times. {0} zeroes a struct in C where C++ uses {}, so
# that warning is off.
GPU_CODE := $(subst $(comma), ,$(call cuda_word,code))
NEWER_CODE := $(subst $() ,,$(patsubst %,$(comma)sm_%,\
              $(filter-out 80,$(GPU_CODE))))
GPU_WARNINGS := -Wall,-Wextra,-Wno-missing-field-initializers$(if $(WERROR),$(comma)-Werror)
GPU_HOST_FLAGS := $(GPU_WARNINGS),-pthread,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
NVCC_FLAGS := -std=c++17 -O3 --fmad=false -lineinfo -I. -Icore -Iapp \
              -Xcompiler $(GPU_HOST_FLAGS),-fPIC \
              $(if $(filter 80,$(GPU_CODE)),-gencode arch=compute_80$(comma)code=sm_80) \
              -gencode 'arch=compute_90,code=[compute_90$(NEWER_CODE)]' \
              $(if $(WERROR),-Werror all-warnings)
NVCC := $(call cuda_word,nvcc)
COMPILE_CU = $(NVCC) $(NVCC_FLAGS) $(CUDA_FLAGS) $(CFLAGS)
CUDA_ALL_FLAGS = $(COMPILE_CU)

# The code that calls CUDA is C like the rest; nvcc compiles only kernels.
$(patsubst %.c,$(B)/%.o,$(filter %.c,$(CUDA_SOURCES))): COMPILE += $(CUDA_FLAGS)

$(B)/%.o: %.cu $(B)/cuda_flags
	@mkdir -p $(@D)
	$(if $(Q),@echo "$(if $(EMULATION),c++,nvcc) $<")
	$(Q)$(COMPILE_CU) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(B)/core/device/cuda/code.o: COMPILE += $(if $(GPU_CODE),-DDUET_GPU_CODE='$(call cuda_word,code)')

# The file of a library as found here; the loader tries it first.
library_found = $(foreach file,$(CUDA_LIB),$(if $(findstring /$(1).so,$(file)),$(file)))
library_file = '"$(firstword $(call library_found,$(1)))"'
$(B)/core/device/cuda/library_blas.o: COMPILE += -DCUBLAS_FILE=$(call library_file,libcublas)
$(B)/allreduce/cuda/nccl_library.o: COMPILE += -DNCCL_FILE=$(call library_file,libnccl)
endif
