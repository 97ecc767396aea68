/* SPDX-License-Identifier: Apache-2.0
 * bench_group.c - one rank that adds buffers of several sizes over all ranks and measures it.
 * bench/collective.py starts the ranks and compares what they write. */
#include <argp.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adder.h"
#include "base/clock.h"
#include "die.h"

/* Buffers begin where those of PyTorch do. */
enum { CACHE_LINE = 64 };

/* The first sums of a length touch memory that was never used before, and take up to 40 % more time
 * in a virtual machine. A training has thousands of sums. */
enum { WARM_UPS = 3 };

/* Buffers of one size. */
typedef struct measurement {
    size_t bytes;
    unsigned repeats; /* sums, after WARM_UPS that do not count */
} measurement;

typedef struct arguments {
    adder_place place;
    const char *interface, *out;
    measurement sizes[32];
    size_t n_sizes;
} arguments;

/* Returns the number of bytes that the kernel has sent over an interface. A limited interface is
 * asked through tc, because only its queue counts the headers of all packets; the interface's own
 * counter sees up to 64 KiB as one packet. The loopback interface has no queue. */
static uint64_t sent_bytes(const char *interface)
{
    char command[192], line[256];
    unsigned long long count = 0;
    bool is_limited = strcmp(interface, "lo") != 0, is_found = false;
    snprintf(command, sizeof command,
             is_limited ? "tc -s qdisc show dev %s" : "cat /sys/class/net/%s/statistics/tx_bytes",
             interface);
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe))
        is_found |= sscanf(line, is_limited ? " Sent %llu bytes" : "%llu", &count) == 1;
    if (!pipe || pclose(pipe) != 0 || !is_found) bench_die("'%s' gave no number", command);
    return count;
}

/* Values as gradients have them: many small ones, few large ones. */
static void fill(float *x, size_t n, unsigned rank)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (rank + 1);
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float u = (float)(state >> 40) * 0x1p-24f + 0x1p-25f;
        x[i] = (state >> 33 & 1 ? 1e-3f : -1e-3f) * logf(u);
    }
}

/* Every rank returns from it after every other rank has called it. */
static void meet(adder *a)
{
    float one = 1, all = 0;
    a->add(a, &one, &all, 1);
    if (all != (float)a->ranks && fabsf(all - (float)a->ranks) > 0.5f)
        bench_die("rank %u: the sum of %u ones is %g", a->rank, a->ranks, (double)all);
}

/* Returns the bytes sent so far, while no rank sends anything else. */
static uint64_t sent_between(adder *a, const char *interface)
{
    meet(a);
    uint64_t sent = sent_bytes(interface);
    meet(a);
    return sent;
}

/* Sums must be right up to the codec's error, or the times mean nothing. x: this rank's values. */
static void check(const adder *a, const float *x, const float *y, size_t n)
{
    double error = 0, whole = 0;
    float *others = calloc(n, sizeof *others), *sum = calloc(n, sizeof *sum);
    if (!others || !sum) bench_die("no memory for %zu floats", n);
    for (unsigned r = 0; r < a->ranks; r++) {
        if (r != a->rank) fill(others, n, r);
        for (size_t i = 0; i < n; i++) sum[i] += (r == a->rank ? x : others)[i];
    }
    for (size_t i = 0; i < n; i++) {
        error += (double)(y[i] - sum[i]) * (double)(y[i] - sum[i]);
        whole += (double)sum[i] * (double)sum[i];
    }
    free(others);
    free(sum);
    if (!(error <= 0.25 * whole))
        bench_die("rank %u: a sum of %zu floats is wrong: its error is %g of it", a->rank, n,
                  sqrt(error / whole));
}

