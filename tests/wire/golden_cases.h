/* SPDX-License-Identifier: Apache-2.0
 * golden_cases.h - the valid golden frames: make_golden.c encodes several visits of each. */
#ifndef DW_GOLDEN_CASES_H
#define DW_GOLDEN_CASES_H

#include "deltawire/deltawire.h"

typedef struct golden_case {
    const char *name, *config;
    dw_dtype x, y;
    uint32_t n, t, c;
} golden_case;

static const golden_case golden_cases[] = {
    {"raw_f32", "raw", DW_F32, DW_F16, 2, 3, 20},
    {"raw_bf16_of_f16", "raw:bf16", DW_F16, DW_F32, 1, 2, 33},
    {"raw_f16", "raw:f16", DW_F16, DW_BF16, 1, 2, 33},
    {"raw_f16_to_f32", "raw", DW_F16, DW_F32, 1, 2, 33},
    {"direct_2_signed", "direct:bits=2,scale=signed,group=32", DW_F32, DW_F32, 1, 3, 96},
    {"direct_3_row", "direct:bits=3,group=row", DW_BF16, DW_BF16, 1, 30, 100},
    {"direct_5", "direct:bits=5,group=16", DW_F16, DW_F32, 1, 2, 50},
    {"direct_8", "direct:bits=8,group=128", DW_F32, DW_F16, 1, 2, 130},
    {"delta_2_signed", "delta:bits=2,scale=signed", DW_F32, DW_F32, 2, 2, 64},
    {"delta_3", "delta:bits=3,group=32", DW_F32, DW_BF16, 1, 3, 70},
    {"delta_4_never", "delta:bits=4,choose=never,replies=never", DW_F32, DW_F32, 1, 2, 64},
    {"delta_4_bf16", "delta:bits=4", DW_BF16, DW_BF16, 1, 2, 128},
    {"delta_6_f16_row", "delta:bits=6,group=row,prev=f16", DW_F32, DW_F32, 1, 3, 90},
    {"delta_7_key_3", "delta:bits=7,key=3,group=256", DW_F16, DW_F16, 1, 1, 300},
    {"delta_8_key_raw", "delta:bits=8,key=raw,prev=bf16", DW_F32, DW_F32, 1, 2, 64},
    {"delta_4_key_f16", "delta:bits=4,key=f16,prev=f32", DW_F32, DW_F32, 1, 2, 64},
    {"delta_4_long_row", "delta:bits=4,group=row,key=4,audit=2,prev=f16", DW_F16, DW_F16, 1, 2,
     2100},
    {"delta_2_audit", "delta:bits=2,key=2,audit=3,group=256,prev=bf16", DW_BF16, DW_BF16, 1, 9,
     512},
    {"delta_4_no_audit", "delta:bits=4,audit=255", DW_F32, DW_F32, 1, 1, 64},
    {"direct_1_mse", "direct:bits=1,scale=mse,group=32", DW_F32, DW_F32, 1, 3, 96},
    {"direct_6_channel", "direct:bits=6,group=channel", DW_F16, DW_BF16, 1, 5, 300},
    {"delta_1", "delta:bits=1,prev=bf16,choose=never", DW_F32, DW_F32, 1, 2, 70},
    {"delta_1_stochastic", "delta:bits=1,prev=bf16,rounding=stochastic", DW_F32, DW_F32, 1, 2, 70},
    {"delta_2_mse", "delta:bits=2,scale=mse,group=32", DW_BF16, DW_F32, 1, 2, 100},
    {"delta_3_mse_long_row", "delta:bits=3,scale=mse,group=row,rounding=stochastic,seed=5", DW_F32,
     DW_F32, 1, 2, 2065},
    {"delta_4_channel", "delta:bits=4,group=channel", DW_F32, DW_F32, 2, 5, 40},
    {"delta_5_channel_mse", "delta:bits=5,scale=mse,group=channel,key=bf16,audit=2", DW_BF16,
     DW_F32, 1, 3, 2090},
    {"delta_1_channel_stochastic", "delta:bits=1,group=channel,rounding=stochastic", DW_F32, DW_F32,
     1, 6, 21},
    {"delta_4_stochastic", "delta:bits=4,rounding=stochastic,seed=7", DW_F32, DW_F32, 2, 2, 71},
    {"delta_4_quota", "delta:bits=4,quota_bytes=256", DW_F32, DW_F32, 2, 1, 64},
    {"direct_8_narrow", "direct:bits=8,group=256", DW_F32, DW_F32, 1, 40, 1},
    {"mx", "mx", DW_F32, DW_F32, 1, 3, 96},
    {"mx_int8", "mx:element=int8", DW_F16, DW_F32, 2, 2, 33},
    {"mx_e5m2", "mx:element=e5m2", DW_BF16, DW_F16, 1, 3, 70},
    {"mx_e3m2", "mx:element=e3m2", DW_F32, DW_BF16, 1, 2, 100},
    {"mx_e2m3", "mx:element=e2m3", DW_F16, DW_F16, 1, 5, 31},
    {"mx_e2m1", "mx:element=e2m1", DW_F32, DW_F32, 1, 2, 45},
    {"delta_mx", "delta:form=mx", DW_F32, DW_F32, 2, 2, 64},
    {"delta_mx_e2m1", "delta:form=mx,element=e2m1,key=bf16,audit=2", DW_BF16, DW_BF16, 1, 34, 70},
    {"delta_mx_never", "delta:form=mx,element=e2m3,key=e5m2,choose=never,prev=bf16", DW_F32, DW_F16,
     1, 3, 50},
    {"delta_mx_int8", "delta:form=mx,element=int8,key=int8,prev=f16", DW_F32, DW_F32, 1, 3, 97},
    {"delta_mx_e5m2", "delta:form=mx,element=e5m2,key=raw,choose=never", DW_F16, DW_F32, 1, 2, 40},
    {"delta_mx_e3m2", "delta:form=mx,element=e3m2,key=e4m3,audit=255", DW_F32, DW_BF16, 1, 2, 300},
    {"direct_step", "direct:form=step", DW_F32, DW_F32, 2, 3, 70},
    {"direct_step_row", "direct:form=step,group=row,step=0.25", DW_BF16, DW_F16, 1, 30, 100},
    {"direct_step_64", "direct:form=step,group=64,step=0.014,rounding=stochastic,seed=3", DW_F16,
     DW_BF16, 1, 3, 150},
    {"direct_step_dither", "direct:form=step,rounding=dither", DW_F32, DW_BF16, 2, 2, 45},
    {"direct_step_dither_row", "direct:form=step,group=row,step=0.02,rounding=dither,seed=9",
     DW_BF16, DW_F32, 1, 2, 2100},
    {"direct_step_dither_64", "direct:form=step,group=64,rounding=dither,seed=18446744073709551615",
     DW_F16, DW_F16, 1, 2, 99},
    {"delta_step", "delta:form=step", DW_F32, DW_F32, 2, 2, 64},
    {"delta_step_clamped", "delta:form=step,step=0.02,key_step=0.011,prev=bf16", DW_F32, DW_F16, 1,
     5, 130},
    {"delta_step_row", "delta:form=step,group=row,step=1.4,prev=f16,audit=2", DW_BF16, DW_F32, 1, 2,
     2065},
    {"delta_step_64", "delta:form=step,group=64,key=f16,audit=255", DW_F16, DW_F16, 1, 3, 100},
    {"delta_step_stochastic", "delta:form=step,rounding=stochastic,step=1.8,prev=bf16", DW_BF16,
     DW_BF16, 1, 2, 90},
    {"delta_step_long_row", "delta:form=step,rounding=stochastic,seed=5,key_step=100,audit=3",
     DW_F32, DW_F32, 1, 2, 2100},
    {"delta_step_dither", "delta:form=step,rounding=dither,step=3,seed=7", DW_F32, DW_F32, 2, 2,
     71},
    {"delta_step_dither_row", "delta:form=step,rounding=dither,group=row,seed=8,prev=bf16", DW_BF16,
     DW_BF16, 1, 40, 60},
    {"delta_step_dither_16", "delta:form=step,rounding=dither,group=16,key=raw,replies=never",
     DW_F16, DW_F32, 1, 3, 40},
};

