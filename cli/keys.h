/* SPDX-License-Identifier: Apache-2.0
 * keys.h - keys and certificates of a run: options, environment, names of ranks. */
#ifndef DW_CLI_KEYS_H
#define DW_CLI_KEYS_H

#include "deltawire/tls.h"
#include "deltawire/trainer.h"

enum { DW_RANK_NAME_BYTES = 24 };

/* "rank/3": as the trainer calls its ends, too. */
void dw_rank_name(char name[DW_RANK_NAME_BYTES], uint32_t rank);

/* From what the options named to what a link wants: *tls has the files that were given, or gets the
 * group key that DELTAWIRE_GROUP_KEY_FILE names where there are none. Options go before the
 * environment, insecure_plaintext among them; and where nothing goes by TCP (mpi://) the
 * environment means others. config.tls is set, or stays NULL. */
dw_status dw_keys_choose(dw_tls_options *tls, const char *link, dw_train_config *config,
                         dw_why *why);

/* `deltawire keygen FILE` */
int dw_cli_keygen(int argc, char **argv);

#endif
