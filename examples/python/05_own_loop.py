# SPDX-License-Identifier: Apache-2.0
# 05_own_loop.py - split learning with an own training loop: a Link with TLS, and a Channel.
"""One party has the inputs and the lower layer, the other party has the labels and the upper layer.
The lower layer's activations are sent as changes with 3 bits per value, their gradients are sent
back with 6 bits. It prints the compression ratio of the activations and the loss of each epoch:

    raw:f32         0.8x 1.8893 1.5747 1.4272 1.3456 1.2739 1.1949
    delta:bits=3    2.2x 1.8893 1.5755 1.4250 1.3468 1.2721 1.1936
"""

import multiprocessing
import os

import deltawire
import numpy

SAMPLES, BATCH, INPUTS, HIDDEN, CLASSES, EPOCHS, RATE = 512, 32, 32, 64, 8, 6, 0.5


def data():
    rng = numpy.random.default_rng(1)
    x = rng.standard_normal((SAMPLES, INPUTS), dtype=numpy.float32)
    hidden = numpy.tanh(x @ rng.standard_normal((INPUTS, CLASSES), dtype=numpy.float32))
    return x, (hidden + 0.1 * rng.standard_normal(hidden.shape)).argmax(1)


def batches(epoch):
    return numpy.random.default_rng(epoch).permutation(SAMPLES).reshape(-1, BATCH)


def lower(pipe, key, up, down):
    x = data()[0]
    w = numpy.random.default_rng(2).standard_normal((INPUTS, HIDDEN), dtype=numpy.float32) / 6
    tls = deltawire.Tls("lower", "upper", group_key=key)
    with deltawire.Link("tcp://127.0.0.1:0", listen=True, tls=tls, on_listening=pipe.send) as link:
        channel, gradient = deltawire.Channel(link, 1, up, down), numpy.empty((BATCH, HIDDEN), "f4")
        for epoch in range(EPOCHS):
            for ids in batches(epoch):
                h = numpy.tanh(x[ids] @ w)
                channel.send(h, ids, rows_are_samples=True)  # the id of a sample is its row
                channel.recv(gradient, rows_are_samples=True)
                w -= RATE * x[ids].T @ (gradient * (1 - h * h))
        pipe.send(channel.sent().ratio)


def upper(uri, key, up, down):
    labels, w = data()[1], numpy.zeros((HIDDEN, CLASSES), "f4")
    tls, losses = deltawire.Tls("upper", "lower", group_key=key), []
    with deltawire.Link(uri, tls=tls) as link:
        channel, h = deltawire.Channel(link, 1, down, up), numpy.empty((BATCH, HIDDEN), "f4")
        for epoch in range(EPOCHS):
            total = 0.0
            for _ in batches(epoch):
                ids = channel.recv(h, rows_are_samples=True).ids
                e = numpy.exp(h @ w - (h @ w).max(1, keepdims=True))
                p, rows = e / e.sum(1, keepdims=True), numpy.arange(BATCH)
                total -= numpy.log(p[rows, labels[ids]]).mean()
                p[rows, labels[ids]] -= 1
                channel.send(p @ w.T / BATCH, rows_are_samples=True)  # direct needs no ids
                w -= RATE * h.T @ p / BATCH
            losses.append(total / (SAMPLES // BATCH))
    return losses


def train(up, down):  # up: config of the activations; down: of their gradients
    ours, theirs = multiprocessing.Pipe()
    key = os.urandom(32)  # in a real program: a key file that both parties have
    party = multiprocessing.Process(target=lower, args=(theirs, key, up, down))
    party.start()
    theirs.close()  # so that ours.recv() fails if the other party ends
    losses, ratio = upper(ours.recv(), key, up, down), ours.recv()
    party.join()
    print(f"{up:13} {ratio:5.1f}x", *[f"{loss:.4f}" for loss in losses])
    return losses[-1]


if __name__ == "__main__":
    raw = train("raw:f32", "raw:f32")
    assert abs(train("delta:bits=3", "direct:bits=6") / raw - 1) < 0.05
