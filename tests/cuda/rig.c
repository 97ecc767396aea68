/* SPDX-License-Identifier: Apache-2.0
 * rig.c - an encoder and a decoder of each engine, side by side. */
#include "rig.h"

#include "../../cuda/device.h"
#include "support/profiles.h"

const char *rig_library;

dw_cuda *rig_open_cuda(void)
{
    dw_cuda *cuda;
    dw_why why;
    fake_cuda_get()->fail_at = -1;
    if (dw_cuda_open_library(&cuda, rig_library, "kernels", 0, &why)) fail_msg("%s", why.text);
    return cuda;
}

void rig_nothing_left(void)
{
    const fake_cuda *fake = fake_cuda_get();
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->depth, 0);
    assert_int_equal(fake->mode, 0);
}

void rig_close_cuda(dw_cuda *cuda)
{
    dw_cuda_close(cuda);
    rig_nothing_left();
}

void rig_to_device(void *device, const void *host, size_t bytes)
{
    fake_cuda_get()->touch(true);
    memcpy(device, host, bytes);
    fake_cuda_get()->touch(false);
}

void rig_from_device(void *host, const void *device, size_t bytes)
{
    fake_cuda_get()->touch(true);
    memcpy(host, device, bytes);
    fake_cuda_get()->touch(false);
}

void rig_open(rig *r, dw_cuda *cuda, const char *config, uint32_t n, uint32_t t, uint32_t c,
              dw_cuda_place place)
{
    static float nothing;
    dw_why why = {.text = ""};
    *r = (rig){.cuda = cuda, .n = n, .t = t, .c = c, .allocator = {.fail_at = -1}};
    if (dw_config_parse(&r->config, config, &why)) fail_msg("%s: %s", config, why.text);
    if (r->config.profile_digest) { /* in texts: 1, and how many lists of means it has */
        r->config.profile = test_profile(r->config.profile_digest - 1, c);
        r->config.profile_digest = 0;
    }
    r->config.incarnation = 77; /* the same for the device and for the CPU */
    assert_int_equal(dw_encoder_create(&r->cpu_encoder, &r->config, NULL, NULL), DW_OK);
    assert_int_equal(dw_decoder_create(&r->cpu_decoder, &r->config, NULL, NULL), DW_OK);
    dw_host host = *RIG_HOST(cuda, place);
    host.allocator = test_allocator_hooks(&r->allocator);
    if (dw_encoder_create(&r->encoder, &r->config, &host, &why))
        fail_msg("%s: %s", config, why.text);
    if (dw_decoder_create(&r->decoder, &r->config, &host, &why))
        fail_msg("%s: %s", config, why.text);
    dw_tensor x = dw_tensor_3d(&nothing, DW_F32, n, t, c);
    r->cap = dw_frame_bound(&r->config, &x);
    r->reply_cap = dw_reply_bound(n);
    r->head_cap = dw_frame_head_bound(n);
    r->tensor_bytes = (size_t)n * t * c * 4;
    r->room = r->cap + r->tensor_bytes; /* enough even for a frame of prev itself */
    r->device_frame = fake_cuda_get()->allocate(r->room);
    r->device_x = fake_cuda_get()->allocate(r->tensor_bytes);
    r->device_y = fake_cuda_get()->allocate(r->tensor_bytes);
    r->frame = malloc(r->room);
    r->cpu_frame = malloc(r->room);
    r->head = malloc(r->head_cap);
    r->reply = malloc(r->reply_cap);
    r->cpu_reply = malloc(r->reply_cap);
    r->x = calloc(1, r->tensor_bytes);
    r->y = malloc(r->tensor_bytes);
    r->cpu_y = malloc(r->tensor_bytes);
}

void rig_close(rig *r)
{
    dw_encoder_destroy(r->encoder);
    dw_encoder_destroy(r->cpu_encoder);
    dw_decoder_destroy(r->decoder);
    dw_decoder_destroy(r->cpu_decoder);
    assert_int_equal(r->allocator.out_blocks, 0);
    fake_cuda_get()->release(r->device_frame);
    fake_cuda_get()->release(r->device_x);
    fake_cuda_get()->release(r->device_y);
    free(r->frame);
    free(r->cpu_frame);
    free(r->head);
    free(r->reply);
    free(r->cpu_reply);
    free(r->x);
    free(r->y);
    free(r->cpu_y);
}

void rig_end(rig *r)
{
    dw_cuda *cuda = r->cuda;
    rig_close(r);
    rig_close_cuda(cuda);
}

