/* Tests workers that communicate over TCP, on one machine and on two (network namespaces with a
 * virtual cable). A peer without the secret cannot join, and the secret is never sent. */
#include <fcntl.h>
#include <sched.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "rpc/proof.h"
#include "tests/rpc/workers.h"

struct sending {
    const char *transport, *host, *secret,
        *other; /* other: the secret of all but rank 0; or NULL */
    int port;
    double timeout_s, silence_s;
    const char *refused;    /* words of init's error; NULL: init succeeds */
    const char *machine[3]; /* each worker's network namespace; NULL: that of the test */
};
static struct sending job;

static void enter_machine(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    MUST(fd >= 0 && !setns(fd, CLONE_NEWNET));
    close(fd);
}

static void talk(struct worker *w) {
    enum { FLOATS = 200000 }; /* arrives in many pieces */
    static float there[FLOATS], back[FLOATS];
    struct duet_rpc_value got;
    for (int i = 0; i < FLOATS; i++)
        there[i] = (float)i;
    duet_tensor *t = tensor_of(w, FLOATS, there);
    for (int r = 0; r < w->n; r++) {
        const char *name = duet_rpc_name(w->rpc, r);
        GOOD(SYNC(name, "echo", DUET_ARGS(duet_rpc_tensor(t))));
        GOOD(duet_tensor_read(got.items[0].tensor, back));
        MUST(!memcmp(there, back, sizeof there));
        duet_rpc_value_free(&got);
    }
    duet_tensor_free(t);
}

/* As torchrun sets it for one worker on each machine. */
static void set_job(int rank, int n) {
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "MASTER_PORT"};
    const int values[] = {rank, n, 0, 1, job.port};
    const char *secret = rank && job.other ? job.other : job.secret;
    for (int i = 0; i < 5; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", values[i]);
        setenv(names[i], text, 1);
    }
    setenv("MASTER_ADDR", job.host, 1);
    setenv("DUET_RPC_TRANSPORT", job.transport, 1);
    unsetenv("DUET_RPC_SECRET");
    if (secret) setenv("DUET_RPC_SECRET", secret, 1);
}

static int run_one(int rank, int n, void (*body)(struct worker *w)) {
    struct worker w = {.rank = rank};
    if (job.machine[rank]) enter_machine(job.machine[rank]);
    set_job(rank, n);
    have(NULL, 0);
    worker_options.timeout_s = job.timeout_s;
    worker_options.silence_s = job.silence_s;
    GOOD(duet_device_open(&w.device, "cpu", rank, 1 << 26));
    int code = init_worker(&w, 0);
    MUST(job.refused ? code && strstr(duet_error(), job.refused) : !code, "%s", job.refused);
    if (!code) body(&w);
    duet_devices_close(&w.device, 1);
    return 0;
}

/* At a port that is free at the moment. */
static void new_job(const char *host) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!bind(s, (struct sockaddr *)&at, bytes) &&
              !getsockname(s, (struct sockaddr *)&at, &bytes) && !close(s));
    job = (struct sending){
        .transport = "tcp", .host = host, .secret = "sixteen letters.", .port = ntohs(at.sin_port)};
}

static void workers(int n, void (*body)(struct worker *w)) {
    pid_t p[3];
    for (int r = 0; r < n; r++)
        if (!(p[r] = fork())) _exit(run_one(r, n, body));
    for (int r = 0; r < n; r++)
        cr_expect_eq(status_of(p[r]), 0, "worker %d", r);
}

/* A connection to where rank 0 listens; -1: it does not. */
static int door(void) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)job.port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!connect(s, (struct sockaddr *)&at, sizeof at)) return s;
    close(s);
    return -1;
}

/* Once all have joined nobody listens any more; closing may take a while. */
static void knock_in_vain(void) {
    for (int i = 0, s; (s = door()) >= 0; i++) {
        close(s);
        MUST(i < 1000);
        usleep(1000);
    }
}

static void talk_and_end(struct worker *w) {
    talk(w);
    knock_in_vain();
    GOOD(duet_rpc_shutdown(&w->rpc, 1, 20));
}

Test(transport, tcp_carries_calls_between_all, .timeout = 60) {
    new_job("127.0.0.1");
    workers(3, talk_and_end);
    job.host = "::1";
    workers(2, talk_and_end);
}

/* Each refusal is one line that says what to do. */
Test(transport, who_does_not_know_the_secret_stays_outside, .timeout = 60) {
    new_job("127.0.0.1");
    job.refused = "set DUET_RPC_SECRET to 16 characters or more";
    job.secret = NULL;
    workers(1, NULL);
    job.secret = "short";
    workers(1, NULL);
    job.transport = "pigeon", job.refused = "'pigeon': give abstract or tcp";
    workers(1, NULL);
    job.transport = "tcp", job.timeout_s = 4; /* the other has begun by then */
    job.secret = "sixteen letters.", job.other = "sixteen letters?";
    job.refused = "does not know the job's secret"; /* both report it */
    workers(2, NULL);
}

/* The messages of one side are useless to another, and in another connection: every field of what
 * is proved counts. */
