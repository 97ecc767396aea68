/* SPDX-License-Identifier: Apache-2.0
 * test_nccl_trouble.c - errors of links over NCCL, with a fake that fails, stops making progress,
 * or is another version at the other end. */
#include "nccl_rig.h"

#include "link/link.h"

/* ---- Failures -------------------------------------------------------------------------------- */

TEST(a_transfer_without_progress_is_aborted)
{
    suite_pair pair;
    rig_prepare(&pair, "nccl:tcp://127.0.0.1:0");
    pair.options[0].peer_timeout_ms = pair.options[1].peer_timeout_ms = 1000;
    suite_open(&pair);
    fake_nccl_stand_still();
    suite_send(pair.link[0], RIG_TAG, 0, 300000);
    dw_status status = suite_receive(pair.link[1], RIG_TAG, SUITE_PATIENCE_MS);
    /* It depends on which end notices first. */
    assert_true(status == DW_ERR_TIMEOUT || status == DW_ERR_PEER);
    assert_true(fake_nccl_now().sends == 1 && fake_nccl_now().receives == 1);
    suite_close(&pair);
    assert_int_equal(fake_nccl_get()->aborts, 4);
    rig_nothing_is_left();
}

TEST(communicators_that_never_connect_are_a_timeout)
{
    suite_pair pair;
    rig_prepare(&pair, "nccl:tcp://127.0.0.1:0");
    pair.options[0].open_timeout_ms = pair.options[1].open_timeout_ms = 1000;
    fake_nccl_get()->never_joins = 1;
    suite_try_open(&pair);
    int timeouts = 0;
    for (int i = 0; i < 2; i++) {
        assert_true(pair.status[i] == DW_ERR_TIMEOUT || pair.status[i] == DW_ERR_PEER);
        timeouts += pair.status[i] == DW_ERR_TIMEOUT &&
                    strstr(pair.why[i].text, "within 1000 ms NCCL") != NULL;
    }
    assert_true(timeouts >= 1);
    suite_close(&pair);
    rig_nothing_is_left();
}

/* Each call of the driver or of NCCL fails in turn. Both ends must get either an error or the right
 * bytes, and must give back everything. */
TEST(every_call_may_fail_once)
{
    long calls = -1, failed = 0;
    for (long n = 0; calls < 0 || n < calls; n++) {
        suite_pair pair;
        rig_prepare(&pair, n % 2 ? "nccl:loop://fail-%d" : "nccl:tcp://127.0.0.1:0");
        fake_nccl_get()->late = (int)(n % 3);
        fake_nccl_get()->fail_at = n;
        suite_try_open(&pair);
        if (pair.status[0] == DW_OK && pair.status[1] == DW_OK) {
            dw_status status = DW_OK;
            const dw_link *failed_at = NULL;
            for (uint64_t k = 0; k < 2 && status == DW_OK; k++) {
                unsigned char *data = malloc(1200000);
                void *got;
                size_t len;
                suite_fill(data, 1200000, k);
                status = dw_link_send(pair.link[k], RIG_TAG, data, 1200000);
                failed_at = pair.link[status == DW_OK ? 1 - k : k];
                if (status == DW_OK)
                    status = dw_link_recv(pair.link[1 - k], RIG_TAG, SUITE_PATIENCE_MS, &got, &len);
                if (status == DW_OK) {
                    assert_true(suite_is(got, len, k, 1200000));
                    dw_link_release(pair.link[1 - k], got);
                }
                free(data);
            }
            if (status != DW_OK)
                assert_string_not_equal(dw_link_why((dw_link *)(uintptr_t)failed_at), "");
            assert_true(status != DW_PENDING && status != DW_ERR_TIMEOUT);
        }
        for (int i = 0; i < 2; i++) {
            if (pair.status[i] != DW_OK) assert_string_not_equal(pair.why[i].text, "");
            assert_true(pair.status[i] != DW_ERR_TIMEOUT);
        }
        const char *which = fake_nccl_now().failed;
        if (which && strcmp(which, "ncclCommInitRankConfig") == 0) {
            int end = pair.status[0] == DW_ERR_PEER ? 0 : 1; /* the end where nothing failed */
            assert_int_equal(pair.status[end], DW_ERR_PEER);
            assert_int_equal(pair.status[1 - end], DW_ERR_IO);
            assert_non_null(strstr(pair.why[end].text, "could not use NCCL"));
        }
        suite_close(&pair);
        failed += fake_nccl_get()->failed != NULL;
        if (!fake_nccl_get()->failed) calls = n; /* there are only n calls: all have failed */
        rig_nothing_is_left();
        if (n > 4000) break;
    }
    print_message("%ld calls failed in turn\n", failed);
    assert_true(failed > 60);
}

