# SPDX-License-Identifier: Apache-2.0
# compare_methods.py - the methods that compare.py compares, one row each.
"""A row says how a method of the literature is written as a codec of deltawire, in each role where
it makes sense: for activations, for their gradients, and for weight gradients. A codec that the
built library does not know is left out of the comparison, with a sentence."""

from collections import namedtuple

ACTIVATIONS, BACKWARD, GRADIENT = "activations", "backward", "gradient"
ROLES = (ACTIVATIONS, BACKWARD, GRADIENT)

# name: for --only. title: for tables and the picture. texts: {role: the codec's text}. paper: where
# the method comes from, and claim: what that says of itself; both may be "". options: more options
# of `deltawire train`.
Method = namedtuple("Method", "name title texts paper claim options", defaults=[()])

BOTTLENECK = ("--bottleneck", "32")
REPEAT = ("--repeat", "5")  # in a fifth of the epochs, so that each sample is used as often
ONE_HOP = ("--hops", "1")  # every replica sends to all, as SparseLoCo's do
LOCAL = ("--local-steps", "3", "--outer-momentum", "0", "--outer-lr", "1")


def everywhere(text, gradient=None):
    """The texts of a method that is the same for activations and their gradients."""
    return {ACTIVATIONS: text, BACKWARD: text, GRADIENT: gradient or text}


DITHER = "form=step,step=2,rounding=dither,entropy=rans"

# What is sent in the two other directions while one role is compared. Both lose so little that it
# cannot be told from chance (docs/codecs.md), and both give the same bits in every run.
PARTNERS = {ACTIVATIONS: "delta:bits=2,scale=signed", BACKWARD: "direct:bits=4,scale=signed"}

