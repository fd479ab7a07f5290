/* duet: the command with the models that come with it, and none of its own. */
#include "duet.h"

int main(int argc, char **argv) {
    return duet_command(argc, argv, NULL);
}
