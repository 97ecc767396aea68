# SPDX-License-Identifier: Apache-2.0
# __init__.py - sums of gradients over ranks: what DistributedDataParallel and FSDP2 share.
"""    meeting                   what the ranks compare before they exchange anything
    exchange, hop, gloo_group encoders, decoders and frames over gloo
    link_peers, link_group    the same by a deltawire.Group over links
    layout, saved_state, traffic
                              the parameters of a bucket, its saved state, what was sent"""
