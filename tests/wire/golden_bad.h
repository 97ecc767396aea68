/* SPDX-License-Identifier: Apache-2.0
 * golden_bad.h - changes of one byte that make a golden frame invalid, and the status that decoders
 * must return. */
#ifndef DW_GOLDEN_BAD_H
#define DW_GOLDEN_BAD_H

#include "deltawire/deltawire.h"

/* Offsets in a frame of two entries of codec delta, which has six parameters. */
enum { PARAMETERS = 80, ENTRY = PARAMETERS + 6 * 8, SECOND = ENTRY + 48, TABLES_END = SECOND + 48 };

/* One byte is changed, and the digests are computed again. */
typedef struct golden_change {
    uint16_t at;
    uint8_t value;
    dw_status expected;
} golden_change;

static const golden_change delta_fields[] = {
    {6, 0, DW_ERR_FORMAT},                 /* codec */
    {6, 9, DW_ERR_FORMAT},                 /* a codec that does not exist */
    {6, 2, DW_ERR_FORMAT},                 /* a codec that has other parameters */
    {7, 2, DW_ERR_FORMAT},                 /* flags: the codec draws no places */
    {7, 3, DW_ERR_FORMAT},                 /* flags: the same, with a reply */
    {7, 4, DW_ERR_FORMAT},                 /* flags */
    {28, 0, DW_ERR_FORMAT},                /* T */
    {35, 1, DW_ERR_FORMAT},                /* C: a shape that is too large */
    {36, 1, DW_ERR_FORMAT},                /* F: the tables would end elsewhere */
    {40, 0, DW_ERR_FORMAT},                /* x */
    {40, 4, DW_ERR_FORMAT},                /* x */
    {41, 5, DW_ERR_FORMAT},                /* P */
    {41, 33, DW_ERR_FORMAT},               /* P: more than the limit */
    {42, 1, DW_ERR_FORMAT},                /* zero */
    {47, 1, DW_ERR_FORMAT},                /* zero */
    {48, 1, DW_ERR_FORMAT},                /* length: not the sum of the entries */
    {55, 1, DW_ERR_FORMAT},                /* length: more than the shape allows */
    {56, 1, DW_ERR_FORMAT},                /* seed: must be 0 without stochastic rounding */
    {PARAMETERS, 0, DW_ERR_FORMAT},        /* parameter 0 does not exist */
    {PARAMETERS, 3, DW_ERR_FORMAT},        /* a parameter that frames do not contain */
    {PARAMETERS, 200, DW_ERR_FORMAT},      /* a parameter that does not exist */
    {PARAMETERS + 1, 1, DW_ERR_FORMAT},    /* zero */
    {PARAMETERS + 4, 0, DW_ERR_FORMAT},    /* bits */
    {PARAMETERS + 4, 9, DW_ERR_FORMAT},    /* bits */
    {PARAMETERS + 7, 1, DW_ERR_FORMAT},    /* bits: the value's top byte */
    {PARAMETERS + 12, 48, DW_ERR_FORMAT},  /* group */
    {PARAMETERS + 20, 1, DW_ERR_FORMAT},   /* key: x itself is not written as 1 bit */
    {PARAMETERS + 20, 9, DW_ERR_FORMAT},   /* key */
    {PARAMETERS + 28, 9, DW_ERR_FORMAT},   /* prev */
    {PARAMETERS + 36, 3, DW_ERR_FORMAT},   /* choose */
    {PARAMETERS + 44, 0, DW_ERR_FORMAT},   /* audit: the default is always written out */
    {PARAMETERS + 44, 2, DW_ERR_MISMATCH}, /* audit */
    {PARAMETERS + 4, 5, DW_ERR_MISMATCH},  /* bits; key entries do not change */
    {ENTRY + 12, 0, DW_ERR_FORMAT},        /* role */
    {ENTRY + 12, 6, DW_ERR_FORMAT},        /* role */
    {ENTRY + 12, 3, DW_ERR_FORMAT},        /* role: delta without a base */
    {ENTRY + 13, 1, DW_ERR_FORMAT},        /* form: another one than the parameters say */
    {ENTRY + 13, 0, DW_ERR_FORMAT},        /* form: 0 does not exist */
    {ENTRY + 14, 2, DW_ERR_FORMAT},        /* use: not allowed with role key */
    {ENTRY + 14, 9, DW_ERR_FORMAT},        /* use */
    {ENTRY + 15, 1, DW_ERR_FORMAT},        /* zero */
    {ENTRY + 16, 1, DW_ERR_FORMAT},        /* base: key entries have none */
    {ENTRY + 24, 1, DW_ERR_FORMAT},        /* payload_bytes: not a multiple of 16 */
    {ENTRY + 24, 16, DW_ERR_FORMAT},       /* payload_bytes: the sum is wrong */
};

