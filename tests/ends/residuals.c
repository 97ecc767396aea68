/* SPDX-License-Identifier: Apache-2.0
 * residuals.c - the residuals that an encoder with feedback must hold, computed from x and y. */
#include "residuals.h"

const char *const residual_codecs[CODECS] = {
    "direct:bits=1",
    "direct:bits=2",
    "direct:bits=3,scale=mse",
    "direct:bits=4,group=16",
    "direct:bits=4,scale=absmax",
    "direct:bits=5,group=row",
    "direct:bits=6,group=channel",
    "direct:bits=8,group=256",
    "direct:bits=3,rounding=stochastic",
    "direct:bits=4,group=channel,rounding=stochastic",
    "direct:form=step,group=sample,step=1.2",
    "direct:form=step,group=sample,step=1.2,deadzone=0.7",
    "direct:form=step,step=0.5,group=64",
    "direct:form=step,step=2,group=row,rounding=dither",
    "direct:form=step,group=sample,step=3,rounding=dither,entropy=rans",
    "direct:form=step,group=sample,step=0.9,rounding=stochastic",
    "direct:form=step,group=sample,error=0.4,entropy=rans",
    "direct:form=step,group=sample,step=0.8,rounding=trellis,entropy=rans",
    "direct:form=step,group=sample,error=0.8,rounding=dither",
    "direct:form=step,group=sample,rate=2,entropy=rans",
    "direct:bits=4,entropy=rans",
    "mx:element=e2m1",
    "mx:element=e4m3",
    "mx:element=e5m2,entropy=rans",
    "mx:element=e3m2",
    "mx:element=e2m3",
    "mx:element=int8",
    "raw:bf16",
    "raw:f16",
    "raw:f32",
    "topk:keep=0.05",
    "topk:keep=0.3,dtype=f16",
    "topk:keep=0.2,bits=4,group=16",
    "topk:keep=0.2,bits=8,rounding=stochastic",
    "topk:keep=0.2,element=e2m1",
    "randk:keep=0.3",
    "randk:keep=0.1,bits=5",
    "cocktail:mask=0.3,keep=0.3,group=16",
    "cocktail:mask=0.2,bits=8,rounding=stochastic",
    "cocktail:mask=0.3,keep=0.3,element=e3m2",
    "chunk:chunk=128,keep=0.1",
    "chunk:keep=0.05,bits=4,rounding=stochastic",
    "blocks:codebook=dynamic",
    "blocks:codebook=linear,block=64",
    "blocks:codebook=quantile",
};

const char *text_of(size_t codec, const char *more, char text[160])
{
    snprintf(text, 160, "%s,incarnation=7%s", residual_codecs[codec], more);
    return text;
}

size_t place_in(const dw_tensor *x, size_t i)
{
    return i / SIZE * (size_t)x->stride_n + i / C % T * (size_t)x->stride_t + i % C;
}

void add_residual(reference *r, const dw_tensor *x)
{
    for (size_t i = 0; i < N * SIZE; i++)
        r->coded[i] = test_get(x->data, x->dtype, place_in(x, i)) - r->held[i];
}

void keep_rest(reference *r, const dw_tensor *x)
{
    for (size_t i = 0; i < N * SIZE; i++) {
        volatile float sum = r->held[i] + r->y[i];
        float value = test_get(x->data, x->dtype, place_in(x, i));
        /* A sparse codec need not send a value that is not finite. */
        if (isfinite(r->y[i]) && isfinite(value)) r->held[i] = sum - value;
        if (isinf(r->y[i]) && isfinite(value)) r->held[i] = 0;
        if (r->decay > 0) r->held[i] *= r->decay;
    }
}

void expect_held(const dw_encoder *encoder, const reference *r, const char *what)
{
    for (int n = 0; n < N; n++) {
        dw_tensor view;
        assert_int_equal(dw_encoder_peek(encoder, keys[n], &view), DW_OK);
        assert_int_equal(view.dtype, DW_F32);
        const float *held = view.data, *expected = r->held + n * SIZE;
        for (int i = 0; i < SIZE; i++)
            if (memcmp(&held[i], &expected[i], sizeof *held) != 0)
                fail_msg("%s: the residual of element %d of sample %d is %g, not %g", what, i, n,
                         (double)-held[i], (double)-expected[i]);
    }
}

void fill_kind(test_random *random, float *x, int kind, int visit)
{
    for (int i = 0; i < N * SIZE; i++) {
        float value = test_normal(random);
        if (kind == 1 && visit) continue;
        if (kind == 2) value = value < 0 ? -1.0f : 1.0f;
        if (kind == 3 && i % 97) value *= 0.01f;
        x[i] = value;
    }
}
