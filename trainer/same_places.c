/* SPDX-License-Identifier: Apache-2.0
 * same_places.c - keeps the places of the activations in flight at a boundary, and moves gradients
 * through them. */
#include "same_places.h"

#include <stdlib.h>

#include "base/sentence.h"
#include "deltawire/places.h"
#include "stage.h"

struct dw_same_places {
    bool sends;
    dw_places *last; /* of the last activation; NULL: it could not be read, as `status` says */
    dw_status status;
    dw_why why;
    uint64_t left_out, busy_ns;
    uint32_t pieces;
    float *values; /* z */
    dw_places *kept[];
};

dw_same_places *dw_same_places_create(uint32_t pieces, uint64_t elements, bool sends)
{
    dw_same_places *made = calloc(1, sizeof *made + pieces * sizeof made->kept[0]);
    float *values = calloc(elements, sizeof *values);
    if (!made || !values) {
        free(made);
        free(values);
        return NULL;
    }
    made->sends = sends;
    made->pieces = pieces;
    made->values = values;
    return made;
}

void dw_same_places_destroy(dw_same_places *places)
{
    if (!places) return;
    for (uint32_t i = 0; i < places->pieces; i++) dw_places_destroy(places->kept[i]);
    dw_places_destroy(places->last);
    free(places->values);
    free(places);
}

void dw_same_places_on_frame(void *context, int is_sent, const void *frame, size_t len)
{
    dw_same_places *places = context;
    if ((is_sent != 0) != places->sends) return; /* a gradient */
    uint64_t since = dw_now_ns();
    dw_places_destroy(places->last);
    places->status = dw_places_read(&places->last, frame, len, NULL, &places->why);
    places->busy_ns += dw_now_ns() - since;
}

dw_status dw_same_places_keep(dw_same_places *places, uint32_t piece, dw_why *why)
{
    if (places->status < 0)
        return dw_say(why, places->status, "the places of an activation cannot be read: %s",
                      places->why.text);
    dw_places_destroy(places->kept[piece]);
    places->kept[piece] = places->last;
    places->last = NULL;
    return DW_OK;
}

dw_status dw_same_places_view(dw_same_places *places, uint32_t piece, const dw_tensor *x,
                              dw_tensor *z, dw_why *why)
{
    if (!places->kept[piece])
        return dw_say(why, DW_ERR_PROTOCOL, "a gradient has no activation before it");
    *z = dw_tensor_3d(places->values, DW_F32, x->n, 1, dw_places_count(places->kept[piece]));
    return DW_OK;
}

dw_status dw_same_places_gather(dw_same_places *places, uint32_t piece, const dw_tensor *x,
                                dw_tensor *z, dw_why *why)
{
    uint64_t since = dw_now_ns();
    dw_status status = dw_same_places_view(places, piece, x, z, why);
    if (status == DW_OK) status = dw_places_gather(places->kept[piece], x, z, why);
    places->busy_ns += dw_now_ns() - since;
    return status;
}

dw_status dw_same_places_scatter(dw_same_places *places, uint32_t piece, const dw_tensor *z,
                                 const dw_tensor *x, dw_why *why)
{
    places->left_out += sizeof(float) * x->n * ((uint64_t)x->t * x->c - z->c);
    uint64_t since = dw_now_ns();
    dw_status status = dw_places_scatter(places->kept[piece], z, x, why);
    places->busy_ns += dw_now_ns() - since;
    return status;
}

uint64_t dw_same_places_busy_ns(const dw_same_places *places)
{
    return places->busy_ns;
}

uint64_t dw_same_places_left_out(const dw_same_places *places)
{
    return places->left_out;
}
