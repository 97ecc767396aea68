/* SPDX-License-Identifier: Apache-2.0
 * gpu_check.c - compares encoders and decoders on a GPU with those on the CPU, byte by
 * byte.
 *
 * gpu_check [--golden DIR] [--elements N] [--threads N] [--nccl 0]: the golden frames of DIR; N
 * elements for every dtype and width (default 2^20), in tensors of at most 16 Mi. --nccl 0: without
 * NCCL, which tries calls of CUDA that fail, and compute-sanitizer reports these. Prints a line per
 * case; ends at the first difference. Exit 77: no GPU. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_golden.h"
#include "gpu_nccl.h"
#include "support/async.h"
#include "support/profiles.h"

enum { MOST_THREADS = 64, CHANNELS = 4096, MOST_TOKENS = 4096 };
static unsigned threads = 4;

/* ---- The CPU's threads ----------------------------------------------------------------------- */

typedef struct share {
    dw_task *task;
    void *context;
    size_t first, n;
} share;

static void *run_share(void *context)
{
    const share *s = context;
    for (size_t i = s->first; i < s->n; i += threads) s->task(s->context, i);
    return NULL;
}

/* Every call creates its threads, which is cheap compared with the long calls here. */
static void run_all(void *context, size_t n, dw_task *task, void *task_context)
{
    pthread_t made[MOST_THREADS];
    share shares[MOST_THREADS];
    (void)context;
    for (unsigned i = 0; i < threads; i++) {
        shares[i] = (share){task, task_context, i, n};
        gpu_expect(pthread_create(&made[i], NULL, run_share, &shares[i]) == 0,
                   "no thread to be had");
    }
    for (unsigned i = 0; i < threads; i++) pthread_join(made[i], NULL);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* PLAIN: exponents near 0, so that most groups have a finite scale, and one group in 64 equal to
 * the previous one. HOSTILE: one part in 8 has arbitrary bits. OUTLIERS: as in language models, the
 * first row, some channels and some values are up to 2^15 times as large as others, and a visit
 * changes a value by less than itself. */
typedef enum filling_kind { PLAIN, HOSTILE, OUTLIERS, FILLING_KINDS } filling_kind;

typedef struct filling {
    uint8_t *bytes;
    uint64_t seed;
    size_t n; /* of 64-bit words */
    dw_dtype dtype;
    uint32_t channels;
    filling_kind kind;
} filling;

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* An element of OUTLIERS: the sign and the exponent follow from its index, the rest from drawn. */
static uint64_t outlier(const filling *f, size_t element, uint64_t drawn)
{
    uint64_t fixed = mixed(element + 1);
    bool half = f->dtype == DW_F16;
    unsigned width = 8 * (unsigned)dw_dtype_bytes(f->dtype), mantissa = half ? 10 : width - 9;
    int exponent = (half ? 15 : 127) - 1;
    for (unsigned bit = 0; bit < 8 && !(fixed >> bit & 1); bit++) exponent--;
    if (element < f->channels) exponent += 6;
    if (element % f->channels % 61 == 3) exponent += 4;
    if ((fixed >> 40 & 2047) == 0) exponent += 5;
    return (fixed >> 63) << (width - 1) | (uint64_t)exponent << mantissa |
           (drawn & ((UINT64_C(1) << mantissa) - 1));
}

static void fill_words(void *context, size_t part)
{
    const filling *f = context;
    uint64_t masks[] = {0, UINT64_C(0xbfffffffbfffffff), UINT64_C(0xbfffbfffbfffbfff),
                        UINT64_C(0xbfffbfffbfffbfff)};
    size_t first = part << 16,
           end = first + ((size_t)1 << 16) < f->n ? first + ((size_t)1 << 16) : f->n;
    for (size_t i = first; i < end; i++) {
        uint64_t word = mixed(f->seed + i * UINT64_C(0x9E3779B97F4A7C15));
        if (f->kind == OUTLIERS) {
            size_t each = 8 / dw_dtype_bytes(f->dtype);
            uint64_t made = 0;
            for (size_t k = 0; k < each; k++)
                made |= outlier(f, i * each + k, word >> (16 * k % 33)) << (64 / each * k);
            word = made;
        } else if (f->kind == PLAIN || i / 1024 % 8) {
            word &= masks[f->dtype]; /* below 2: no NaN, no infinity */
        }
        memcpy(f->bytes + 8 * i, &word, sizeof word);
    }
}

/* ---- One pair of ends each ------------------------------------------------------------------- */

typedef struct rig {
    gpu *g;
    const char *codec;
    dw_dtype dtype;
    uint32_t t, c;
    size_t elements, bytes, cap;
    dw_encoder *spec, *encoder;
    dw_decoder *spec_decoder, *decoder;
    uint8_t *x, *spec_frame, *head, *found, *y, *found_y;
    void *device_x, *device_y, *frame; /* frame: in device memory or pinned */
    bool pinned_frame;
} rig;

static void fill(const rig *r, uint64_t seed, filling_kind kind)
{
    filling f = {r->x, seed * UINT64_C(0x2545F4914F6CDD1D), r->bytes / 8, r->dtype, r->c, kind};
    run_all(NULL, (f.n + 65535) >> 16, fill_words, &f);
}

static void same(const rig *r, const char *what, const void *expected, const void *found, size_t n)
{
    const uint8_t *a = expected, *b = found;
    if (memcmp(a, b, n) == 0) return;
    for (size_t i = 0; i < n; i++)
        gpu_expect(a[i] == b[i], "%s: byte %zu of %zu of the %s is %02x, the CPU's is %02x",
                   r->codec, i, n, what, b[i], a[i]);
}

static void *host_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    gpu_expect(memory != NULL, "no memory for %zu bytes", bytes);
    return memory;
}

