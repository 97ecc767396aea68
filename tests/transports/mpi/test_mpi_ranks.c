/* SPDX-License-Identifier: Apache-2.0
 * test_mpi_ranks.c - links between two ranks of a program that also calls MPI itself. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "deltawire/mpi.h"
#include "mpi_strangers.h"
#include "transports/suite/counted.h"
#include "transports/suite/transport_suite.h"

enum { TAG = 7 };

/* ---- The two ranks ----------------------------------------------------------------------------
 */

static MPI_Comm rig_program; /* its ranks are in another order than the world's */
static dw_mpi *rig_mpi;      /* uses this communicator */
static int rig_me, rig_other;
static const char *rig_folder; /* which both ranks can access */
static const dw_transport *rig_transports[2];
static dw_transport_context rig_contexts[2];

static dw_link_options rig_options(int rank)
{
    return (dw_link_options){.struct_size = sizeof(dw_link_options),
                             .role = rank == 0 ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                             .open_timeout_ms = 30000,
                             .transports = rig_transports,
                             .contexts = rig_contexts};
}

/* Opens the link with this number between the two ranks. */
static dw_link *rig_open_with(int number, const dw_link_options *options)
{
    char uri[32];
    dw_why why;
    dw_link *link = NULL;
    snprintf(uri, sizeof uri, "mpi://%d/%d", rig_other, number);
    if (dw_link_open(&link, uri, options, &why) != DW_OK) fail_msg("%s", why.text);
    return link;
}

static dw_link *rig_open(int number)
{
    const dw_link_options options = rig_options(rig_me);
    return rig_open_with(number, &options);
}

/* A setup for cmocka: waits until both ranks have reached the test. */
static int rig_together(void **state)
{
    return MPI_Barrier(rig_program) != MPI_SUCCESS;
}

/* By a file in rig_folder, one rank tells the other something without a message. */
static void rig_wait_for_file(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", rig_folder, name);
    int64_t end = suite_now_ns() + (int64_t)SUITE_PATIENCE_MS * 1000000;
    while (access(path, F_OK) != 0 && suite_now_ns() < end) suite_sleep_ms(1);
    assert_int_equal(access(path, F_OK), 0);
}

