/* duet: the command with the built-in models only. */
#include "duet.h"

int main(int argc, char **argv) {
    return duet_command(argc, argv, NULL);
}
