# SPDX-License-Identifier: Apache-2.0
# 06_below_one_bit.py - few bits by steps, dither and an entropy coder; a given error, a given rate.
"""The program sends gradients, 8 samples of (64, 256), with less than one bit per value; then
activations, for which it asks for an error or for a number of bits instead of choosing a step. It
prints what a value takes with all headers, and what is lost:

    gradients, dither, steps of 4 rms: 0.82 bits, gain 0.9961, mean error 0.00340 rms
    activations, error=0.1, visit 1: 3.92 bits, |x - y| / |x| = 0.0893
    activations, error=0.1, visit 2: 2.23 bits, |x - y| / |x| = 0.0892
    activations, error=abs:0.03: 6.44 bits, largest error 0.0299
    activations, rate=1.2: 1.20 bits per value in the last 50 of 70 frames
"""

import numpy

import deltawire

IDS = list(range(8))
SHAPE = (8, 64, 256)  # (N, T, C)
rng = numpy.random.default_rng(1)


def normal(scale):
    return scale * rng.standard_normal(SHAPE, dtype=numpy.float32)


def send(encoder, decoder, x, ids=None):
    """Sends x from the encoder to the decoder. Returns what arrives, and the bits of a value."""
    frame = encoder.encode(x, ids)
    y, _, reply = decoder.decode(frame)  # in a real program: on another rank
    encoder.take_reply(reply)
    return numpy.from_dlpack(y), 8 * len(frame) / x.size


# The error of dither is unbiased: y is as long as x in the mean, which is the gain.
config = "direct:form=step,step=4,rounding=dither,entropy=rans"
x = normal(0.001)
with deltawire.Encoder(config) as encoder, deltawire.Decoder(config) as decoder:
    y, bits = send(encoder, decoder, x)
rms = numpy.sqrt((x * x).mean())
gain, mean = (x * y).sum() / (x * x).sum(), (y - x).mean() / rms
print(
    f"gradients, dither, steps of 4 rms: {bits:.2f} bits, gain {gain:.4f}, "
    f"mean error {mean:.5f} rms"
)
assert bits < 1 and abs(gain - 1) < 0.02 and abs(mean) < 0.02

# A relative error: the encoder finds the step. The second visit sends a small change.
config = "delta:form=step,error=0.1,entropy=rans"
x = normal(1)
with deltawire.Encoder(config) as encoder, deltawire.Decoder(config) as decoder:
    for visit in (1, 2):
        y, bits = send(encoder, decoder, x, IDS)
        error = numpy.linalg.norm(x - y) / numpy.linalg.norm(x)
        print(
            f"activations, error=0.1, visit {visit}: {bits:.2f} bits, |x - y| / |x| = {error:.4f}"
        )
        assert error < 0.101
        x += normal(0.3)

# A bound for the error of every single value.
config = "direct:form=step,error=abs:0.03,entropy=rans"
with deltawire.Encoder(config) as encoder, deltawire.Decoder(config) as decoder:
    y, bits = send(encoder, decoder, x)
worst = numpy.abs(x - y).max()
print(f"activations, error=abs:0.03: {bits:.2f} bits, largest error {worst:.4f}")
assert worst <= 0.03

# A number of bits: the encoder changes its step from frame to frame until it meets the rate.
config = "delta:form=step,rate=1.2,entropy=rans"
taken = []
with deltawire.Encoder(config) as encoder, deltawire.Decoder(config) as decoder:
    for visit in range(70):
        taken.append(send(encoder, decoder, x, IDS)[1])
        x += normal(0.3)
mean = sum(taken[20:]) / 50
print(f"activations, rate=1.2: {mean:.2f} bits per value in the last 50 of {len(taken)} frames")
assert abs(mean / 1.2 - 1) < 0.01