/* The same for a config whose changes are microscaled. It has six parameters, too: 6, 8, 9, 11, 14
 * and 15. Changes are e4m3 and keys are e5m2. Some other elements are as long as these, so that
 * only the comparison with the config detects them (DW_ERR_MISMATCH). */
static const golden_change mx_fields[] = {
    {6, 4, DW_ERR_FORMAT},                 /* codec: this one has a single parameter */
    {56, 1, DW_ERR_FORMAT},                /* seed: must be 0 without stochastic rounding */
    {PARAMETERS, 1, DW_ERR_FORMAT},        /* bits: not allowed together with form */
    {PARAMETERS, 2, DW_ERR_FORMAT},        /* group: not allowed together with form */
    {PARAMETERS + 4, 8, DW_ERR_FORMAT},    /* key: bits, not allowed together with form */
    {PARAMETERS + 4, 1, DW_ERR_FORMAT},    /* key: an element without the added 64 */
    {PARAMETERS + 4, 64, DW_ERR_FORMAT},   /* key: not an element */
    {PARAMETERS + 4, 71, DW_ERR_FORMAT},   /* key: not an element */
    {PARAMETERS + 4, 70, DW_ERR_FORMAT},   /* key: an element whose payload would be shorter */
    {PARAMETERS + 4, 66, DW_ERR_MISMATCH}, /* key */
    {PARAMETERS + 32, 13, DW_ERR_FORMAT},  /* an element without a form */
    {PARAMETERS + 32, 15, DW_ERR_FORMAT},  /* two elements */
    {PARAMETERS + 33, 1, DW_ERR_FORMAT},   /* zero */
    {PARAMETERS + 36, 0, DW_ERR_FORMAT},   /* form */
    {PARAMETERS + 36, 1, DW_ERR_FORMAT},   /* form: floats */
    {PARAMETERS + 36, 2, DW_ERR_FORMAT},   /* form: the default is never written */
    {PARAMETERS + 37, 1, DW_ERR_FORMAT},   /* form: the value's second byte */
    {PARAMETERS + 40, 16, DW_ERR_FORMAT},  /* a parameter that does not exist */
    {PARAMETERS + 44, 0, DW_ERR_FORMAT},   /* element */
    {PARAMETERS + 44, 7, DW_ERR_FORMAT},   /* element */
    {PARAMETERS + 44, 66, DW_ERR_FORMAT},  /* element: written as in parameter key */
    {PARAMETERS + 47, 1, DW_ERR_FORMAT},   /* element: the value's top byte */
    {PARAMETERS + 44, 1, DW_ERR_MISMATCH}, /* element; key entries do not change */
    {ENTRY + 13, 1, DW_ERR_FORMAT},        /* form of an entry: floats */
    {ENTRY + 13, 2, DW_ERR_FORMAT},        /* quantized */
    {ENTRY + 13, 4, DW_ERR_FORMAT},        /* a form that does not exist */
    {ENTRY + 14, 3, DW_ERR_FORMAT},        /* use: not allowed with role key */
};

/* Payloads of topk and chunk whose bytes are changed one at a time: `at`, value, `at`, value and so
 * on. Each must be refused with FORMAT. There are two values in a sample of 50 elements, numbers 10
 * and 40; or every other one of 64; or 15 of 300. 255: the last byte of the places. Of chunk there
 * are numbers 10 and 74 of two chunks and 10 of a third one; and values whose gaps are longer after
 * the last but one change, so that one of them moves to the next chunk. */
