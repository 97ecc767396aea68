/* SPDX-License-Identifier: Apache-2.0
 * flight.c - one of several frames that are in progress at the same time. */
#include "flight.h"

void flight_open(flight *f, const rig *r)
{
    f->device_frame = fake_cuda_get()->allocate(r->cap);
    f->device_x = fake_cuda_get()->allocate(r->tensor_bytes);
    f->cpu_frame = malloc(r->cap);
    assert_true(f->cpu_frame && r->head_cap <= sizeof f->head);
}

void flight_close(flight *f)
{
    fake_cuda_get()->release(f->device_frame);
    fake_cuda_get()->release(f->device_x);
    free(f->cpu_frame);
}

void flights_open(uint32_t many, rig *rigs, flight *flights, dw_cuda *cuda,
                  const char *const *configs, const uint32_t shape[3], dw_cuda_place place)
{
    for (uint32_t i = 0; i < many; i++) {
        rig_open(&rigs[i], cuda, configs[i], shape[0], shape[1], shape[2], place);
        flight_open(&flights[i], &rigs[i]);
        for (uint32_t k = 0; k < 2; k++) flights[i].keys[k] = (dw_key){k, i};
    }
}

void flights_close(uint32_t many, rig *rigs, flight *flights)
{
    for (uint32_t i = 0; i < many; i++) {
        rig_close(&rigs[i]);
        flight_close(&flights[i]);
    }
}

dw_tensor flight_input(rig *r, flight *f, test_random *random)
{
    test_fill(random, r->x, DW_F32, r->tensor_bytes / 4, 1.0f);
    rig_to_device(f->device_x, r->x, r->tensor_bytes);
    return dw_tensor_3d(f->device_x, DW_F32, r->n, r->t, r->c);
}

void flight_twin(rig *r, flight *f)
{
    dw_tensor x = dw_tensor_3d(r->x, DW_F32, r->n, r->t, r->c);
    assert_int_equal(
        dw_encode(r->cpu_encoder, f->keys, &x, NULL, f->cpu_frame, r->cap, &f->cpu_len), DW_OK);
}

void flight_start(rig *r, flight *f, test_random *random)
{
    dw_tensor x = flight_input(r, f, random);
    flight_twin(r, f);
    dw_status status =
        test_encode_async(r->encoder, f->keys, &x, f->device_frame, r->cap, NULL, &f->out);
    if (status) fail_msg("%d %s", status, dw_encoder_why(r->encoder));
}

void flight_end(flight *f)
{
    size_t head_len, len;
    assert_int_equal(dw_encode_finish(f->out, f->head, sizeof f->head, &head_len, &len), DW_OK);
    uint8_t *frame = malloc(len);
    assert_non_null(frame);
    rig_from_device(frame, f->device_frame, len);
    memcpy(frame, f->head, head_len);
    assert_int_equal(len, f->cpu_len);
    assert_memory_equal(frame, f->cpu_frame, len);
    rig_to_device(f->device_frame, frame, len);
    free(frame);
}

void flight_send(rig *r, flight *f, test_random *random)
{
    flight_start(r, f, random);
    fake_cuda_get()->run();
    flight_end(f);
}

dw_encode_item flight_encode_item(rig *r, flight *f, dw_tensor *x, test_random *random)
{
    *x = flight_input(r, f, random);
    flight_twin(r, f);
    return (dw_encode_item){r->encoder, f->keys, x, f->device_frame, r->cap, NULL};
}

dw_decode_item flight_decode_item(rig *r, flight *f, dw_tensor *y)
{
    *y = dw_tensor_3d(f->device_x, DW_F32, r->n, r->t, r->c);
    return (dw_decode_item){r->decoder, f->cpu_frame, f->device_frame, f->cpu_len, f->cpu_len,
                            y,          NULL};
}

void flight_arrive(rig *r, flight *f)
{
    dw_tensor y = dw_tensor_3d(f->device_x, DW_F32, r->n, r->t, r->c);
    assert_int_equal(test_decode_async(r->decoder, f->cpu_frame, f->cpu_len, f->device_frame,
                                       f->cpu_len, &y, NULL, &f->in),
                     DW_OK);
}

void flight_land(rig *r, flight *f)
{
    dw_tensor y = dw_tensor_3d(r->cpu_y, DW_F32, r->n, r->t, r->c);
    assert_int_equal(dw_decode_finish(f->in, r->reply, r->reply_cap, &r->reply_len), DW_OK);
    assert_int_equal(dw_decode(r->cpu_decoder, f->cpu_frame, f->cpu_len, &y, NULL, r->cpu_reply,
                               r->reply_cap, &r->cpu_reply_len),
                     DW_OK);
    assert_int_equal(r->reply_len, r->cpu_reply_len);
    assert_memory_equal(r->reply, r->cpu_reply, r->reply_len);
    rig_from_device(r->y, f->device_x, r->tensor_bytes);
    assert_memory_equal(r->y, r->cpu_y, r->tensor_bytes);
}

void flight_receive(rig *r, flight *f)
{
    flight_arrive(r, f);
    fake_cuda_get()->run();
    flight_land(r, f);
}
