/* Reinforcement learning with remote calls: the program in PyTorch's tutorial on them.
 *
 * Worker 0 is the agent and has the policy; all others are observers, each with a pole on a cart
 * (CartPole-v1). The agent makes the observers with remote(Observer) and keeps references to them.
 * In an episode it asks all of them at once to play, and passes a reference to itself, RRef(self).
 * Through that reference each observer asks for every action and reports every reward: two calls
 * per step. --one_call sends the reward with the next state, as the tutorial suggests. Then the
 * agent learns with REINFORCE. The task is solved when the running reward is above 475.
 *
 * Weights, dropout and actions are drawn as PyTorch draws them from this seed, so with one observer
 * the first episodes are those of the tutorial's own program. With several, the tutorial lets one
 * observer's returns run into the next one's; --mend separates them (see --help). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cart_pole.h"
#include "duet.h"
#include "ranks.h"
#include "torch_draws.h"

enum { MOST_OBSERVERS = 15, SOLVED = 475 };

struct settings {
    int world, episodes, log_interval, mend, one_call, rate;
    uint64_t seed;
    double gamma;
};

/* ---- the agent ---- */

struct agent {
    struct settings settings;
    duet_device *device;
    duet_rref *self, *observers[MOST_OBSERVERS];
    duet_params *policy;
    duet_optimizer *optimizer;
    duet_tape *tape; /* one episode's tape: all forwards of all observers */
    duet_rng *rng;
    duet_tensor *kept[MOST_OBSERVERS * MOST_STEPS * 3]; /* read by the tape until backward */
    int kept_count;
    duet_var *log_probs[MOST_OBSERVERS][MOST_STEPS];
    int actions[MOST_OBSERVERS][MOST_STEPS];
    float rewards[MOST_OBSERVERS][MOST_STEPS];
    int chosen[MOST_OBSERVERS], rewarded[MOST_OBSERVERS];
    double running_reward;
    int steps; /* steps of all observers in all episodes */
};

static int keep(struct agent *a, duet_tensor *t) {
    if (a->kept_count == MOST_OBSERVERS * MOST_STEPS * 3) return DUET_FAILED;
    return a->kept[a->kept_count++] = t, DUET_OK;
}

static void forget(struct agent *a) {
    while (a->kept_count)
        duet_tensor_free(a->kept[--a->kept_count]);
}

static int input(struct agent *a, duet_var **out, int n, const float *values) {
    duet_tensor *t;
    TRY(duet_tensor_create(&t, a->device, DUET_F32, 2, (int[]){1, n}, values));
    *out = duet_input(a->tape, t);
    return keep(a, t);
}