static const struct golden_sparse {
    const char *name, *config;
    uint32_t c, every; /* elements, and which of them are large */
    uint32_t count;
    uint8_t changes[32];
} golden_sparse[] = {
    {"bad_topk_numbers", "topk:keep=0.03", 50, 30, 16, {0,  0,    0,  1,    0,  3,    0,  4,
                                                        1,  5,    1,  7,    2,  1,    3,  1,
                                                        4,  1,    4,  3,    5,  1,    8,  1,
                                                        17, 0x02, 17, 0x0f, 17, 0x1a, 15, 1}},
    {"bad_topk_mask", "topk:keep=0.5", 64, 2, 11, {0, 0, 0, 2,  1, 1,  2,    1,  4,    7,  4,
                                                   9, 7, 1, 16, 0, 16, 0xff, 23, 0xff, 15, 1}},
    {"bad_topk_gaps", "topk:keep=0.05", 300, 20, 11, {0, 0, 0, 1, 0, 2, 1, 32,  1, 255, 2,
                                                      1, 4, 1, 6, 1, 8, 1, 255, 0, 255, 0xff}},
    {"bad_chunk_numbers",
     "chunk:chunk=128,keep=0.01",
     300,
     64,
     13,
     {0, 0, 0, 1, 0, 3, 1, 6, 1, 8, 1, 9, 4, 4, 4, 6, 16, 74, 19, 0xa0, 20, 0x03, 20, 0x08, 15, 1}},
    {"bad_chunk_gaps",
     "chunk:chunk=128,keep=0.05",
     310,
     18,
     8,
     {0, 0, 0, 1, 0, 2, 1, 32, 2, 1, 4, 1, 16, 0x7f, 255, 0}},
    {"bad_cocktail",
     "cocktail:mask=0.5,keep=0.5",
     256,
     1,
     8,
     {0, 0, 0, 2, 1, 1, 4, 31, 4, 33, 16, 0xff, 31, 0, 15, 1}},
};

/* The same for the codec blocks with blocks of 64 values, which has the parameters 41 and 42. */
static const golden_change blocks_fields[] = {
    {6, 3, DW_ERR_FORMAT},                 /* codec: this one has another parameter */
    {6, 7, DW_ERR_FORMAT},                 /* codec: one that does not exist */
    {56, 1, DW_ERR_FORMAT},                /* seed: must be 0 */
    {PARAMETERS, 40, DW_ERR_FORMAT},       /* a parameter that does not exist */
    {PARAMETERS + 1, 1, DW_ERR_FORMAT},    /* zero */
    {PARAMETERS + 4, 0, DW_ERR_FORMAT},    /* codebook */
    {PARAMETERS + 4, 3, DW_ERR_FORMAT},    /* codebook: quantile, which has no parameter 42 */
    {PARAMETERS + 4, 4, DW_ERR_FORMAT},    /* codebook */
    {PARAMETERS + 7, 1, DW_ERR_FORMAT},    /* codebook: the value's top byte */
    {PARAMETERS + 12, 65, DW_ERR_FORMAT},  /* block */
    {PARAMETERS + 12, 32, DW_ERR_FORMAT},  /* block: too short */
    {PARAMETERS + 12, 0, DW_ERR_FORMAT},   /* block */
    {PARAMETERS + 14, 2, DW_ERR_FORMAT},   /* block: too long */
    {PARAMETERS + 4, 2, DW_ERR_MISMATCH},  /* codebook */
    {PARAMETERS + 12, 128, DW_ERR_FORMAT}, /* block: the payload would be shorter */
};

/* The same for a config whose changes are in steps, with dither. It has six parameters, too: 2, 4,
 * 6, 8, 11 and 14. Its seed is 0. */
