/* A command's data sets are read once: the ranks of a job map what the launcher has read. */
#include "train/shared_data.h"

#include "base/error.h"
#include "tests/app/train/config.h"

static int is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

CliTest(shared_data, is_read_once, 30) {
    struct run_config config = config_on_cpu(MODE_SINGLE, "lenet"), from_disk = config;
    struct dataset read, mapped;
    put_data(50, 20);
    cr_assert_eq(shared_data_open(&config), OK, "%s", error_message());
    cr_assert(config.data.fd[0] > 2 && config.data.fd[1] > 2 && config.data.seconds > 0);
    int first = config.data.fd[0], second = config.data.fd[1];
    cr_assert_eq(run_open_set(&from_disk, &read, 1), OK, "%s", error_message());
    cr_assert_eq(system("rm d/*"), 0);
    cr_assert_eq(run_open_set(&config, &mapped, 1), OK, "%s", error_message());
    cr_assert(mapped.count == 50 && !memcmp(mapped.images, read.images, 50 * 784) &&
              !memcmp(mapped.labels, read.labels, 50));
    dataset_free(&mapped);
    cr_assert_eq(run_open_set(&config, &mapped, 0), OK, "%s", error_message());
    cr_assert_eq(mapped.count, 20, "the test part");
    dataset_free(&mapped);
    cr_assert_eq(shared_data_open(&config), OK, "what is there is not read again: %s",
                 error_message());
    cr_assert(config.data.fd[0] == first && config.data.fd[1] == second);
    cr_assert_eq(run_open_set(&from_disk, &mapped, 1), ERR_FAILED, "the files are gone");
    shared_data_close(&config);
    cr_assert(!is_open(first) && !is_open(second) && !config.data.fd[0] && !config.data.fd[1]);
    shared_data_close(&config);
    dataset_free(&read);
}

CliTest(shared_data, without_evaluation_the_test_part_is_not_read, 30) {
    struct run_config config = config_on_cpu(MODE_SINGLE, "lenet");
    config.evaluate = 0;
    put_data(50, 20);
    cr_assert_eq(system("rm d/t10k*"), 0);
    cr_assert_eq(shared_data_open(&config), OK, "%s", error_message());
    cr_assert(config.data.fd[0] && !config.data.fd[1]);
    int first = config.data.fd[0];
    config.evaluate = 1;
    cr_assert_eq(shared_data_open(&config), ERR_FAILED, "and now it is missed");
    cr_assert(!is_open(first) && !config.data.fd[0], "after a failure there are none");
}
