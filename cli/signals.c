/* SPDX-License-Identifier: Apache-2.0
 * signals.c - how a run is asked to stop. */
#include "signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"

volatile int dw_stop_signal;

/* A terminal signals a whole group, and the process that started the ranks passes the signal on:
 * two may mean one. Whoever asks a third time does not want to wait for a clean end. Any thread may
 * be the one that is interrupted, a pool's of the matrix library as well, and two at a time. */
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
    /* A file that grows past its limit is an error of write(), not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
}

void dw_explain_stop(int signal_number)
{
    dw_complain("stopped by %s before the end; checkpoints saved so far are whole",
                signal_number == SIGINT ? "Ctrl-C" : strsignal(signal_number));
}