/* Cases of the sparse codecs, whose values make_golden.c fills in as those of golden_cases. */
static const golden_case golden_sparse[] = {
    {"topk_mask", "topk:keep=0.5", DW_F32, DW_F32, 2, 3, 21},
    {"topk_numbers", "topk:keep=0.02", DW_BF16, DW_F32, 2, 2, 37},
    {"topk_gaps", "topk:keep=0.05,dtype=bf16", DW_F32, DW_F16, 1, 7, 101},
    {"topk_gaps_of_f16", "topk", DW_F16, DW_F16, 1, 30, 100},
    {"topk_bits", "topk:keep=0.2,bits=4,group=32", DW_F16, DW_BF16, 2, 5, 70},
    {"topk_bits_row", "topk:keep=0.37,bits=3,group=row", DW_F32, DW_F16, 1, 3, 75},
    {"topk_all", "topk:keep=1,bits=8", DW_BF16, DW_BF16, 1, 2, 20},
    {"topk_one", "topk", DW_F32, DW_BF16, 1, 1, 1},
    {"randk", "randk:keep=0.1", DW_F32, DW_F32, 2, 3, 51},
    {"randk_f16", "randk:keep=0.017,dtype=f16,seed=77", DW_F16, DW_F32, 2, 9, 100},
    {"randk_bits", "randk:keep=0.3,bits=5,group=16,scaling=unbiased,rounding=stochastic,seed=9",
     DW_BF16, DW_F16, 1, 4, 33},
    {"cocktail", "cocktail:seed=5", DW_F32, DW_F16, 2, 4, 150},
    {"cocktail_gaps", "cocktail:mask=0.3,keep=0.05,bits=2,group=16,rounding=stochastic", DW_BF16,
     DW_F32, 1, 11, 101},
    {"cocktail_mask", "cocktail:mask=0.47,keep=0.5,bits=8,seed=3", DW_F16, DW_BF16, 2, 3, 51},
    {"cocktail_numbers", "cocktail:mask=0.1,keep=0.01", DW_F32, DW_F32, 2, 8, 90},
    {"cocktail_one", "cocktail", DW_F32, DW_F32, 1, 1, 1},
    {"chunk_gaps", "chunk:chunk=128,keep=0.05,bits=4", DW_F16, DW_F32, 2, 5, 77},
    {"chunk_numbers", "chunk:chunk=128,keep=0.01,bits=3", DW_F32, DW_F32, 1, 3, 100},
    {"chunk_mask", "chunk:chunk=256,keep=0.4,group=row", DW_BF16, DW_BF16, 1, 5, 120},
    {"chunk_short", "chunk", DW_F32, DW_F16, 2, 2, 50},
    {"chunk_whole", "chunk:chunk=128", DW_BF16, DW_F32, 1, 8, 32},
    {"topk_int8", "topk:element=int8,keep=0.3", DW_F32, DW_BF16, 2, 3, 50},
    {"topk_e2m1", "topk:element=e2m1,keep=0.02", DW_BF16, DW_F32, 1, 9, 90},
    {"randk_e4m3", "randk:element=e4m3,keep=0.2,scaling=unbiased,seed=6", DW_F16, DW_F16, 2, 4, 60},
    {"cocktail_e5m2", "cocktail:element=e5m2,mask=0.5,seed=11", DW_F32, DW_F32, 1, 6, 100},
    {"cocktail_e3m2", "cocktail:element=e3m2,mask=0.3,keep=0.5", DW_BF16, DW_F16, 1, 3, 70},
    {"chunk_e2m3", "chunk:element=e2m3,chunk=128,keep=0.3", DW_F32, DW_BF16, 2, 3, 80},
};