/* lists: of rows in the config's profile; 0: it has none. */
static void rig_open(rig *r, gpu *g, const char *codec, dw_dtype dtype, uint32_t t, uint32_t c,
                     dw_cuda_place place, bool pinned_frame, uint32_t lists)
{
    dw_config config;
    dw_why why = {.text = ""};
    *r = (rig){.g = g,
               .codec = codec,
               .dtype = dtype,
               .t = t,
               .c = c,
               .elements = (size_t)t * c,
               .pinned_frame = pinned_frame};
    gpu_expect(dw_config_parse(&config, codec, &why) == DW_OK, "%s: %s", codec, why.text);
    config.incarnation = 7;
    if (lists) config.profile = test_profile(lists - 1, c);
    dw_host parallel = {.struct_size = sizeof parallel, .parallel_for = run_all};
    dw_tensor shape = dw_tensor_3d(NULL, dtype, 1, t, c);
    r->bytes = r->elements * dw_dtype_bytes(dtype);
    r->cap = dw_frame_bound(&config, &shape);
    r->x = host_memory(r->bytes);
    r->y = host_memory(r->bytes);
    r->found_y = host_memory(r->bytes);
    r->spec_frame = host_memory(r->cap);
    r->found = host_memory(r->cap);
    r->head = host_memory(dw_frame_head_bound(1));
    r->device_x = gpu_allocate(r->bytes);
    r->device_y = gpu_allocate(r->bytes);
    r->frame = pinned_frame ? gpu_allocate_pinned(r->cap) : gpu_allocate(r->cap);
    gpu_expect(dw_encoder_create(&r->spec, &config, &parallel, NULL) == DW_OK &&
                   dw_decoder_create(&r->spec_decoder, &config, &parallel, NULL) == DW_OK,
               "no CPU codec");
    dw_host host = {.struct_size = sizeof host, .cuda = g->cuda, .place = place};
    gpu_expect(dw_encoder_create(&r->encoder, &config, &host, &why) == DW_OK, "%s: %s", codec,
               why.text);
    gpu_expect(dw_decoder_create(&r->decoder, &config, &host, &why) == DW_OK, "%s: %s", codec,
               why.text);
}

static void rig_close(rig *r)
{
    dw_encoder_destroy(r->spec);
    dw_encoder_destroy(r->encoder);
    dw_decoder_destroy(r->spec_decoder);
    dw_decoder_destroy(r->decoder);
    free(r->x);
    free(r->y);
    free(r->found_y);
    free(r->spec_frame);
    free(r->found);
    free(r->head);
    gpu_free(r->device_x);
    gpu_free(r->device_y);
    if (r->pinned_frame)
        gpu_free_pinned(r->frame);
    else
        gpu_free(r->frame);
}

