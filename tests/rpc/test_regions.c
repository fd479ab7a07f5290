/* Memory that two workers share, without workers: what is kept, what is believed of a peer, and
 * what the death of an owner leaves. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "rpc/region.h"
#include "tests/harness/harness.h"
#include "tests/rpc/shared_memory.h"

enum { BYTES = 1 << 20 };

Test(regions, are_kept_for_the_next_message_of_their_size) {
    struct regions all;
    struct region *r[MOST_REGIONS];
    struct frame_header h = {0};
    int reader, other;
    regions_open(&all);
    cr_assert(all.door);
    struct region *first = region_take(&all, BYTES);
    memset(first->data, 1, BYTES);
    region_release(first);
    cr_expect_eq(region_take(&all, BYTES * 3 / 4), first);
    cr_expect_neq(region_take(&all, BYTES / 4), first, "it is much larger than wanted");
    region_release(first);
    for (int i = 0; i < MOST_REGIONS - 1; i++) /* one is held from before */
        cr_assert((r[i] = region_take(&all, BYTES)));
    cr_expect_null(region_take(&all, BYTES), "all are held");
    region_release(r[0]);
    cr_expect((r[0] = region_take(&all, 4 * BYTES)), "in the place of one that is free");
    /* Its reader is gone, and others are not: they keep theirs. */
    region_give(&all, r[0], &reader, &h);
    region_give(&all, r[1], &other, &h);
    regions_of_gone(&all, &reader);
    cr_expect_eq(all.count, MOST_REGIONS - 1);
    for (int i = 2; i < MOST_REGIONS - 1; i++)
        region_release(r[i]);
    regions_trim(&all, now_ns());
    cr_expect_eq(all.count, MOST_REGIONS - 1);
    regions_trim(&all, now_ns() + 3600 * (int64_t)1000000000);
    cr_expect_eq(all.count, 2, "one is held, one is still read");
    regions_close(&all);
    cr_expect_eq(regions_here(), 0);
}

Test(regions, of_a_peer_are_as_told_or_refused) {
    struct regions all;
    struct guests guests;
    struct hello hello = {0};
    struct frame_header h = {.beside = BYTES};
    int reader, other, unsealed = memfd_create("unsealed", MFD_ALLOW_SEALING), pipes[2];
    regions_open(&all);
    regions_introduce(&all, &hello);
    cr_assert(hello.pid && guests_open(&guests, &hello));
    struct region *own = region_take(&all, BYTES);
    memset(own->data, 7, BYTES);
    region_give(&all, own, &reader, &h);
    cr_expect(regions_under_way(&all), "its owner may not end yet");
    cr_expect_neq(ftruncate(own->fd, 0), 0, "its size is sealed");
    struct region *r;
    cr_assert(!guests_find(&r, &guests, &h, now_ns()));
    cr_assert(r->bytes == own->bytes && r->data[BYTES - 1] == 7);
    cr_expect(!regions_under_way(&all));
    regions_back(&all, h.region, &reader);
    cr_expect_neq(region_take(&all, BYTES), own, "it is still read");
    region_release(r);
    cr_expect_eq(region_take(&all, BYTES), own, "its reader was done with it");
    region_give(&all, own, &reader, &h);
    cr_expect(!guests_find(&r, &guests, &h, now_ns()) && r == guests.first, "it is still mapped");
    guests_trim(&guests, now_ns() + 3600 * (int64_t)1000000000);
    cr_expect(!guests.first && r->data[0] == 7, "the frame still has it");
    region_release(r);
    /* Of another id, too long, of a file that is none, and of no file. */
    struct frame_header wrong = h;
    wrong.region = 999;
    cr_expect_eq(guests_find(&r, &guests, &wrong, now_ns()), -1);
    wrong = h, wrong.beside = own->bytes + 1;
    cr_expect_eq(guests_find(&r, &guests, &wrong, now_ns()), -1);
    guests_close(&guests);
    cr_expect_eq(region_take(&all, BYTES), own);
    region_give(&all, own, &reader, &h);
    regions_back(&all, h.region, &other);
    cr_expect(regions_under_way(&all), "it was sent to another");
    regions_back(&all, h.region, &reader);
    cr_expect_eq(region_take(&all, BYTES), own, "its reader could not open it");
    region_give(&all, own, &reader, &h);
    cr_assert(unsealed >= 0 && !ftruncate(unsealed, BYTES) && !pipe(pipes));
    const int not_one[] = {unsealed, pipes[0], -1, 1 << 20};
    for (int i = 0; i < 4; i++) {
        wrong = h, wrong.fd = not_one[i];
        cr_expect_eq(guests_find(&r, &guests, &wrong, now_ns()), -1, "%d", i);
    }
    hello.token++; /* another process, as it has this pid elsewhere */
    cr_expect(!guests_open(&guests, &hello) && guests_find(&r, &guests, &h, now_ns()) == -1);
    close(unsealed), close(pipes[0]), close(pipes[1]);
    regions_close(&all);
    cr_expect_eq(mappings_here(), 0);
}

/* What was there once can be read to its end, though its owner is no more. */
Test(regions, of_a_killed_owner_are_read_to_the_end) {
    struct {
        struct hello hello;
        struct frame_header header;
    } said = {.header.beside = 8 * BYTES};
    struct guests guests;
    int pipes[2], status;
    cr_assert(!pipe(pipes));
    pid_t owner = fork();
    if (!owner) {
        struct regions all;
        regions_open(&all);
        regions_introduce(&all, &said.hello);
        struct region *r = region_take(&all, 8 * BYTES);
        memset(r->data, 9, 8 * BYTES);
        region_give(&all, r, NULL, &said.header);
        if (write(pipes[1], &said, sizeof said) == sizeof said) pause();
        _exit(1);
    }
    cr_assert_eq(read(pipes[0], &said, sizeof said), sizeof said);
    cr_assert(guests_open(&guests, &said.hello));
    struct region *r, *other;
    cr_assert(!guests_find(&r, &guests, &said.header, now_ns()) && r->data[0] == 9);
    kill(owner, SIGKILL);
    cr_assert_eq(waitpid(owner, &status, 0), owner);
    for (int i = 0; i < 8 * BYTES; i++)
        cr_assert_eq(r->data[i], 9);
    said.header.region++;
    cr_expect_eq(guests_find(&other, &guests, &said.header, now_ns()), -1, "its owner has ended");
    region_release(r);
    guests_close(&guests);
    close(pipes[0]), close(pipes[1]);
    cr_expect_eq(mappings_here(), 0);
}