/* ---- Forged notes ---------------------------------------------------------------------------- */

typedef struct forged {
    uint32_t kind, credit;
    uint64_t value;
    size_t inside; /* bytes after the header */
    int times;
} forged;

/* Sends a forged note, and returns the status of the honest end. */
static dw_status status_after(const forged *note)
{
    static unsigned char message[DW_NCCL_NOTE_BYTES];
    const dw_transport *table = dw_nccl_transport();
    rig_raw_end raw[2];
    rig_open_raw(raw);
    nccl_notes *notes = &raw[0].end.notes;
    dw_why why = {.text = ""};
    size_t len;
    dw_status status = DW_OK;
    dw_put32(message, note->kind);
    dw_put32(message + 4, note->credit);
    dw_put64(message + 8, note->value);
    for (int i = 0; i < note->times && status == DW_OK; i++) {
        memset(notes->send_request, 0, notes->inner.request_bytes);
        assert_int_equal(notes->inner.send(notes->end, notes->send_request, message,
                                           DW_NCCL_NOTE_HEADER + note->inside),
                         DW_OK);
        do {
            table->turn(&raw[1].end, &why); /* the honest end reads notes, and makes no request */
        } while (notes->inner.test(notes->end, notes->send_request, &len, &why) == DW_PENDING);
    }
    for (int i = 0; i < 10 && status == DW_OK; i++) {
        status = table->turn(&raw[1].end, &why);
    }
    rig_close_raw(raw);
    return status;
}

TEST(invalid_control_messages_end_the_link)
{
    rig_reset();
    const forged honest[] = {{DW_NCCL_DATA, 0, 10, 10, 1},
                             {DW_NCCL_DATA, 0, 0, 0, DW_NCCL_CREDITS},
                             {DW_NCCL_LONG, 0, 1, 0, 1},
                             {DW_NCCL_LONG, 0, UINT64_MAX, 0, 1},
                             {DW_NCCL_CREDIT, 0, 0, 0, 3}};
    const forged wrong[] = {{0, 0, 0, 0, 1},
                            {5, 0, 0, 0, 1},
                            {DW_NCCL_DATA, 0, 11, 10, 1},
                            {DW_NCCL_DATA, 0, 9, 10, 1},
                            {DW_NCCL_DATA, 0, UINT64_MAX, 0, 1},
                            {DW_NCCL_DATA, 0, 0, 0, DW_NCCL_CREDITS + 1},
                            {DW_NCCL_LONG, 0, 0, 0, 1},
                            {DW_NCCL_LONG, 0, 100000, 1, 1},
                            {DW_NCCL_GO, 0, 1, 0, 1},
                            {DW_NCCL_GO, 0, 0, 0, 1},
                            {DW_NCCL_CREDIT, 1, 0, 0, 1},
                            {DW_NCCL_CREDIT, UINT32_MAX, 0, 0, 1},
                            {DW_NCCL_CREDIT, 0, 0, 1, 1}};
    for (size_t i = 0; i < sizeof honest / sizeof *honest; i++)
        assert_int_equal(status_after(&honest[i]), DW_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (status_after(&wrong[i]) != DW_ERR_PROTOCOL)
            fail_msg("forged note %zu was not refused", i);
    }
    rig_nothing_is_left();
}

