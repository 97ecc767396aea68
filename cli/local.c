/* SPDX-License-Identifier: Apache-2.0
 * local.c - all ranks of a run as processes of this machine.
 *
 * Rank r is started when rank r - 1 has reported the address on which it listens. So no port is
 * guessed, and no other program can take the port in between. Each child runs this program with the
 * user's options and with those of its place. It reports to this process through a pipe, line by
 * line, so that an error which all ranks report is printed once. */
#include "local.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "complain.h"
#include "signals.h"

/* How long the other ranks may take to stop by themselves after one has failed, until they are
 * asked to, as one that still waits for a neighbour at its beginning has to be; then they are
 * killed. */
enum { ASK_S = 3, GRACE_S = 15 };
enum { LINE = 4096, PLACE_OPTIONS = 12 };

typedef struct child {
    pid_t pid;       /* 0: ended, or not yet started */
    int tells;       /* read end of the pipe through which it reports; -1: none */
    char line[LINE]; /* an incomplete line that it has sent */
    size_t len;
    char listening[LINE];
} child;

typedef struct local {
    child *children;
    uint32_t stages, ranks, started;
    bool needs_replica_listen;
    const char *link;
    int argc;
    char **argv;
    int code;         /* of the first that failed */
    time_t failed_at; /* 0: none did */
    /* The error of the first rank that reported one. The others repeat it or fail because of it. */
    char sentence[LINE];
    int passed_on;              /* the signal that was forwarded to the children; 0: none */
    bool has_asked, has_killed; /* the ranks that were left */
} local;

void dw_tell(int fd, const char *what, const char *text)
{
    char line[LINE];
    int len = snprintf(line, sizeof line, "%s %.2000s\n", what, text);
    /* The write fails if the parent has ended, and then nobody needs to know. */
    if (len > 0 && write(fd, line, (size_t)len) < 0) return;
}

static void fail(local *l, int code)
{
    if (!l->failed_at) {
        l->failed_at = time(NULL);
        l->code = code;
    }
}

