/* SPDX-License-Identifier: Apache-2.0
 * test_cpu.c - the caller's floating-point mode does not change any bit of the results, and the
 * library does not change the mode.
 *
 * The values are chosen so that every mode would show: some values of prev are subnormal, which
 * only an addition of zero can flush; one sum is subnormal although its terms are not; and all
 * other operations round. */
#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#include "common/cpu.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "support/tool.h"

/* ---- Modes of this processor ----------------------------------------------------------------- */

#if defined(__x86_64__)

/* MXCSR: bits 13 and 14 select the rounding, bit 15 is FTZ, bit 6 is DAZ; bits 7 to 12 mask traps,
 * bits 0 to 5 are flags. A program starts with 0x1f80. */
static const uint64_t modes[] = {0x1f80, 0x3f80, 0x5f80, 0x7f80, 0x9f80, 0x1fc0, 0x9fc0,
                                 0xbfc0, 0xdfc0, 0xffc0, 0x1fa1, 0x0000, 0x0d40, 0x9fed};

static uint64_t mode_get(void)
{
    return _mm_getcsr();
}

static void mode_set(uint64_t mode)
{
    _mm_setcsr((unsigned)mode);
}

#elif defined(__aarch64__)

/* FPCR: bits 22 and 23 select the rounding, bit 24 is FZ, 25 DN, 26 AHP, 19 FZ16, 8 to 15 enable
 * traps. The upper half of our word is FPSR, whose bits 0 to 7 are flags. */
static const uint64_t modes[] = {0x00000000,
                                 0x00400000,
                                 0x00800000,
                                 0x00c00000,
                                 0x01000000,
                                 0x02000000,
                                 0x04000000,
                                 0x00080000,
                                 0x07c80000,
                                 0x07800000,
                                 0x01000000 | UINT64_C(0x11) << 32,
                                 UINT64_C(0x9f) << 32,
                                 0x00001f00};

static uint64_t mode_get(void)
{
    uint64_t control, status;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("mrs %0, fpsr" : "=r"(status));
    return control | status << 32;
}

static void mode_set(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode & 0xffffffff));
    __asm__ volatile("msr fpsr, %0" : : "r"(mode >> 32));
}

#else

/* The rounding as fenv.h names it; the flags are in the upper half. */
static const uint64_t modes[] = {FE_TONEAREST,
#ifdef FE_TOWARDZERO
                                 FE_TOWARDZERO,
#endif
#ifdef FE_UPWARD
                                 FE_UPWARD,
#endif
#ifdef FE_DOWNWARD
                                 FE_DOWNWARD,
#endif
                                 FE_TONEAREST | (uint64_t)FE_ALL_EXCEPT << 32};

static uint64_t mode_get(void)
{
    return (uint64_t)fegetround() | (uint64_t)fetestexcept(FE_ALL_EXCEPT) << 32;
}

static void mode_set(uint64_t mode)
{
    fesetround((int)(mode & 0xffffffff));
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept((int)(mode >> 32));
}

#endif

enum { MODES = sizeof modes / sizeof *modes };

/* ---- Three visits of one key ----------------------------------------------------------------- */

enum { T = 2, C = 128, VISITS = 3 };

typedef struct journey {
    uint8_t frames[VISITS][4096], replies[VISITS][256];
    float y[VISITS][T * C];
    size_t lens[VISITS], reply_lens[VISITS];
    dw_status statuses[2 * VISITS];
    uint64_t left[2 * VISITS]; /* the mode after each call */
} journey;

/* x of all visits; fill_x chooses the first piece, the rest is random. Visit 0 stores the first
 * piece in prev bit by bit. The largest change of visit 1 is -2^-96, the smallest one that is not
 * coded as zero; its scale is 2^-103. That visit raises x[1] by one step from just above -2^-103,
 * and the sum is 2^-127, a subnormal number. */
static float x[VISITS][T * C];

static void fill_x(void)
{
    test_random random = {test_seed()};
    for (int v = 0; v < VISITS; v++) {
        test_fill(&random, x[v], DW_F32, T * C, 2.0f);
        for (int i = 0; i < 64; i++) x[v][i] = (float)(i % 2 ? -i : i) * 0x1p-140f;
        x[v][0] = v ? -0x1p-96f : 0.0f;
        x[v][1] = v ? 0.0f : -(0x1p-103f - 0x1p-127f);
    }
}

