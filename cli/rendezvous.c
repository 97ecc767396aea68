/* SPDX-License-Identifier: Apache-2.0
 * rendezvous.c - how ranks that know only the address of rank 0, or a shared directory, learn the
 * addresses of their neighbours.
 *
 * By TCP: every rank connects to rank 0 and sends its rank. When it listens it reports its address,
 * which rank 0 passes on to the next rank. So the ranks may start in any order. By files: rank r
 * writes path.r, which rank r + 1 reads and removes. */
#include "rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "complain.h"
#include "keys.h"

enum { TAG_GREETING = 1, TAG_TELL = 2, TAG_ADDRESS = 3, TAG_REFUSAL = 4 };
enum { URI_BYTES = 600, LOOK_MS = 20 };
enum { MOST_MESSAGE_BYTES = 64 * 1024 }; /* messages are addresses and errors */
enum { ARRIVALS = 32 };                  /* connections that have not said their rank yet */

/* A rank as rank 0 sees it. */
typedef struct guest {
    dw_rendezvous *host;
    uint32_t rank;
    dw_link *link;           /* NULL: not connected yet, or rank 0 itself */
    char address[URI_BYTES]; /* where it listens; "": not known yet */
    bool is_told;            /* it was sent the address of the previous rank */
} guest;

/* A connection to rank 0 whose greeting has not arrived, so that its rank is not known. Nobody
 * waits for the greeting: the thread of the link receives it, and meanwhile rank 0 accepts other
 * connections. */
typedef struct arrival {
    dw_rendezvous *host;
    dw_link *link; /* NULL: none, or its greeting has arrived */
} arrival;

struct dw_rendezvous {
    dw_rendezvous_options options;
    char uri[URI_BYTES];
    char path[URI_BYTES]; /* of files; "": by TCP */
    dw_link *link;        /* to rank 0 */
    dw_tls_options tls;
    char own_name[DW_RANK_NAME_BYTES];
    /* Of rank 0. */
    guest *guests;
    arrival arrivals[ARRIVALS];
    unsigned next_arrival;
    unsigned judging;  /* how many greetings are being judged at the moment */
    uint32_t refused;  /* how many connections were refused */
    char refusal[200]; /* what the last of them was told */
    pthread_t thread;
    bool is_serving;
    int stop;    /* atomic */
    int enough;  /* atomic: all are here, or stop */
    int listens; /* atomic: 1 rank 0 listens, on heard_at; -1 it cannot, see why; 0 not yet */
    char heard_at[URI_BYTES];
    bool is_late; /* the time is over, and ranks are missing */
    dw_why why;
    pthread_mutex_t lock;
};

static bool is_stopped(const dw_rendezvous *r)
{
    return r->options.stop && __atomic_load_n(r->options.stop, __ATOMIC_RELAXED);
}

bool dw_own_address(const char *host, char *text, size_t cap)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM}, *addresses = NULL;
    char name[80] = "";
    if (getaddrinfo(host, "9", &hints, &addresses)) return 0;
    for (const struct addrinfo *a = addresses; a && !*name; a = a->ai_next) {
        struct sockaddr_storage own;
        socklen_t len = sizeof own;
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        /* Connecting a datagram socket sends nothing: it asks the routing table. */
        if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen) &&
            !getsockname(fd, (struct sockaddr *)&own, &len) &&
            getnameinfo((struct sockaddr *)&own, len, name, sizeof name, NULL, 0, NI_NUMERICHOST))
            name[0] = '\0';
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(addresses);
    snprintf(text, cap, strchr(name, ':') ? "[%s]" : "%s", name);
    return *name != '\0';
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

/* Sends a rank the address of the previous one, once both are known. The lock is held. */
static void pass_on(dw_rendezvous *r, uint32_t rank)
{
    guest *to = &r->guests[rank];
    const char *address = r->guests[rank - 1].address;
    if (to->is_told || !to->link || !*address) return;
    /* If that rank has ended in the meantime, its neighbours notice and report it. */
    to->is_told = true;
    dw_link_send(to->link, TAG_ADDRESS, address, strlen(address));
}

/* On the thread of the guest's link. */
static void take_address(void *context, const void *data, size_t len)
{
    guest *from = context;
    dw_rendezvous *r = from->host;
    pthread_mutex_lock(&r->lock);
    if (!*from->address && len < sizeof from->address && from->rank + 1 < r->options.ranks) {
        memcpy(from->address, data, len);
        pass_on(r, from->rank + 1);
    }
    pthread_mutex_unlock(&r->lock);
}

