# make fuzz [T=60] [FUZZ_SEED=N]: gives bytes that may be anything to every parser, for T seconds in
# all. tests/fuzz/fuzz_NAME.c is a target, tests/fuzz/corpus/NAME its kept inputs.
#
# Where clang is found and can link libFuzzer, targets and library are built with it and with the
# sanitizers, and inputs that reach new code are added to build/.../corpus. Elsewhere the compiler
# in use builds them with the sanitizers, and a plain loop runs mutations of the kept inputs.
T ?= 60
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

CLANG ?= clang
HAVE_LIBFUZZER = $(shell echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | $(CLANG) -x c - \
                   -fsanitize=fuzzer,address,undefined -o /dev/null 2>/dev/null && echo yes)
FUZZ_WITH = $(if $(HAVE_LIBFUZZER),CC='$(CLANG)' SAN=fuzzer-no-link$(comma),SAN=)address,undefined

fuzz:
	+@$(SUBMAKE) $(FUZZ_WITH) run-fuzz T='$(T)'

# The rest is made by the make that `fuzz` starts, in its own build folder.
FUZZERS    := $(FUZZ_TARGETS:%=$(B)/tests/fuzz/fuzz_%)
LIBFUZZER  := $(findstring fuzzer,$(SAN))
$(FUZZERS): $(B)/%: $(B)/%.o $(if $(LIBFUZZER),,$(B)/tests/fuzz/loop.o) $(B)/libinternal.a
	$(Q)$(LINK) $(if $(LIBFUZZER),-fsanitize=fuzzer) $(LIBS) -o $@

# One target decides itself which sends the kernel refuses.
$(B)/tests/fuzz/fuzz_wire_send: LIBS += -Wl,--wrap=sendmsg

# `make programs` compiles the targets too, so that a parser's new interface does not miss them.
programs: $(FUZZERS:=.o) $(B)/tests/fuzz/loop.o

run-fuzz: $(FUZZERS)
	@FUZZ_SEED='$(FUZZ_SEED)' tests/fuzz/run.sh $(B) '$(T)' $(FUZZ_TARGETS)
.PHONY: fuzz run-fuzz
