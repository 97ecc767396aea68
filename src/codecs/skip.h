/* SPDX-License-Identifier: Apache-2.0
 * skip.h - when an encoder sends an entry without a payload (role skip). */
#ifndef DW_SKIP_H
#define DW_SKIP_H

#include "codecs/plan.h"

/* Whether the option skip is given and |x - base| is at most so much of |x|. What the receiver
 * holds is then as close to x as this. Never true if x or base has a NaN or an infinity. x: one
 * sample; base: dense, in the dtype prev. Threads: any. Source: SplitCom (arXiv:2602.10564) skips
 * samples by their distance, too. */
bool dw_skip_fits(const dw_plans *plans, const struct dw_kernels *kernels, const void *x,
                  int64_t stride, const void *base);

#endif
