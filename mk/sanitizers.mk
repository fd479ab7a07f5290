# Sanitizer builds: make SAN=address,undefined ... or SAN=thread ...
#
# Operands of every op are checked in them (DUET_CHECK_OPERANDS, device/op_check.c).
ifneq ($(SAN),)
FLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer -DDUET_CHECK_OPERANDS

# Under a sanitizer the kernels take minutes to compile and run 20 to 70 times slower. AddressSanitizer
# watches the generic ones and the references, unoptimised; the wide ones are checked at their borders by
# tests/device/kernels_common.h. ThreadSanitizer is told of their operands instead: device/host/race.c.
OPT_device/host/kernels := $(if $(filter thread,$(SAN)),-O3 -fno-sanitize=thread,-O1)
WIDE_KERNELS := $(B)/device/host/kernels/n16_avx2.o $(B)/device/host/kernels/n16_avx512.o
$(WIDE_KERNELS): COMPILE += -O3 -fno-sanitize=all
endif
