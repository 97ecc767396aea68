# SPDX-License-Identifier: Apache-2.0
# __init__.py - gradients of several ranks: what DistributedDataParallel and FSDP2 share.
"""An exchange is what computes the sums or means of one bucket, or of one module.

    options, hook_ranks         the arguments of a hook; its ranks after they have met
    gradient_state              what a hook's state says about itself
    gloo_peers, hop, gloo_group what the exchanges of a hook have in common over gloo; messages
    split                       each rank adds up its part, over gloo
    link_peers, link_group      the same with a deltawire.Group over links
    layout, saved_state         the parameters of a bucket, and the form of a saved state
    traffic, failure            what was sent; the error of an exchange"""