Test(transport, a_proof_is_of_one_connection_and_one_side) {
    const struct statement said = {
        .own.nonce = {1}, .peer.nonce = {2}, .role = ROLE_DIALS, .hello = {1, 2, "w1", ""}};
    struct statement other[] = {said, said, said, said};
    uint8_t proof[PROOF_BYTES];
    hmac_sha256(proof, "secret", &said, sizeof said);
    cr_expect_eq(proof_check(proof, "secret", &said), OK);
    cr_expect_eq(proof_check(proof, "Secret", &said), ERR_USAGE);
    other[0].role = ROLE_LISTENS;
    other[1].own.nonce[31] = 1;
    other[2].peer.nonce[31] = 1;
    other[3].hello.rank = 0;
    for (int i = 0; i < 4; i++)
        cr_expect_eq(proof_check(proof, "secret", &other[i]), ERR_USAGE, "field %d", i);
    proof[31] ^= 1;
    cr_expect_eq(proof_check(proof, "secret", &said), ERR_USAGE);
}

/* HMAC-SHA256 of RFC 4231, cases 2 and 6: a short secret, and one that is longer than a block. */
Test(transport, a_code_is_that_of_the_standard) {
    static const uint8_t second[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e},
                         sixth[] = {0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f};
    const char *said = "Test Using Larger Than Block-Size Key - Hash Key First";
    uint8_t code[PROOF_BYTES];
    char secret[132] = "";
    memset(secret, 0xaa, 131);
    hmac_sha256(code, "Jefe", "what do ya want for nothing?", 28);
    cr_expect_eq(memcmp(code, second, sizeof second), 0);
    hmac_sha256(code, secret, said, strlen(said));
    cr_expect_eq(memcmp(code, sixth, sizeof sixth), 0);
}

/* ---- strangers ---- */

enum { STRANGERS = 30, SILENT = 3 };

/* A connection that sends nothing, garbage, or an opening and nothing after it. */
static int knock(int i) {
    const struct opening opening = {HELLO_MAGIC, WIRE_VERSION, {1}};
    char junk[600] = "let me in";
    int s;
    while ((s = door()) < 0)
        usleep(1000);
    if (i % 2) send(s, &opening, sizeof opening, MSG_NOSIGNAL);
    if (i % 5) send(s, junk, (size_t)i * 20, MSG_NOSIGNAL);
    return s;
}

/* Rank 0 waits while strangers connect, some of whom stay; then rank 1 connects, and joins soon. */
Test(transport, strangers_keep_nobody_out, .timeout = 60) {
    pid_t p[2];
    int held[STRANGERS];
    new_job("127.0.0.1");
    if (!(p[0] = fork())) _exit(run_one(0, 2, talk_and_end));
    for (int i = 0; i < STRANGERS; i++)
        held[i] = knock(i);
    for (int i = SILENT; i < STRANGERS; i++)
        close(held[i]);
    double began = duet_time();
    if (!(p[1] = fork())) _exit(run_one(1, 2, talk_and_end));
    cr_expect_eq(status_of(p[1]), 0);
    cr_expect_eq(status_of(p[0]), 0);
    cr_expect_lt(duet_time() - began, 10, "rank 1 was kept out");
}

/* ---- two machines ---- */

static char machines[2][32];

static int shell(const char *format) {
    char command[512];
    snprintf(command, sizeof command, format, machines[0], machines[1]);
    return system(command);
}

static int build_machines(void) {
    for (int i = 0; i < 2; i++)
        snprintf(machines[i], sizeof machines[i], "duet%d%c", getpid(), 'a' + i);
    return shell("{ ip netns add %1$s && ip netns add %2$s && "
                 "ip -n %1$s link add cable type veth peer name cable netns %2$s && "
                 "ip -n %1$s addr add 10.77.0.1/24 dev cable && ip -n %1$s link set cable up && "
                 "ip -n %2$s addr add 10.77.0.2/24 dev cable && ip -n %2$s link set cable up && "
                 "ip -n %1$s link set lo up && ip -n %2$s link set lo up; } >/dev/null 2>&1");
}

/* Both notice it. */
static void talk_and_cut(struct worker *w) {
    int code = DUET_OK;
    talk(w);
    duet_rpc_give_device(w->rpc, w->device);
    __atomic_store_n(&alive, 1, __ATOMIC_SEQ_CST);
    if (w->rank == 0) {
        becomes(w, "w1", "alive", 1); /* it has talked, too */
        MUST(!shell("ip -n %1$s link set cable down"));
    }
    while (!code)
        code = duet_rpc_sync(w->rpc, w->rank ? "w0" : "w1", "pid", DUET_NO_ARGS, -1, NULL);
    FAILS(DUET_PEER, code, "its machine does not answer");
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

Test(transport, two_machines_and_a_cable, .timeout = 120) {
    new_job("10.77.0.1");
    if (build_machines()) {
        fprintf(stderr, "network namespaces cannot be made here: nothing is tried between two\n");
    } else {
        job.machine[0] = job.machine[1] = machines[0], job.machine[2] = machines[1];
        workers(3, talk_and_end);
        job.machine[1] = machines[1], job.silence_s = 2;
        workers(2, talk_and_cut);
    }
    shell("ip netns del %1$s 2>/dev/null; ip netns del %2$s 2>/dev/null");
}
