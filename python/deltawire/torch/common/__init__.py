# SPDX-License-Identifier: Apache-2.0
# __init__.py - what all other packages of deltawire.torch share.
"""Nothing here knows pipelines or gradients.

    rendezvous      what ranks tell each other through torch's store, and how one refuses
    address, links  the option carrier; a link between two ranks
    configs, misfit what is made of a config; a warning if its codec does not fit
    gathered_state  the states of all ranks, for programs that save checkpoints
    tensors         torch's tensors as (N, T, C), and as bytes
    waits           waits that Ctrl-C ends
    forks, lifetime what a forked process must not use, and nobody after it was closed
    report          times, and statistics as a table"""
