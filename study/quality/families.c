/* SPDX-License-Identifier: Apache-2.0
 * families.c - the list of deltawire's codecs that are measured. To measure another one, add a line
 * to dw_families. */
#include "families.h"

#include <stddef.h>

#define WIDTHS   "1 2 3 4 5 6 7 8"
#define ELEMENTS "e2m1 e2m3 e3m2 e4m3 e5m2 int8"
/* Settings of the option `step`, in root mean squares of a piece. Each is about a fifth larger than
 * the one before. */
#define ALONG "0.1 0.12 0.15 0.18 0.22 0.27 0.33 0.4 0.48 0.58 0.7 0.85 1 1.2 1.4" /* a trellis */
#define FINE  ALONG " 1.7"
#define STEPS FINE " 2 2.4 2.8 3.3 4 5 6"
/* Settings of the option `rank`. */
#define RANKS "1 2 4 8"
/* Settings of the options `block` and `error`. */
#define BLOCKS "64 256 4096"
#define ERRORS "0.02 0.03 0.05 0.07 0.1 0.15 0.2 0.3 0.4"
/* Settings of the option `keep`. */
#define KEPT "0.01 0.02 0.05 0.1 0.2 0.3 0.5"

/* clang-format off */
const dw_family dw_families[] = {
    {"groups of 64", "direct:bits=%s,scale=signed", WIDTHS, false},
    {"groups of 64, mse", "direct:bits=%s,scale=mse", WIDTHS, false},
    {"groups of 64, stochastic", "direct:bits=%s,rounding=stochastic,seed=1", WIDTHS, false},
    {"rows, rans", "direct:bits=%s,group=row,scale=signed,entropy=rans", WIDTHS, false},
    {"mx", "mx:element=%s", ELEMENTS, false},
    {"mx, rans", "mx:element=%s,entropy=rans", ELEMENTS, false},
    {"step", "direct:form=step,group=sample,step=%s,entropy=rans", STEPS, true},
    {"step, by rows", "direct:form=step,group=row,step=%s,entropy=rans", STEPS, true},
    {"step, dead zone", "direct:form=step,group=sample,step=%s,deadzone=0.62,entropy=rans", STEPS, true},
    {"step, error", "direct:form=step,group=sample,error=%s,entropy=rans", ERRORS, true},
    {"step, stochastic", "direct:form=step,group=sample,step=%s,rounding=stochastic,seed=1,entropy=rans", STEPS, true},
    {"step, dither", "direct:form=step,group=sample,step=%s,rounding=dither,seed=1,entropy=rans", STEPS, true},
    {"step, trellis", "direct:form=step,group=sample,step=%s,rounding=trellis,entropy=rans", ALONG, true},
    {"topk", "topk:keep=%s", KEPT, false},
    {"topk, 4 bits", "topk:keep=%s,bits=4", KEPT, false},
    {"randk", "randk:keep=%s", KEPT, false},
    {"cocktail", "cocktail:mask=0.5,keep=%s", KEPT, false},
    {"chunk", "chunk:keep=%s", KEPT, false},
    {"chunk, 4 bits", "chunk:keep=%s,bits=4", KEPT, false},
    {"lowrank", "lowrank:rank=%s,iterations=8", RANKS, false},
    {"lowrank, 8 bits", "lowrank:rank=%s,iterations=8,bits=8", RANKS, false},
    {"groups of 64, hadamard", "direct:bits=%s,scale=signed,transform=hadamard", WIDTHS, false},
    {"step, hadamard", "direct:form=step,group=sample,step=%s,entropy=rans,transform=hadamard", STEPS, true},
    {"tah", "tah:share=%s", "0.000001 0.2 0.5 0.8 1", false},
    {"delta, groups of 64", "delta:bits=%s,scale=signed", WIDTHS, false},
    {"delta, groups of 64, mse", "delta:bits=%s,scale=mse", WIDTHS, false},
    {"delta, rows, rans", "delta:bits=%s,group=row,scale=signed,entropy=rans", WIDTHS, false},
    {"delta, mx", "delta:form=mx,element=%s", ELEMENTS, false},
    {"delta, step", "delta:form=step,group=sample,step=%s,entropy=rans", STEPS, true},
    {"delta, step, by rows", "delta:form=step,group=row,step=%s,entropy=rans", STEPS, true},
    {"delta, step, dead zone", "delta:form=step,group=sample,step=%s,deadzone=0.62,entropy=rans", STEPS, true},
    {"delta, step, error", "delta:form=step,group=sample,error=%s,entropy=rans", ERRORS, true},
    {"delta, step, stochastic", "delta:form=step,group=sample,step=%s,rounding=stochastic,seed=1,entropy=rans", FINE, true},
    {"delta, step, dither", "delta:form=step,group=sample,step=%s,rounding=dither,seed=1,entropy=rans", FINE " 2 2.4 2.8", true},
    {"delta, step, trellis", "delta:form=step,group=sample,step=%s,rounding=trellis,entropy=rans", ALONG, true},
    {"blocks, dynamic", "blocks:block=%s", BLOCKS, false},
    {"blocks, linear", "blocks:codebook=linear,block=%s", BLOCKS, false},
    {"blocks, quantile", "blocks:codebook=%s", "quantile", false},
    {"delta, step, hadamard", "delta:form=step,group=sample,step=%s,entropy=rans,transform=hadamard", STEPS, true},
    {0}};
/* clang-format on */
