/* SPDX-License-Identifier: Apache-2.0
 * gpu_bench.c - measures the speed of encoders and decoders on a GPU, compared with a copy of as
 * many bytes in the same run.
 *
 * gpu_bench [--most ELEMENTS] [--repeats N]: tensors of 64 Ki to ELEMENTS (default 64 Mi) elements.
 * Prints lines of fields separated by tabs, which gpu.py reads. A case is captured as a graph,
 * which is launched many times. Rounds of the graph and of the copy alternate, and their medians
 * are compared. Exit 77: no GPU. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "support/async.h"
#include "support/profiles.h"

enum { CHANNELS = 4096, ROUNDS = 9 };
static int repeats = 20;

typedef struct bench_case {
    const char *name, *codec;
    dw_dtype dtype;
    bool decodes;
    dw_cuda_place place;
} bench_case;

static const bench_case cases[] = {
    {"encode/delta/b4/g128/bf16/bf16", "delta:bits=4,group=128,choose=never,replies=never", DW_BF16,
     false, DW_CUDA_DEVICE},
    {"encode/delta+stochastic/b4/g128/bf16/bf16",
     "delta:bits=4,group=128,choose=never,rounding=stochastic,replies=never", DW_BF16, false,
     DW_CUDA_DEVICE},
    {"encode/delta+choose/b4/g128/bf16/bf16", "delta:bits=4,group=128,replies=never", DW_BF16,
     false, DW_CUDA_DEVICE},
    {"encode/delta/b4/g64/f32/f32", "delta:bits=4,choose=never,replies=never", DW_F32, false,
     DW_CUDA_DEVICE},
    {"encode/delta/b2/g64/bf16/bf16", "delta:bits=2,scale=signed,choose=never,replies=never",
     DW_BF16, false, DW_CUDA_DEVICE},
    {"encode/delta/b3/g64/bf16/bf16", "delta:bits=3,choose=never,replies=never", DW_BF16, false,
     DW_CUDA_DEVICE},
    {"encode/direct/b4/g128/bf16/none", "direct:bits=4,group=128", DW_BF16, false, DW_CUDA_DEVICE},
    {"decode/delta/b4/g128/bf16/bf16", "delta:bits=4,group=128,choose=never,replies=never", DW_BF16,
     true, DW_CUDA_DEVICE},
    {"decode/delta/b4/g64/f32/f32", "delta:bits=4,choose=never,replies=never", DW_F32, true,
     DW_CUDA_DEVICE},
    {"decode/direct/b4/g128/bf16/none", "direct:bits=4,group=128", DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/delta/e2m1/g32/bf16/bf16", "delta:form=mx,choose=never,replies=never", DW_BF16, false,
     DW_CUDA_DEVICE},
    {"decode/delta/e2m1/g32/bf16/bf16", "delta:form=mx,choose=never,replies=never", DW_BF16, true,
     DW_CUDA_DEVICE},
    {"encode/mx/e4m3/g32/bf16/none", "mx", DW_BF16, false, DW_CUDA_DEVICE},
    {"decode/mx/e4m3/g32/bf16/none", "mx", DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/delta/step/sample/bf16/bf16", "delta:form=step,group=sample,replies=never", DW_BF16,
     false, DW_CUDA_DEVICE},
    {"decode/delta/step/sample/bf16/bf16", "delta:form=step,group=sample,replies=never", DW_BF16,
     true, DW_CUDA_DEVICE},
    {"encode/delta/step/g128/bf16/bf16", "delta:form=step,group=128,replies=never", DW_BF16, false,
     DW_CUDA_DEVICE},
    {"encode/direct+dither/step/sample/bf16/none",
     "direct:form=step,group=sample,step=4,rounding=dither", DW_BF16, false, DW_CUDA_DEVICE},
    {"decode/direct+dither/step/sample/bf16/none",
     "direct:form=step,group=sample,step=4,rounding=dither", DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/delta+rans/step/sample/bf16/bf16",
     "delta:form=step,group=sample,entropy=rans,replies=never", DW_BF16, false, DW_CUDA_DEVICE},
    {"decode/delta+rans/step/sample/bf16/bf16",
     "delta:form=step,group=sample,entropy=rans,replies=never", DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/direct+dither+rans/step/sample/bf16/none",
     "direct:form=step,group=sample,step=4,rounding=dither,entropy=rans", DW_BF16, false,
     DW_CUDA_DEVICE},
    {"decode/direct+dither+rans/step/sample/bf16/none",
     "direct:form=step,group=sample,step=4,rounding=dither,entropy=rans", DW_BF16, true,
     DW_CUDA_DEVICE},
    {"encode/delta+rans/step/row/bf16/bf16",
     "delta:form=step,error=0.06,entropy=rans,replies=never", DW_BF16, false, DW_CUDA_DEVICE},
    {"encode/delta+rans+profile/step/row/bf16/bf16",
     "delta:form=step,error=0.06,entropy=rans,replies=never", DW_BF16, false, DW_CUDA_DEVICE},
    {"encode/direct+rans/step/row/bf16/none", "direct:form=step,step=0.25,entropy=rans", DW_BF16,
     false, DW_CUDA_DEVICE},
    {"decode/delta+rans/step/row/bf16/bf16",
     "delta:form=step,error=0.06,entropy=rans,replies=never", DW_BF16, true, DW_CUDA_DEVICE},
    {"decode/delta+rans+profile/step/row/bf16/bf16",
     "delta:form=step,error=0.06,entropy=rans,replies=never", DW_BF16, true, DW_CUDA_DEVICE},
    {"decode/direct+rans/step/row/bf16/none", "direct:form=step,step=0.25,entropy=rans", DW_BF16,
     true, DW_CUDA_DEVICE},
    {"encode/delta+hadamard/b4/g128/bf16/bf16",
     "delta:bits=4,group=128,transform=hadamard,replies=never", DW_BF16, false, DW_CUDA_DEVICE},
    {"decode/delta+hadamard/b4/g128/bf16/bf16",
     "delta:bits=4,group=128,transform=hadamard,replies=never", DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/direct+feedback/b4/g64/f32/f32", "direct:bits=4,feedback=ef", DW_F32, false,
     DW_CUDA_DEVICE},
    {"decode/direct/b4/g64/f32/none", "direct:bits=4", DW_F32, true, DW_CUDA_DEVICE},
    {"encode/delta+pinned/b4/g128/bf16/bf16", "delta:bits=4,group=128,choose=never,replies=never",
     DW_BF16, false, DW_CUDA_PINNED},
    {"encode/delta/b4/g128/bf16/8", "delta:bits=4,group=128,prev=8,choose=never,replies=never",
     DW_BF16, false, DW_CUDA_DEVICE},
    {"decode/delta/b4/g128/bf16/8", "delta:bits=4,group=128,prev=8,choose=never,replies=never",
     DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/delta/b4/g128/bf16/4", "delta:bits=4,group=128,prev=4,choose=never,replies=never",
     DW_BF16, false, DW_CUDA_DEVICE},
    {"decode/delta/b4/g128/bf16/4", "delta:bits=4,group=128,prev=4,choose=never,replies=never",
     DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/delta+rans/step/row/bf16/8",
     "delta:form=step,error=0.06,prev=8,entropy=rans,replies=never", DW_BF16, false,
     DW_CUDA_DEVICE},
    {"decode/delta+rans/step/row/bf16/8",
     "delta:form=step,error=0.06,prev=8,entropy=rans,replies=never", DW_BF16, true, DW_CUDA_DEVICE},
    {"encode/delta+pinned/b4/g128/bf16/8",
     "delta:bits=4,group=128,prev=8,choose=never,replies=never", DW_BF16, false, DW_CUDA_PINNED},
};

typedef struct rig {
    gpu *g;
    const bench_case *of;
    uint32_t t;
    size_t elements, bytes, cap, head_len, len;
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_encode_ticket *encode_ticket;
    dw_decode_ticket *decode_ticket;
    void *x, *frame, *from, *to; /* from, to: of the copy */
    unsigned char *head;
    gpu_event *before, *after;
} rig;