static const golden_change step_fields[] = {
    {6, 2, DW_ERR_FORMAT},                   /* codec: this one has three parameters */
    {7, 3, DW_ERR_FORMAT},                   /* flags: dither is not drawn alike */
    {56, 1, DW_ERR_STATE},                   /* seed: allowed, but then the new prev is another */
    {PARAMETERS, 1, DW_ERR_FORMAT},          /* bits: not allowed together with form */
    {PARAMETERS + 4, 0xfe, DW_ERR_FORMAT},   /* group: channel */
    {PARAMETERS + 4, 0xfd, DW_ERR_MISMATCH}, /* group: sample, which is as long */
    {PARAMETERS + 8, 3, DW_ERR_FORMAT},      /* a parameter that frames do not contain */
    {PARAMETERS + 9, 1, DW_ERR_FORMAT},      /* zero */
    {PARAMETERS + 12, 1, DW_ERR_FORMAT},     /* rounding: nearest is never written */
    {PARAMETERS + 12, 2, DW_ERR_FORMAT},     /* rounding: stochastic is never written */
    {PARAMETERS + 20, 8, DW_ERR_FORMAT},     /* key: bits, not allowed together with form */
    {PARAMETERS + 20, 66, DW_ERR_FORMAT},    /* key: an element, not allowed with this form */
    {PARAMETERS + 20, 32, DW_ERR_FORMAT},    /* key: floats; the payload would be longer */
    {PARAMETERS + 32, 9, DW_ERR_FORMAT},     /* choose: not allowed together with form */
    {PARAMETERS + 40, 15, DW_ERR_FORMAT},    /* an element instead of a form */
    {PARAMETERS + 44, 2, DW_ERR_FORMAT},     /* form: the default is never written */
    {PARAMETERS + 44, 3, DW_ERR_FORMAT},     /* form: microscaled, which has other parameters */
    {PARAMETERS + 44, 5, DW_ERR_FORMAT},     /* form: one that does not exist */
    {ENTRY + 13, 2, DW_ERR_FORMAT},          /* form of an entry: quantized */
    {ENTRY + 13, 5, DW_ERR_FORMAT},          /* a form that does not exist */
    {ENTRY + 14, 3, DW_ERR_FORMAT},          /* use: not allowed with role key */
};

/* The same for rotated values with a scale per row, 16 tokens of 16 channels. There are four
 * parameters: 1, 2, 32 and 33. With a scale per channel the payload would be as long. */
static const golden_change rotated_fields[] = {
    {32, 40, DW_ERR_FORMAT},                /* C: not divisible; the payload would be longer, too */
    {PARAMETERS + 12, 0xfe, DW_ERR_FORMAT}, /* group: channel */
    {PARAMETERS + 16, 18, DW_ERR_FORMAT},   /* entropy in place of transform, beside rotate */
    {PARAMETERS + 17, 1, DW_ERR_FORMAT},    /* zero */
    {PARAMETERS + 20, 0, DW_ERR_FORMAT},    /* transform */
    {PARAMETERS + 20, 1, DW_ERR_FORMAT},    /* transform: the default is never written */
    {PARAMETERS + 20, 3, DW_ERR_FORMAT},    /* transform: one that does not exist */
    {PARAMETERS + 24, 34, DW_ERR_FORMAT},   /* transform without rotate */
    {PARAMETERS + 28, 0, DW_ERR_FORMAT},    /* rotate */
    {PARAMETERS + 28, 32, DW_ERR_FORMAT},   /* rotate: not a power of four */
    {PARAMETERS + 28, 64, DW_ERR_FORMAT},   /* rotate: it does not divide C */
};

/* The same for the codec tah: 3 tokens of 192 channels, two parameters, 34 and 36. The table has
 * one entry, so its payload begins at 144: the mask of 9 tiles, then their pivots. */