static void signal_all(const local *l, int number)
{
    for (uint32_t r = 0; r < l->started; r++)
        if (l->children[r].pid) kill(l->children[r].pid, number);
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* In the child: executes this program with the arguments of its place. Returns only if that fails.
 */
static void become_rank(const local *l, uint32_t rank, int tell, pid_t parent)
{
#ifdef __linux__
    /* If the parent is killed, its ranks end too. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(DW_EXIT_FAILED);
#endif
    const char **argv = calloc((size_t)l->argc + PLACE_OPTIONS + 2, sizeof *argv);
    char words[3][32];
    if (!argv) return;
    int n = 0;
    argv[n++] = "deltawire";
    for (int i = 0; i < l->argc; i++) argv[n++] = l->argv[i];
    snprintf(words[0], sizeof words[0], "--rank=%u", rank);
    snprintf(words[1], sizeof words[1], "--stages=%u", l->stages);
    snprintf(words[2], sizeof words[2], "--tell=%d", tell);
    for (int i = 0; i < 3; i++) argv[n++] = words[i];
    if (l->needs_replica_listen) {
        argv[n++] = "--replica-listen";
        argv[n++] = l->link;
    }
    if (rank + 1 < l->ranks) {
        argv[n++] = "--listen";
        argv[n++] = l->link;
    }
    if (rank > 0) {
        argv[n++] = "--connect";
        argv[n++] = l->children[rank - 1].listening;
    }
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv); /* its type is older than const */
}

static int start_rank(local *l, uint32_t rank)
{
    child *c = &l->children[rank];
    int ends[2];
    pid_t parent = getpid();
    if (pipe(ends)) {
        dw_complain("cannot start rank %u: %s", rank, strerror(errno));
        return -1;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    c->pid = fork();
    if (c->pid == 0) {
        become_rank(l, rank, ends[1], parent);
        dw_complain("cannot start rank %u: %s", rank, strerror(errno));
        _exit(DW_EXIT_FAILED);
    }
    int error = errno;
    close(ends[1]);
    if (c->pid < 0) {
        c->pid = 0;
        close(ends[0]);
        dw_complain("cannot start rank %u: %s", rank, strerror(error));
        return -1;
    }
    c->tells = ends[0];
    l->started = rank + 1;
    return 0;
}

/* ---- Reports of the children ----------------------------------------------------------------- */

static void take_line(local *l, child *c, const char *line)
{
    if (!strncmp(line, "listening ", 10))
        snprintf(c->listening, sizeof c->listening, "%s", line + 10);
    else if (!strncmp(line, "failed ", 7) && !*l->sentence)
        snprintf(l->sentence, sizeof l->sentence, "%s", line + 7);
}

static void hear(local *l, child *c)
{
    ssize_t got = read(c->tells, c->line + c->len, sizeof c->line - 1 - c->len);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
        close(c->tells);
        c->tells = -1;
        return;
    }
    c->len += (size_t)got;
    c->line[c->len] = 0;
    char *end;
    while ((end = strchr(c->line, '\n'))) {
        *end = 0;
        take_line(l, c, c->line);
        c->len -= (size_t)(end + 1 - c->line);
        memmove(c->line, end + 1, c->len + 1);
    }
    if (c->len == sizeof c->line - 1) c->len = 0; /* dw_tell writes no line of this length */
}

/* Waits at most 100 ms for a report of a child. */
static void listen_to_all(local *l)
{
    struct pollfd *fds = calloc(l->started, sizeof *fds);
    if (!fds) return;
    for (uint32_t r = 0; r < l->started; r++)
        fds[r] = (struct pollfd){.fd = l->children[r].tells, .events = POLLIN};
    if (poll(fds, l->started, 100) > 0)
        for (uint32_t r = 0; r < l->started; r++)
            if (fds[r].revents) hear(l, &l->children[r]);
    free(fds);
}

static void count_the_ended(local *l)
{
    for (uint32_t r = 0; r < l->started; r++) {
        child *c = &l->children[r];
        int status;
        if (!c->pid || waitpid(c->pid, &status, WNOHANG) != c->pid) continue;
        c->pid = 0;
        while (c->tells >= 0) hear(l, c); /* read the pipe to its end */
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        if (WIFEXITED(status)) {
            fail(l, WEXITSTATUS(status));
        } else {
            if (!l->has_killed)
                dw_complain("rank %u was killed by signal %d (%s)", r, WTERMSIG(status),
                            strsignal(WTERMSIG(status)));
            fail(l, DW_EXIT_FAILED);
        }
    }
}

/* ---- The run --------------------------------------------------------------------------------- */

static bool any_left(const local *l)
{
    for (uint32_t r = 0; r < l->started; r++)
        if (l->children[r].pid) return 1;
    return 0;
}

/* Some time after a rank has failed, asks those that still run to stop, and later kills them. */
static void end_the_others(local *l)
{
    time_t waited = l->failed_at ? time(NULL) - l->failed_at : 0;
    if (waited > ASK_S && !l->has_asked) {
        l->has_asked = true;
        signal_all(l, SIGTERM);
    }
    if (waited > GRACE_S && !l->has_killed) {
        dw_complain(
            "some ranks did not stop within %d s after another one had failed; killing them",
            GRACE_S);
        l->has_killed = true;
        signal_all(l, SIGKILL);
    }
}

static void watch(local *l)
{
    do {
        listen_to_all(l);
        count_the_ended(l);
        if (dw_stop_signal && !l->passed_on) signal_all(l, l->passed_on = dw_stop_signal);
        const child *newest = &l->children[l->started - 1];
        if (l->started < l->ranks && *newest->listening && !l->failed_at && !dw_stop_signal &&
            start_rank(l, l->started))
            fail(l, DW_EXIT_FAILED);
        end_the_others(l);
    } while (any_left(l));
}

int dw_run_local(const dw_train_config *config, const char *link, int argc, char **argv)
{
    local l = {.stages = config->stages,
               .ranks = config->stages * config->replicas,
               .needs_replica_listen = config->replicas > 1 || (config->tied && config->stages > 2),
               .link = link,
               .argc = argc,
               .argv = argv};
    l.children = calloc(l.ranks, sizeof *l.children);
    if (!l.children) {
        dw_complain("out of memory");
        return DW_EXIT_FAILED;
    }
    for (uint32_t r = 0; r < l.ranks; r++) l.children[r].tells = -1;
    int code = DW_EXIT_FAILED;
    if (start_rank(&l, 0) == 0) {
        watch(&l);
        if (*l.sentence) dw_complain("%s", l.sentence);
        code = l.failed_at ? l.code : DW_EXIT_OK;
        if (l.passed_on && code) {
            code = DW_EXIT_SIGNAL + l.passed_on;
            dw_explain_stop(l.passed_on, true);
        }
    }
    free(l.children);
    return code;
}
