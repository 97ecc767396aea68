/* SPDX-License-Identifier: Apache-2.0
 * epochs.h - visits of the same keys, epoch after epoch, to compare encoders and decoders on a
 * device with those on the CPU. */
#ifndef DW_TEST_CUDA_EPOCHS_H
#define DW_TEST_CUDA_EPOCHS_H

#include "rig.h"

typedef struct epochs_shape {
    uint32_t n, t, c; /* n: at most 4 */
} epochs_shape;

/* Runs six epochs for every config, shape and dtype of x: with unusual values, values near zero,
 * lost frames and lost replies. Frames, tensors, replies, states and counters must be equal. */
void epochs_compare(const char *const *configs, int n_configs, const epochs_shape *shapes,
                    int n_shapes);

#endif
