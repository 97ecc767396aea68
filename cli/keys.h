/* SPDX-License-Identifier: Apache-2.0
 * keys.h - keys and certificates of a run: options, environment, names of ranks. */
#ifndef DW_CLI_KEYS_H
#define DW_CLI_KEYS_H

#include "deltawire/tls.h"
#include "deltawire/trainer.h"

enum { DW_RANK_NAME_BYTES = 24 };

/* Writes "rank/3": the name under which the trainer, too, authenticates this rank. */
void dw_rank_name(char name[DW_RANK_NAME_BYTES], uint32_t rank);

/* Decides how the ranks authenticate each other. On entry *tls holds the files that the options
 * named. If there are none, *tls gets the group key that DELTAWIRE_GROUP_KEY_FILE names, except
 * with insecure_plaintext, and with mpi://, which does not use TCP. Sets config->tls to tls, or to
 * NULL where there are no keys. */
dw_status dw_keys_choose(dw_tls_options *tls, const char *link, dw_train_config *config,
                         dw_why *why);

/* `deltawire keygen FILE` */
int dw_cli_keygen(int argc, char **argv);

#endif
