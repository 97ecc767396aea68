/* SPDX-License-Identifier: Apache-2.0
 * adder_group.c - sums by a dw_group, whose links are TCP connections. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adder.h"
#include "deltawire/collective.h"
#include "die.h"

enum { RANKS_MOST = 64, URI_BYTES = 96 };

/* Copies the address of a rank out of the list of all. */
static void address_of(const adder_place *place, unsigned rank, char text[64])
{
    const char *from = place->addresses;
    for (unsigned r = 0; from && r < rank; r++) {
        from = strchr(from, ',');
        if (from) from++;
    }
    if (!from) bench_die("--addresses has fewer addresses than there are ranks");
    snprintf(text, 64, "%.*s", (int)strcspn(from, ","), from);
}

static void write_uri(const adder_place *place, unsigned other, char uri[URI_BYTES])
{
    unsigned low = place->rank < other ? place->rank : other;
    unsigned high = place->rank < other ? other : place->rank;
    char address[64];
    address_of(place, low, address);
    snprintf(uri, URI_BYTES, "tcp://%s:%u", address, place->port + low * place->ranks + high);
}

static void add(adder *a, const float *x, float *y, size_t n)
{
    dw_group_job job = {
        .struct_size = sizeof job, .operation = DW_ALL_REDUCE, .slot = n, .n = n, .x = x, .y = y};
    if (dw_group_run(a->context, &job, -1) != DW_OK)
        bench_die("rank %u: %s", a->rank, dw_group_why(a->context, NULL));
}

static void spent(adder *a, double *coding, double *waiting)
{
    dw_group_counters counters = {.struct_size = sizeof counters};
    dw_group_count(a->context, &counters, NULL, NULL);
    *coding = (double)counters.codec_ns * 1e-9;
    *waiting = (double)counters.wait_ns * 1e-9;
}

static void close_group(adder *a)
{
    dw_group_close(a->context);
}

adder adder_open(const adder_place *place)
{
    char texts[RANKS_MOST][URI_BYTES];
    const char *uris[RANKS_MOST];
    dw_config codec;
    dw_why why;
    dw_group *group;
    if (place->ranks > RANKS_MOST) bench_die("at most %d ranks", RANKS_MOST);
    if (dw_config_parse(&codec, place->codec, &why) != DW_OK) bench_die("%s", why.text);
    for (unsigned r = 0; r < place->ranks; r++) {
        uris[r] = r == place->rank ? NULL : texts[r];
        if (uris[r]) write_uri(place, r, texts[r]);
    }
    /* MPI and gloo do not encrypt, either, and the namespaces of the ranks are closed. */
    dw_link_options options = {.struct_size = sizeof options, .insecure_plaintext = 1};
    dw_group_config config = {.struct_size = sizeof config,
                              .id = 1,
                              .rank = place->rank,
                              .ranks = place->ranks,
                              .uris = uris,
                              .link_options = &options,
                              .codec = &codec,
                              .hops = place->hops,
                              .verify = place->verify};
    if (dw_group_open(&group, &config, &why) != DW_OK)
        bench_die("rank %u: %s", place->rank, why.text);
    return (adder){.context = group,
                   .rank = place->rank,
                   .ranks = place->ranks,
                   .add = add,
                   .spent = spent,
                   .close = close_group};
}
