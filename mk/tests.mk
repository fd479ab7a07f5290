# Builds and runs tests: each tests/FOLDER/test_*.c is a program. Tests start the programs
# tests/FOLDER/helper_*.c, for example as ranks.
TESTS   := $(patsubst %.c,$(B)/%,$(wildcard tests/*/test_*.c tests/*/*/test_*.c))
HELPERS := $(patsubst %.c,$(B)/%,$(wildcard tests/*/helper_*.c tests/*/*/helper_*.c))

# Tests use Criterion. Under a sanitizer, and where Criterion is not found, they use the small
# runner: tests/harness/harness.h.
HAVE_CRITERION := $(call has,criterion/criterion.h)
PLAIN := $(or $(SAN),$(if $(HAVE_CRITERION),,yes))
CRITERION_USE := $(if $(SAN),not used: under a sanitizer tests use the small runner,$\
                 $(if $(HAVE_CRITERION),found,not found: tests use the small runner))

# Tests in these folders wait for processes and compare a few numbers. Compiling them takes longer
# than running them, so they are not optimised; the others compute references and are. One warning
# needs the value ranges of -O2.
WAITING_TESTS := duet examples core/base app/cli core/comm ddp dp group python app/report rpc \
                 scatter_gather scripts core/trace app/train
$(WAITING_TESTS:%=$(B)/tests/%/%.o): OPT := -O0 -Wno-format-truncation

# Tests may have whole records on their stack, which has the usual size.
TEST_FLAGS := -Wno-frame-larger-than -DBUILD_DIR='"$(B)"' $(if $(PLAIN),-DHARNESS_PLAIN) \
              $(if $(EMULATION),-DCUDA_EMULATION)

# What `make check` runs. A sanitizer build leaves out tests of shell scripts, tests that compare
# numbers of runs that other tests also make, tests that wait for stopped processes, and the
# doctor's cases, whose kernels core/device/test_kernels runs. It also leaves out random kills,
# which the plain build and soak run, and tests of system limits, which the sanitizer's own memory
# would exceed first. A race needs two threads, so SAN=thread also leaves out programs with one
# thread, and programs that only run what others run too, such as an example of remote calls.
SKIP_SAN    := scripts/test_% python/test_% app/cli/test_json app/cli/test_profile_counts \
               app/cli/test_golden_resnet rpc/test_kills app/cli/test_same_bits \
               app/cli/test_limits app/cli/test_modelled \
               app/doctor/test_faults app/doctor/test_ranks app/doctor/test_guard \
               app/doctor/test_ops app/cli/test_collective examples/test_scripts
SKIP_THREAD := core/device/test_kernels% allreduce/test_plan allreduce/test_channels \
               app/doctor/test_% app/cli/test_bad_files core/base/test_random \
               app/cli/test_bad_input \
               app/cli/test_exported core/nn/test_ops \
               core/comm/test_standstill app/cli/test_words app/cli/test_options \
               app/cli/test_report \
               app/report/test_page app/report/test_collective allreduce/test_hops \
               app/cli/test_manual app/cli/test_trace \
               app/cli/test_outputs app/cli/test_end app/cli/test_estimate app/cli/test_random \
               app/cli/test_compare app/cli/test_wide_head app/cli/test_profile \
               app/cli/test_max_batch app/train/test_max_batch \
               rpc/test_programs core/data/test_synthetic core/data/test_data models/test_golden \
               group/test_typed group/test_windows% allreduce/test_protocol \
               core/nn/test_errors core/nn/test_refused duet/test_limits examples/test_texts \
               app/cli/test_scale core/device/test_gpu \
               app/cli/test_batch_norm app/cli/test_tensorboard \
               app/cli/test_resume app/cli/test_train app/clock/test_% app/cli/test_plain \
               app/cli/test_own_data

# Tests that need a GPU or the emulated runtime are not included: they run in
# tests/check_cuda_emulation.sh and make gpu-check. Races of kernels show only under SAN=thread.
ON_GPUS := $(filter-out $(if $(filter thread,$(SAN)),cuda/test_races%),\
           $(patsubst tests/%.c,%,$(wildcard tests/cuda/test_*.c tests/*/test_cuda*.c \
               tests/*/*/test_cuda*.c)))
CHECKS := $(filter-out $(patsubst %,$(B)/tests/%,$(if $(EMULATION),,$(ON_GPUS)) \
          $(if $(SAN),$(SKIP_SAN)) \
          $(if $(filter thread,$(SAN)),$(SKIP_THREAD))),$(TESTS))

