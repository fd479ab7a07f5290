/* Tests duet report on files of duet_devices_timeline: lanes and bubble of handmade times, and
 * files of other kinds. */
#include "tests/app/cli/run.h"

#define OF(devices) \
    "{\"otherData\": {\"duet_timeline\": 1, \"devices\": " devices "}, \"traceEvents\": ["
#define SPAN(device, name, ts, dur, waiting)                                      \
    "{\"pid\": " device ", \"name\": \"" name "\", \"ts\": " ts ", \"dur\": " dur \
    ", \"args\": {\"waiting\": " waiting "}}"
#define RUNS(device, name, ts, dur) SPAN(device, name, ts, dur, "false")

/* 64 columns of 1 us: device 0 has 32 of forward and 16 of backward, device 1 waits for 32, then
 * has 8 of forward, 4 of a copy and 4 of an optimizer. */
static const char *const by_hand[] = {OF("2"),
                                      RUNS("0", "linear forward", "1", "32") ",",
                                      SPAN("0", "wait", "33", "16", "true") ",",
                                      RUNS("0", "linear backward data", "49", "16") ",",
                                      SPAN("1", "wait", "1", "32", "true") ",",
                                      RUNS("1", "relu forward", "33", "7.000") ",",
                                      RUNS("1", "cross entropy backward", "40", "1") ",",
                                      RUNS("1", "copy peer", "41", "4") ",",
                                      RUNS("1", "sgd", "45", "4") "]}"};

CliTest(cli_timeline, times_by_hand, 30) {
    char text[2048] = "";
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        strcat(text, by_hand[i]);
    cli_put("parts.json", text);
    char *out = cli_output("report parts.json");
    cr_expect_str_eq(
        out,
        "0.06 ms: F forward, B backward, S optimizer, : copies and sums, . nothing\n"
        "device 0  |FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF................BBBBBBBBBBBBBBBB| busy 75 %\n"
        "device 1  |................................FFFFFFFF::::SSSS................| busy 25 %\n"
        "the bubble: 50 % of the time of 2 devices\n");
    free(out);
}

CliTest(cli_timeline, what_is_none_is_refused, 60) {
    static const char *const wrong[][2] = {
        {OF("1") "]}", "it has no spans"},
        {OF("0") "{}]}", "it has no spans"},
        {OF("1") "{\"pid\": 0, \"name\": \"x\", \"ts\": 1, \"dur\": 2}]}",
         "a span without a name or times"},
        {OF("1") RUNS("1", "x", "1", "2") "]}", "a span without a device"},
        {OF("1") RUNS("0", "x", "2", "-1") "]}", "a span without a name or times"},
        {OF("1") RUNS("0", "x", "2", "0") "]}", "its spans take no time"},
        {"{\"otherData\"", "parts.json"},
        {"{}", "or one file of duet_devices_timeline"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli_put("parts.json", wrong[i][0]);
        cli_fails(1, wrong[i][1], "report parts.json");
    }
}