/* Compares the frame with that of the CPU, and then what both decoders make of it. */
static size_t spec_frame(rig *r, dw_key key, uint64_t seed, filling_kind kind)
{
    size_t len;
    fill(r, seed, kind);
    gpu_put(r->device_x, r->x, r->bytes);
    dw_tensor x = dw_tensor_3d(r->x, r->dtype, 1, r->t, r->c);
    gpu_expect(dw_encode(r->spec, &key, &x, NULL, r->spec_frame, r->cap, &len) == DW_OK, "%s: %s",
               r->codec, dw_encoder_why(r->spec));
    return len;
}

static void take_frame(rig *r, dw_encode_ticket *ticket, size_t expected)
{
    size_t head_len, len;
    dw_status status;
    do status = dw_encode_finish(ticket, r->head, dw_frame_head_bound(1), &head_len, &len);
    while (status == DW_PENDING);
    gpu_expect(status == DW_OK && len == expected, "%s: encode: %s, %zu bytes, the CPU's has %zu",
               r->codec, dw_encoder_why(r->encoder), len, expected);
    /* The device leaves the memory of the head as it is. */
    const uint8_t *payloads = (const uint8_t *)r->frame + head_len;
    if (r->pinned_frame)
        memcpy(r->found + head_len, payloads, len - head_len);
    else
        gpu_get(r->found + head_len, payloads, len - head_len);
    memcpy(r->found, r->head, head_len);
    same(r, "frame", r->spec_frame, r->found, len);
}

static void check_decode(rig *r, size_t len)
{
    dw_tensor y = dw_tensor_3d(r->y, r->dtype, 1, r->t, r->c),
              device_y = dw_tensor_3d(r->device_y, r->dtype, 1, r->t, r->c);
    dw_decode_ticket *ticket;
    dw_status status;
    size_t reply_len;
    gpu_expect(dw_decode(r->spec_decoder, r->spec_frame, len, &y, NULL, NULL, 0, &reply_len) ==
                   DW_OK,
               "%s: %s", r->codec, dw_decoder_why(r->spec_decoder));
    status = test_decode_async(r->decoder, r->head,
                               len < dw_frame_head_bound(1) ? len : dw_frame_head_bound(1),
                               r->frame, len, &device_y, r->g->stream, &ticket);
    gpu_expect(status == DW_OK, "%s: decode: %s", r->codec, dw_decoder_why(r->decoder));
    do status = dw_decode_finish(ticket, NULL, 0, &reply_len);
    while (status == DW_PENDING);
    gpu_expect(status == DW_OK, "%s: decode: %s", r->codec, dw_decoder_why(r->decoder));
    gpu_get(r->found_y, r->device_y, r->bytes);
    same(r, "y", r->y, r->found_y, r->bytes);
}

/* Visits one key several times: the first frame is a key frame, the others are deltas. */
static void check_visits(rig *r, int visits, filling_kind kind)
{
    dw_key key = {.sample = 5};
    dw_tensor x = dw_tensor_3d(r->device_x, r->dtype, 1, r->t, r->c);
    for (int visit = 0; visit < visits; visit++) {
        dw_encode_ticket *ticket;
        size_t len = spec_frame(r, key, (uint64_t)visit + r->elements, kind);
        dw_status status =
            test_encode_async(r->encoder, &key, &x, r->frame, r->cap, r->g->stream, &ticket);
        gpu_expect(status == DW_OK, "%s: encode: %s", r->codec, dw_encoder_why(r->encoder));
        take_frame(r, ticket, len);
        check_decode(r, len);
    }
}

static void report(const char *what, const char *codec, dw_dtype dtype, size_t elements)
{
    static const char *const names[] = {"", "f32", "f16", "bf16"};
    printf("same\t%s\t%s\t%s\t%zu\n", what, codec, names[dtype], elements);
    fflush(stdout);
}

/* A graph of one encode, launched again for other keys: their second visits, so that all frames are
 * of one kind. */
