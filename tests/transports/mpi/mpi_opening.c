/* SPDX-License-Identifier: Apache-2.0
 * mpi_opening.c - how two ranks open a link, and what they must be told if they cannot. */
#include "mpi_opening.h"

#include <unistd.h>

#include "mpi_rig.h"

enum { TAG = 7 };

static void an_open_that_timed_out_does_not_disturb_the_next(void **state)
{
    (void)state;
    dw_link *link = NULL;
    dw_why why;
    dw_link_options options = rig_options(rig_me);
    options.open_timeout_ms = 100;
    char uri[32];
    snprintf(uri, sizeof uri, "mpi://%d/9", rig_other);
    /* First only the connector opens, twice, so that two requests wait at the listener. Then only
     * the listener opens, and answers them. */
    for (int turn = 0; turn < 3; turn++) {
        MPI_Barrier(rig_program);
        if ((turn < 2) == (rig_me == 1)) {
            dw_status status = dw_link_open(&link, uri, &options, &why);
            if (status != DW_ERR_TIMEOUT) fail_msg("%d: %s", (int)status, why.text);
        }
    }
    MPI_Barrier(rig_program);
    link = rig_open(9);
    suite_send(link, TAG, 1, 100);
    suite_expect(link, TAG, 1, 100);
    dw_link_close(link);
}

static void ignore_listening(void *context, const char *uri)
{
    (void)context;
    (void)uri;
}

/* Uses the backend without a link. An end that neither sends nor receives must still answer the
 * other's farewell when it is turned. */
static void idle_end_answers_the_close_of_the_other(void **state)
{
    (void)state;
    static const volatile int never = 0;
    const dw_transport *table = rig_transports[0];
    char address[16], path[300];
    snprintf(address, sizeof address, "%d/9", rig_other);
    snprintf(path, sizeof path, "%s/farewell", rig_folder);
    dw_why why;
    const dw_transport_open how = {.struct_size = sizeof how,
                                   .address = address,
                                   .role = rig_me < rig_other ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                                   .timeout_ms = SUITE_PATIENCE_MS,
                                   .peer_timeout_ms = SUITE_PATIENCE_MS,
                                   .cancelled = &never,
                                   .on_listening = ignore_listening,
                                   .context = rig_mpi,
                                   .why = &why};
    void *end = calloc(1, table->endpoint_bytes);
    assert_int_equal(table->open(end, &how), DW_OK);
    if (rig_me == 0) {
        dw_status closed = table->close(end);
        rig_make_file("farewell"); /* before any check, because the other rank waits for it */
        assert_int_equal(closed, DW_OK);
    } else {
        while (access(path, F_OK) != 0) assert_int_equal(table->turn(end, &why), DW_OK);
        assert_int_equal(table->close(end), DW_OK);
    }
    free(end);
}

static void two_ends_of_the_same_role_do_not_connect(void **state)
{
    (void)state;
    dw_link *link = NULL;
    dw_why why;
    dw_link_options options = rig_options(1);
    options.open_timeout_ms = 2000; /* the other rank may come later to this test */
    char uri[32];
    snprintf(uri, sizeof uri, "mpi://%d/11", rig_other);
    assert_int_equal(dw_link_open(&link, uri, &options, &why), DW_ERR_TIMEOUT);
    assert_non_null(strstr(why.text, "other role"));
}

static void mpi_address_error_names_the_wrong_part(void **state)
{
    (void)state;
    const struct {
        const char *uri, *word;
        int offset;
    } cases[] = {{"mpi://", "0 to 1", 6},
                 {"mpi://2", "0 to 1", 6},
                 {"mpi://-1", "is not a rank", 6},
                 {"mpi://0x", "is not an address", 7},
                 {"mpi://0/4096", "0 to 4095", 12},
                 {"mpi://0/", "rank/number", 8},
                 {"mpi://99999999999", "is not a rank", 6}};
    const dw_link_options options = rig_options(1);
    dw_link_options without = options;
    without.contexts = NULL;
    dw_link *link = NULL;
    dw_why why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(dw_link_open(&link, cases[i].uri, &options, &why), DW_ERR_ADDRESS);
        if (!strstr(why.text, cases[i].word)) fail_msg("'%s' lacks '%s'", why.text, cases[i].word);
        assert_int_equal(why.offset, cases[i].offset);
    }
    assert_int_equal(dw_link_open(&link, "mpi://0", &without, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "dw_mpi_create"));
}

int run_mpi_opening(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_open_that_timed_out_does_not_disturb_the_next, rig_together),
        cmocka_unit_test_setup(idle_end_answers_the_close_of_the_other, rig_together),
        cmocka_unit_test_setup(two_ends_of_the_same_role_do_not_connect, rig_together),
        cmocka_unit_test_setup(mpi_address_error_names_the_wrong_part, rig_together),
    };
    return cmocka_run_group_tests_name("opening links of mpi", tests, NULL, NULL);
}