static bool is_delta(const rig *r)
{
    return strncmp(r->of->codec, "delta", 5) == 0;
}

/* Whether the encoder keeps a tensor for each key: prev, or the residual of the error feedback. */
static bool keeps_tensor(const rig *r)
{
    return is_delta(r) || strstr(r->of->codec, "feedback=ef") != NULL;
}

/* The bytes of such a tensor: as many as x has, or, of prev in few bits, codes and a byte for every
 * 16 of them. */
static size_t kept_bytes(const rig *r)
{
    const char *prev = strstr(r->of->codec, "prev=");
    return prev ? r->elements / 16 * (2 * strtoul(prev + 5, NULL, 10) + 1) : r->bytes;
}

/* The bytes that must be read and written. */
static size_t traffic(const rig *r)
{
    size_t payload = r->len - r->head_len;
    if (r->of->decodes) return payload + (is_delta(r) ? 2 * kept_bytes(r) : r->bytes);
    return payload + r->bytes + (keeps_tensor(r) ? 2 * kept_bytes(r) : 0);
}

static void finish_encode(rig *r)
{
    dw_status status;
    do
        status = dw_encode_finish(r->encode_ticket, r->head, dw_frame_head_bound(1), &r->head_len,
                                  &r->len);
    while (status == DW_PENDING);
    gpu_expect(status == DW_OK, "%s: %s", r->of->name, dw_encoder_why(r->encoder));
}