static void travel(journey *j, const char *config, dw_dtype y_dtype, const dw_kernels *kernels,
                   uint64_t mode)
{
    test_pair pair;
    dw_key key = {1, 0};
    uint64_t own = mode_get();
    memset(j, 0, sizeof *j);
    test_pair_open(&pair, config, 1, T, C, DW_F32);
    assert_true(pair.cap <= sizeof j->frames[0] && pair.reply_cap <= sizeof j->replies[0]);
    dw_encoder_use(pair.encoder, kernels);
    dw_decoder_use(pair.decoder, kernels);
    for (int v = 0; v < VISITS; v++) {
        dw_tensor tx = dw_tensor_3d(x[v], DW_F32, 1, T, C),
                  ty = dw_tensor_3d(j->y[v], y_dtype, 1, T, C);
        mode_set(mode);
        j->statuses[2 * v] =
            dw_encode(pair.encoder, &key, &tx, NULL, j->frames[v], pair.cap, &j->lens[v]);
        j->left[2 * v] = mode_get();
        mode_set(mode);
        j->statuses[2 * v + 1] = dw_decode(pair.decoder, j->frames[v], j->lens[v], &ty, NULL,
                                           j->replies[v], pair.reply_cap, &j->reply_lens[v]);
        j->left[2 * v + 1] = mode_get();
        mode_set(own);
    }
    test_pair_in_step(&pair, key);
    test_pair_close(&pair);
}

/* Whether this processor has the mode: the one that valgrind emulates does not flush subnormals,
 * and few Arm processors have traps. */
static bool mode_exists(uint64_t mode)
{
    uint64_t own = mode_get();
    mode_set(mode);
    uint64_t taken = mode_get();
    mode_set(own);
    return taken == mode;
}

static void check_modes(const char *config, dw_dtype y_dtype, const dw_kernels *kernels)
{
    static journey expected, found;
    travel(&expected, config, y_dtype, kernels, mode_get());
    for (int m = 0; m < MODES; m++) {
        if (!mode_exists(modes[m])) continue;
        travel(&found, config, y_dtype, kernels, modes[m]);
        for (int k = 0; k < 2 * VISITS; k++) {
            assert_int_equal(found.statuses[k], DW_OK);
            if (found.left[k] != modes[m])
                fail_msg("%s with %s: the mode was %llx and is %llx", config, kernels->name,
                         (unsigned long long)modes[m], (unsigned long long)found.left[k]);
            found.left[k] = expected.left[k];
        }
        if (memcmp(&expected, &found, sizeof found) != 0)
            fail_msg("%s with %s makes other bytes in the mode %llx", config, kernels->name,
                     (unsigned long long)modes[m]);
    }
}

TEST(the_callers_mode_changes_no_bit_and_is_not_changed)
{
    static const struct {
        const char *config;
        dw_dtype y;
    } cases[] = {
        {"delta:bits=8,scale=signed,key=raw,prev=f32,choose=never,incarnation=7", DW_F32},
        {"delta:bits=4,prev=f16,incarnation=7", DW_BF16},
        {"delta:bits=3,prev=bf16,key=f16,group=row,incarnation=7", DW_F16},
        {"delta:bits=2,scale=mse,rounding=stochastic,incarnation=7", DW_F32},
        {"delta:bits=1,group=channel,incarnation=7", DW_F32},
        {"direct:bits=5,group=32,incarnation=7", DW_F16},
        {"raw:f16,incarnation=7", DW_F32},
    };
    fill_x();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t mask = 0; mask < 8; mask++)
            check_modes(cases[i].config, cases[i].y, dw_kernels_choose(mask));
}

/* Checks that the values above really contain subnormal numbers that a flushing mode would change;
 * otherwise the test above would prove nothing. */
TEST(subnormal_sums_are_kept)
{
    static journey j;
    fill_x();
    travel(&j, "delta:bits=8,scale=signed,key=raw,prev=f32,choose=never,incarnation=7", DW_F32,
           dw_kernels_choose(~0u), mode_get());
    assert_true(j.y[0][2] == 2 * 0x1p-140f && j.y[1][2] == j.y[0][2]);
    assert_true(j.y[1][1] == 0x1p-127f);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

/* An EPYC 9004 has 32 MiB for each eight cores: there a y of 16 MiB is as fast past the caches, and
 * larger ones are faster. A Xeon 8481C has 105 MiB: there y of 16 MiB is slower past them. */
TEST(a_y_that_half_of_the_last_cache_holds_is_stored_to_it)
{
    const uint64_t mib = 1 << 20;
    assert_int_equal(dw_cpu_past_from(32 * mib), 16 * mib);
    assert_true(dw_cpu_past_from(105 * mib) > 16 * mib);
    assert_true(dw_cpu_past_from(105 * mib) < 64 * mib);
    assert_int_equal(dw_cpu_past_from(0), 16 * mib); /* unknown */
}

TEST(the_last_cache_is_as_large_as_the_operating_system_says)
{
    unsigned long kib, largest = 0;
    for (int i = 0; i < 8; i++) {
        char path[80];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%luK", &kib) == 1 && kib > largest) largest = kib;
        fclose(file);
    }
    /* Only x86 is asked, and the processor that valgrind emulates has caches of its own. */
    bool is_emulated = !mode_exists(modes[MODES - 1]);
    if (largest == 0 || !(dw_cpu_features() & DW_CPU_AVX2) || is_emulated) skip();
    assert_int_equal(dw_cpu_last_cache(), (uint64_t)largest << 10);
}

RUN_TESTS(NULL, NULL)
