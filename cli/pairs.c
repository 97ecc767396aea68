/* SPDX-License-Identifier: Apache-2.0
 * pairs.c - pairs of codecs: the list, what each pair costs, and their order. */
#include "pairs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "speed.h"

/* The pairs that docs/codecs.md recommends or compares: a codec for activations and one for
 * gradients. */
static const char *const usual_pairs[][DW_FORECAST_WAYS] = {
    {"raw:f32", "raw:f32"},
    {"raw:bf16", "raw:bf16"},
    {"mx:element=e4m3", "mx:element=e4m3"},
    {"direct:bits=8", "direct:bits=8"},
    {"delta:bits=4", "direct:bits=6"},
    {"delta:bits=3", "direct:bits=6"},
    {"delta:bits=2", "direct:bits=4"},
    {"delta:bits=2", "direct:bits=2,rounding=stochastic"},
    {"direct:form=step,step=0.5,entropy=rans",
     "direct:form=step,step=2,rounding=dither,entropy=rans"},
    {"delta:form=step,step=0.7,key_step=0.1,entropy=rans",
     "delta:form=step,step=1,key_step=0.4,rounding=dither,entropy=rans"},
    {"delta:form=step,step=1.05,key_step=0.1,entropy=rans",
     "delta:form=step,step=1.46,key_step=0.5,rounding=dither,entropy=rans"},
    {"delta:form=step,step=1.65,entropy=rans",
     "direct:form=step,step=3,rounding=dither,entropy=rans"},
    {"delta:form=step,step=2.2,entropy=rans",
     "direct:form=step,step=6,rounding=dither,entropy=rans"},
};

dw_status dw_pairs_add(dw_pairs *pairs, const char *text, dw_why *why)
{
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : 0;
    if (!slash || !len || len >= DW_PAIRS_CODEC_BYTES || !slash[1] || strchr(slash + 1, '/') ||
        strlen(slash + 1) >= DW_PAIRS_CODEC_BYTES)
        return dw_say(why, DW_ERR_CONFIG,
                      "\"%.80s\" is not a pair of codecs; write FORWARD/BACKWARD, as in "
                      "delta:bits=2/direct:bits=4",
                      text);
    const char *codecs[DW_FORECAST_WAYS] = {text, slash + 1};
    for (int way = 0; way < DW_FORECAST_WAYS; way++) {
        size_t digits = strspn(codecs[way], "0123456789");
        if (digits > 0 && codecs[way][digits] == ':')
            return dw_say(why, DW_ERR_CONFIG,
                          "\"%.80s\" names a boundary, but pairs are for all boundaries; leave out "
                          "\"%.*s\", and give each boundary's pair on its own",
                          text, (int)digits + 1, codecs[way]);
    }
    if (pairs->n == DW_PAIRS_MOST)
        return dw_say(why, DW_ERR_LIMIT, "more than %d pairs of codecs are given", DW_PAIRS_MOST);
    dw_pair *pair = &pairs->pairs[pairs->n++];
    memcpy(pair->codecs[DW_FORECAST_FORWARD], text, len);
    memcpy(pair->codecs[DW_FORECAST_BACKWARD], slash + 1, strlen(slash + 1));
    return DW_OK;
}

void dw_pairs_add_usual(dw_pairs *pairs)
{
    for (size_t i = 0; i < sizeof usual_pairs / sizeof *usual_pairs; i++, pairs->n++)
        for (int way = 0; way < DW_FORECAST_WAYS; way++)
            snprintf(pairs->pairs[pairs->n].codecs[way], DW_PAIRS_CODEC_BYTES, "%s",
                     usual_pairs[i][way]);
}

dw_status dw_pairs_measure(dw_pairs *pairs, const dw_forecast_run *run,
                           const dw_pairs_tensor *tensor, const volatile int *cancelled,
                           dw_why *why)
{
    dw_speed *speed = NULL;
    dw_status status = dw_speed_open(&speed, tensor->samples, tensor->tokens, tensor->channels,
                                     tensor->change, why);
    for (size_t i = 0; i < pairs->n && status == DW_OK; i++) {
        dw_pair *p = &pairs->pairs[i];
        for (int way = 0; way < DW_FORECAST_WAYS && status == DW_OK; way++) {
            status = dw_speed_measure(speed, p->codecs[way], &p->ways[way], why);
            if (cancelled && *cancelled)
                status = dw_say(why, DW_ERR_CANCELLED, "stopped while measuring");
        }
        pairs->choices[i] = (dw_forecast_choice){.step_s = dw_forecast_step(run, p->ways),
                                                 .error = fmax(p->ways[0].error, p->ways[1].error)};
    }
    dw_speed_close(speed);
    return status;
}

const dw_pair *dw_pairs_next_best(dw_pairs *pairs, double *step_s)
{
    size_t best = dw_forecast_best(pairs->choices, pairs->n);
    if (best == pairs->n) return NULL;
    pairs->choices[best].is_taken = true;
    *step_s = pairs->choices[best].step_s;
    return &pairs->pairs[best];
}
