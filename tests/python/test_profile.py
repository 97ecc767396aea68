# SPDX-License-Identifier: Apache-2.0
# test_profile.py - profiles of channels through Python.
import gc
import pickle

import numpy
from rig import normal, refused, refuses, same

from deltawire import Config, Decoder, Encoder, Profile

STEPS = "direct:form=step,step=0.3,entropy=rans"


def like_activations(seed, channels=48):
    """The first rows of samples are far from the others, and channel 5 is 300 times as large."""
    x = normal((3, 20, channels), seed)
    x[..., 5] *= 300
    x[:, 0] = normal((3, channels), seed + 1)
    x[:, 0, 9] += 20000
    return x


def test_both_ends_decode_with_the_same_profile():
    x = like_activations(1)
    profile = Profile.fit(x)
    assert profile.channels == 48 and 0 < profile.digest < 2**32
    config = Config(STEPS, profile)
    assert config.text.endswith(f"profile={profile.digest}")
    encoder, decoder = Encoder(config), Decoder(Config(config))
    del config, profile  # what was made of them still has them
    gc.collect()
    y = like_activations(4)
    got = numpy.from_dlpack(decoder.decode(encoder.encode(y)).tensor)
    plain = Encoder(STEPS)
    without = numpy.from_dlpack(Decoder(STEPS).decode(plain.encode(y)).tensor)
    rest = [c for c in range(48) if c not in (5, 9)]
    assert numpy.abs(got - y)[..., rest].mean() < numpy.abs(without - y)[..., rest].mean() / 3


def test_values_make_the_same_profile_again():
    x = like_activations(2)
    profile = Profile.fit(x, numpy.ones_like(x))
    assert profile.values().shape == (1, 3, 48)
    again = Profile(profile.values())
    copy = pickle.loads(pickle.dumps(profile))
    assert again.digest == copy.digest == profile.digest
    assert same(again.values(), copy.values())
    config = pickle.loads(pickle.dumps(Config(STEPS, profile)))
    assert config == Config(STEPS, again) and config != Config(STEPS)
    Encoder(config)


def test_state_is_sent_again_beside_an_error_of_first_visits():
    x = like_activations(3)
    for text in ("delta:form=step,key_error=0.02", "delta:form=step,rate=4,entropy=rans"):
        for profile in (None, Profile.fit(x)):
            config = Config(text, profile)
            encoder, decoder = Encoder(config), Decoder(config)
            decoder.decode(encoder.encode(x, [1, 2, 3]))
            decoder.advance(encoder.resync([2]))


def test_both_ends_take_new_profiles():
    x, first = like_activations(5), Profile.fit(like_activations(6))
    encoder, decoder = Encoder("delta:form=step,error=0.05"), Decoder("delta:form=step,error=0.05")
    decoder.decode(encoder.encode(x, [1, 2, 3]))
    for profile in (first, Profile.fit(x), first):
        encoder.use_profile(profile)
        assert encoder.config.text.endswith(f"profile={profile.digest}")
        decoder.add_profile(profile)
        decoder.decode(encoder.encode(x, [1, 2, 3]))
        assert same(encoder.peek(2), decoder.peek(2))
    encoder.use_profile(None)
    decoder.decode(encoder.encode(x, [1, 2, 3]))
    refuses(lambda: Encoder("delta:bits=4").use_profile(first), "CONFIG", "profile")
    refuses(lambda: Decoder("delta:bits=4").add_profile(first), "CONFIG", "profile")


def test_what_is_refused():
    x = like_activations(3)
    profile, other = Profile.fit(x), Profile.fit(like_activations(9))
    frame = Encoder(Config(STEPS, profile)).encode(x)
    for wrong in (Config(STEPS, other), STEPS):
        refuses(lambda: Decoder(wrong).decode(frame), "MISMATCH", "profile")
    with refused("SHAPE", "48 channels, and the tensor has 32"):
        Encoder(Config(STEPS, profile)).encode(normal((2, 3, 32)))
    refuses(lambda: Config("direct:bits=4", profile), "CONFIG", "profile")
    refuses(lambda: Encoder(STEPS + ",profile=7"), "CONFIG", "profile=")
    refuses(lambda: Encoder(Config(STEPS + ",profile=7", profile)), "CONFIG", "not the one")
    refuses(lambda: Profile(numpy.full((1, 1, 4), 2, numpy.float32)), "ARGUMENT", "from 2^-24 to 1")
    refuses(lambda: Profile.fit(x, x[:2]), "SHAPE", "shape of x")
    refuses(lambda: Profile.fit(x * numpy.nan), "ARGUMENT", "no row is finite")