static void finish_decode(rig *r)
{
    dw_status status;
    size_t reply_len;
    do status = dw_decode_finish(r->decode_ticket, NULL, 0, &reply_len);
    while (status == DW_PENDING);
    gpu_expect(status == DW_OK, "%s: %s", r->of->name, dw_decoder_why(r->decoder));
}

static void start_encode(rig *r)
{
    dw_key key = {.sample = 1};
    dw_tensor x = dw_tensor_3d(r->x, r->of->dtype, 1, r->t, CHANNELS);
    dw_status status =
        test_encode_async(r->encoder, &key, &x, r->frame, r->cap, r->g->stream, &r->encode_ticket);
    gpu_expect(status == DW_OK, "%s: %s", r->of->name, dw_encoder_why(r->encoder));
}

/* With state, only prev is advanced. */
static void start_decode(rig *r)
{
    dw_tensor y = dw_tensor_3d(is_delta(r) ? NULL : r->x, r->of->dtype, 1, r->t, CHANNELS);
    dw_status status = test_decode_async(r->decoder, r->head, r->head_len, r->frame, r->len, &y,
                                         r->g->stream, &r->decode_ticket);
    gpu_expect(status == DW_OK, "%s: %s", r->of->name, dw_decoder_why(r->decoder));
}

/* Numbers near 1 or -1, slightly different at every call. */
static void put_x(rig *r, unsigned seed)
{
    unsigned char *host = malloc(r->bytes);
    gpu_expect(host != NULL, "no memory");
    for (size_t i = 0; i < r->elements; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t bits = (seed & 0x80000000u) | 0x3f000000u | (seed >> 8 & 0x7fffffu);
        uint16_t half = (uint16_t)(bits >> 16);
        if (r->of->dtype == DW_F32)
            memcpy(host + 4 * i, &bits, 4);
        else
            memcpy(host + 2 * i, &half, 2);
    }
    gpu_put(r->x, host, r->bytes);
    free(host);
}

static void rig_open(rig *r, gpu *g, const bench_case *of, size_t elements)
{
    dw_config config;
    dw_why why = {.text = ""};
    *r = (rig){.g = g,
               .of = of,
               .t = (uint32_t)(elements / CHANNELS),
               .elements = elements,
               .bytes = elements * dw_dtype_bytes(of->dtype)};
    gpu_expect(dw_config_parse(&config, of->codec, &why) == DW_OK, "%s", why.text);
    if (strstr(of->name, "+profile")) config.profile = test_profile(2, CHANNELS);
    dw_tensor shape = dw_tensor_3d(NULL, of->dtype, 1, r->t, CHANNELS);
    r->cap = dw_frame_bound(&config, &shape);
    r->head = malloc(dw_frame_head_bound(1));
    r->x = gpu_allocate(r->bytes);
    r->frame = gpu_allocate(r->cap);
    r->from = gpu_allocate(2 * r->bytes + r->cap);
    r->to = gpu_allocate(2 * r->bytes + r->cap);
    r->before = gpu_event_create();
    r->after = gpu_event_create();
    dw_host host = {.struct_size = sizeof host, .cuda = g->cuda, .place = of->place};
    gpu_expect(dw_encoder_create(&r->encoder, &config, &host, &why) == DW_OK, "%s: %s", of->codec,
               why.text);
    gpu_expect(dw_decoder_create(&r->decoder, &config, &host, &why) == DW_OK, "%s: %s", of->codec,
               why.text);
}

static void rig_close(rig *r)
{
    dw_encoder_destroy(r->encoder);
    dw_decoder_destroy(r->decoder);
    gpu_event_destroy(r->before);
    gpu_event_destroy(r->after);
    gpu_free(r->x);
    gpu_free(r->frame);
    gpu_free(r->from);
    gpu_free(r->to);
    free(r->head);
}

/* The frame that is measured. With state it is the second one of its key. */
static gpu_graph *prepare(rig *r)
{
    put_x(r, 1);
    if (keeps_tensor(r)) {
        start_encode(r);
        finish_encode(r);
        if (r->of->decodes) {
            start_decode(r);
            finish_decode(r);
        }
        put_x(r, 2);
    }
    if (r->of->decodes) {
        start_encode(r);
        finish_encode(r);
    }
    gpu_capture_begin(r->g);
    if (r->of->decodes)
        start_decode(r);
    else
        start_encode(r);
    return gpu_capture_end(r->g);
}