static uint32_t missing(const dw_rendezvous *r)
{
    uint32_t n = 0;
    for (uint32_t rank = 1; rank < r->options.ranks; rank++) n += !r->guests[rank].link;
    return n;
}

/* Returns the rank that a greeting names, or 0 and a sentence if it cannot be accepted. */
static unsigned read_greeting(const dw_rendezvous *r, dw_link *link, const void *data, size_t len,
                              char sentence[160])
{
    unsigned rank = 0, stages = 0;
    char text[64] = "", name[DW_RANK_NAME_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : 0), (const char *)data);
    if (sscanf(text, "rank %u of %u", &rank, &stages) != 2 || stages != r->options.ranks ||
        rank < 1 || rank >= stages) {
        snprintf(
            sentence, 160,
            "rank 0 was started for %u ranks, and rank %u for %u; give all ranks the same number",
            r->options.ranks, rank, stages);
        return 0;
    }
    dw_rank_name(name, rank);
    if (!r->options.tls || strcmp(name, dw_link_peer_name(link)) == 0) return rank;
    snprintf(sentence, 160, "the key or certificate of rank %u names %.60s; give each rank its own",
             rank, dw_link_peer_name(link));
    return 0;
}

/* On the thread of the link, which a handler may close. */
static void hear_arrival(void *context, const void *data, size_t len)
{
    arrival *from = context;
    dw_rendezvous *r = from->host;
    char sentence[160] = "";
    pthread_mutex_lock(&r->lock);
    dw_link *link = from->link;
    from->link = NULL;
    r->judging += link != NULL;
    pthread_mutex_unlock(&r->lock);
    if (!link) return;
    dw_link_handle(link, TAG_GREETING, NULL, NULL);
    unsigned rank = read_greeting(r, link, data, len, sentence);
    pthread_mutex_lock(&r->lock);
    guest *const who = &r->guests[rank];
    if (rank > 0 && who->link)
        snprintf(sentence, sizeof sentence,
                 "two processes were started as rank %u; give each its own rank", rank);
    if (!sentence[0]) {
        who->link = link;
        pass_on(r, rank);
        if (missing(r) == 0) __atomic_store_n(&r->enough, 1, __ATOMIC_RELAXED);
    } else {
        r->refused++;
        snprintf(r->refusal, sizeof r->refusal, "%s", sentence);
    }
    pthread_mutex_unlock(&r->lock);
    if (sentence[0]) {
        dw_link_send(link, TAG_REFUSAL, sentence, strlen(sentence));
        dw_link_close(link);
    } else {
        dw_link_handle(link, TAG_TELL, take_address, who);
    }
    pthread_mutex_lock(&r->lock);
    r->judging--;
    pthread_mutex_unlock(&r->lock);
}

/* Closes a connection that has not said its rank. */
static void dismiss(dw_rendezvous *r, arrival *silent)
{
    pthread_mutex_lock(&r->lock);
    dw_link *link = silent->link;
    silent->link = NULL;
    pthread_mutex_unlock(&r->lock);
    if (!link) return;
    dw_link_cancel(link);
    dw_link_close(link);
}

/* Takes a new connection, whose greeting will be received by the thread of its link. If there are
 * too many connections without a greeting, the oldest is closed. */
static void receive(dw_rendezvous *r, dw_link *link)
{
    arrival *at = &r->arrivals[r->next_arrival++ % ARRIVALS];
    dismiss(r, at);
    pthread_mutex_lock(&r->lock);
    *at = (arrival){.host = r, .link = link};
    pthread_mutex_unlock(&r->lock);
    dw_link_handle(link, TAG_GREETING, hear_arrival, at);
}

static bool all_are_told(dw_rendezvous *r)
{
    uint32_t told = 1;
    pthread_mutex_lock(&r->lock);
    for (uint32_t rank = 1; rank < r->options.ranks; rank++)
        told += (uint32_t)r->guests[rank].is_told;
    pthread_mutex_unlock(&r->lock);
    return told == r->options.ranks;
}

static bool is_complete(dw_rendezvous *r)
{
    pthread_mutex_lock(&r->lock);
    bool complete = missing(r) == 0;
    pthread_mutex_unlock(&r->lock);
    return complete;
}