static void check_graph(gpu *g, uint64_t elements)
{
    enum { KEYS = 4 };
    rig r;
    dw_encode_ticket *ticket;
    rig_open(&r, g, "delta:bits=4,rounding=stochastic,seed=3,replies=never", DW_BF16,
             elements < 1 << 20 ? 2 : 512, CHANNELS, DW_CUDA_DEVICE, false, 0);
    dw_tensor x = dw_tensor_3d(r.device_x, r.dtype, 1, r.t, r.c);
    for (uint64_t i = 0; i < KEYS; i++) {
        dw_key key = {.sample = i};
        size_t len = spec_frame(&r, key, i, PLAIN);
        gpu_expect(test_encode_async(r.encoder, &key, &x, r.frame, r.cap, g->stream, &ticket) ==
                       DW_OK,
                   "%s", dw_encoder_why(r.encoder));
        take_frame(&r, ticket, len);
    }
    dw_key first = {.sample = 0};
    size_t len = spec_frame(&r, first, 100, PLAIN);
    gpu_capture_begin(g);
    gpu_expect(test_encode_async(r.encoder, &first, &x, r.frame, r.cap, g->stream, &ticket) ==
                   DW_OK,
               "%s", dw_encoder_why(r.encoder));
    gpu_graph *graph = gpu_capture_end(g);
    gpu_graph_launch(g, graph);
    take_frame(&r, ticket, len);
    for (uint64_t i = 1; i < 3 * KEYS; i++) {
        dw_key key = {.sample = i % KEYS};
        len = spec_frame(&r, key, 100 + i, PLAIN);
        gpu_expect(dw_encode_again(ticket, &key) == DW_OK, "again: %s", dw_encoder_why(r.encoder));
        gpu_graph_launch(g, graph);
        take_frame(&r, ticket, len);
    }
    gpu_expect(dw_encode_cancel(ticket) == DW_OK, "%s", dw_encoder_why(r.encoder));
    gpu_graph_destroy(graph);
    report("a graph launched 12 times", r.codec, r.dtype, r.elements);
    rig_close(&r);
}

/* Sends a frame over NCCL, on the same stream, from device memory to device memory. Prints a
 * message where NCCL is missing or refuses. */
static void check_nccl(gpu *g)
{
    const char *why;
    rig r;
    if (!gpu_nccl_open(&why)) {
        printf("skipped\tNCCL\t%s\n", why);
        return;
    }
    rig_open(&r, g, "direct:bits=4", DW_BF16, 64, CHANNELS, DW_CUDA_DEVICE, false, 0);
    dw_tensor x = dw_tensor_3d(r.device_x, r.dtype, 1, r.t, r.c);
    dw_encode_ticket *ticket;
    dw_key key = {.sample = 1};
    size_t len = spec_frame(&r, key, 1, PLAIN);
    gpu_expect(test_encode_async(r.encoder, &key, &x, r.frame, r.cap, g->stream, &ticket) == DW_OK,
               "%s", dw_encoder_why(r.encoder));
    void *sent = r.frame, *received = gpu_allocate(r.cap);
    gpu_nccl_to_self(g, received, sent, len);
    gpu_wait(g);
    take_frame(&r, ticket, len);
    r.frame = received;
    check_decode(&r, len);
    r.frame = sent;
    gpu_free(received);
    gpu_nccl_close();
    report("a frame over NCCL", r.codec, r.dtype, r.elements);
    rig_close(&r);
}

/* Every width and dtype, over many elements. */
static void check_widths(gpu *g, uint64_t elements)
{
    for (dw_dtype dtype = DW_F32; dtype <= DW_BF16; dtype++) {
        for (int bits = 1; bits <= 8; bits++) {
            char codec[96];
            rig r;
            uint64_t tokens = elements / 2 / CHANNELS,
                     most = tokens < MOST_TOKENS ? tokens : MOST_TOKENS;
            uint32_t t = (uint32_t)(most ? most : 1);
            int visits = (int)(elements / ((uint64_t)t * CHANNELS));
            snprintf(codec, sizeof codec, "delta:bits=%d,group=%d,replies=never", bits,
                     16 << (bits + dtype) % 5);
            rig_open(&r, g, codec, dtype, t, CHANNELS, DW_CUDA_DEVICE, false, 0);
            check_visits(&r, visits > 2 ? visits : 2, bits % 2 ? HOSTILE : PLAIN);
            report("frames and y", codec, dtype, (size_t)(visits > 2 ? visits : 2) * r.elements);
            rig_close(&r);
        }
    }
}

