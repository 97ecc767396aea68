/* SPDX-License-Identifier: Apache-2.0
 * epochs.c - visits of the same keys, epoch after epoch. */
#include "epochs.h"

static void run(dw_cuda *cuda, const char *config, const epochs_shape *s, dw_dtype x, dw_dtype y,
                test_random *random)
{
    rig r;
    dw_key keys[4];
    rig_open(&r, cuda, config, s->n, s->t, s->c,
             test_next(random) % 2 ? DW_CUDA_DEVICE : DW_CUDA_PINNED);
    for (uint32_t i = 0; i < s->n; i++)
        keys[i] = (dw_key){test_next(random), (uint32_t)test_next(random)};
    for (int epoch = 0; epoch < 6; epoch++) {
        size_t elements = (size_t)s->n * s->t * s->c;
        test_fill(random, r.x, x, elements, epoch == 3 ? 1e-30f : 3.0f);
        if (epoch == 2) test_spoil(random, r.x, x, elements, true);
        rig_encode(&r, keys, x);
        if (epoch == 3) continue;
        rig_decode(&r, y);
        if (epoch != 1) rig_feedback(&r);
        for (uint32_t i = 0; i < s->n; i++) rig_in_step(&r, keys[i]);
        if (epoch == 4 && r.config.feedback) rig_undo(&r, keys, x);
        if (epoch == 5 && r.config.feedback) rig_give_back(&r, keys);
    }
    rig_same_counters(&r);
    rig_close(&r);
}

void epochs_compare(const char *const *configs, int n_configs, const epochs_shape *shapes,
                    int n_shapes)
{
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    for (int k = 0; k < n_configs; k++)
        for (int i = 0; i < n_shapes; i++)
            for (int j = 0; j < 3; j++)
                if (j == (k + i) % 3 || !EPOCHS_OF_ONE_DTYPE)
                    run(cuda, configs[k], &shapes[i], dtypes[j], dtypes[(k + i + j) % 3], &random);
    rig_close_cuda(cuda);
}
