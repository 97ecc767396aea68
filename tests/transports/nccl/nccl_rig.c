/* SPDX-License-Identifier: Apache-2.0
 * nccl_rig.c - creates and checks links over the fake NCCL. */
#include "nccl_rig.h"

#include "common/backends.h"

dw_nccl *rig_common;
dw_transport_context rig_contexts[2];
const dw_transport *rig_transports[2];
static const char *fake_path;

const char *rig_fake(void)
{
    return fake_path;
}

int rig_begin(int argc, char **argv)
{
    if (argc != 2) return 0;
    fake_path = argv[1];
    rig_transports[0] = dw_nccl_transport();
    return 1;
}

dw_status rig_try_create(dw_nccl **nccl, void *communicator, dw_why *why)
{
    const dw_nccl_options options = {.struct_size = sizeof options,
                                     .library = fake_path,
                                     .driver = fake_path,
                                     .communicator = communicator};
    return dw_nccl_create(nccl, &options, why);
}

dw_nccl *rig_create(void *communicator)
{
    dw_nccl *nccl;
    dw_why why;
    if (rig_try_create(&nccl, communicator, &why) != DW_OK) fail_msg("%s", why.text);
    return nccl;
}

void rig_reset(void)
{
    fake_nccl *fake = fake_nccl_get();
    fake->version = 22809;
    fake->fail_at = -1;
    fake->late = fake->stands_still = fake->never_joins = fake->has_no_gpu = 0;
    fake->violations = fake->aborts = fake->sends = fake->receives = fake->calls = 0;
    fake->failed = NULL;
    fake->bytes_sent = 0;
}

/* Is called when everything was closed. */
void rig_nothing_is_left(void)
{
    const fake_nccl *fake = fake_nccl_get();
    if (fake->violations)
        fail_msg("%ld violations, the last: %s", fake->violations, fake->violation);
    assert_int_equal(fake->comms, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->events, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->pinned, 0);
}

void rig_prepare(suite_pair *pair, const char *uri)
{
    static suite_backend backend;
    rig_reset();
    rig_contexts[0] = (dw_transport_context){"nccl", rig_common};
    backend = (suite_backend){.name = "nccl",
                              .uri = uri,
                              .transports = rig_transports,
                              .one_process = 1,
                              .contexts = rig_contexts};
    suite_prepare(pair, &backend);
}

/* ---- Ends without links ---------------------------------------------------------------------- */

/* The backend loop, but it claims that it is secured by TLS. */
static dw_transport secure_loop;

static void secure_describe(const void *end, dw_transport_traits *traits)
{
    dw_transport_loop.describe(end, traits);
    traits->is_secure = 1;
}

static const dw_transport *find_loop(void *context, const char *uri, dw_transport_open *how)
{
    how->context = NULL;
    how->address = uri + strlen("loop://");
    return &secure_loop;
}

static void ignore(void *context, const char *uri) {}

static void *open_raw(void *context)
{
    static const volatile int never = 0;
    rig_raw_end *raw = context;
    const dw_transport_open how = {.struct_size = sizeof how,
                                   .address = "loop://raw",
                                   .role = raw->role,
                                   .timeout_ms = SUITE_PATIENCE_MS,
                                   .cancelled = &never,
                                   .on_listening = ignore,
                                   .find = find_loop,
                                   .context = rig_common,
                                   .why = &raw->why};
    raw->status = dw_nccl_transport()->open(&raw->end, &how);
    return NULL;
}

void rig_open_raw(rig_raw_end raw[2])
{
    pthread_t other;
    secure_loop = dw_transport_loop;
    secure_loop.describe = secure_describe;
    for (int i = 0; i < 2; i++)
        raw[i] = (rig_raw_end){.role = i ? DW_LINK_CONNECT : DW_LINK_LISTEN};
    pthread_create(&other, NULL, open_raw, &raw[0]);
    open_raw(&raw[1]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        if (raw[i].status != DW_OK) fail_msg("%s", raw[i].why.text);
    }
}

void rig_close_raw(rig_raw_end raw[2])
{
    for (int i = 0; i < 2; i++) assert_int_equal(dw_nccl_transport()->close(&raw[i].end), DW_OK);
}
