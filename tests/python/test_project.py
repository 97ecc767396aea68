# SPDX-License-Identifier: Apache-2.0
# test_project.py - projections onto a subspace, in front of a codec, through Python.
import array
import pickle

import numpy
import pytest
from rig import normal, pair, refused, same

import deltawire
from deltawire import Projection


def basis(channels, rank):
    """Orthonormal columns."""
    return numpy.linalg.qr(normal((channels, rank)).astype(numpy.float64))[0].astype(numpy.float32)


def of_subspace(u, seed):
    return (normal((2, 6, u.shape[1]), seed) @ u.T).astype(numpy.float32)


def test_coordinates_pass_through_a_codec():
    u = basis(40, 5)
    p = Projection(u)
    assert p.shape == (40, 5) and 0 < p.digest < 2**32
    assert same(p.matrix(), u.reshape(1, 40, 5))
    encoder, decoder = pair(f"delta:bits=8,project={p.digest}")
    for visit in range(3):
        x = of_subspace(u, visit)
        z = p.project(x)
        assert z.shape == (2, 6, 5) and z.dtype == "f32"
        assert numpy.allclose(numpy.from_dlpack(z), x @ u, atol=1e-5)
        got, _, reply = decoder.decode(encoder.encode(z, [4, 5]))
        encoder.take_reply(reply)
        y = p.unproject(got)
        assert y.shape == (2, 6, 40)
        assert numpy.abs(numpy.from_dlpack(y) - x).max() < 0.1
    assert p.unproject(got, "bf16").dtype == "bf16"


def test_the_subspace_of_first_visits_is_found():
    u = basis(30, 3)
    x = of_subspace(u, 7)
    p = Projection.fit(x, 3)
    assert p.shape == (30, 3)
    assert numpy.allclose(numpy.from_dlpack(p.unproject(p.project(x))), x, atol=1e-4)
    assert p.digest == Projection.fit(x, 3).digest == Projection(p.matrix()).digest


def test_another_matrix_is_a_mismatch():
    p, q = Projection(basis(12, 2)), Projection(-basis(12, 2))
    assert p.digest != q.digest
    frame = pair(f"direct:bits=8,project={p.digest}")[0].encode(normal((1, 4, 2)), [1])
    for text in ("direct:bits=8", f"direct:bits=8,project={q.digest}"):
        with refused("MISMATCH", "project"):
            pair(text)[1].decode(frame)


def test_results_may_have_a_place():
    p = Projection(basis(12, 2))
    x, z = normal((2, 3, 12)), numpy.zeros((2, 3, 2), numpy.float32)
    assert p.project(x, out=z) is z
    assert same(p.project(x), z)
    y = numpy.zeros((2, 3, 12), numpy.float16)
    assert p.unproject(z, out=y) is y
    assert same(p.unproject(z, "f16"), y)
    with refused("ARGUMENT", "coordinates are f32"):
        p.project(x, out=numpy.zeros((2, 3, 2), numpy.float16))
    with refused("SHAPE", "(2, 3, 3)"):
        p.project(x, out=numpy.zeros((2, 3, 3), numpy.float32))
    with refused("ARGUMENT", "overlap"):
        p.unproject(x[:, :, :2], out=x)


def test_wrong_shapes_are_refused():
    p = Projection(basis(12, 2))
    with refused("SHAPE", "12 channels onto 2 coordinates"):
        p.project(normal((1, 4, 11)))
    with refused("SHAPE", "(1, 4, 3)"):
        p.unproject(normal((1, 4, 3)))
    with refused("SHAPE", "from 1 to"):
        Projection(normal((2, 12)))
    with refused("SHAPE", "13 coordinates"):
        Projection.fit(normal((1, 40, 12)), 13)
    with refused("ARGUMENT", "not finite"):
        Projection(numpy.full((3, 2), numpy.inf, numpy.float32))
    with refused("ARGUMENT", "rank must be an int"):
        Projection.fit(normal((1, 40, 12)), 1.5)
    with refused("ARGUMENT", "cannot be pickled"):
        pickle.dumps(p)
    with pytest.raises(deltawire.DeltawireError):
        Projection(array.array("b", [1]))