/* softmax(affine2(relu(dropout(affine1(state))))), in training mode as the text has it. */
static int policy(struct agent *a, const float *state, duet_var **probs) {
    double u[HIDDEN];
    float mask[HIDDEN];
    duet_var *x, *m;
    uniforms(a->rng, u, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        mask[i] = u[i] < 0.4 ? 2.5f : 0;
    TRY(input(a, &x, STATE, state));
    TRY(input(a, &m, HIDDEN, mask));
    duet_var *h = duet_relu(a->tape, duet_multiply(a->tape, duet_linear(a->tape, x, 0, 1), m));
    *probs = duet_softmax(a->tape, duet_linear(a->tape, h, 2, 3));
    return duet_tape_error(a->tape);
}

/* log of the probabilities, clamped as Categorical does. */
static duet_var *log_of(duet_tape *t, duet_var *p) {
    const double eps = 0x1p-23;
    duet_var *sum = duet_sum(t, p, (int[]){1}, 1, 1);
    duet_var *normal = duet_multiply(t, p, duet_reciprocal(t, sum));
    return duet_log(t, duet_clamp(t, normal, eps, 1 - eps));
}

static int reward_comes(struct agent *a, int ob, double reward) {
    if (ob < 0 || ob >= MOST_OBSERVERS || a->rewarded[ob] == MOST_STEPS) return DUET_USAGE;
    a->rewards[ob][a->rewarded[ob]++] = (float)reward;
    return DUET_OK;
}

/* report_reward(id, reward); an id is the rank of an observer, 1 and more. */
static int report_reward(duet_rpc_call *call, void *context) {
    (void)context;
    return reward_comes(duet_rpc_self(call), (int)duet_rpc_arg_int(call, 0) - 1,
                        duet_rpc_arg_number(call, 1));
}

/* select_action(id, state[, reward of the step before]) -> action */
static int select_action(duet_rpc_call *call, void *context) {
    (void)context;
    struct agent *a = duet_rpc_self(call);
    int ob = (int)duet_rpc_arg_int(call, 0) - 1, n;
    float state[STATE], p[ACTIONS];
    duet_tensor *values = NULL;
    duet_var *probs;
    TRY(duet_rpc_call_error(call));
    TRY(duet_tensor_read(duet_rpc_arg_tensor(call, 1), state));
    if (ob < 0 || ob >= MOST_OBSERVERS || a->chosen[ob] == MOST_STEPS) return DUET_USAGE;
    if (duet_rpc_arg_count(call) == 3) TRY(reward_comes(a, ob, duet_rpc_arg_number(call, 2)));
    n = a->chosen[ob]++;
    TRY(policy(a, state, &probs));
    TRY(duet_var_value(&values, a->tape, probs));
    int code = duet_tensor_read(values, p);
    duet_tensor_free(values);
    TRY(code);
    a->actions[ob][n] = sample(a->rng, p);
    a->log_probs[ob][n] = log_of(a->tape, probs);
    return duet_rpc_return(call, duet_rpc_int(a->actions[ob][n]));
}

/* The discounted returns of all steps, normalised. Returns their number. */
static int all_returns(const struct agent *a, float *returns) {
    int n = 0, observers = a->settings.world - 1;
    double R = 0, mean = 0, square = 0;
    for (int ob = 0; ob < observers; ob++)
        n += a->rewarded[ob];
    for (int ob = observers - 1, i = n; ob >= 0; ob--) {
        if (a->settings.mend) R = 0;
        for (int k = a->rewarded[ob] - 1; k >= 0; k--)
            returns[--i] = (float)(R = a->rewards[ob][k] + a->settings.gamma * R);
    }
    for (int i = 0; i < n; i++)
        mean += returns[i] / (double)n;
    for (int i = 0; i < n; i++)
        square += (returns[i] - mean) * (returns[i] - mean);
    float m = (float)mean, std = (float)sqrt(square / (n - 1));
    for (int i = 0; i < n; i++)
        returns[i] = (returns[i] - m) / (std + 0x1p-23f);
    return n;
}

/* One step of Adam on the sum of -log p * return. */
static int learn(struct agent *a) {
    static float returns[MOST_OBSERVERS * MOST_STEPS];
    duet_var *loss = NULL;
    a->steps += all_returns(a, returns);
    for (int ob = 0, i = 0; ob < a->settings.world - 1; ob++)
        for (int k = 0; k < a->chosen[ob]; k++, i++) {
            float weight[ACTIONS] = {0, 0};
            duet_var *w;
            weight[a->actions[ob][k]] = -returns[i];
            TRY(input(a, &w, ACTIONS, weight));
            duet_var *term =
                duet_sum(a->tape, duet_multiply(a->tape, a->log_probs[ob][k], w), NULL, 0, 0);
            loss = loss ? duet_add(a->tape, loss, term) : term;
        }
    TRY(duet_backward(a->tape, loss, NULL));
    return duet_optimizer_step(a->optimizer);
}

static int finish_episode(struct agent *a, double *least) {
    *least = INFINITY;
    for (int ob = 0; ob < a->settings.world - 1; ob++)
        *least = fmin(*least, a->rewarded[ob]);
    a->running_reward = 0.05 * *least + (1 - 0.05) * a->running_reward;
    int code = learn(a);
    forget(a);
    memset(a->chosen, 0, sizeof a->chosen);
    memset(a->rewarded, 0, sizeof a->rewarded);
    return code;
}

static int build(struct agent *a) {
    static float w1[HIDDEN * STATE], b1[HIDDEN], w2[ACTIONS * HIDDEN], b2[ACTIONS];
    struct duet_optimizer_options options;
    TRY(duet_rng_create(&a->rng, a->settings.seed));
    linear_start(a->rng, w1, HIDDEN * STATE, STATE);
    duet_rng_uniform(a->rng, b1, HIDDEN, -1 / sqrt(STATE), 1 / sqrt(STATE));
    linear_start(a->rng, w2, ACTIONS * HIDDEN, HIDDEN);
    duet_rng_uniform(a->rng, b2, ACTIONS, -1 / sqrt(HIDDEN), 1 / sqrt(HIDDEN));
    const struct duet_param params[] = {{"affine1.weight", 2, {HIDDEN, STATE}, w1},
                                        {"affine1.bias", 1, {HIDDEN}, b1},
                                        {"affine2.weight", 2, {ACTIONS, HIDDEN}, w2},
                                        {"affine2.bias", 1, {ACTIONS}, b2}};
    TRY(duet_params_create(&a->policy, a->device, params, 4));
    TRY(duet_optimizer_defaults(&options, "adam"));
    options.lr = 0.01;
    TRY(duet_optimizer_create(&a->optimizer, a->policy, &options));
    return duet_tape_create(&a->tape, a->device);
}

/* ---- observers ---- */

struct observer {
    duet_device *device;
    int id, one_call;
    struct pole pole;
};

/* Observer(seed, one_call) */
static int new_observer(duet_rpc_call *call, void *device) {
    struct observer *o = calloc(1, sizeof *o);
    if (!o) return DUET_MEMORY;
    o->device = device;
    o->id = duet_rpc_rank(duet_rpc_of_call(call), NULL); /* get_worker_info().id */
    o->one_call = (int)duet_rpc_arg_int(call, 1);
    seed_pole(&o->pole, (uint64_t)duet_rpc_arg_int(call, 0));
    return duet_rpc_return_object(call, o, free);
}

static int choose(struct observer *o, duet_rref *agent, int *action) {
    struct duet_rpc_value got;
    duet_tensor *state = NULL;
    float seen[STATE];
    for (int i = 0; i < STATE; i++)
        seen[i] = (float)o->pole.x[i];
    TRY(duet_tensor_create(&state, o->device, DUET_F32, 1, (int[]){STATE}, seen));
    const struct duet_rpc_value args[] = {duet_rpc_int(o->id), duet_rpc_tensor(state),
                                          duet_rpc_number(1)}; /* the previous step's reward */
    int code =
        duet_rref_sync(agent, "select_action", args, o->one_call && o->pole.steps ? 3 : 2, 0, &got);
    duet_tensor_free(state);
    return *action = (int)got.integer, code;
}

/* run_episode(reference to the agent) */
static int run_episode(duet_rpc_call *call, void *context) {
    (void)context;
    struct observer *o = duet_rpc_self(call);
    duet_rref *agent = duet_rpc_arg_rref(call, 0);
    TRY(duet_rpc_call_error(call));
    reset(&o->pole);
    for (int done = 0, action; !done;) {
        TRY(choose(o, agent, &action));
        done = move(&o->pole, action);
        if (o->one_call && !done) continue; /* sent with the next state */
        TRY(duet_rref_sync(agent, "report_reward",
                           DUET_ARGS(duet_rpc_int(o->id), duet_rpc_number(1)), 0, NULL));
    }
    return DUET_OK;
}

/* ---- both ---- */

/* self.agent_rref = RRef(self); self.ob_rrefs.append(remote(ob_info, Observer)) */
static int make_observers(struct agent *a, duet_rpc *rpc) {
    const struct settings *s = &a->settings;
    TRY(duet_rref_create_object(&a->self, rpc, "Agent", a, NULL));
    for (int i = 0; i < s->world - 1; i++)
        TRY(duet_remote(&a->observers[i], rpc, duet_rpc_name(rpc, i + 1), "Observer",
                        DUET_ARGS(duet_rpc_int((int64_t)s->seed), duet_rpc_int(s->one_call)), 0));
    return DUET_OK;
}

static int play(struct agent *a) {
    duet_future *futures[MOST_OBSERVERS];
    int n = a->settings.world - 1, begun = 0;
    int code = duet_tape_begin(a->tape, a->policy, 1, DUET_TRAIN);
    for (; begun < n && !code; begun += !code)
        code = duet_rref_async(&futures[begun], a->observers[begun], "run_episode",
                               DUET_ARGS(duet_rpc_rref(a->self)), 0);
    if (!code) code = duet_future_wait_all(futures, n);
    for (int i = 0; i < begun; i++)
        duet_future_free(futures[i]);
    return code;
}

static int train(struct agent *a) {
    double began = duet_time(), last;
    printf("This will run until reward threshold of %d is reached. Ctrl+C to exit.\n", SOLVED);
    for (int episode = 1; !a->settings.episodes || episode <= a->settings.episodes; episode++) {
        TRY(play(a));
        TRY(finish_episode(a, &last));
        if (episode % a->settings.log_interval == 0)
            printf("Episode %d\tLast reward: %.2f\tAverage reward: %.2f\n", episode, last,
                   a->running_reward);
        if (a->running_reward > SOLVED) break;
    }
    if (a->running_reward > SOLVED)
        printf("Solved! Running reward is now %.16g!\n", a->running_reward);
    if (a->settings.rate)
        printf("%d steps: %.0f a second\n", a->steps, a->steps / (duet_time() - began));
    return DUET_OK;
}

static int be_agent(struct agent *a) {
    duet_rpc *rpc = NULL;
    const struct duet_rpc_function functions[] = {
        {"Agent.select_action", select_action, NULL, NULL},
        {"Agent.report_reward", report_reward, NULL, NULL}};
    struct duet_rpc_options o = {.functions = functions, .function_count = 2, .device = a->device};
    int code = build(a);
    if (!code) code = duet_rpc_init(&rpc, "agent", -1, 0, &o);
    if (!code) code = make_observers(a, rpc);
    if (!code) code = train(a);
    for (int i = 0; i < a->settings.world - 1; i++)
        duet_rref_free(a->observers[i]);
    duet_rref_free(a->self);
    int end = duet_rpc_shutdown(&rpc, !code, 0);
    forget(a);
    duet_optimizer_free(a->optimizer);
    duet_params_free(a->policy);
    duet_tape_free(a->tape);
    duet_rng_free(a->rng);
    return code ? code : end;
}

static int be_observer(int rank, duet_device *device) {
    char name[32];
    const struct duet_rpc_function functions[] = {
        {"Observer", new_observer, device, NULL},
        {"Observer.run_episode", run_episode, NULL, NULL}};
    struct duet_rpc_options all = {.functions = functions, .function_count = 2, .device = device};
    snprintf(name, sizeof name, "obs%d", rank);
    duet_rpc *rpc = NULL;
    TRY(duet_rpc_init(&rpc, name, -1, 0, &all));
    return duet_rpc_shutdown(&rpc, 1, 0);
}

static int work(int rank, void *context) {
    const struct settings *s = context;
    duet_device *device;
    TRY(duet_device_open(&device, "cpu", rank, rank ? 1 << 26 : 1 << 29)); /* its tape is long */
    struct agent *a = calloc(1, sizeof *a);
    if (a) *a = (struct agent){.settings = *s, .device = device};
    int code = !a ? DUET_MEMORY : rank ? be_observer(rank, device) : be_agent(a);
    free(a);
    duet_devices_close(&device, 1);
    return code;
}

static int usage(FILE *to, const char *program) {
    fprintf(to,
            "usage: %s [OPTION]...\n\nRPC Reinforcement Learning Example\n\n"
            "  --world_size W    number of workers, 2 to 16 (default: 2)\n"
            "  --log_interval N  interval between training status logs (default: 10)\n"
            "  --gamma G         how much to value future rewards (default: 0.99)\n"
            "  --seed S          random seed for reproducibility (default: 1)\n"
            "in addition to the tutorial's:\n"
            "  --episodes N      end after N episodes (default: 0, once it is solved)\n"
            "  --mend            keep the returns of the observers apart\n"
            "  --one_call        send the reward with the next state\n"
            "  --rate            print the steps per second at the end\n",
            program);
    return to == stderr ? 2 : 0;
}

static int read_word(struct settings *s, const char *word, const char *value) {
    const char *end = NULL;
    if (!strcmp(word, "--world_size"))
        s->world = (int)strtol(value, (char **)&end, 10);
    else if (!strcmp(word, "--seed"))
        s->seed = strtoull(value, (char **)&end, 10);
    else if (!strcmp(word, "--gamma"))
        s->gamma = strtod(value, (char **)&end);
    else if (!strcmp(word, "--log_interval"))
        s->log_interval = (int)strtol(value, (char **)&end, 10);
    else if (!strcmp(word, "--episodes"))
        s->episodes = (int)strtol(value, (char **)&end, 10);
    return end && end != value && !*end && s->world >= 2 && s->world <= MOST_OBSERVERS + 1 &&
           s->log_interval > 0 && s->episodes >= 0;
}

int main(int argc, char **argv) {
    struct settings s = {.world = 2, .log_interval = 10, .seed = 1, .gamma = 0.99};
    for (int i = 1; i < argc; i++) {
        int *flag = !strcmp(argv[i], "--mend")       ? &s.mend
                    : !strcmp(argv[i], "--one_call") ? &s.one_call
                    : !strcmp(argv[i], "--rate")     ? &s.rate
                                                     : NULL;
        if (!strcmp(argv[i], "--help")) return usage(stdout, argv[0]);
        if (flag)
            *flag = 1;
        else if (++i == argc || !read_word(&s, argv[i - 1], argv[i]))
            return usage(stderr, argv[0]);
    }
    need_ranks(argv[0], s.world);
    int code = duet_spawn(s.world, work, &s);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
