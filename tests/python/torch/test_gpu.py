# SPDX-License-Identifier: Apache-2.0
# test_gpu.py - tensors of torch on a real GPU: the bits of the CPU, streams, and trainings.
"""./run gpu runs these tests. Elsewhere they are skipped: without a GPU, or if the library was
built without kernels."""

import os
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

import torch.distributed as dist  # noqa: E402

import deltawire  # noqa: E402
import gpu_ranks  # noqa: E402
from deltawire import Decoder, Encoder, Storage, frame_info  # noqa: E402
from test_ddp_links import by_a_group  # noqa: E402


def why_not():
    """Why these tests cannot run here, or None."""
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    try:
        Encoder("direct:bits=4", device="cuda:0")
    except deltawire.DeltawireError as error:
        return error.why
    return None


pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

IDS = [5, (7, 3), 2**63]
SHAPE = (3, 40, 768)
CODECS = [
    "delta:bits=4",
    "delta:bits=2,key=8,prev=bf16",
    "direct:bits=3",
    "direct:bits=4,feedback=ef",
    "delta:bits=4,rounding=stochastic,seed=6",
    "raw:f32",
    "raw:bf16,feedback=ef",
    "mx:element=e4m3",
    "delta:form=step,group=sample,rounding=stochastic,seed=4",
    "direct:form=step,group=sample,step=4,rounding=dither,incarnation=7",
    "delta:form=step,group=sample,key=f32,entropy=rans",
    "delta:bits=3,transform=hadamard,rotate=256",
    "delta:form=step,error=0.06,entropy=rans",
    "direct:form=step,step=0.25,entropy=rans",
]