/* If the error sentence of a listener says which connections it turned away, keeps that part of the
 * sentence in r->why. */
static void note_turned_away(dw_rendezvous *r, const char *sentence)
{
    const char *away = strstr(sentence, "turned away");
    if (!away) return;
    while (away > sentence && away[-1] != ';') away--;
    snprintf(r->why.text, sizeof r->why.text, "%s", away + strspn(away, " "));
}

/* Closes all connections to rank 0: first those without a greeting; then those of ranks, when no
 * greeting is being judged any more. */
static void let_go(dw_rendezvous *r)
{
    for (int i = 0; i < ARRIVALS; i++) dismiss(r, &r->arrivals[i]);
    for (unsigned judging = 1; judging > 0;) {
        pthread_mutex_lock(&r->lock);
        judging = r->judging;
        pthread_mutex_unlock(&r->lock);
        if (judging > 0) usleep(1000);
    }
    for (uint32_t rank = 1; rank < r->options.ranks; rank++) dw_link_close(r->guests[rank].link);
}

static void note_listening(void *context, const char *uri)
{
    dw_rendezvous *r = context;
    snprintf(r->heard_at, sizeof r->heard_at, "%.*s", (int)strcspn(uri, "?"), uri);
    __atomic_store_n(&r->listens, 1, __ATOMIC_RELEASE);
}

static void *serve(void *context)
{
    dw_rendezvous *r = context;
    int64_t end = dw_now_ms() + r->options.timeout_ms;
    while (!is_complete(r) && dw_now_ms() < end && !__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
        dw_link_options options = {.struct_size = sizeof options,
                                   .role = DW_LINK_LISTEN,
                                   .open_timeout_ms =
                                       (uint32_t)(end - dw_now_ms() > 0 ? end - dw_now_ms() : 1),
                                   .on_listening = note_listening,
                                   .listening_context = r,
                                   .max_message_bytes = MOST_MESSAGE_BYTES,
                                   .cancelled = &r->enough,
                                   .tls = r->options.tls ? &r->tls : NULL,
                                   .insecure_plaintext = r->options.insecure_plaintext};
        dw_link *link;
        dw_why why;
        dw_status status = dw_link_open(&link, r->uri, &options, &why);
        if (status == DW_OK) {
            receive(r, link);
        } else if (!__atomic_load_n(&r->listens, __ATOMIC_ACQUIRE)) {
            r->why = why;
            __atomic_store_n(&r->listens, -1, __ATOMIC_RELEASE);
            return NULL;
        } else {
            note_turned_away(r, why.text);
            usleep(1000 * LOOK_MS); /* a failed connection does not end the wait for the others */
        }
    }
    r->is_late = !is_complete(r) && dw_now_ms() >= end;
    while (!all_are_told(r) && dw_now_ms() < end && !__atomic_load_n(&r->stop, __ATOMIC_RELAXED))
        usleep(1000 * LOOK_MS);
    let_go(r);
    return NULL;
}

static dw_status start_serving(dw_rendezvous *r, dw_why *why)
{
    r->guests = calloc(r->options.ranks, sizeof *r->guests);
    if (!r->guests)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for a rendezvous of %u ranks",
                      r->options.ranks);
    for (uint32_t rank = 0; rank < r->options.ranks; rank++)
        r->guests[rank] = (guest){.host = r, .rank = rank};
    if (pthread_create(&r->thread, NULL, serve, r))
        return dw_say(why, DW_ERR_NO_MEMORY, "cannot start a thread for the rendezvous");
    r->is_serving = 1;
    int listens;
    while (!(listens = __atomic_load_n(&r->listens, __ATOMIC_ACQUIRE))) usleep(1000);
    if (listens > 0) return DW_OK;
    return dw_say(why, DW_ERR_ADDRESS, "rank 0 cannot listen for the other ranks: %.200s",
                  r->why.text);
}

/* ---- The other ranks ------------------------------------------------------------------------- */