# Tests that use a GPU if there is one, for make gpu-check.
GPU_SOURCES := $(sort $(wildcard tests/cuda/test_*.c tests/*/test_cuda*.c tests/*/*/test_cuda*.c) \
               $(shell grep -lE 'DEVICE_CUDA|device cuda' tests/*/test_*.c tests/*/*/test_*.c))
GPU_TESTS := $(filter-out cuda/test_ops cuda/test_races% cuda/test_emulated%,\
             $(patsubst tests/%.c,%,$(GPU_SOURCES)))

$(B)/tests/flags: words = $(FLAGS_OF_C) $(CUDA_ALL_FLAGS) $(TEST_FLAGS)

$(B)/tests/%.o: tests/%.c $(B)/tests/flags
	@mkdir -p $(@D)
	$(if $(Q),@echo "cc $<")
	$(Q)$(COMPILE) -fPIC $(TEST_FLAGS) -MMD -MP -c $< -o $@

$(patsubst %.c,$(B)/%.o,$(wildcard tests/cuda/*.c tests/*/test_cuda*.c \
    tests/*/*/test_cuda*.c)): COMPILE += $(CUDA_FLAGS)

$(TESTS): | $(FAKE_LIBRARIES)
RUNNER := $(B)/tests/harness/runner.o
$(if $(PLAIN),$(TESTS)): $(RUNNER)
# They find libinternal.so two folders up. Their own code is position-independent, so that they do
# not copy tables of the library, whose size may change. The linker does not check what shared
# libraries need of each other, which would take half of its time; linking $(B)/duet finds what the
# library lacks.
LINK_TEST = $(LINK) $(if $(filter %.a,$^),,-L$(B) -Wl,-rpath,'$$ORIGIN/../..:$$ORIGIN/../../..' \
               -l:libinternal.so \
                -Wl,--allow-shlib-undefined)
STATIC_LINK := $(filter -static,$(LDFLAGS))
# A program linked with -static uses the archive.
$(if $(STATIC_LINK),$(TESTS) $(HELPERS)): $(B)/libinternal.a $(EMULATION_LIB)
$(TESTS) $(HELPERS): | $(if $(STATIC_LINK),,$(B)/libinternal.so)
$(TESTS): $(B)/%: $(B)/%.o
	$(Q)$(LINK_TEST) $(if $(filter $(RUNNER),$^),$(LIBS),-lcriterion $(LIBS)) -o $@

$(HELPERS): $(B)/%: $(B)/%.o
	$(Q)$(LINK_TEST) $(LIBS) -o $@

# Only tests of scripts start benchmarks.
check: all $(CHECKS) $(HELPERS) $(if $(SAN),,$(BENCHES)) $(EXAMPLES)
	@scripts/run_tests.sh $(B) $(CHECKS)

# Checks the project's own rules; the library must be built first.
OTHER_KERNELS := $(wildcard $(foreach set,$(NO_KERNELS),core/device/host/kernels/*_$(set).c))
lint: $(filter-out $(CUDA_SOURCES:%.cu=$(B)/%.o),$(LIB_OBJ)) $(B)/app/cli/main.o \
      $(OTHER_KERNELS:%=lint-%)
	@tests/check_layers.sh $(B)

# Kernels of other processors are compiled for the sake of warnings, so without optimisation.
$(OTHER_KERNELS:%=lint-%): lint-%: %
	$(if $(Q),@echo "cc $<")
	$(Q)$(CC) $(FLAGS) -O0 -c $< -o /dev/null

# Checks everything that needs a GPU, in 15 minutes: see scripts/gpu_check.sh.
gpu-check:
	@B='$(B)' EMULATION=$(EMULATION) OUT='$(OUT)' TESTS="$(GPU_TESTS)" scripts/gpu_check.sh $(PARTS)
gpu-check-programs: $(GPU_TESTS:%=$(B)/tests/%) $(HELPERS) $(BENCHES)

# Compiles all programs but runs none.
programs: all $(TESTS) $(HELPERS) $(BENCHES) $(EXAMPLES) $(FAKE_LIBRARIES)

# Generated pages, which are not kept: two of --report, and the lesson as a sheet to print.
docs: $(B)/duet
	@scripts/make_docs.sh $(B)
sheet:
	@scripts/make_docs.sh $(B) sheet
.PHONY: docs sheet check lint gpu-check gpu-check-programs programs

# make soak [T=60]: random kills for T seconds.
soak: $(B)/duet $(patsubst %,$(B)/tests/%,app/cli/test_stop \
          rpc/test_kills)
	$(Q)tests/soak.sh $(B) '$(T)'
.PHONY: soak