# The first row is what all others are compared with.
METHODS = [
    Method("raw", "raw f32", everywhere("raw:f32"), "", ""),
    Method(
        "direct",
        "groups, 4 bits",
        everywhere("direct:bits=4", "direct:bits=4,feedback=ef"),
        "ZeRO++, arXiv:2306.10209",
        "2.16 times as fast",
    ),
    Method(
        "delta",
        "changes (AQ-SGD)",
        {ACTIVATIONS: "delta:bits=2", BACKWARD: "delta:bits=4", GRADIENT: "delta:bits=4"},
        "AQ-SGD, arXiv:2206.01299",
        "2 to 4 bits: 4.3 times as fast end to end, 4.9 times with compressed gradients",
    ),
    Method(
        "skip",
        "changes, small ones skipped",
        {ACTIVATIONS: "delta:bits=2,skip=0.3"},
        "SplitCom, arXiv:2602.10564",
        "98.6 % fewer bytes from the clients",
    ),
    Method(
        "repeat",
        "changes, 5 times in a row (Clapping)",
        {ACTIVATIONS: "delta:bits=2"},
        "Clapping, arXiv:2509.19029",
        "one state per link in place of one per sample",
        REPEAT,
    ),
    Method("repeat-raw", "raw f32, 5 times in a row", {ACTIVATIONS: "raw:f32"}, "", "", REPEAT),
    Method(
        "mx",
        "microscaling, 4 bits",
        everywhere("mx:element=e2m1", "mx:element=e2m1,feedback=ef"),
        "OCP MX 1.0; arXiv:2310.10537",
        "",
    ),
    Method(
        "step",
        "one step, entropy-coded",
        {
            ACTIVATIONS: "delta:form=step,group=sample,step=1.65,entropy=rans",
            BACKWARD: f"direct:{DITHER},group=sample",
            GRADIENT: f"direct:{DITHER},group=128",
        },
        "",
        "",
    ),
    Method(
        "topk",
        "top-k",
        everywhere("topk:keep=0.1", "topk:keep=0.01,feedback=ef"),
        "Bian et al., arXiv:2301.02654; Rudakov et al., arXiv:2401.07788",
        "the top 10 % is the limit for activations; a model that was trained with top-k needs it "
        "when it is used, too",
    ),
    Method(
        "randk",
        "random-k",
        everywhere("randk:keep=0.1", "randk:keep=0.01,feedback=ef"),
        "Bian et al., arXiv:2301.02654",
        "slow codecs lose on fast links",
    ),
    Method(
        "blocks",
        "8-bit blocks (SWARM)",
        everywhere("blocks"),
        "SWARM, arXiv:2301.11913",
        "1 billion shared parameters on T4 GPUs at less than 200 Mbit/s",
    ),
    Method(
        "quantile",
        "8-bit quantiles (hivemind)",
        everywhere("blocks:codebook=quantile"),
        "hivemind; SWARM, arXiv:2301.11913",
        "",
    ),
    Method(
        "cocktail",
        "cocktail",
        {GRADIENT: "cocktail:feedback=ef"},
        "CocktailSGD, ICML 2023",
        "gradients 117 times smaller; about 1.2 times as slow at 500 Mbit/s",
    ),
    Method("chunk", "top-k of chunks", {GRADIENT: "chunk:feedback=ef"}, "", ""),
    Method(
        "chunk-hop",
        "top-k of chunks, one hop (SparseLoCo)",
        {GRADIENT: "chunk:feedback=ef,decay=0.95"},
        "SparseLoCo, arXiv:2508.15706",
        "1 to 3 % of what many steps changed, with 2 bits: more than 97 times smaller",
        ONE_HOP,
    ),
    Method(
        "chunk-local",
        "the same, 3 local steps (SparseLoCo)",
        {GRADIENT: "chunk:feedback=ef,decay=0.95"},
        "",
        "",
        ONE_HOP + LOCAL,
    ),
    Method("raw-local", "raw f32, 3 local steps", {GRADIENT: "raw:f32"}, "", "", LOCAL),
    Method(
        "lowrank",
        "low rank",
        {
            ACTIVATIONS: "lowrank:rank=8",
            BACKWARD: "lowrank:rank=8",
            GRADIENT: "lowrank:rank=4,width=128,feedback=ef",
        },
        "PowerSGD, arXiv:1905.13727",
        "",
    ),
    Method(
        "lazy",
        "low rank, lazy errors",
        {BACKWARD: "lowrank:rank=8,feedback=lazy"},
        "Optimus-CC, arXiv:2301.09830",
        "up to 44.91 % faster (not checked)",
    ),
    Method(
        "bottleneck",
        "bottleneck of 32 channels, 4 bits",
        {ACTIVATIONS: "direct:bits=4,group=32"},
        "Bian et al., arXiv:2301.02654",
        "",
        BOTTLENECK,
    ),
    Method(
        "bottleneck-raw",
        "bottleneck of 32 channels, f32",
        {ACTIVATIONS: "raw:f32"},
        "",
        "",
        BOTTLENECK,
    ),
    Method(
        "tah",
        "rotated tiles (TAH-Quant)",
        everywhere("tah", "tah:feedback=ef"),
        "TAH-Quant, arXiv:2506.01352",
        "1.33 times as fast as AQ-SGD at about 4 bits, without its memory",
    ),
    Method(
        "hadamard",
        "rotated, one step",
        {
            ACTIVATIONS: "delta:form=step,group=sample,transform=hadamard,step=1.65,entropy=rans",
            BACKWARD: f"direct:{DITHER},group=sample,transform=hadamard",
            GRADIENT: f"direct:{DITHER},group=128,transform=hadamard",
        },
        "",
        "",
    ),
]

def named(names):
    """The methods with these names, with raw in front of them; all where names is empty."""
    unknown = set(names) - {method.name for method in METHODS}
    if unknown:
        known = " ".join(method.name for method in METHODS)
        raise ValueError(f"unknown method {' '.join(sorted(unknown))}; known: {known}")
    return [m for m in METHODS if not names or m.name in names or m is METHODS[0]]


def option(method, name, default):
    """The number that this method gives to an option of `deltawire train`."""
    words = method.options
    return int(words[words.index(name) + 1]) if name in words else default


def texts_of(methods):
    """All codecs of these methods, each once."""
    return list(dict.fromkeys(text for method in methods for text in method.texts.values()))
