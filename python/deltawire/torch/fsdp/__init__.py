# SPDX-License-Identifier: Apache-2.0
# __init__.py - the reduce-scatters of FSDP2.
"""    state    compress_fsdp, and the state of a model
    scatter  the exchange of one module"""
