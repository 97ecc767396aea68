/* SPDX-License-Identifier: Apache-2.0
 * signals.c - how a run is asked to stop. */
#include "signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"

volatile int dw_stop_signal;

/* One Ctrl-C can arrive twice: from the terminal, which signals the whole process group, and from
 * the parent, which forwards it. A third signal means that the user does not want to wait for a
 * clean end. The handler may run on any thread, on threads of the matrix library as well, and on
 * two threads at once. */
static void on_signal(int number)
{
    static atomic_int times;
    __atomic_store_n(&dw_stop_signal, number, __ATOMIC_RELAXED);
    if (atomic_fetch_add(&times, 1) >= 2) _exit(DW_EXIT_SIGNAL + number);
}

void dw_catch_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* So that write() returns an error at the file size limit, instead of ending the process. */
    signal(SIGXFSZ, SIG_IGN);
}

void dw_explain_stop(int signal_number, bool is_training)
{
    dw_complain("stopped by %s before the end%s",
                signal_number == SIGINT ? "Ctrl-C" : strsignal(signal_number),
                is_training ? "; the checkpoints saved so far are complete" : "");
}
