/* SPDX-License-Identifier: Apache-2.0
 * gpu_link.c - connects two processes on one GPU by a link over NCCL, checks every byte, and
 * measures the speed.
 *
 * NCCL refuses two ranks of one machine on the same GPU, so each process claims to be a machine of
 * its own (NCCL_HOSTID), and NCCL then uses sockets. This shows that links work, but not how fast
 * they would be between two GPUs.
 *
 * usage: gpu_link [--library LIBNCCL --driver LIBCUDA]. Exit 77: no GPU, or no NCCL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "deltawire/nccl.h"

enum { TAG = 1, ABSENT = 77, PATIENCE_MS = 60000, ROUNDS = 8 };

static const size_t lengths[] = {0,       1, 16376, 16377, 1 << 20, (1 << 20) + 1, (8 << 20) + 3,
                                 64 << 20};
enum { LENGTHS = sizeof lengths / sizeof *lengths };
static const size_t timed_bytes = 64 << 20;

typedef struct pipe_ends {
    int read, write;
} pipe_ends;

static void fill(unsigned char *data, size_t len, uint64_t n)
{
    uint64_t state = n * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < len; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (unsigned char)(state >> 56);
    }
}

static int say(int rank, const char *what, const char *why)
{
    fprintf(stderr, "gpu_link, rank %d: %s: %s\n", rank, what, why);
    return 1;
}

static void tell(void *context, const char *uri)
{
    const pipe_ends *ends = context;
    if (write(ends->write, uri, strlen(uri) + 1) < 0) perror("gpu_link");
}

/* Both ends send message n and receive that of the other end. */
static int exchange(dw_link *link, int rank, uint64_t n, size_t len)
{
    unsigned char *data = malloc(len + 1);
    void *got;
    size_t got_len;
    int wrong = 1;
    if (!data) return say(rank, "a buffer", "no memory");
    fill(data, len, 2 * n + (uint64_t)rank);
    dw_status status = dw_link_send(link, TAG, data, len);
    if (status == DW_OK) status = dw_link_recv(link, TAG, PATIENCE_MS, &got, &got_len);
    if (status == DW_OK) {
        fill(data, len, 2 * n + (uint64_t)!rank);
        wrong = got_len != len || memcmp(got, data, len) != 0;
        if (wrong) say(rank, "a message", "other bytes than were sent");
        dw_link_release(link, got);
    } else {
        say(rank, "a message", status == DW_PENDING ? "it did not come" : dw_link_why(link));
    }
    free(data);
    return wrong;
}

/* Rank 0 sends, rank 1 answers with one byte. */
static int stream(dw_link *link, int rank, double *seconds)
{
    void *got;
    size_t len;
    dw_status status = DW_OK;
    double begun = dw_now_s();
    for (int i = 0; i < ROUNDS && status == DW_OK; i++) {
        if (rank == 0) {
            status = dw_link_send_begin(link, TAG, timed_bytes, &got);
            if (status == DW_OK) status = dw_link_send_end(link, got, timed_bytes);
        } else {
            status = dw_link_recv(link, TAG, PATIENCE_MS, &got, &len);
            if (status == DW_OK) dw_link_release(link, got);
        }
    }
    if (status == DW_OK && rank == 1) status = dw_link_send(link, TAG, "", 1);
    if (status == DW_OK && rank == 0) status = dw_link_recv(link, TAG, PATIENCE_MS, &got, &len);
    *seconds = dw_now_s() - begun;
    return status == DW_OK ? 0
                           : say(rank, "a stream of messages",
                                 status == DW_PENDING ? "nothing came" : dw_link_why(link));
}

static int be_rank(int rank, const dw_nccl_options *options, pipe_ends *ends)
{
    dw_nccl *nccl;
    dw_link *link;
    dw_why why;
    char uri[256] = "nccl:tcp://127.0.0.1:0";
    setenv("NCCL_HOSTID", rank ? "deltawire-1" : "deltawire-0", 0);
    dw_status status = dw_nccl_create(&nccl, options, &why);
    if (status == DW_ERR_UNSUPPORTED) {
        if (rank == 0) printf("absent\t%s\n", why.text);
        return ABSENT;
    }
    if (status != DW_OK) return say(rank, "NCCL", why.text);
    if (rank == 1 && read(ends->read, uri, sizeof uri - 1) <= 0)
        return say(rank, "the address", "it never came");
    const dw_transport *const transports[] = {dw_nccl_transport(), NULL};
    dw_link_options how = {.struct_size = sizeof how,
                           .role = rank ? DW_LINK_CONNECT : DW_LINK_LISTEN,
                           .transports = transports,
                           .contexts = (const dw_transport_context[]){{"nccl", nccl}, {NULL, NULL}},
                           .on_listening = tell,
                           .listening_context = ends};
    if (dw_link_open(&link, uri, &how, &why) != DW_OK) return say(rank, "opening", why.text);
    int wrong = 0;
    double seconds = 0;
    for (uint64_t n = 0; n < LENGTHS && !wrong; n++) wrong = exchange(link, rank, n, lengths[n]);
    if (!wrong) wrong = stream(link, rank, &seconds);
    dw_link_close(link);
    if (rank == 0 && !wrong) {
        printf("same\tlink over NCCL\t%d messages each way\n", (int)LENGTHS);
        printf("link\tnccl\t%.1f MB/s\n", (double)ROUNDS * (double)timed_bytes * 1e-6 / seconds);
    }
    dw_nccl_destroy(nccl);
    return wrong;
}

int main(int argc, char **argv)
{
    dw_nccl_options options = {.struct_size = sizeof options};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--library") == 0)
            options.library = argv[i + 1];
        else if (strcmp(argv[i], "--driver") == 0)
            options.driver = argv[i + 1];
        else
            return fprintf(stderr, "usage: gpu_link [--library LIBNCCL --driver LIBCUDA]\n");
    }
    /* Settings for NCCL within one machine; values that the user has set are kept. */
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_NET", "Socket", 0);
    pipe_ends ends;
    int fds[2], child_status = 0;
    if (pipe(fds) != 0) return say(0, "a pipe", "the system gives none");
    ends = (pipe_ends){fds[0], fds[1]};
    /* Must come before any call of the CUDA driver, which does not work after a fork. */
    pid_t child = fork();
    if (child < 0) return say(0, "a second process", "the system gives none");
    if (child == 0) {
        close(ends.write); /* else it would not notice the other's end */
        return be_rank(1, &options, &ends);
    }
    close(ends.read);
    int own = be_rank(0, &options, &ends);
    close(ends.write);
    waitpid(child, &child_status, 0);
    int others = WIFEXITED(child_status) ? WEXITSTATUS(child_status) : 1;
    return own ? own : others;
}