static const struct mode {
    const char *codec;
    dw_cuda_place place;
    bool pinned_frame;
    uint32_t lists; /* of its profile: weights and means */
} modes[] = {
    {"delta:bits=4,choose=never,audit=3,replies=never", DW_CUDA_DEVICE, false, 0},
    {"delta:bits=3,rounding=stochastic,seed=9,replies=never", DW_CUDA_DEVICE, false, 0},
    {"delta:bits=2,scale=mse,replies=never", DW_CUDA_DEVICE, true, 0},
    {"delta:bits=4,scale=absmax,prev=bf16,replies=never", DW_CUDA_PINNED, false, 0},
    {"delta:bits=5,group=row,replies=never", DW_CUDA_PINNED, true, 0},
    {"delta:bits=2,group=channel,scale=mse,replies=never", DW_CUDA_DEVICE, false, 0},
    {"direct:bits=4", DW_CUDA_DEVICE, false, 0},
    {"mx:element=e4m3", DW_CUDA_DEVICE, false, 0},
    {"mx:element=e3m2", DW_CUDA_DEVICE, true, 0},
    {"delta:form=mx,element=e2m1,replies=never", DW_CUDA_DEVICE, false, 0},
    {"delta:form=mx,element=int8,key=e5m2,prev=bf16,audit=3,replies=never", DW_CUDA_PINNED, true,
     0},
    {"delta:form=step,group=sample,replies=never", DW_CUDA_DEVICE, false, 0},
    {"delta:form=step,group=row,rounding=dither,step=1.2,prev=bf16,replies=never", DW_CUDA_DEVICE,
     true, 0},
    {"direct:form=step,group=sample,step=4,rounding=dither", DW_CUDA_DEVICE, false, 0},
    {"direct:form=step,group=128,rounding=stochastic,step=0.5", DW_CUDA_DEVICE, false, 0},
    {"direct:bits=6,group=row,rounding=stochastic", DW_CUDA_DEVICE, true, 0},
    {"delta:form=step,group=sample,entropy=rans,replies=never", DW_CUDA_DEVICE, false, 0},
    {"delta:bits=3,group=row,key=f16,prev=bf16,entropy=rans,replies=never", DW_CUDA_PINNED, true,
     0},
    {"direct:form=step,group=sample,step=4,rounding=dither,entropy=rans", DW_CUDA_DEVICE, false, 0},
    {"delta:form=step,group=64,rounding=dither,step=3,entropy=rans,replies=never", DW_CUDA_DEVICE,
     true, 0},
    {"mx:element=e4m3,entropy=rans", DW_CUDA_DEVICE, false, 0},
    {"direct:bits=4,transform=hadamard", DW_CUDA_DEVICE, false, 0},
    {"delta:bits=3,scale=mse,group=row,transform=hadamard,rotate=256,replies=never", DW_CUDA_DEVICE,
     true, 0},
    {"delta:bits=2,group=16,prev=bf16,transform=hadamard,rotate=256,replies=never", DW_CUDA_PINNED,
     false, 0},
    {"mx:element=e2m1,transform=hadamard,rotate=16", DW_CUDA_DEVICE, false, 0},
    {"delta:form=step,group=sample,rounding=dither,transform=hadamard,entropy=rans,replies="
     "never",
     DW_CUDA_DEVICE, false, 0},
    {"direct:bits=4,feedback=ef", DW_CUDA_DEVICE, false, 0},
    {"direct:bits=2,group=row,scale=mse,feedback=ef", DW_CUDA_PINNED, true, 0},
    {"direct:form=step,group=sample,rounding=dither,step=3,feedback=ef", DW_CUDA_DEVICE, true, 0},
    {"direct:bits=3,feedback=ef,entropy=rans", DW_CUDA_DEVICE, false, 0},
    {"mx:element=e2m1,feedback=ef", DW_CUDA_DEVICE, false, 0},
    {"raw:f32", DW_CUDA_DEVICE, false, 0},
    {"raw:bf16,feedback=ef", DW_CUDA_PINNED, false, 0},
    {"delta:form=step,error=0.06,entropy=rans,replies=never", DW_CUDA_DEVICE, false, 3},
    {"delta:form=step,error=0.1,key_error=0.06,prev=bf16,entropy=rans,replies=never",
     DW_CUDA_PINNED, true, 0},
    {"delta:form=step,step=0.7,key_step=0.1,replies=never", DW_CUDA_DEVICE, false, 2},
    {"delta:form=step,rounding=dither,step=1.46,entropy=rans,replies=never", DW_CUDA_DEVICE, false,
     1},
    {"direct:form=step,step=0.25,entropy=rans", DW_CUDA_DEVICE, true, 0},
    {"direct:form=step,step=0.25,entropy=rans", DW_CUDA_DEVICE, false, 3},
    {"direct:form=step,step=1,rounding=dither,entropy=rans", DW_CUDA_DEVICE, false, 0},
    {"direct:form=step,step=0.5,rounding=stochastic,entropy=rans", DW_CUDA_DEVICE, false, 2},
    {"direct:form=step,group=128,step=2,rounding=dither,feedback=ef,entropy=rans", DW_CUDA_DEVICE,
     false, 0},
    {"delta:bits=4,prev=8,audit=3,replies=never", DW_CUDA_DEVICE, false, 0},
    {"delta:bits=3,key=f32,prev=4,replies=never", DW_CUDA_PINNED, true, 0},
    {"delta:form=mx,prev=8,replies=never", DW_CUDA_PINNED, false, 0},
    {"delta:form=step,error=0.06,prev=8,entropy=rans,replies=never", DW_CUDA_DEVICE, false, 3},
    {"delta:form=step,error=0.06,prev=4,entropy=rans,replies=never", DW_CUDA_DEVICE, true, 0}};

