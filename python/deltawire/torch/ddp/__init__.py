# SPDX-License-Identifier: Apache-2.0
# __init__.py - the communication hook of DistributedDataParallel.
"""    hook    ddp_hook, and the state of a hook
    crew    the threads that exchange buckets
    resume  the first backwards after a state was loaded"""