dw_status rig_encode_start(rig *r, const dw_key *keys, dw_dtype dtype, dw_encode_ticket **ticket)
{
    dw_tensor x = dw_tensor_3d(r->device_x, dtype, r->n, r->t, r->c);
    rig_to_device(r->device_x, r->x, r->tensor_bytes);
    return test_encode_async(r->encoder, keys, &x, r->device_frame, r->cap, NULL, ticket);
}

void rig_encode_end(rig *r, dw_encode_ticket *ticket)
{
    size_t cpu_len = r->len;
    memset(r->frame, 0xee, r->room);
    dw_status status = dw_encode_finish(ticket, r->head, r->head_cap, &r->head_len, &r->len);
    if (status) fail_msg("finish: %d %s", status, dw_encoder_why(r->encoder));
    rig_from_device(r->frame, r->device_frame, r->len);
    memcpy(r->frame, r->head, r->head_len);
    assert_int_equal(r->len, cpu_len);
    assert_memory_equal(r->frame, r->cpu_frame, r->len);
}

void rig_encode(rig *r, const dw_key *keys, dw_dtype dtype)
{
    dw_encode_ticket *ticket;
    dw_tensor x = dw_tensor_3d(r->x, dtype, r->n, r->t, r->c);
    assert_int_equal(dw_encode(r->cpu_encoder, keys, &x, NULL, r->cpu_frame, r->cap, &r->len),
                     DW_OK);
    dw_status status = rig_encode_start(r, keys, dtype, &ticket);
    if (status) fail_msg("encode: %d %s", status, dw_encoder_why(r->encoder));
    size_t unused;
    assert_int_equal(dw_encode_finish(ticket, r->head, r->head_cap, &unused, &unused), DW_PENDING);
    fake_cuda_get()->run();
    rig_encode_end(r, ticket);
}

void rig_resync(rig *r, const dw_key *keys)
{
    dw_encode_ticket *ticket;
    size_t unused;
    assert_int_equal(dw_encoder_resync(r->cpu_encoder, keys, r->n, r->cpu_frame, r->room, &r->len),
                     DW_OK);
    dw_status status =
        dw_encoder_resync_async(r->encoder, keys, r->n, r->device_frame, r->room, NULL, &ticket);
    if (status) fail_msg("resync: %d %s", status, dw_encoder_why(r->encoder));
    assert_int_equal(dw_encode_finish(ticket, r->head, r->head_cap, &unused, &unused), DW_PENDING);
    fake_cuda_get()->run();
    rig_encode_end(r, ticket);
}

dw_status rig_decode_start(rig *r, dw_dtype dtype, dw_decode_ticket **ticket)
{
    dw_tensor y = dw_tensor_3d(r->device_y, dtype, r->n, r->t, r->c);
    uint64_t head = r->len < r->head_cap ? r->len : r->head_cap;
    memcpy(r->head, r->frame, head);
    rig_to_device(r->device_frame, r->frame, r->len);
    return test_decode_async(r->decoder, r->head, head, r->device_frame, r->len, &y, NULL, ticket);
}

void rig_decode(rig *r, dw_dtype dtype)
{
    dw_decode_ticket *ticket;
    size_t bytes = (size_t)r->n * r->t * r->c * dw_dtype_bytes(dtype);
    dw_tensor y = dw_tensor_3d(r->cpu_y, dtype, r->n, r->t, r->c);
    r->status = dw_decode(r->cpu_decoder, r->frame, r->len, &y, NULL, r->cpu_reply, r->reply_cap,
                          &r->cpu_reply_len);
    dw_status status = rig_decode_start(r, dtype, &ticket);
    if (status) fail_msg("decode: %d %s", status, dw_decoder_why(r->decoder));
    memset(r->head, 0x5a, r->head_cap); /* the head is not read again after the start */
    fake_cuda_get()->run();
    status = dw_decode_finish(ticket, r->reply, r->reply_cap, &r->reply_len);
    /* The host checks base and sequence before the device finds damaged payloads. */
    bool host_first =
        r->status == DW_ERR_CORRUPT && (status == DW_ERR_BASE || status == DW_ERR_STALE);
    if (status != r->status && !host_first)
        fail_msg("finish: %d, not %d: %s", status, r->status, dw_decoder_why(r->decoder));
    assert_int_equal(r->reply_len, r->cpu_reply_len);
    assert_memory_equal(r->reply, r->cpu_reply, r->reply_len);
    if (status) return;
    rig_from_device(r->y, r->device_y, bytes);
    assert_memory_equal(r->y, r->cpu_y, bytes);
}

void rig_feedback(rig *r)
{
    if (!r->reply_len) return;
    assert_int_equal(dw_encoder_take_reply(r->encoder, r->reply, r->reply_len), DW_OK);
    assert_int_equal(dw_encoder_take_reply(r->cpu_encoder, r->cpu_reply, r->cpu_reply_len), DW_OK);
}