static void rig_make_file(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", rig_folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void links_of_different_numbers_are_different(void **state)
{
    enum { LINKS = 3 };
    dw_link *links[LINKS];
    for (int i = 0; i < LINKS; i++) links[i] = rig_open(i * 2047);
    for (int i = LINKS; i-- > 0;) suite_send(links[i], TAG, (uint64_t)(10 * i + rig_me), 30000);
    for (int i = 0; i < LINKS; i++)
        suite_expect(links[i], TAG, (uint64_t)(10 * i + rig_other), 30000);
    for (int i = 0; i < LINKS; i++) dw_link_close(links[i]);
}

/* A message that was only given to MPI_Isend would not move here: until it has arrived, the sender
 * calls neither the library nor MPI. */
static void messages_move_while_the_programs_call_nothing(void **state)
{
    size_t len = (size_t)64 << 20;
    dw_link *link = rig_open(0);
    if (rig_me == 0) {
        suite_send(link, TAG, 5, len);
        rig_wait_for_file("received");
    } else {
        while (counted(link).messages_received == 0) suite_sleep_ms(1);
        rig_make_file("received");
        suite_expect(link, TAG, 5, len);
    }
    dw_link_close(link);
}

static void messages_of_the_program_are_not_mixed_with_ours(void **state)
{
    /* This receive accepts any message from any rank, but must not get one of the link. */
    int own = -1;
    MPI_Request any;
    MPI_Status envelope;
    MPI_Irecv(&own, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, rig_program, &any);
    dw_link *link = rig_open(0);
    for (uint64_t i = 0; i < 50; i++) suite_send(link, TAG, i, i * 900);
    for (uint64_t i = 0; i < 50; i++) suite_expect(link, TAG, i, i * 900);
    int sent = 40 + rig_me;
    MPI_Send(&sent, 1, MPI_INT, rig_other, 3, rig_program);
    MPI_Wait(&any, &envelope);
    assert_int_equal(own, 40 + rig_other);
    assert_int_equal(envelope.MPI_TAG, 3);
    dw_link_close(link);
}

/* ---- Opening -----------------------------------------------------------------------------------
 */

static void an_open_that_timed_out_does_not_disturb_the_next(void **state)
{
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

static void ignore_listening(void *context, const char *uri) {}

/* Uses the backend without a link. An end that neither sends nor receives must still answer the
 * other's farewell when it is turned. */
static void idle_end_answers_the_close_of_the_other(void **state)
{
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

/* ---- Errors ---------------------------------------------------------------------------------- */

static int freed; /* how many communicators this process has freed */

/* With MPI's profiling interface a program can replace MPI's functions. */
int MPI_Comm_free(MPI_Comm *comm)
{
    freed++;
    return PMPI_Comm_free(comm);
}

/* A program must not destroy the dw_mpi before the link. If it does so all the same, the link must
 * still work, because MPI would abort the program when a thread uses a freed communicator. */
static void a_link_outlives_its_dw_mpi(void **state)
{
    for (int is_careful = 0; is_careful < 2; is_careful++) {
        dw_mpi *place = NULL;
        dw_why why;
        assert_int_equal(dw_mpi_create(&place, &rig_program, &why), DW_OK);
        dw_link_options options = rig_options(rig_me);
        const dw_transport_context places[] = {{"mpi", place}, {NULL, NULL}};
        options.contexts = places;
        dw_link *link = rig_open_with(0, &options);
        freed = 0;
        if (!is_careful) dw_mpi_destroy(place);
        for (uint64_t n = 0; n < 20; n++) suite_send(link, TAG, n, n * 50000);
        for (uint64_t n = 0; n < 20; n++) suite_expect(link, TAG, n, n * 50000);
        dw_link_close(link);
        if (is_careful) dw_mpi_destroy(place);
        assert_int_equal(freed, is_careful);
    }
}

/* ---- Other programs -------------------------------------------------------------------------- */

/* Rank 1 dies. The library must notice, and this program must end without it. */
static int lose_a_peer(void)
{
    dw_link_options options = rig_options(rig_me);
    options.peer_timeout_ms = 1000; /* at least 12 s are waited, whatever is set here */
    dw_link *link = NULL;
    dw_why why;
    char uri[32];
    snprintf(uri, sizeof uri, "mpi://%d", rig_other);
    if (dw_link_open(&link, uri, &options, &why) != DW_OK) return fprintf(stderr, "%s\n", why.text);
    if (rig_me == 1) {
        void *data;
        size_t len;
        if (dw_link_recv(link, TAG, 60000, &data, &len) != DW_OK)
            return fprintf(stderr, "idle: %s\n", dw_link_why(link));
        kill(getpid(), SIGKILL);
    }
    void *data;
    size_t len;
    /* This is longer than the silence after which a rank is taken for dead. The program sends
     * nothing, but the library must keep the link alive. */
    if (dw_link_recv(link, TAG, 13000, &data, &len) != DW_PENDING)
        return fprintf(stderr, "idle: %s\n", dw_link_why(link));
    dw_link_send(link, TAG, "go", 2);
    int64_t begun = suite_now_ns();
    dw_status status = dw_link_recv(link, TAG, SUITE_PATIENCE_MS, &data, &len);
    double seconds = (double)(suite_now_ns() - begun) * 1e-9;
    printf("status %d after %.1f s: %s\n", (int)status, seconds, dw_link_why(link));
    dw_link_close(link);
    dw_mpi_destroy(rig_mpi); /* must not wait for the dead rank */
    if (status == DW_ERR_TIMEOUT || status == DW_ERR_PEER) rig_make_file("noticed");
    fflush(stdout);
    _exit(0);
}

static int refuse_too_few_threads(void)
{
    dw_why why = {.text = ""};
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    dw_status status = dw_mpi_create(&rig_mpi, NULL, &why);
    MPI_Finalize();
    dw_status too_late = dw_mpi_create(&rig_mpi, NULL, NULL);
    int right = level >= MPI_THREAD_MULTIPLE ||
                (status == DW_ERR_UNSUPPORTED && strstr(why.text, "MPI_THREAD_MULTIPLE"));
    if (!right || too_late != DW_ERR_UNSUPPORTED || rig_mpi)
        return fprintf(stderr, "%d: %s\n", (int)status, why.text);
    return 0;
}

static int failed;

static char stuck_path[300];

/* MPICH 4.0 over UCX's TCP has been seen to wait in MPI_Finalize forever, although the other rank
 * had already reached the last barrier. The launcher takes the exit without it for a failure, so
 * files say that all tests had passed before. */
static void stop_finalizing(int number)
{
    static const char words[] = "MPI_Finalize does not end; the tests are over\n";
    if (write(2, words, sizeof words - 1) < 0) _exit(3);
    if (open(stuck_path, O_CREAT | O_WRONLY, 0600) < 0) _exit(4);
    _exit(failed != 0);
}

static void finalize(void)
{
    if (failed == 0) rig_make_file(rig_me == 0 ? "passed.0" : "passed.1");
    snprintf(stuck_path, sizeof stuck_path, "%s/stuck", rig_folder);
    signal(SIGALRM, stop_finalizing);
    alarm(20);
    MPI_Finalize();
}

/* A program may finalize MPI before it destroys what it made over it. */
static int destroy_after_finalize(void)
{
    MPI_Comm_free(&rig_program);
    MPI_Finalize();
    dw_mpi_destroy(rig_mpi);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(links_of_different_numbers_are_different, rig_together),
        cmocka_unit_test_setup(messages_move_while_the_programs_call_nothing, rig_together),
        cmocka_unit_test_setup(messages_of_the_program_are_not_mixed_with_ours, rig_together),
        cmocka_unit_test_setup(a_link_outlives_its_dw_mpi, rig_together),
        cmocka_unit_test_setup(an_open_that_timed_out_does_not_disturb_the_next, rig_together),
        cmocka_unit_test_setup(idle_end_answers_the_close_of_the_other, rig_together),
        cmocka_unit_test_setup(two_ends_of_the_same_role_do_not_connect, rig_together),
        cmocka_unit_test_setup(mpi_address_error_names_the_wrong_part, rig_together),
    };
    const char *what = argc > 2 ? argv[2] : "";
    if (argc < 2) return 2;
    rig_folder = argv[1];
    if (!strcmp(what, "threads")) return refuse_too_few_threads();
    int level, rank;
    dw_why why;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &rig_program);
    if (dw_mpi_create(&rig_mpi, &rig_program, &why) != DW_OK)
        return fprintf(stderr, "%s\n", why.text);
    rig_transports[0] = dw_mpi_transport();
    rig_contexts[0] = (dw_transport_context){"mpi", rig_mpi};
    int size;
    rig_me = dw_mpi_rank(rig_mpi, &size);
    rig_other = 1 - rig_me;
    if (rig_me == rank || size != 2) return fprintf(stderr, "rank %d of %d\n", rig_me, size);
    if (!strcmp(what, "death")) return lose_a_peer();
    if (!strcmp(what, "finalized")) return destroy_after_finalize();
    failed = cmocka_run_group_tests_name("mpi ranks", tests, NULL, NULL) +
             run_mpi_strangers(&rig_program);
    MPI_Barrier(rig_program); /* the communicator still belongs to the program */
    dw_mpi_destroy(rig_mpi);
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    MPI_Comm_free(&rig_program);
    failed += is_finalized;
    finalize();
    return failed;
}
