# SPDX-License-Identifier: Apache-2.0
# __init__.py - the reduce-scatters of FSDP2.
"""    state           compress_fsdp, and FsdpState: what a program sees
    modules         the sharded modules of a model
    reduce_scatter  what torch calls for a module
    backward        steps, what was counted, and errors
    shards          which exchange a module has, and so its state
    scatter         the exchange of one module"""