static void same_copy(dw_status a_status, const dw_tensor *a, dw_status b_status,
                      const dw_tensor *b)
{
    assert_int_equal(a_status, b_status);
    if (a_status) return;
    size_t bytes = (size_t)a->t * a->c * dw_dtype_bytes(a->dtype);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal((size_t)b->t * b->c * dw_dtype_bytes(b->dtype), bytes);
    void *copy = malloc(bytes);
    rig_from_device(copy, a->data, bytes);
    assert_memory_equal(copy, b->data, bytes);
    free(copy);
}

void rig_in_step(rig *r, dw_key key)
{
    dw_tensor a, b;
    dw_status a_status = dw_encoder_peek(r->encoder, key, &a),
              b_status = dw_encoder_peek(r->cpu_encoder, key, &b);
    same_copy(a_status, &a, b_status, &b);
    a_status = dw_decoder_peek(r->decoder, key, &a);
    b_status = dw_decoder_peek(r->cpu_decoder, key, &b);
    same_copy(a_status, &a, b_status, &b);
}

void rig_forget(rig *r, dw_key key)
{
    assert_int_equal(dw_encoder_forget(r->encoder, key), DW_OK);
    assert_int_equal(dw_encoder_forget(r->cpu_encoder, key), DW_OK);
}

void rig_begin_life(rig *r, dw_cuda_place place)
{
    dw_config config = r->config;
    config.incarnation = 78;
    dw_encoder_destroy(r->encoder);
    dw_encoder_destroy(r->cpu_encoder);
    assert_int_equal(dw_encoder_create(&r->encoder, &config, RIG_HOST(r->cuda, place), NULL),
                     DW_OK);
    assert_int_equal(dw_encoder_create(&r->cpu_encoder, &config, NULL, NULL), DW_OK);
}

void rig_give_back(rig *r, const dw_key *keys)
{
    assert_int_equal(dw_encoder_give_back(r->encoder, r->frame, r->len, NULL), DW_OK);
    assert_int_equal(dw_encoder_give_back(r->cpu_encoder, r->frame, r->len, NULL), DW_OK);
    for (uint32_t i = 0; i < r->n; i++) rig_in_step(r, keys[i]);
    assert_int_equal(dw_encoder_give_back(r->encoder, r->frame, r->len, NULL), DW_ERR_ARGUMENT);
}

void rig_undo(rig *r, const dw_key *keys, dw_dtype x)
{
    dw_tensor on_device = dw_tensor_3d(r->device_x, x, r->n, r->t, r->c),
              on_host = dw_tensor_3d(r->x, x, r->n, r->t, r->c);
    assert_int_equal(dw_encoder_give_back(r->encoder, r->frame, r->len, &on_device), DW_OK);
    assert_int_equal(dw_encoder_give_back(r->cpu_encoder, r->frame, r->len, &on_host), DW_OK);
    for (uint32_t i = 0; i < r->n; i++) rig_in_step(r, keys[i]);
    assert_int_equal(dw_encoder_give_back(r->encoder, r->frame, r->len, &on_device),
                     DW_ERR_ARGUMENT);
}

static void same_counters(dw_counters device, dw_counters cpu)
{
    device.state_bytes = cpu.state_bytes; /* these two depend on the allocator */
    device.slack_bytes = cpu.slack_bytes;
    /* These are measured on the CPU alone. */
    cpu.x_square = cpu.delta_square = cpu.error_square = 0;
    cpu.row_error_sum = cpu.bulk_error_sum = cpu.row_error_largest = 0;
    cpu.measured_rows = 0;
    assert_memory_equal(&device, &cpu, sizeof cpu);
}

void rig_same_counters(rig *r)
{
    same_counters(test_encoder_counters(r->encoder), test_encoder_counters(r->cpu_encoder));
    dw_counters cpu = test_decoder_counters(r->cpu_decoder);
    cpu.overflowed_values = 0; /* at decoders, on the CPU alone */
    same_counters(test_decoder_counters(r->decoder), cpu);
}

void rig_nothing_changed(dw_counters before, dw_counters after)
{
    before.slack_bytes = after.slack_bytes; /* memory that was obtained is kept */
    assert_memory_equal(&before, &after, sizeof before);
}

void rig_capture(int graph)
{
    fake_cuda_get()->drop_graph(graph);
    fake_cuda_get()->graph = graph;
    fake_cuda_get()->capturing = true;
}

void rig_replay(int graph)
{
    fake_cuda_get()->capturing = false;
    fake_cuda_get()->launch_graph(graph);
    fake_cuda_get()->run();
}