static dw_status greet(dw_rendezvous *r, dw_why *why)
{
    dw_link_options options = {.struct_size = sizeof options,
                               .role = DW_LINK_CONNECT,
                               .open_timeout_ms = r->options.timeout_ms,
                               .max_message_bytes = MOST_MESSAGE_BYTES,
                               .cancelled = r->options.stop,
                               .tls = r->options.tls ? &r->tls : NULL,
                               .insecure_plaintext = r->options.insecure_plaintext};
    char text[64];
    dw_why link_why;
    dw_status status = dw_link_open(&r->link, r->uri, &options, &link_why);
    if (status < 0)
        return dw_say(why, status, "rank %u cannot reach rank 0: %.200s", r->options.rank,
                      link_why.text);
    int len = snprintf(text, sizeof text, "rank %u of %u", r->options.rank, r->options.ranks);
    return dw_link_send(r->link, TAG_GREETING, text, (size_t)len);
}

static dw_status ask_rank_0(dw_rendezvous *r, char *uri, size_t cap, int64_t end, dw_why *why)
{
    void *data;
    size_t len;
    dw_status status = DW_PENDING;
    while (status == DW_PENDING && dw_now_ms() < end && !is_stopped(r)) {
        status = dw_link_recv(r->link, TAG_ADDRESS, LOOK_MS, &data, &len);
        if (status == DW_OK || dw_link_recv(r->link, TAG_REFUSAL, 0, &data, &len) != DW_OK)
            continue;
        dw_say(why, DW_ERR_MISMATCH, "%.*s", (int)(len < 160 ? len : 160), (const char *)data);
        dw_link_release(r->link, data);
        return DW_ERR_MISMATCH;
    }
    if (status == DW_OK) {
        snprintf(uri, cap, "%.*s", (int)len, (const char *)data);
        dw_link_release(r->link, data);
        return DW_OK;
    }
    if (status < 0)
        return dw_say(why, status,
                      "rank %u lost the connection to rank 0 before all ranks had met: %.180s",
                      r->options.rank, dw_link_why(r->link));
    return DW_PENDING;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static dw_status write_file(dw_rendezvous *r, const char *uri, dw_why *why)
{
    char path[URI_BYTES + 16], fresh[URI_BYTES + 40];
    snprintf(path, sizeof path, "%s.%u", r->path, r->options.rank);
    /* Other users, too, may be able to write to this directory. So the name of the new file must be
     * one that nobody can know before, and the file must be created here (mkostemp). */
    snprintf(fresh, sizeof fresh, "%s.new.XXXXXX", path);
    int fd = mkostemp(fresh, O_CLOEXEC);
    char line[URI_BYTES + 1];
    int len = snprintf(line, sizeof line, "%s\n", uri);
    bool written = fd >= 0 && len < (int)sizeof line && write(fd, line, (size_t)len) == len;
    /* rename is atomic, so the next rank never reads half an address. */
    if (fd >= 0 && close(fd) == 0 && written && rename(fresh, path) == 0) return DW_OK;
    int error = errno;
    if (fd >= 0) unlink(fresh);
    return dw_say(why, DW_ERR_IO, "cannot write %.200s: %s", path, strerror(error));
}

/* Reads the first line of a regular file, no longer than an address. PENDING: there is no such file
 * yet; a FIFO or a link that somebody else put there is not waited for, because rank 0 replaces
 * it. */
static dw_status read_line(const char *path, char *line, size_t cap, dw_why *why)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT || errno == ESTALE || errno == ELOOP)
            return DW_PENDING; /* ESTALE: NFS */
        return dw_say(why, DW_ERR_IO, "cannot read %.200s: %s", path, strerror(errno));
    }
    struct stat about;
    bool is_known = fstat(fd, &about) == 0, is_file = is_known && S_ISREG(about.st_mode);
    ssize_t len = is_file ? read(fd, line, cap - 1) : 0;
    close(fd);
    if (!is_file && !(is_known && S_ISDIR(about.st_mode))) return DW_PENDING;
    line[len > 0 ? len : 0] = '\0';
    size_t end = strcspn(line, "\n");
    if (line[end] == '\0')
        return dw_say(why, DW_ERR_IO,
                      "%.200s is not a file of a rendezvous; give --link file:// a path that "
                      "nothing else uses",
                      path);
    line[end] = '\0';
    return DW_OK;
}

