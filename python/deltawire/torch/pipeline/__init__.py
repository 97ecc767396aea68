# SPDX-License-Identifier: Apache-2.0
# __init__.py - pipeline stages of torch with compression.
"""A program begins with compress_stage. What is sent passes through Compression, which knows the
steps, a Side, which is a neighbour, a Sender, which has the encoders, and a Lane.

    stage, options              compress_stage and its arguments
    torch_stage, torch_releases what is private to torch's stages, and what releases change of it
    compression, step_end       the steps of a stage; when all is sent
    ids, needs                  the ids of a step's samples; which tensors need gradients
    checkpoint                  the saved state of a stage
    sides, side                 the neighbours on other ranks, and the messages with one of them
    ends, sender, receiver      from tensors to parts of messages, and back
    fitting, kept               profiles of channels; tensors that travel once
    message                     the bytes of a message
    lanes                       which lane a side has
    lane, group_lane, link_lane what carries messages
    watch                       warnings
    p2p, record                 public functions that need no stage"""
