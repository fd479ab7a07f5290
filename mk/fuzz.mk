# make fuzz [T=60] [FUZZ_SEED=N] feeds arbitrary bytes to every parser, for T seconds in total.
# tests/fuzz/fuzz_NAME.c is a target, and tests/fuzz/corpus/NAME has its saved inputs.
#
# It uses clang's libFuzzer. Targets and library are built with it and with the sanitizers, and
# inputs that reach new code are added to build/.../corpus. If clang is not found or cannot link
# libFuzzer, nothing is run.
T ?= 60
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

CLANG ?= clang
HAVE_LIBFUZZER = $(shell echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | $(CLANG) -x c - \
                   -fsanitize=fuzzer,address,undefined -o /dev/null 2>/dev/null && echo yes)
FUZZ_WITH = CC='$(CLANG)' SAN=fuzzer-no-link$(comma)address,undefined
NO_FUZZER = no clang here that links libFuzzer: no parser was fuzzed

fuzz:
	+@$(if $(HAVE_LIBFUZZER),$(SUBMAKE) $(FUZZ_WITH) run-fuzz T='$(T)',\
	    echo '$(NO_FUZZER)'; echo '0 passed, 0 failed')

# The make that `fuzz` starts builds these, in its own build folder.
FUZZERS := $(FUZZ_TARGETS:%=$(B)/tests/fuzz/fuzz_%)
$(FUZZERS): $(B)/%: $(B)/%.o $(B)/libinternal.a
	$(Q)$(LINK) -fsanitize=fuzzer $(LIBS) -o $@

# `make programs` compiles the targets too, so that a parser's new interface does not miss them.
programs: $(FUZZERS:=.o)

run-fuzz: $(FUZZERS)
	@FUZZ_SEED='$(FUZZ_SEED)' tests/fuzz/run.sh $(B) '$(T)' $(FUZZ_TARGETS)
.PHONY: fuzz run-fuzz
