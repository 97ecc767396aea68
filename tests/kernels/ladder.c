/* SPDX-License-Identifier: Apache-2.0
 * ladder.c - tests the choice of a table by the features of the processor and by the mask of the
 * caller. */
#include "check_kernels.h"
#include "common/cpu.h"
#include "kernel_rig.h"

/* The features for which this build has kernels: none with -Dsimd=disabled. */
static uint32_t features_here(void)
{
#if defined(DW_HAVE_X86_KERNELS) || defined(DW_HAVE_NEON_KERNELS)
    return dw_cpu_features();
#else
    return 0;
#endif
}

/* The best table for these features. */
static const char *best_of(uint32_t features)
{
    const char *best = "c";
    for (int i = 0; i < KERNEL_TABLES; i++)
        if ((kernel_tables[i].needs & ~features) == 0) best = kernel_tables[i].name;
    return best;
}

/* *state: the name of the table that must be the best one here, or NULL. */
static void the_best_allowed_table_is_chosen(void **state)
{
    const char *expected = *state;
    uint32_t features = features_here();
    for (uint32_t mask = 0; mask < 16; mask++)
        assert_string_equal(dw_kernels_choose(mask)->name, best_of(features & mask));
    assert_string_equal(dw_kernels_choose(~0u)->name, best_of(features));
    if (expected) assert_string_equal(dw_kernels_choose(~0u)->name, expected);
    assert_ptr_equal(dw_kernels_find("c"), &dw_kernels_c);
    assert_null(dw_kernels_find("no such table"));
    for (int i = 0; i < KERNEL_TABLES; i++) {
        bool is_found = dw_kernels_find(kernel_tables[i].name) != NULL;
        assert_true(is_found == ((kernel_tables[i].needs & ~features) == 0));
    }
}

int check_ladder(char *best)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(the_best_allowed_table_is_chosen, best),
    };
    return cmocka_run_group_tests_name("ladder", tests, NULL, NULL);
}