enum {
    TAH_ENTRY = PARAMETERS + 2 * 8,
    TAH_MASK = TAH_ENTRY + 48,
    TAH_PIVOTS = TAH_MASK + 16,
    TAH_OFFSETS = TAH_PIVOTS + 16
};
static const golden_change tah_fields[] = {
    {6, 9, DW_ERR_FORMAT},                 /* codec lowrank */
    {32, 200, DW_ERR_FORMAT},              /* C: tiles do not divide it */
    {PARAMETERS, 33, DW_ERR_FORMAT},       /* rotate */
    {PARAMETERS, 35, DW_ERR_FORMAT},       /* a parameter that frames do not contain */
    {PARAMETERS + 4, 32, DW_ERR_FORMAT},   /* tile */
    {PARAMETERS + 4, 0, DW_ERR_FORMAT},    /* tile */
    {PARAMETERS + 12, 1, DW_ERR_MISMATCH}, /* share: there are as many wide tiles */
    {PARAMETERS + 15, 1, DW_ERR_FORMAT},   /* share: more than all */
    {TAH_ENTRY + 13, 2, DW_ERR_FORMAT},    /* form of an entry: quantized */
    {TAH_ENTRY + 13, 6, DW_ERR_FORMAT},    /* form lowrank */
    {TAH_ENTRY + 24, 16, DW_ERR_FORMAT},   /* payload_bytes */
    {TAH_MASK, 0, DW_ERR_FORMAT},          /* too few wide tiles */
    {TAH_MASK + 1, 2, DW_ERR_FORMAT},      /* a bit that is left over, in place of tile 8 */
    {TAH_MASK + 1, 3, DW_ERR_FORMAT},      /* a bit that is left over */
    {TAH_PIVOTS, 64, DW_ERR_FORMAT},       /* a pivot outside of its tile */
    {TAH_PIVOTS + 8, 255, DW_ERR_FORMAT},  /* a pivot outside of its tile */
    {TAH_PIVOTS + 8, 63, DW_OK},           /* another pivot */
    {TAH_PIVOTS + 9, 255, DW_OK},          /* zeros, which readers ignore */
    {TAH_OFFSETS + 1, 0xff, DW_OK},        /* another offset: huge, or NaN */
    {TAH_OFFSETS + 3, 0x40, DW_OK},        /* another offset */
};

/* A frame of lowrank:rank=2 and a sample of 4 x 30, of floats of 4 bytes. Fields of it: byte `at`
 * becomes `value`. P is at byte 144, Q at 176. */
enum { LOWRANK_P = 80 + 2 * 8 + 48, LOWRANK_Q = LOWRANK_P + 32, LOWRANK_END = LOWRANK_Q + 240 };
static const golden_change lowrank_fields[] = {
    {80 + 8, 36, DW_ERR_FORMAT},      /* not the number of rank */
    {80 + 8, 40, DW_ERR_FORMAT},      /* width without rank */
    {80 + 12, 0, DW_ERR_FORMAT},      /* rank 0 */
    {80 + 12, 1, DW_ERR_FORMAT},      /* a payload of another size */
    {80 + 12, 5, DW_ERR_FORMAT},      /* a rank that 4 x 30 cannot have */
    {80 + 13, 4, DW_ERR_FORMAT},      /* rank 1026 */
    {28, 1, DW_ERR_FORMAT},           /* T */
    {80 + 16 + 13, 5, DW_ERR_FORMAT}, /* form sparse */
    {80 + 16 + 24, 0, DW_ERR_FORMAT}, /* payload_bytes */
    {6, 5, DW_ERR_FORMAT},            /* codec topk */
};

/* Factors that no encoder writes: words of P and Q at these places. */
static const struct {
    struct {
        uint16_t at;
        uint32_t bits;
    } words[4];
} lowrank_factors[] = {
    {{{LOWRANK_P, 0x7f800000}}},                          /* an infinity in P */
    {{{LOWRANK_P + 28, 0xff800000}}},                     /* the last one of P */
    {{{LOWRANK_Q, 0x7fc00000}}},                          /* a NaN in Q */
    {{{LOWRANK_Q + 236, 0xff800001}}},                    /* the last one of Q */
    {{{LOWRANK_P, 0x7f7fffff}, {LOWRANK_Q, 0x7f7fffff}}}, /* a product that overflows */
    {{{LOWRANK_P, 0x7f7fffff},                            /* and another one against it */
      {LOWRANK_Q, 0x7f7fffff},
      {LOWRANK_P + 16, 0x7f7fffff},
      {LOWRANK_Q + 120, 0xff7fffff}}},
    {{{LOWRANK_P, 1}, {LOWRANK_Q, 0x3f000000}}}, /* a subnormal */
    {{{LOWRANK_P, 0x3f800001},
      {LOWRANK_Q, 0x3f800001},
      {LOWRANK_P + 16, 0x3f800000},
      {LOWRANK_Q + 120, 0xbf800002}}}, /* products that nearly cancel */
};

