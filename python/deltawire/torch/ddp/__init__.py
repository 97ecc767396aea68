# SPDX-License-Identifier: Apache-2.0
# __init__.py - the communication hook of DistributedDataParallel.
"""    hook         ddp_hook, and what torch calls
    state        DdpState: what a program sees, and how the ranks meet
    backward     one backward pass after the other: what it has handed over
    buckets      which exchange a bucket has, and so its state
    parameters   the names of parameters
    crew         the threads that exchange buckets
    exchange     the two ways to compute the mean of a bucket over gloo
    resume       the first backwards after a state was loaded
    unused_hook  a warning if a hook is in no model"""