/* Cases of the codec blocks, filled in likewise. */
static const golden_case golden_blocks[] = {
    {"blocks", "blocks", DW_F32, DW_F32, 2, 5, 211},
    {"blocks_64", "blocks:block=64", DW_F16, DW_BF16, 1, 3, 150},
    {"blocks_128_of_bf16", "blocks:block=128,replies=never", DW_BF16, DW_F16, 2, 4, 100},
    {"blocks_linear", "blocks:codebook=linear,block=256", DW_F32, DW_F16, 1, 7, 101},
    {"blocks_linear_64", "blocks:codebook=linear,block=64", DW_BF16, DW_F32, 2, 3, 70},
    {"blocks_quantile", "blocks:codebook=quantile", DW_F32, DW_F32, 1, 9, 70},
    {"blocks_quantile_of_few", "blocks:codebook=quantile", DW_F16, DW_BF16, 2, 3, 31},
    {"blocks_one", "blocks:codebook=quantile", DW_F32, DW_BF16, 1, 1, 1},
    {"projected", "delta:bits=3,key=raw,project=4294967295", DW_F32, DW_F32, 1, 3, 40},
    {"projected_blocks", "blocks:codebook=quantile,project=77", DW_F32, DW_F32, 1, 1, 20},
};

/* Cases of the codec tah, filled in alike. */
static const golden_case golden_tah[] = {
    {"tah", "tah", DW_F32, DW_F32, 2, 3, 128},
    {"tah_16", "tah:tile=16,share=0.3,scale=mse", DW_BF16, DW_F32, 1, 9, 48},
    {"tah_256", "tah:tile=256,share=1,tau=2", DW_F16, DW_F16, 1, 3, 256},
    {"tah_one", "tah:share=0.000001,tau=1.5", DW_F32, DW_BF16, 1, 5, 192},
};

