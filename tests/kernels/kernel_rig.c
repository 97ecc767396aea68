/* SPDX-License-Identifier: Apache-2.0
 * kernel_rig.c - the list of kernel tables, benches for them, and comparisons. */
#include "kernel_rig.h"

#include "common/cpu.h"

const kernel_table kernel_tables[KERNEL_TABLES] = {{"avx2", DW_CPU_AVX2},
                                                   {"avx512", DW_CPU_AVX512},
                                                   {"vbmi2", DW_CPU_AVX512 | DW_CPU_VBMI2},
                                                   {"neon", DW_CPU_NEON}};

const dw_kernels *const specification = &dw_kernels_c;

const dw_dtype dtypes[DTYPES] = {DW_F32, DW_F16, DW_BF16};
const char *const dtype_names[DTYPES + 1] = {"", "f32", "f16", "bf16"};

static int share = 1; /* the value of --share, for every bench */

uint32_t below(bench *b, uint32_t n)
{
    return (uint32_t)(test_next(&b->random) % n);
}

dw_dtype any_dtype(bench *b)
{
    return dtypes[below(b, DTYPES)];
}

int drawn(const bench *b, int all, int always)
{
    return always + (all - always) / b->share;
}

void random_bytes(bench *b, void *to, size_t n)
{
    unsigned char *bytes = to;
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)test_next(&b->random);
}

void *guarded(bench *b, int which, size_t bytes)
{
    void *memory = slot_place(b->slots[which], bytes, below(b, 2) != 0);
    random_bytes(b, memory, bytes);
    return memory;
}

void *guarded_copy(bench *b, int which, const void *from, size_t bytes)
{
    void *memory = guarded(b, which, bytes);
    memcpy(memory, from, bytes);
    return memory;
}

void same_bytes(const char *what, const void *expected, const void *found, size_t n,
                const char *table, const char *run)
{
    const unsigned char *a = expected, *b = found;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            fail_msg("%s: %s: byte %zu of %zu is %02x, expected %02x: %s", table, what, i, n, b[i],
                     a[i], run);
}

void encoded_place(bench *b, encoded *made)
{
    made->scales = guarded(b, SLOT_SCALES, made->scale_bytes);
    made->choices = guarded(b, SLOT_CHOICES, made->choice_bytes);
    made->codes = guarded(b, SLOT_CODES, made->code_bytes);
    made->next = guarded(b, SLOT_NEXT, made->next_bytes);
}

encoded encoded_twin(const encoded *made)
{
    static unsigned char memory[4][4 * MOST];
    encoded twin = *made;
    twin.scales = memcpy(memory[0], made->scales, made->scale_bytes);
    twin.choices = memcpy(memory[1], made->choices, made->choice_bytes);
    twin.codes = memcpy(memory[2], made->codes, made->code_bytes);
    twin.next = memcpy(memory[3], made->next, made->next_bytes);
    return twin;
}

void same_encoded(const encoded *expected, const encoded *found, const char *table, const char *run)
{
    same_bytes("scales", expected->scales, found->scales, found->scale_bytes, table, run);
    same_bytes("choices", expected->choices, found->choices, found->choice_bytes, table, run);
    same_bytes("codes", expected->codes, found->codes, found->code_bytes, table, run);
    same_bytes("next", expected->next, found->next, found->next_bytes, table, run);
    same_bytes("counts", &expected->counts, &found->counts, sizeof found->counts, table, run);
}

void try_table(const dw_kernels *kernels, void (*check)(bench *b))
{
    bench b = {.random = {test_seed()}, .kernels = kernels, .share = share};
    for (int i = 0; i < SLOTS; i++) b.slots[i] = slot_open(SLOT_BYTES);
    check(&b);
    for (int i = 0; i < SLOTS; i++) slot_close(b.slots[i]);
}

int try_tables(void (*check)(bench *b))
{
    int found = 0;
    for (int i = 0; i < KERNEL_TABLES; i++) {
        const dw_kernels *kernels = dw_kernels_find(kernel_tables[i].name);
        if (!kernels) continue;
        try_table(kernels, check);
        found++;
    }
    return found;
}

void for_each_table(void **state)
{
    const kernel_check *what = *state;
    if (try_tables(what->check) == 0) skip();
}

void for_all_tables(void **state)
{
    const kernel_check *what = *state;
    try_table(specification, what->check);
    try_tables(what->check);
}

bool kernel_rig_read(int argc, char **argv, char **best)
{
    bool understood = argc % 2 == 1;
    for (int i = 1; i < argc && understood; i += 2) {
        if (strcmp(argv[i], "--share") == 0 && atoi(argv[i + 1]) > 0)
            share = atoi(argv[i + 1]);
        else if (best && strcmp(argv[i], "--best") == 0)
            *best = argv[i + 1];
        else
            understood = false;
    }
    if (!understood)
        fprintf(stderr, "usage: %s [--share N]%s\n", argv[0], best ? " [--best NAME]" : "");
    return understood;
}