/* The same for rank 6 in rows of 5, a sample of 3 x 6, and for rank 4 of 4 x 30, of which the
 * payload would be one of rank 5 if ranks were cut down to the number of tokens. */
static const golden_change lowrank_widths[] = {
    {80 + 16 + 4, 0, DW_ERR_FORMAT},  /* width 0 */
    {80 + 16 + 4, 6, DW_ERR_FORMAT},  /* another size */
    {80 + 8 + 4, 3, DW_ERR_FORMAT},   /* rank */
    {80 + 8 + 4, 7, DW_ERR_MISMATCH}, /* rank */
};
static const golden_change lowrank_ranks[] = {{80 + 8 + 4, 5, DW_ERR_FORMAT}};

/* Changes of the front of a block with a trellis, whose payload, at 160, has 16 bytes of scale and
 * 16 of sizes in front of it. Both tables have indices from -1 to 1. */
enum { TRELLIS_ENTRY = 80 + 3 * 8, TRELLIS_PAYLOAD = 160, TRELLIS_BLOCK = TRELLIS_PAYLOAD + 32 };
static const golden_change trellis_fields[] = {
    {TRELLIS_BLOCK, 0, DW_ERR_FORMAT},       /* k */
    {TRELLIS_BLOCK, 2, DW_ERR_FORMAT},       /* k */
    {TRELLIS_BLOCK, 4, DW_ERR_FORMAT},       /* k */
    {TRELLIS_BLOCK + 1, 0, DW_ERR_FORMAT},   /* least */
    {TRELLIS_BLOCK + 1, 64, DW_ERR_FORMAT},  /* least */
    {TRELLIS_BLOCK + 1, 190, DW_ERR_FORMAT}, /* least */
    {TRELLIS_BLOCK + 1, 255, DW_ERR_FORMAT}, /* least */
    {TRELLIS_BLOCK + 2, 0, DW_ERR_FORMAT},   /* R - 1 */
    {TRELLIS_BLOCK + 2, 1, DW_ERR_FORMAT},   /* R - 1 */
    {TRELLIS_BLOCK + 2, 255, DW_ERR_FORMAT}, /* R - 1 */
    {TRELLIS_BLOCK + 3, 0, DW_ERR_FORMAT},   /* parts */
    {TRELLIS_BLOCK + 3, 1, DW_ERR_FORMAT},   /* parts */
    {TRELLIS_BLOCK + 3, 3, DW_ERR_FORMAT},   /* parts */
    {TRELLIS_BLOCK + 3, 255, DW_ERR_FORMAT}, /* parts */
    {TRELLIS_BLOCK + 5, 255, DW_ERR_FORMAT}, /* W */
};

/* Of each config, a valid frame of ordinary values is sent with each of the changes, and then as it
 * is. */
#define CHANGES(table) table, sizeof table / sizeof *table
static const struct golden_bad {
    const char *name, *config;
    uint32_t n, t, c;
    const golden_change *changes;
    size_t count;
} golden_bad[] = {
    {"bad_fields", "delta:bits=4", 2, 1, 32, CHANGES(delta_fields)},
    {"bad_mx", "delta:form=mx,element=e4m3,key=e5m2", 2, 1, 32, CHANGES(mx_fields)},
    {"bad_step", "delta:form=step,rounding=dither,group=row", 2, 1, 32, CHANGES(step_fields)},
    {"bad_rotated", "direct:bits=4,group=row,transform=hadamard,rotate=16", 1, 16, 16,
     CHANGES(rotated_fields)},
    {"bad_tah", "tah", 1, 3, 192, CHANGES(tah_fields)},
    {"bad_lowrank", "lowrank:rank=2", 1, 4, 30, CHANGES(lowrank_fields)},
    {"bad_lowrank_width", "lowrank:rank=6,width=5,dtype=f32", 1, 3, 6, CHANGES(lowrank_widths)},
    {"bad_lowrank_rank", "lowrank:rank=4", 1, 4, 30, CHANGES(lowrank_ranks)},
    {"bad_blocks", "blocks:block=64", 1, 5, 60, CHANGES(blocks_fields)},
};

#endif
