# Programs other than the command: benchmarks, which may use internal functions, and examples.
BENCHES  := $(patsubst %.c,$(B)/%,$(wildcard bench/*.c))
EXAMPLES := $(patsubst %.c,$(B)/%,$(wildcard examples/*.c))

$(BENCHES): $(B)/%: $(H)/%.o $(B)/libinternal.a $(EMULATION_LIB)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(LIBS) -o $@

# Examples are compiled as a user would compile them: with duet.h and its parts in a folder of their
# own, libduet.a, and nothing else.
$(B)/include/duet.h: duet.h $(wildcard duet/*.h)
	@mkdir -p $(@D)/duet && cp duet/*.h $(@D)/duet && cp $< $@
$(B)/examples/%: examples/%.c $(wildcard examples/*.h) $(B)/include/duet.h $(B)/libduet.a \
        $(EMULATION_LIB)
	@mkdir -p $(@D)
	$(if $(Q),@echo "cc $<")
	$(Q)$(CC) $(filter-out -I. -Icore -Iapp,$(FLAGS)) -I$(B)/include -O2 $(CFLAGS) $< $(B)/libduet.a \
	    $(EMULATION_LIB) $(LIBS) -o $@

# One model, four programs: examples/mlp/.
MLP := $(addprefix $(B)/examples/mlp/,single data_parallel ddp fsdp)
EXAMPLES += $(MLP)
$(MLP): $(B)/examples/mlp/%: examples/mlp/%.c $(wildcard examples/mlp/m*.? examples/mlp/data.c) \
        $(B)/include/duet.h $(B)/libduet.a $(EMULATION_LIB)
	@mkdir -p $(@D)
	$(if $(Q),@echo "cc $<")
	$(Q)$(CC) $(filter-out -I. -Icore -Iapp,$(FLAGS)) -I$(B)/include -O2 $(CFLAGS) \
	    $(filter %.c %.a,$^) $(EMULATION_LIB) $(LIBS) -o $@

bench: found $(BENCHES)
examples: $(EXAMPLES)

# Compares the docs' claims with the installed peers, on one page with facts on the machine.
PYTHON ?= python3
bench-report: all bench examples
	$(Q)$(PYTHON) bench/report.py $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    --out '$(or $(OUT),$(B)/bench-report.md)'
.PHONY: bench bench-report examples
