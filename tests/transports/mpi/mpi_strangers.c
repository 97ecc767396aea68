/* SPDX-License-Identifier: Apache-2.0
 * mpi_strangers.c - rank 1 calls MPI directly to send invalid messages to a link of rank 0, or to
 * receive after that has been closed. */
#include "mpi_strangers.h"

#include "link/link.h"
#include "mpi/mpi_end.h"
#include "transports/suite/counted.h"
#include "transports/suite/transport_suite.h"

enum {
    TAG = 3,
    HELLO_BYTES = 32,
    MEETING_BYTES = 32,
    OWN_TAG = DW_MPI_FIRST_TAG + 1000,
    KNOCK = 1,
    CONFIRM = 3,
    LATE_BYTES = 3000000 /* so long that MPI sends nothing of it until it is received */
};

static MPI_Comm program;
static dw_mpi *mpi; /* not that of the other tests, because these messages do lasting damage */

/* One invalid thing that rank 1 does. Fields that are 0 stand for the correct value. */
typedef struct misdeed {
    const char *name;
    unsigned char meeting_version; /* is xored with the correct value */
    uint32_t kind, credit;         /* of a note with data */
    uint64_t value;                /* of the note; 0: its length */
    size_t len;                    /* of the note; 0: a message of 4 bytes */
    size_t chunk;                  /* length of a chunk that is sent after the note; 0: none */
    dw_status status;              /* the error that rank 0 must get */
    const char *word;
    bool is_late; /* no error: it receives a message after rank 0 has closed its link */
} misdeed;

static const misdeed misdeeds[] = {
    {.name = "uses another version of the handshake",
     .meeting_version = 3,
     .status = DW_ERR_VERSION,
     .word = "another version of the handshake"},
    {.name = "sends a note of no known kind",
     .kind = 77,
     .status = DW_ERR_PROTOCOL,
     .word = "a note that is not valid"},
    {.name = "sends less than a note's header",
     .len = 5,
     .status = DW_ERR_PROTOCOL,
     .word = "a note that is not valid"},
    {.name = "sends less than it says",
     .value = 13,
     .status = DW_ERR_PROTOCOL,
     .word = "a note that is not valid"},
    {.name = "gives more credit than there is",
     .credit = DW_MPI_CREDITS + 1,
     .status = DW_ERR_PROTOCOL,
     .word = "a note that is not valid"},
    {.name = "announces what fits into a note",
     .kind = DW_MPI_LONG,
     .value = 100,
     .len = DW_MPI_NOTE_HEADER,
     .status = DW_ERR_PROTOCOL,
     .word = "a note that is not valid"},
    {.name = "announces more than a link takes",
     .kind = DW_MPI_LONG,
     .value = UINT64_C(1) << 60,
     .len = DW_MPI_NOTE_HEADER,
     .status = DW_ERR_PROTOCOL,
     .word = "announced"},
    {.name = "sends a shorter chunk than announced",
     .kind = DW_MPI_LONG,
     .value = 2 << 20,
     .len = DW_MPI_NOTE_HEADER,
     .chunk = 1000,
     .status = DW_ERR_PROTOCOL,
     .word = "not the expected length"},
    {.name = "receives a message after the link was closed", .is_late = true},
};
enum { MISDEEDS = sizeof misdeeds / sizeof *misdeeds };

/* ---- Rank 1 ---------------------------------------------------------------------------------- */

static void send_note(int tag, uint32_t kind, uint32_t credit, uint64_t value, unsigned char *note,
                      size_t len)
{
    dw_put32(note, kind);
    dw_put32(note + 4, credit);
    dw_put64(note + 8, value);
    MPI_Send(note, (int)len, MPI_BYTE, 0, tag, mpi->comm);
}

static void send_meeting(const misdeed *m, int kind, uint64_t peer_nonce)
{
    unsigned char note[MEETING_BYTES] = {'D',
                                         'W',
                                         'M',
                                         'P',
                                         'I',
                                         '\n',
                                         (unsigned char)(1 ^ m->meeting_version),
                                         (unsigned char)kind};
    int number = (int)(m - misdeeds);
    dw_put64(note + 8, 99);
    dw_put64(note + 16, peer_nonce);
    dw_put32(note + 24, OWN_TAG);
    MPI_Send(note, sizeof note, MPI_BYTE, 0, 2 * number + 1, mpi->comm);
}

static void send_hello(int tag)
{
    enum { LEN = DW_LINK_HEADER_BYTES + HELLO_BYTES };
    unsigned char note[DW_MPI_NOTE_HEADER + LEN] = {0}, *message = note + DW_MPI_NOTE_HEADER;
    dw_put32(message + 4, DW_KIND_HELLO);
    memcpy(message + 8, "DWLK", 4);
    dw_put32(message + 12, DW_LINK_VERSION);
    dw_put64(message + 16, 1 << 30);
    send_note(tag, DW_MPI_DATA, 0, LEN, note, sizeof note);
}

static void send_invalid_note(const misdeed *m, int tag)
{
    static unsigned char chunk[DW_MPI_CHUNK_BYTES];
    unsigned char note[DW_MPI_NOTE_HEADER + DW_LINK_HEADER_BYTES + 4] = {0};
    size_t len = m->len ? m->len : sizeof note;
    dw_put32(note + DW_MPI_NOTE_HEADER, TAG);
    dw_put32(note + DW_MPI_NOTE_HEADER + 4, DW_KIND_DATA);
    send_note(tag, m->kind ? m->kind : DW_MPI_DATA, m->credit,
              m->value ? m->value : len - DW_MPI_NOTE_HEADER, note, len);
    if (m->chunk) MPI_Send(chunk, (int)m->chunk, MPI_BYTE, 0, tag + 1, mpi->comm);
}