static void measure(adder *a, const arguments *given, const measurement *m, FILE *out)
{
    size_t n = m->bytes / sizeof(float),
           room = (m->bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    float *x = aligned_alloc(CACHE_LINE, room), *y = aligned_alloc(CACHE_LINE, room);
    double coding[2] = {0, 0}, waiting[2] = {0, 0};
    if (!x || !y) bench_die("no memory for two buffers of %zu bytes", m->bytes);
    fill(x, n, a->rank);
    a->add(a, x, y, n);
    if (m->bytes <= (size_t)1 << 20) check(a, x, y, n);
    for (unsigned i = 1; i < WARM_UPS; i++) a->add(a, x, y, n);
    uint64_t sent = sent_between(a, given->interface);
    if (a->spent) a->spent(a, &coding[0], &waiting[0]);
    double begun = dw_now_s();
    for (unsigned i = 0; i < m->repeats; i++) a->add(a, x, y, n);
    double seconds = dw_now_s() - begun;
    if (a->spent) a->spent(a, &coding[1], &waiting[1]);
    sent = sent_between(a, given->interface) - sent;
    double each = 1.0 / m->repeats;
    fprintf(out, "%zu %.9f %.1f %.9f %.9f\n", m->bytes, seconds * each, (double)sent * each,
            (coding[1] - coding[0]) * each, (waiting[1] - waiting[0]) * each);
    fflush(out);
    free(x);
    free(y);
}

/* ---- The command line ------------------------------------------------------------------------ */

static bool parse_sizes(const char *text, arguments *given)
{
    const size_t most = sizeof given->sizes / sizeof *given->sizes;
    while (*text && given->n_sizes < most) {
        measurement *m = &given->sizes[given->n_sizes++];
        int length = 0;
        if (sscanf(text, "%zux%u%n", &m->bytes, &m->repeats, &length) != 2) return false;
        if (m->bytes < sizeof(float) || m->repeats == 0) return false;
        text += length;
        if (*text == ',') text++;
    }
    return !*text && given->n_sizes > 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    arguments *given = state->input;
    switch (key) {
    case 'r': given->place.rank = (unsigned)strtoul(text, NULL, 10); return 0;
    case 'd': given->place.ranks = (unsigned)strtoul(text, NULL, 10); return 0;
    case 'p': given->place.port = (unsigned)strtoul(text, NULL, 10); return 0;
    case 'a': given->place.addresses = text; return 0;
    case 'c': given->place.codec = text; return 0;
    case 'h': given->place.hops = (unsigned)strtoul(text, NULL, 10); return 0;
    case 'v': given->place.verify = 1; return 0;
    case 'i': given->interface = text; return 0;
    case 'o': given->out = text; return 0;
    case 's':
        if (!parse_sizes(text, given)) argp_error(state, "--sizes %s: not BYTESxREPEATS,...", text);
        return 0;
    case ARGP_KEY_END:
        if (!given->n_sizes || !given->out) argp_error(state, "--sizes and --out are needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"rank", 'r', "R", 0, "this rank (MPI knows it)", 0},
    {"ranks", 'd', "D", 0, "number of ranks (MPI knows it)", 0},
    {"addresses", 'a', "IP,...", 0, "addresses of the ranks", 0},
    {"port", 'p', "PORT", 0, "first of D * D ports", 0},
    {"codec", 'c', "TEXT", 0, "codec of the group", 0},
    {"hops", 'h', "1|2", 0, "hops of the group's all-reduce", 0},
    {"verify", 'v', NULL, 0, "ranks compare their results", 0},
    {"interface", 'i', "NAME", 0, "interface whose sent bytes are counted", 0},
    {"sizes", 's', "BYTESxREPEATS,...", 0, "sizes of the buffers, and how many sums of each", 0},
    {"out", 'o', "PREFIX", 0, "figures go to the file PREFIX.RANK", 0},
    {0}};

int main(int argc, char **argv)
{
    static const struct argp parser = {
        .options = options,
        .parser = parse_option,
        .doc =
            "Writes a line for each size: bytes of the buffer, and for each sum its seconds, the "
            "bytes that this rank's kernel sent, the seconds of coding and of waiting."};
    arguments given = {.place = {.ranks = 1, .port = 29600, .codec = "raw:f32"}, .interface = "lo"};
    if (argp_parse(&parser, argc, argv, 0, NULL, &given)) return 2;
    adder a = adder_open(&given.place);
    char path[512];
    snprintf(path, sizeof path, "%s.%u", given.out, a.rank);
    FILE *out = fopen(path, "w");
    if (!out) bench_die("%s cannot be written", path);
    for (size_t i = 0; i < given.n_sizes; i++) measure(&a, &given, &given.sizes[i], out);
    if (fclose(out) != 0) bench_die("%s could not be written", path);
    a.close(&a);
    return 0;
}