/* ---- Different ends -------------------------------------------------------------------------- */

TEST(ends_with_different_nccl_settings_do_not_connect)
{
    for (int which = 0; which < 2; which++) {
        suite_pair pair;
        rig_prepare(&pair, "nccl:tcp://127.0.0.1:0");
        dw_nccl *other = NULL;
        dw_nccl_comm comm = NULL;
        dw_status expected = DW_ERR_VERSION;
        if (which == 0) {
            fake_nccl_get()->version = 21805;
            other = rig_create(NULL);
        } else {
            int mode;
            dw_nccl_config config = DW_NCCL_CONFIG;
            dw_nccl_id id;
            assert_true(dw_nccl_device_enter(&rig_common->device, &mode));
            assert_int_equal(rig_common->library.get_id(&id), 0);
            assert_int_equal(rig_common->library.init(&comm, 2, id, 1, &config),
                             DW_NCCL_IN_PROGRESS);
            dw_nccl_device_leave(&rig_common->device, mode);
            other = rig_create(comm);
            expected = DW_ERR_MISMATCH;
        }
        const dw_transport_context others[] = {{"nccl", other}, {NULL, NULL}};
        pair.options[1].contexts = others;
        suite_try_open(&pair);
        for (int i = 0; i < 2; i++) {
            if (pair.status[i] != expected && pair.status[i] != DW_ERR_PEER)
                fail_msg("%d: %s", pair.status[i], pair.why[i].text);
        }
        assert_true(pair.status[0] == expected || pair.status[1] == expected);
        suite_close(&pair);
        if (comm) rig_common->library.abort(comm);
        dw_nccl_destroy(other);
        rig_nothing_is_left();
    }
}

static void *open_plain(void *context)
{
    suite_pair *pair = context;
    pthread_mutex_lock(&pair->lock);
    while (!pair->is_listening) pthread_cond_wait(&pair->listening, &pair->lock);
    pthread_mutex_unlock(&pair->lock);
    dw_link *link = NULL;
    const dw_link_options options = {.struct_size = sizeof options, .open_timeout_ms = 5000};
    pair->status[1] = dw_link_open(&link, pair->uri + strlen("nccl:"), &options, &pair->why[1]);
    return NULL;
}

TEST(a_peer_without_nccl_is_recognized)
{
    suite_pair pair;
    rig_prepare(&pair, "nccl:tcp://127.0.0.1:0");
    pthread_t other;
    pthread_create(&other, NULL, open_plain, &pair);
    pair.status[0] = dw_link_open(&pair.link[0], pair.backend->uri, &pair.options[0], &pair.why[0]);
    pthread_join(other, NULL);
    assert_int_equal(pair.status[0], DW_ERR_PROTOCOL);
    assert_non_null(strstr(pair.why[0].text, "nccl:"));
    assert_true(pair.status[1] == DW_ERR_PROTOCOL || pair.status[1] == DW_ERR_PEER);
    rig_nothing_is_left();
}

TEST(a_communicator_of_the_program_is_split_and_not_changed)
{
    rig_reset();
    dw_nccl_comm comm[2] = {NULL, NULL};
    dw_nccl *own[2];
    dw_nccl_config config = DW_NCCL_CONFIG;
    dw_nccl_id id;
    int mode, error;
    assert_true(dw_nccl_device_enter(&rig_common->device, &mode));
    assert_int_equal(rig_common->library.get_id(&id), 0);
    /* Here the listener is rank 1, because ranks are those of the communicator. */
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_common->library.init(&comm[i], 2, id, 1 - i, &config),
                         DW_NCCL_IN_PROGRESS);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_common->library.async_error(comm[i % 2], &error), 0);
    dw_nccl_device_leave(&rig_common->device, mode);
    for (int i = 0; i < 2; i++) own[i] = rig_create(comm[i]);
    for (int round = 0; round < 2; round++) {
        suite_pair pair;
        rig_prepare(&pair, "nccl:loop://given-%d");
        const dw_transport_context owns[2][2] = {{{"nccl", own[0]}}, {{"nccl", own[1]}}};
        for (int i = 0; i < 2; i++) pair.options[i].contexts = owns[i];
        suite_open(&pair);
        assert_int_equal(fake_nccl_now().comms, 6);
        suite_send(pair.link[0], RIG_TAG, 0, 3000000);
        suite_send(pair.link[1], RIG_TAG, 1, 3000000);
        suite_expect(pair.link[1], RIG_TAG, 0, 3000000);
        suite_expect(pair.link[0], RIG_TAG, 1, 3000000);
        suite_close(&pair);
        assert_int_equal(fake_nccl_now().comms, 2);
    }
    for (int i = 0; i < 2; i++) {
        rig_common->library.abort(comm[i]);
        dw_nccl_destroy(own[i]);
    }
    rig_nothing_is_left();
}

