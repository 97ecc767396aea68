/* SPDX-License-Identifier: Apache-2.0
 * where_device.c - tensors on a fake device, whose memory the host cannot access. Its work is done
 * when a test waits for its stream. */
#include <stdatomic.h>

#include "../../../cuda/device.h"
#include "../../cuda/fake_cuda.h"
#include "support/backing.h"
#include "whereabouts.h"

static const char *library;
static bool on_device[2];
static dw_cuda_place place = DW_CUDA_DEVICE;
static bool pages;
static test_backing backings[2]; /* one of each end */
static atomic_long own_allocations;

void where_begin(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s LIBRARY both|pinned|paged|sender|receiver\n", argv[0]);
        exit(2);
    }
    library = argv[1];
    on_device[0] = strcmp(argv[2], "receiver") != 0;
    on_device[1] = strcmp(argv[2], "sender") != 0;
    if (strcmp(argv[2], "pinned") == 0) place = DW_CUDA_PINNED;
    pages = strcmp(argv[2], "paged") == 0;
}

void where_configure(dw_channel_config *config, int end)
{
    dw_why why;
    if (!on_device[end]) return;
    dw_host *host = calloc(1, sizeof *host);
    host->struct_size = sizeof *host;
    if (dw_cuda_open_library(&host->cuda, library, "kernels", 0, &why)) fail_msg("%s", why.text);
    /* 0 is the default, which means the device. */
    host->place = place == DW_CUDA_DEVICE && end ? (dw_cuda_place)0 : place;
    if (pages) {
        test_backing_open(&backings[end], 0);
        host->backing = &backings[end].calls;
    }
    config->host = host;
}

/* When the last end is closed, nothing of the driver may be left. */
void where_end(dw_channel_config *config)
{
    const fake_cuda *fake = fake_cuda_get();
    if (config->host && config->host->backing)
        assert_int_equal(((const test_backing *)config->host->backing->context)->n, 0);
    if (config->host) dw_cuda_close(config->host->cuda);
    free((void *)config->host);
    config->host = NULL;
    if (fake->retained > 0) return;
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->depth, 0);
    assert_int_equal(fake->mode, 0);
}

/* Copies a tensor to the device. A tensor without data is returned as it is. */
static dw_tensor copy_of(const dw_tensor *tensor)
{
    fake_cuda *fake = fake_cuda_get();
    dw_tensor copy = *tensor;
    size_t bytes = (size_t)tensor->n * tensor->t * tensor->c * dw_dtype_bytes(tensor->dtype);
    if (!tensor->data) return copy;
    atomic_fetch_add(&own_allocations, 1);
    copy.data = fake->allocate(bytes);
    fake->touch(true);
    memcpy(copy.data, tensor->data, bytes);
    fake->touch(false);
    return copy;
}

static void take_back(const dw_tensor *tensor, const dw_tensor *copy, bool is_y, dw_status status)
{
    fake_cuda *fake = fake_cuda_get();
    size_t bytes = (size_t)tensor->n * tensor->t * tensor->c * dw_dtype_bytes(tensor->dtype);
    if (!copy->data) return;
    if (status != DW_OK) fake->run(); /* a real driver waits, too, before it frees memory */
    fake->touch(true);
    if (is_y && status == DW_OK) memcpy(tensor->data, copy->data, bytes);
    fake->touch(false);
    fake->release(copy->data);
}

dw_status where_send(dw_channel *channel, const dw_key *keys, const dw_tensor *x)
{
    if (!channel->codecs.device.cuda) return dw_channel_send(channel, keys, x, NULL);
    if (!x) return dw_channel_send(channel, keys, NULL, NULL);
    dw_tensor copy = copy_of(x);
    dw_status status = dw_channel_send(channel, keys, &copy, NULL);
    take_back(x, &copy, false, status);
    return status;
}

dw_status where_recv(dw_channel *channel, int timeout_ms, dw_key *keys, const dw_tensor *y)
{
    if (!channel->codecs.device.cuda) return dw_channel_recv(channel, timeout_ms, keys, y, NULL);
    if (!y) return dw_channel_recv(channel, timeout_ms, keys, NULL, NULL);
    dw_tensor copy = copy_of(y);
    dw_status status = dw_channel_recv(channel, timeout_ms, keys, &copy, fake_cuda_get());
    take_back(y, &copy, true, status);
    return status;
}

void where_damage(const dw_channel *channel, float *value)
{
    fake_cuda *fake = fake_cuda_get();
    if (channel->codecs.device.cuda) fake->touch(true);
    *value += 1.0f;
    if (channel->codecs.device.cuda) fake->touch(false);
}

bool where_is_device(void)
{
    return on_device[0] || on_device[1];
}

long where_allocations(void)
{
    return fake_cuda_get()->allocations - atomic_load(&own_allocations);
}