static void unprepare(rig *r, gpu_graph *graph)
{
    if (r->of->decodes) {
        finish_decode(r);
        gpu_expect(dw_decode_cancel(r->decode_ticket) == DW_OK, "%s", dw_decoder_why(r->decoder));
    } else {
        gpu_expect(dw_encode_cancel(r->encode_ticket) == DW_OK, "%s", dw_encoder_why(r->encoder));
    }
    gpu_graph_destroy(graph);
}

/* Seconds per launch of the graph, averaged over many launches. graph NULL: per copy. */
static double time_round(rig *r, gpu_graph *graph, size_t copied)
{
    gpu_event_record(r->g, r->before);
    for (int i = 0; i < repeats; i++) {
        if (graph)
            gpu_graph_launch(r->g, graph);
        else
            gpu_copy(r->g, r->to, r->from, copied);
    }
    gpu_event_record(r->g, r->after);
    return gpu_event_seconds(r->before, r->after) / repeats;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_case(gpu *g, const bench_case *of, size_t elements)
{
    rig r;
    double seconds[ROUNDS], copies[ROUNDS];
    rig_open(&r, g, of, elements);
    gpu_graph *graph = prepare(&r);
    (void)time_round(&r, graph, 0); /* warm */
    if (!of->decodes) finish_encode(&r);
    size_t bytes = traffic(&r);
    for (int i = 0; i < ROUNDS; i++) {
        seconds[i] = time_round(&r, graph, 0);
        copies[i] = time_round(&r, NULL, bytes / 2);
    }
    qsort(seconds, ROUNDS, sizeof *seconds, by_size);
    qsort(copies, ROUNDS, sizeof *copies, by_size);
    printf("bench\t%s\t%zu\t%zu\t%.9f\t%.9f\n", of->name, elements, bytes, seconds[ROUNDS / 2],
           copies[ROUNDS / 2]);
    fflush(stdout);
    unprepare(&r, graph);
    rig_close(&r);
}

/* Calls one after another without a graph, for 2048 x 4096 bf16 and for small tensors: the cost of
 * launches on the stream. */
static void run_launches(gpu *g, size_t elements)
{
    rig r;
    double seconds[ROUNDS];
    rig_open(&r, g, &cases[0], elements);
    put_x(&r, 1);
    start_encode(&r);
    finish_encode(&r);
    for (int i = 0; i < ROUNDS; i++) {
        gpu_event_record(g, r.before);
        start_encode(&r);
        gpu_event_record(g, r.after);
        seconds[i] = gpu_event_seconds(r.before, r.after);
        finish_encode(&r);
    }
    qsort(seconds, ROUNDS, sizeof *seconds, by_size);
    printf("launch\t%s\t%zu\t%.9f\n", cases[0].name, elements, seconds[ROUNDS / 2]);
    rig_close(&r);
}

/* Copies pinned host memory to the device and back, as happens to prev in pinned memory. */
static void run_bus(gpu *g, size_t bytes)
{
    void *host = gpu_allocate_pinned(bytes), *device = gpu_allocate(bytes);
    gpu_event *before = gpu_event_create(), *after = gpu_event_create();
    for (int way = 0; way < 2; way++) {
        double best = 1e9;
        for (int i = 0; i < ROUNDS; i++) {
            gpu_event_record(g, before);
            gpu_copy(g, way ? host : device, way ? device : host, bytes);
            gpu_event_record(g, after);
            double seconds = gpu_event_seconds(before, after);
            best = seconds < best ? seconds : best;
        }
        printf("bus\t%s\t%zu\t%.9f\n", way ? "to the host" : "to the device", bytes, best);
    }
    gpu_event_destroy(before);
    gpu_event_destroy(after);
    gpu_free_pinned(host);
    gpu_free(device);
}

int main(int argc, char **argv)
{
    gpu g;
    size_t most = (size_t)64 << 20;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--most")) most = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--repeats")) repeats = atoi(argv[i + 1]);
    }
    gpu_expect(most >= CHANNELS && repeats > 0, "usage: gpu_bench [--most ELEMENTS] [--repeats N]");
    gpu_open(&g);
    printf("device\t%s\t%d\t%d\t%d\t%d\n", g.name, g.driver_version, g.multiprocessors, g.clock_khz,
           g.memory_clock_khz);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t elements = most < 65536 ? most : 65536; elements <= most; elements *= 4)
            run_case(&g, &cases[i], elements);
    /* 2048 x 4096, in a graph. */
    run_case(&g, &cases[0], most < ((size_t)8 << 20) ? most : (size_t)8 << 20);
    run_launches(&g, most < ((size_t)8 << 20) ? most : (size_t)8 << 20);
    run_launches(&g, CHANNELS);
    run_bus(&g, most);
    gpu_close(&g);
    return EXIT_SUCCESS;
}