static void wait_until_told(void)
{
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, program, MPI_STATUS_IGNORE);
}

/* MPI reads the message of rank 0 where it lies, so it must not have changed. */
static void receive_late(void)
{
    static unsigned char message[DW_LINK_HEADER_BYTES + LATE_BYTES];
    int first = DW_MPI_CHUNK_BYTES, rest = (int)sizeof message - first;
    wait_until_told();
    MPI_Recv(message, first, MPI_BYTE, 0, OWN_TAG + 1, mpi->comm, MPI_STATUS_IGNORE);
    MPI_Recv(message + first, rest, MPI_BYTE, 0, OWN_TAG + 1, mpi->comm, MPI_STATUS_IGNORE);
    MPI_Send(NULL, 0, MPI_BYTE, 0, 0, program); /* before the check: rank 0 waits for it */
    assert_true(suite_is(message + DW_LINK_HEADER_BYTES, LATE_BYTES, 5, LATE_BYTES));
}

static void misbehave(const misdeed *m)
{
    unsigned char welcome[MEETING_BYTES], farewell[DW_MPI_NOTE_HEADER];
    send_meeting(m, KNOCK, 0);
    if (m->meeting_version) {
        wait_until_told();
        return;
    }
    MPI_Recv(welcome, sizeof welcome, MPI_BYTE, 0, 2 * (int)(m - misdeeds), mpi->comm,
             MPI_STATUS_IGNORE);
    int tag = (int)dw_get32(welcome + 24);
    send_meeting(m, CONFIRM, dw_get64(welcome + 8));
    send_hello(tag);
    if (m->is_late) {
        receive_late();
        return;
    }
    send_invalid_note(m, tag);
    wait_until_told();
    /* A farewell, so that rank 0 does not wait for one. */
    send_note(tag, DW_MPI_FIN, 0, m->chunk != 0, farewell, sizeof farewell);
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

static void *allocate(void *context, size_t bytes, size_t alignment)
{
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

/* Overwrites the block, and keeps it, so that a reader who comes too late sees that. */
static void overwrite(void *context, void *memory, size_t bytes)
{
    memset(memory, 0xdd, bytes);
}

static void send_and_close(dw_link *link)
{
    suite_send(link, TAG, 5, LATE_BYTES);
    while (counted(link).messages_sent == 0) suite_sleep_ms(1);
    dw_link_close(link);
    MPI_Send(NULL, 0, MPI_BYTE, 1, 0, program);
    MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, program, MPI_STATUS_IGNORE);
}

static void expect_error(const misdeed *m)
{
    static const dw_transport *transports[2];
    transports[0] = dw_mpi_transport();
    const dw_link_options options = {
        .struct_size = sizeof options,
        .role = DW_LINK_LISTEN,
        .open_timeout_ms = 30000,
        .close_timeout_ms = m->is_late ? 100 : 0,
        .allocator = {m->is_late ? allocate : NULL, m->is_late ? overwrite : NULL, NULL},
        .transports = transports,
        .contexts = (const dw_transport_context[]){{"mpi", mpi}, {NULL, NULL}}};
    dw_link *link;
    dw_why why;
    char uri[32];
    snprintf(uri, sizeof uri, "mpi://1/%d", (int)(m - misdeeds));
    dw_status status = dw_link_open(&link, uri, &options, &why);
    if (status == DW_OK && m->is_late) {
        send_and_close(link);
        return;
    }
    if (status == DW_OK) {
        status = suite_receive(link, TAG, SUITE_PATIENCE_MS);
        snprintf(why.text, sizeof why.text, "%s", dw_link_why(link));
    }
    MPI_Send(NULL, 0, MPI_BYTE, 1, 0, program);
    dw_link_close(link);
    if (status != m->status || !strstr(why.text, m->word))
        fail_msg("%s: %d: %s", m->name, (int)status, why.text);
}

static void is_refused_with_a_sentence(void **state)
{
    if (mpi->rank == 0)
        expect_error(*state);
    else
        misbehave(*state);
}

static int together(void **state)
{
    return MPI_Barrier(program) != MPI_SUCCESS;
}

int run_mpi_strangers(const MPI_Comm *communicator)
{
    struct CMUnitTest tests[MISDEEDS];
    dw_why why;
    program = *communicator;
    if (dw_mpi_create(&mpi, communicator, &why) != DW_OK) return fprintf(stderr, "%s\n", why.text);
    for (int i = 0; i < MISDEEDS; i++) {
        tests[i] = (struct CMUnitTest){.name = misdeeds[i].name,
                                       .test_func = is_refused_with_a_sentence,
                                       .setup_func = together,
                                       .initial_state = (void *)(uintptr_t)&misdeeds[i]};
    }
    int failed = cmocka_run_group_tests_name("a rank that", tests, NULL, NULL);
    MPI_Barrier(program);
    mpi->lost = 1; /* at both ranks, because freeing it must be done by both or none */
    dw_mpi_destroy(mpi);
    return failed;
}
