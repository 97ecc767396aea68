/* SPDX-License-Identifier: Apache-2.0
 * peers.c - the list of baselines. To measure another one, write its file, and add a line here. */
#include "peer.h"

const dw_peer *const dw_peers[] = {&dw_peer_acsgd,
                                   &dw_peer_acsgd_l2,
                                   &dw_peer_rowwise,
                                   &dw_peer_linear,
                                   &dw_peer_dynamic,
                                   &dw_peer_normal,
#ifdef DW_BENCH_ZFP
                                   &dw_peer_zfp_accuracy,
                                   &dw_peer_zfp_rate,
#endif
                                   0};

#ifdef DW_BENCH_ZFP
const char dw_peers_missing[] = "";
#else
const char dw_peers_missing[] = "libzfp";
#endif