static dw_status read_file(dw_rendezvous *r, char *uri, size_t cap, int64_t end, dw_why *why)
{
    char path[URI_BYTES + 16];
    snprintf(path, sizeof path, "%s.%u", r->path, r->options.rank - 1);
    while (dw_now_ms() < end && !is_stopped(r)) {
        dw_status status = read_line(path, uri, cap, why);
        if (status == DW_OK) {
            unlink(path); /* the next run must not find it */
            return DW_OK;
        }
        if (status < 0) return status;
        usleep(1000 * LOOK_MS);
    }
    return DW_PENDING;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

dw_status dw_rendezvous_open(dw_rendezvous **rendezvous, const dw_rendezvous_options *options,
                             dw_why *why)
{
    *rendezvous = NULL;
    dw_rendezvous *r = calloc(1, sizeof *r);
    if (!r) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for a rendezvous");
    r->options = *options;
    dw_rank_name(r->own_name, options->rank);
    if (options->tls) r->tls = *options->tls;
    r->tls.own_name = r->own_name;
    /* Under TLS, rank 0 accepts any name, and read_greeting compares it with the rank. */
    r->tls.peer_name = options->rank == 0 ? NULL : "rank/0";
    /* Rank 0 listens on the same port for one rank after another. The port is free again only if
     * connections are not resumed, hence grace=0ms. */
    snprintf(r->uri, sizeof r->uri, "%s?stripes=1&grace=0ms", options->uri);
    pthread_mutex_init(&r->lock, NULL);
    dw_status status = DW_OK;
    if (!strncmp(options->uri, "file:", 5)) {
        const char *path = options->uri + 5;
        if (!strncmp(path, "//", 2)) path += 2;
        snprintf(r->path, sizeof r->path, "%s", path);
        if (!*path)
            status = dw_say(why, DW_ERR_ARGUMENT,
                            "file:// needs a path that all ranks see, as file:///shared/run1");
    } else {
        status = options->rank == 0 ? start_serving(r, why) : greet(r, why);
    }
    if (status < 0) {
        dw_rendezvous_close(r);
        return status;
    }
    *rendezvous = r;
    return DW_OK;
}

dw_status dw_rendezvous_ask(dw_rendezvous *r, char *uri, size_t cap, dw_why *why)
{
    int64_t end = dw_now_ms() + r->options.timeout_ms;
    dw_status status =
        *r->path ? read_file(r, uri, cap, end, why) : ask_rank_0(r, uri, cap, end, why);
    if (status != DW_PENDING) return status;
    if (is_stopped(r)) return dw_say(why, DW_ERR_CANCELLED, "rank %u was stopped", r->options.rank);
    return dw_say(why, DW_ERR_TIMEOUT,
                  "rank %u did not report its address within %u ms; is it running?",
                  r->options.rank - 1, r->options.timeout_ms);
}

dw_status dw_rendezvous_tell(dw_rendezvous *r, const char *uri, dw_why *why)
{
    if (*r->path) return write_file(r, uri, why);
    if (r->is_serving) {
        take_address(&r->guests[0], uri, strlen(uri));
        return DW_OK;
    }
    dw_status status = dw_link_send(r->link, TAG_TELL, uri, strlen(uri));
    if (status < 0)
        return dw_say(why, status, "rank %u cannot report its address to rank 0: %.180s",
                      r->options.rank, dw_link_why(r->link));
    return DW_OK;
}

void dw_rendezvous_stop(dw_rendezvous *r, dw_why *why)
{
    *why = (dw_why){.text = "", .offset = -1};
    if (!r || !r->is_serving) return;
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&r->enough, 1, __ATOMIC_RELAXED);
    pthread_join(r->thread, NULL);
    r->is_serving = false;
    if (missing(r) == 0) return;
    if (r->refused > 0)
        dw_say(why, DW_ERR_AUTH, "where the ranks meet, %u were refused; the last one was told: %s",
               r->refused, r->refusal);
    else if (r->why.text[0])
        dw_say(why, DW_ERR_AUTH, "where the ranks meet, %.200s", r->why.text);
    else if (r->is_late)
        dw_say(why, DW_ERR_TIMEOUT,
               "%u of %u ranks did not come to %.100s, where rank 0 listened for them", missing(r),
               r->options.ranks, r->heard_at);
}

void dw_rendezvous_close(dw_rendezvous *r)
{
    if (!r) return;
    dw_why strangers;
    dw_rendezvous_stop(r, &strangers);
    dw_link_close(r->link);
    pthread_mutex_destroy(&r->lock);
    free(r->guests);
    free(r);
}