/* Cases whose values are rotated, filled in alike. */
static const golden_case golden_rotated[] = {
    {"rotated_direct_4", "direct:bits=4,transform=hadamard", DW_F32, DW_F32, 2, 3, 128},
    {"rotated_direct_1", "direct:bits=1,group=16,transform=hadamard,rotate=256", DW_BF16, DW_F16, 1,
     2, 256},
    {"rotated_direct_256", "direct:bits=6,group=256,transform=hadamard,rotate=16", DW_F16, DW_F32,
     1, 3, 272},
    {"rotated_delta_4", "delta:bits=4,transform=hadamard", DW_F32, DW_F32, 2, 2, 64},
    {"rotated_delta_row", "delta:bits=3,group=row,transform=hadamard,rotate=16,key=f16,prev=bf16",
     DW_BF16, DW_BF16, 1, 3, 48},
    {"rotated_long_row", "delta:bits=2,scale=mse,group=row,transform=hadamard,rotate=256,audit=2",
     DW_F32, DW_BF16, 1, 1, 2304},
    {"rotated_mx", "mx:transform=hadamard,rotate=16", DW_F16, DW_F32, 1, 3, 48},
    {"rotated_delta_mx", "delta:form=mx,prev=f16,transform=hadamard", DW_F32, DW_F32, 1, 2, 128},
    {"rotated_step", "delta:form=step,transform=hadamard,rotate=16", DW_F32, DW_F16, 2, 3, 48},
    {"rotated_step_dither", "direct:form=step,group=16,rounding=dither,seed=3,transform=hadamard",
     DW_BF16, DW_F32, 2, 2, 128},
};

/* Cases of the codec lowrank, with the same values. */
static const golden_case golden_lowrank[] = {
    {"lowrank", "lowrank:rank=2", DW_F32, DW_F32, 2, 5, 21},
    {"lowrank_f16", "lowrank:rank=3", DW_F16, DW_BF16, 1, 4, 37},
    {"lowrank_bf16", "lowrank:rank=1,dtype=bf16,iterations=8", DW_F32, DW_F16, 1, 7, 30},
    {"lowrank_width", "lowrank:width=19,rank=5", DW_BF16, DW_F32, 2, 1, 100},
    {"lowrank_wide", "lowrank:width=2000,dtype=f16", DW_F32, DW_F32, 1, 2, 9},
    {"lowrank_tall", "lowrank:rank=6,width=4", DW_F32, DW_F32, 1, 3, 11},
    {"lowrank_bits", "lowrank:rank=3,bits=4,group=64", DW_F32, DW_F32, 1, 16, 70},
    {"lowrank_bits_16", "lowrank:rank=2,bits=6,group=16,width=40", DW_F16, DW_F32, 1, 3, 64},
    {"lowrank_bits_row", "lowrank:rank=2,bits=3,group=row", DW_F32, DW_F16, 1, 2, 270},
    {"lowrank_ef", "lowrank:rank=2,feedback=ef,restart=3", DW_F32, DW_F32, 1, 9, 33},
    {"lowrank_ef_bits", "lowrank:rank=4,bits=8,feedback=ef,rounding=stochastic,seed=5", DW_BF16,
     DW_BF16, 1, 5, 33},
    {"lowrank_one", "lowrank:rank=1", DW_F32, DW_F32, 1, 1, 1},
};