def normal(shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bits(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def payloads(frame):
    """The payloads of a frame, without the header and the table, which begin with a random
    number."""
    entries = frame_info(frame).entries
    return [e.role for e in entries], bytes(frame)[entries[0].payload_offset :]


def late(tensor):
    """A copy on the GPU, which the current stream makes after a pause."""
    there = torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda:0")
    gpu_ranks.pause("cuda:0")
    return there.copy_(tensor.pin_memory(), non_blocking=True)


# Encoders and decoders.


def has_the_bits_of_the_cpu(codec, dtype, **gpu):
    here, there = (Encoder(codec), Decoder(codec)), (Encoder(codec, **gpu), Decoder(codec, **gpu))
    y, made = torch.empty(SHAPE, dtype=dtype, device="cuda:0"), torch.empty(SHAPE, dtype=dtype)
    for visit in range(4):
        given = (normal(SHAPE, 1) + 0.1 * normal(SHAPE, visit)).to(dtype)
        ours, theirs = there[0].encode(given.cuda(), IDS), here[0].encode(given, IDS)
        assert payloads(ours) == payloads(theirs)
        got = there[1].decode(theirs, out=y)
        assert got.tensor is y and got.ids == IDS
        here[0].take_reply(got.reply)
        there[0].take_reply(here[1].decode(ours, out=made).reply)
        assert bits(y) == bits(made)
    for end in there:
        end.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("place", ["device", "pinned"])
@pytest.mark.parametrize("codec", CODECS)
def test_frames_and_results_have_the_bits_of_the_cpu(codec, place, dtype):
    has_the_bits_of_the_cpu(codec, dtype, device="cuda:0", place=place)


@pytest.mark.parametrize("place", ["device", "pinned"])
@pytest.mark.parametrize("codec", ["delta:bits=4", "delta:bits=2,prev=8"])
def test_state_moves_from_a_gpu_to_a_file_and_back(codec, place, tmp_path):
    with Storage(f"file:{tmp_path}/prev,cache=0") as storage:
        has_the_bits_of_the_cpu(codec, torch.float32, device="cuda", place=place, state=storage)
        assert storage.counters().reads >= len(IDS)


@pytest.mark.parametrize("own_stream", [False, True])
def test_work_that_was_enqueued_before_comes_before(own_stream):
    encoder, decoder = Encoder("direct:bits=8", device="cuda"), Decoder("direct:bits=8")
    on_gpu = Decoder("direct:bits=8", device="cuda")
    stream = torch.cuda.Stream() if own_stream else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        for seed in range(4):
            given = normal((4, 256, 1024), seed)
            frame = encoder.encode(late(given))
            assert payloads(frame) == payloads(Encoder("direct:bits=8").encode(given))
            y = torch.empty(given.shape, device="cuda")
            gpu_ranks.pause("cuda")
            y.fill_(1)  # must not come after what the decoder writes
            on_gpu.decode(frame, out=y)
            assert bits(2 * y) == bits(2 * torch.from_dlpack(decoder.decode(frame).tensor))


def test_threads_with_a_stream_each():
    said = [None] * 6

    def work(number):
        codec = f"delta:bits={number + 2}"
        here, there = Encoder(codec), Encoder(codec, device="cuda:0")
        with torch.cuda.stream(torch.cuda.Stream()):
            for visit in range(20):
                given = normal((2, 64, 512), 100 * number + visit)
                ours = there.encode(given.pin_memory().to("cuda:0", non_blocking=True), [1, 2])
                if payloads(ours) != payloads(here.encode(given, [1, 2])):
                    said[number] = f"visit {visit} differs"
                    return
        said[number] = "same"

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert said == ["same"] * 6


def test_states_go_from_the_gpu_to_the_cpu_and_back():
    codec, given = "delta:bits=4", [normal(SHAPE, seed) for seed in range(3)]
    here, there = Encoder(codec), Encoder(codec, device="cuda:0")
    decoder = Decoder(codec)
    frame = there.encode(given[0].cuda(), IDS)
    there.take_reply(decoder.decode(frame).reply)
    here.import_states(there.export_states())
    ours = here.encode(given[1], IDS)
    assert {e.role for e in frame_info(ours).entries} == {"delta"}
    here.take_reply(decoder.decode(ours).reply)
    again = Encoder(codec, device="cuda:0")
    again.import_states(here.export_states())
    assert payloads(again.encode(given[2].cuda(), IDS)) == payloads(here.encode(given[2], IDS))


def test_arrays_of_cupy():
    cupy = pytest.importorskip("cupy")
    given = normal(SHAPE, 3)
    x, y = cupy.asarray(given.numpy()), cupy.zeros(SHAPE, cupy.float32)
    frame = Encoder("delta:bits=4", device="cuda:0").encode(x, IDS)
    assert payloads(frame) == payloads(Encoder("delta:bits=4").encode(given, IDS))
    Decoder("delta:bits=4", device="cuda:0").decode(frame, out=y)
    made = torch.from_dlpack(Decoder("delta:bits=4").decode(frame).tensor)
    assert y.get().tobytes() == bits(made)


def test_arrays_of_jax():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax sees no GPU")
    given = normal(SHAPE, 3)
    frame = Encoder("delta:bits=4", device="cuda:0").encode(jax.numpy.asarray(given.numpy()), IDS)
    assert payloads(frame) == payloads(Encoder("delta:bits=4").encode(given, IDS))


# Groups.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("codec", ["raw:f32", "delta:bits=4", "direct:bits=4,feedback=ef"])
def test_sums_have_the_bits_of_tensors_in_main_memory(codec, dtype):
    count = 1_000_003

    def work(group):
        with torch.cuda.stream(torch.cuda.Stream()):
            for visit in range(3):
                given = normal((count,), 10 * visit + group.rank, dtype)
                wanted = torch.empty_like(given)
                group.all_reduce(given, wanted, slot=1, mean=True)
                x = late(given)
                y = x if visit == 1 else torch.empty_like(x)
                group.all_reduce(x, y, slot=2, mean=True)
                if bits(y) != bits(wanted):
                    return f"visit {visit} differs"
        return "same"

    assert by_a_group(3, codec, None, work) == ["same"] * 3


# Trainings, in two processes that share the GPU.

EF = "direct:bits=4,feedback=ef"
CARRIERS = ["group", "tcp://127.0.0.1"]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_means_of_gradients_have_the_bits_of_the_cpu(ranks, dtype, carrier):
    for codec in ("delta:bits=4", EF):
        given = (codec, dtype, carrier, 40_001, 4)
        there = ranks.run(2, gpu_ranks.rank_of_means, "cuda:0", *given)
        here = ranks.run(2, gpu_ranks.rank_of_means, "cpu", *given)
        assert there == here and there[0] == there[1]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("codec", ["delta:bits=4", EF])
def test_replicas_hold_the_same_bits(ranks, codec, carrier):
    found = ranks.run(2, gpu_ranks.rank_that_trains, "cuda:0", codec, carrier)
    assert found[0][0] == found[1][0]
    for _, losses, stats in found:
        assert sum(losses[-4:]) < 0.98 * sum(losses[:4])
        assert 0 < stats["sent_bytes"] < stats["raw_bytes"] / 2


RAW = {"forward": "raw:f32", "backward": "raw:f32", "evaluate": "raw:f32"}

# torch needs NCCL for the first messages between stages on a GPU, and for parameters in FSDP.
BOTH = {"backend": "cpu:gloo,cuda:nccl"}
needs_nccl = pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")


@needs_nccl
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_pipeline_learns_as_on_the_cpu(ranks, carrier):
    options = {"carrier": carrier}
    there = ranks.run(2, gpu_ranks.rank_of_pipeline, "cuda:0", {**options, **RAW}, **BOTH)
    here = ranks.run(2, gpu_ranks.rank_of_pipeline, "cpu", RAW)
    assert there[1][0] == pytest.approx(here[1][0], rel=1e-3)
    found = ranks.run(2, gpu_ranks.rank_of_pipeline, "cuda:0", options, **BOTH)
    (first, stats), (losses, _) = found
    assert sum(losses[-4:]) < 1.1 * sum(here[1][0][-4:]) and not first
    assert stats["forward_sent"]["key_entries"] == 32
    assert stats["forward_sent"]["delta_entries"] == 7 * 32


@needs_nccl
@pytest.mark.parametrize("carrier", CARRIERS)
def test_fsdp_learns_as_without_compression(ranks, carrier):
    if not hasattr(dist.fsdp.FSDPModule, "set_custom_reduce_scatter"):
        pytest.skip("this torch has no set_custom_reduce_scatter")
    plain = ranks.run(2, gpu_ranks.rank_of_fsdp, "cuda:0", None, None, **BOTH)
    raw = ranks.run(2, gpu_ranks.rank_of_fsdp, "cuda:0", "raw:f32", carrier, **BOTH)
    ours = ranks.run(2, gpu_ranks.rank_of_fsdp, "cuda:0", EF, carrier, **BOTH)
    for rank in range(2):
        assert raw[rank][0] == pytest.approx(plain[rank][0], rel=1e-3)
        assert sum(ours[rank][0][-4:]) < 1.05 * sum(plain[rank][0][-4:])
        assert 0 < ours[rank][1] < raw[rank][1] / 2
