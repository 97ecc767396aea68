/* SPDX-License-Identifier: Apache-2.0
 * contraction.c - asks the form of a config for its contraction. */
#include "codecs/contraction.h"

#include "codecs/codecs.h"
#include "codecs/options.h"

dw_contraction dw_contraction_by(dw_contraction_kind kind, double part)
{
    static const double most = 0.95;
    return part <= most ? (dw_contraction){kind, part} : (dw_contraction){DW_CONTRACTS_NOT, 1};
}

dw_contraction dw_contraction_of(const dw_config *config)
{
    dw_config full = *config;
    dw_params params = {0};
    dw_options_fill(&full, DW_AGREE_NO);
    /* If the dtype of floats is that of x, they are sent without an error, whatever it is. */
    if (full.codec == DW_CODEC_RAW && !full.raw) return (dw_contraction){DW_CONTRACTS_ALWAYS, 0};
    dw_codec_own_dtypes(&full, DW_F32);
    dw_codec_fill(&params, &full, DW_F32);
    return params.use[DW_USE_WHOLE].form->contracts(&params.use[DW_USE_WHOLE], &full);
}