/* Other options of encoders, the places where memory may be, and shapes that do not fill a tile. */
static void check_modes(gpu *g)
{
    static const uint32_t shapes[][2] = {{1, 1},    {3, 100},   {17, 1000}, {65, 2048},
                                         {9, 4100}, {128, 768}, {7, 4352}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        size_t elements = 0;
        bool rotates = strstr(modes[i].codec, "transform") != NULL;
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            if (rotates && shapes[k][1] % 256) continue; /* blocks do not divide these tokens */
            rig r;
            rig_open(&r, g, modes[i].codec, DW_F32 + (dw_dtype)((i + k) % 3), shapes[k][0],
                     shapes[k][1], modes[i].place, modes[i].pinned_frame, modes[i].lists);
            check_visits(&r, 3, (filling_kind)((k + i) % FILLING_KINDS));
            elements += 3 * r.elements;
            rig_close(&r);
        }
        report(modes[i].place == DW_CUDA_PINNED ? "prev in pinned memory"
               : modes[i].pinned_frame          ? "frames in pinned memory"
                                                : "seven shapes",
               modes[i].codec, (dw_dtype)0, elements);
    }
}

int main(int argc, char **argv)
{
    gpu g;
    uint64_t elements = 1 << 20;
    const char *golden = NULL;
    bool over_nccl = true;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--elements")) elements = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--golden")) golden = argv[i + 1];
        if (!strcmp(argv[i], "--threads")) threads = (unsigned)strtoul(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--nccl")) over_nccl = strcmp(argv[i + 1], "0") != 0;
    }
    gpu_expect(threads >= 1 && threads <= MOST_THREADS && elements > 0,
               "usage: gpu_check [--golden DIR] [--elements N] [--threads 1..%d] [--nccl 0]",
               MOST_THREADS);
    gpu_open(&g);
    printf("device\t%s\n", g.name);
    if (golden) gpu_golden(&g, golden);
    check_modes(&g);
    check_graph(&g, elements);
    if (over_nccl) check_nccl(&g);
    check_widths(&g, elements);
    gpu_close(&g);
    return EXIT_SUCCESS;
}
