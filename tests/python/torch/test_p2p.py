# SPDX-License-Identifier: Apache-2.0
# test_p2p.py - send, recv, isend and irecv.
import pickle
import warnings

import torch

import deltawire.torch as dwt
from deltawire import DeltawireError
from deltawire.torch.pipeline import p2p


def near(y, x, within):
    return (y.float() - x.float()).abs().max().item() <= within * x.float().abs().max().item()


def exchange(rank, world):
    """Rank 0 sends and rank 1 receives. Returns the names of the checks that failed."""
    torch.manual_seed(3)
    x = torch.randn(4, 6, 32)
    wrong = []

    def expect(name, fine):
        if not fine:
            wrong.append(name)

    first = 0
    for step in range(3):
        if rank == 0:
            size = dwt.send(x + 0.01 * step, 1, torch.arange(4))
            first = first or size
            expect("size", step == 0 or size < 0.8 * first)
        else:
            y = torch.empty(4, 6, 32)
            expect("ids", dwt.recv(y, 0) == [0, 1, 2, 3])
            expect("values", near(y, x + 0.01 * step, 0.05))
    flat = x.view(24, 32).to(torch.bfloat16)
    if rank == 0:
        a = dwt.isend(flat, 1, config="direct:bits=8", tag=1)
        b = dwt.isend(flat + 1, 1, config="direct:bits=8", tag=1)
        refused(expect, "cannot be pickled", pickle.dumps, a)
        b.wait(), a.wait()
    else:
        y, z = torch.empty(24, 32, dtype=torch.bfloat16), torch.empty(24, 32)
        a = dwt.irecv(y, 0, config="direct:bits=8", tag=1)
        b = dwt.irecv(z, 0, config="direct:bits=8", tag=1)
        refused(expect, "cannot be pickled", pickle.dumps, a)
        expect("no ids", b.wait() is None and a.wait() is None)
        expect("order", near(y, flat, 0.02) and near(z, flat + 1, 0.02))
    outliers(rank, x, expect)
    mistakes(rank, x, expect)
    return wrong


def outliers(rank, x, expect):
    """Where one channel is much larger than the others, groups of 4 bits lose those."""
    x, y = x.repeat(1, 8, 4), torch.empty(4, 48, 128)
    x[..., 0] *= 1000
    for tag, config, ids, warned in ((3, "direct:bits=4", None, 1), (4, p2p.FORWARD, range(4), 0)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                if rank == 0:
                    dwt.send(x, 1, ids, config=config, tag=tag)
                else:
                    dwt.recv(y, 0, config=config, tag=tag)
        here = warned if rank == 0 else 0
        texts = [str(warning.message) for warning in said]
        expect(f"{here}: {texts}", len(texts) == here and all("harms a model" in t for t in texts))


def refused(expect, word, function, *args, **named):
    try:
        function(*args, **named)
    except DeltawireError as error:
        expect(error.why, word in error.why)
    else:
        expect(word, False)


def mistakes(rank, x, expect):
    if rank == 0:
        refused(expect, "another config", dwt.send, x, 1, range(4), config="delta:bits=2")
        refused(expect, "coded", dwt.send, x.double(), 1, range(4))
        refused(expect, "ids", dwt.send, x, 1)
        dwt.send(x, 1, [0, 1, 2, 3])
        dwt.send(x, 1, [0, 1, 2, 3])
        dwt.send(x, 1, config="direct:bits=4", tag=2)
    else:
        y = torch.zeros(4, 6, 16)
        refused(expect, "shape", dwt.recv, y, 0)
        expect("untouched", not y.any())
        z = torch.empty(4, 6, 32)
        expect("in step", dwt.recv(z, 0) == [0, 1, 2, 3] and near(z, x, 0.05))
        refused(expect, "another config", dwt.recv, z, 0, config="direct:bits=5", tag=2)


def test_p2p_exchange_gives_the_tensors_of_the_neighbours(ranks):
    assert ranks.run(2, exchange) == [[], []]