/* Cases whose payloads are entropy-coded. Their input has many small values and few large ones, so
 * that even in small shapes the entropy-coded blocks are shorter than the tiles that they stand
 * for. make_golden.c defines four visits with such input; epochs: how many of them a case makes. */
static const struct golden_coded {
    unsigned epochs;
    golden_case of;
} golden_coded[] = {
    {4, {"rans_direct_3", "direct:bits=3,group=32,entropy=rans", DW_BF16, DW_BF16, 2, 6, 150}},
    {4, {"rans_direct_8", "direct:bits=8,group=256,entropy=rans", DW_BF16, DW_F16, 1, 3, 500}},
    {4,
     {"rans_delta_5", "delta:bits=5,group=64,prev=bf16,key=6,entropy=rans", DW_BF16, DW_BF16, 2, 3,
      200}},
    {4,
     {"rans_delta_key_f16", "delta:bits=4,group=row,prev=f16,key=f16,entropy=rans", DW_F16, DW_F16,
      1, 2, 600}},
    {4, {"rans_mx", "mx:element=e2m3,entropy=rans", DW_BF16, DW_BF16, 1, 8, 150}},
    {4,
     {"rans_delta_mx", "delta:form=mx,element=e2m1,prev=bf16,entropy=rans", DW_BF16, DW_F32, 1, 9,
      100}},
    {4, {"rans_step", "direct:form=step,entropy=rans,step=0.1", DW_BF16, DW_BF16, 2, 3, 170}},
    {4,
     {"rans_step_row", "delta:form=step,group=row,step=1.5,prev=bf16,entropy=rans", DW_BF16,
      DW_BF16, 1, 5, 130}},
    {4,
     {"rans_step_64", "delta:form=step,group=64,step=3,prev=bf16,audit=2,entropy=rans", DW_BF16,
      DW_F16, 2, 4, 100}},
    {4,
     {"rans_dither", "delta:form=step,rounding=dither,step=3,seed=3,prev=bf16,entropy=rans",
      DW_BF16, DW_BF16, 2, 5, 330}},
    {3,
     {"rans_dither_64", "direct:form=step,group=64,rounding=dither,step=1,entropy=rans", DW_BF16,
      DW_BF16, 1, 11, 110}},
    {4,
     {"rans_dither_small", "direct:form=step,group=16,rounding=dither,step=2,entropy=rans", DW_BF16,
      DW_F32, 1, 2, 23}},
    {4,
     {"rotated_rans",
      "delta:form=step,step=1.5,prev=bf16,entropy=rans,transform=hadamard,rotate=16", DW_BF16,
      DW_BF16, 1, 5, 128}},
    {1,
     {"rans_groups", "direct:form=step,group=row,step=2,entropy=rans", DW_BF16, DW_BF16, 1, 17,
      1025}},
    {1, {"rans_groups_3", "direct:bits=3,group=row,entropy=rans", DW_BF16, DW_BF16, 1, 17, 1025}},
    {1,
     {"rans_long_rows", "direct:form=step,group=sample,rounding=dither,step=3,entropy=rans",
      DW_BF16, DW_BF16, 1, 9, 4097}},
};

/* Configs whose input consists of microscaling elements and of values half way between two. */
static const char *const golden_ties[][2] = {
    {"mx_ties_int8", "mx:element=int8"},
    {"mx_ties_e4m3", "mx:element=e4m3"},
    {"mx_ties_e5m2", "mx:element=e5m2"},
    {"mx_ties_e3m2", "mx:element=e3m2"},
    {"mx_ties_e2m3", "mx:element=e2m3"},
    {"mx_ties_e2m1", "mx:element=e2m1"},
    {"mx_ties_rotated", "mx:element=e4m3,transform=hadamard,rotate=16"},
};

#endif