TEST(nccl_create_error_names_what_is_missing)
{
    rig_reset();
    dw_nccl *nccl = (dw_nccl *)(uintptr_t)1;
    dw_why why;
    dw_nccl_options options = {
        .struct_size = sizeof options, .library = "/nowhere/libnccl.so.2", .driver = rig_fake()};
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_UNSUPPORTED);
    assert_null(nccl);
    assert_non_null(strstr(why.text, "/nowhere/libnccl.so.2"));
    options = (dw_nccl_options){
        .struct_size = sizeof options, .library = rig_fake(), .driver = "/nowhere/libcuda.so.1"};
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "/nowhere/libcuda.so.1"));
    options.driver = rig_fake();
    options.device = 3;
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "GPU 3"));
    options.struct_size = 0;
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "sizeof(dw_nccl_options)"));
    options.struct_size = sizeof options;
    options.device = -1;
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_nccl_create(NULL, NULL, &why), DW_ERR_ARGUMENT);
    fake_nccl_get()->version = 21703;
    assert_int_equal(rig_try_create(&nccl, NULL, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "2.17"));
    rig_reset();
    fake_nccl_get()->has_no_gpu = 1;
    assert_int_equal(rig_try_create(&nccl, NULL, &why), DW_ERR_UNSUPPORTED);
    assert_int_equal(fake_nccl_get()->contexts, 1); /* that of rig_common */
    rig_reset();
    dw_nccl_destroy(NULL);
    const struct {
        const char *uri;
        dw_transport_context context;
        dw_status status;
        const char *word;
    } cases[] = {{"nccl://127.0.0.1:7", {"nccl", rig_common}, DW_ERR_UNSUPPORTED, "nccl:tcp://"},
                 {"nccl:tcp://127.0.0.1:99999", {"nccl", rig_common}, DW_ERR_ADDRESS, "99999"},
                 {"nccl:tcp://127.0.0.1:7", {NULL, NULL}, DW_ERR_ARGUMENT, "dw_nccl_create"},
                 /* This context is not for the transport nccl, whatever it points to. */
                 {"nccl:tcp://127.0.0.1:7", {"tcp", rig_common}, DW_ERR_ARGUMENT, "dw_nccl_create"},
                 {"nccl:tcp://127.0.0.1:7",
                  {"mpi", rig_common},
                  DW_ERR_ARGUMENT,
                  "names the transport 'mpi'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_link *link;
        const dw_link_options how = {
            .struct_size = sizeof how,
            .transports = rig_transports,
            .contexts = (const dw_transport_context[]){cases[i].context, {NULL, NULL}}};
        assert_int_equal(dw_link_open(&link, cases[i].uri, &how, &why), cases[i].status);
        if (!strstr(why.text, cases[i].word)) fail_msg("%s: %s", cases[i].uri, why.text);
    }
    rig_nothing_is_left();
}

int main(int argc, char **argv)
{
    if (!rig_begin(argc, argv)) return fprintf(stderr, "usage: test_nccl_trouble FAKE-LIBRARY\n");
    rig_common = rig_create(NULL);
    int failed = test_run(NULL, NULL);
    dw_nccl_destroy(rig_common);
    return failed;
}
