# make            build/duet and build/libduet.a; no test package needed
# make test       installs what is missing, builds, runs every test
# make demo       installs what is missing, builds, trains LeNet as single, DP and DDP side by side
# make SAN=address,undefined | SAN=thread     the same in build/san-<name>
CC      ?= cc
B       := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
comma   := ,
FOLDERS := base trace device device/math data nn models comm scatter_gather allreduce dp ddp train report
LIB_SRC := $(foreach d,$(FOLDERS),$(wildcard $(d)/*.c))
CLI_SRC := $(wildcard cli/*.c)
TESTS   := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_*.c))
BENCHES := $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/*.c))

CFLAGS  ?= -O2 -g
FLAGS   := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -ffp-contract=off -pthread -I. $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
LIBS    := -lm -pthread

ifneq ($(shell pkg-config --exists zlib 2>/dev/null && echo yes),)
FLAGS += -DHAVE_ZLIB
LIBS  += -lz
endif

LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)

all: $(if $(CLI_SRC),$(B)/duet) $(B)/libduet.a

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/libduet.a: $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/duet: $(CLI_OBJ) $(B)/libduet.a
	$(CC) $(FLAGS) $(CFLAGS) $^ $(LIBS) -o $@

$(B)/tests/%: $(B)/tests/%.o $(B)/libduet.a
	$(CC) $(FLAGS) $(CFLAGS) $^ $(LIBS) $(if $(filter thread,$(SAN)),,-lcriterion) -o $@

$(B)/bench/%: $(B)/bench/%.o $(B)/libduet.a
	$(CC) $(FLAGS) $(CFLAGS) $^ $(LIBS) -o $@

check: all $(TESTS) $(BENCHES)
	@for t in $(TESTS); do $$t || exit 1; done

clean:
	rm -rf build

.SECONDARY:
.PHONY: all check clean
-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:=.d) $(BENCHES:=.d)
