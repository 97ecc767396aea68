/* SPDX-License-Identifier: Apache-2.0
 * signals.h - how a run is asked to stop. */
#ifndef DW_CLI_SIGNALS_H
#define DW_CLI_SIGNALS_H

#include <stdbool.h>

/* The number of the signal that asked us to stop, 0 before. */
extern volatile int dw_stop_signal;

void dw_catch_signals(void);
/* Prints which signal stopped the program, and, if it was a training, that its checkpoints are
 * complete. */
void dw_explain_stop(int signal_number, bool is_training);

#endif
