# SPDX-License-Identifier: Apache-2.0
# test_trainers.py - runs the programs of docs/huggingface.md on two ranks, and tests attach,
# with_ids and prefetching.
import os
import pathlib
import re
import shutil
import socket
import sys
import types
import warnings

import pytest
import torch
from torch.distributed.fsdp import FSDPModule

import deltawire.torch
import ddp_ranks
import pipelines
from deltawire import DeltawireError

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "bench"))
from slow_network import SlowNetwork  # noqa: E402

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "huggingface.md"


def program(section):
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)


def free_port():
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return here.getsockname()[1]


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    size = {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    still = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, **size, **ends, **still))


def names(rank, folder):
    """What the programs of the page import or are given."""
    import torch.nn.functional as functional
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    from deltawire.torch import compress_stage

    chance = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 64, (16, 12), generator=chance)
    data = [{"input_ids": row, "labels": row} for row in tokens]

    return {**locals(), "deltawire": deltawire, "torch": torch, "model": gpt2()}


def as_torchrun(rank, world, port):
    given = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in given.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def lightning_names(model):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = model

        def training_step(self, batch, i):
            return self.inner(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-3)

    return {"lightning": lightning, "module": Module()}


def trains(rank, world, port, folder, section):
    as_torchrun(rank, world, port)
    os.chdir(folder)  # where Lightning writes
    space = names(rank, folder)
    if section == "Trainer":
        from transformers import Trainer, TrainingArguments

        space.update(locals())
    elif section == "accelerate":
        from accelerate import Accelerator

        space.update(locals())
    else:
        space.update(lightning_names(space["model"]))
    exec(program(section)[0], space)
    return space["sent"], sum(p.double().sum().item() for p in space["model"].parameters())


@pytest.mark.parametrize("section", ["Trainer", "accelerate", "Lightning"])
def test_the_programs_of_the_page_compress_their_gradients(ranks, section, tmp_path):
    pytest.importorskip(section.lower() if section != "Trainer" else "transformers")
    (sent, weights), (_, others) = ranks.run(2, trains, free_port(), str(tmp_path), section)
    assert sent["steps"] == 4 and 4 < sent["raw_bytes"] / sent["sent_bytes"] < 9
    assert weights == others


MACHINE = """import os, sys
import torch
from test_trainers import names, program
from transformers import Trainer, TrainingArguments

rank, folder, more = int(os.environ["RANK"]), sys.argv[1], sys.argv[2]
space = names(rank, folder) | {"Trainer": Trainer, "TrainingArguments": TrainingArguments}
exec(program("Trainer")[0].replace('bits=4"', 'bits=4"' + more), space)
weights = sum(p.double().sum().item() for p in space["model"].parameters())
with open(f"{folder}/said{rank}", "w") as file:
    print(os.uname().nodename, space["sent"]["steps"], weights, file=file)
"""
OVER_LINKS = """, carrier=f"tcp://10.77.0.{rank + 1}", link=lambda other: {
    "tls": deltawire.Tls(f"rank/{rank}", f"rank/{other}", group_key=bytes(range(32)))}"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="needs root and tc")
@pytest.mark.parametrize("more", ["", OVER_LINKS], ids=["group", "links"])
def test_torchrun_trains_on_two_machines(more, tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "program.py").write_text(MACHINE)
    script = f'hostname machine$1; shift; exec {sys.executable} -m torch.distributed.run "$@"'
    places = [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    with SlowNetwork(2, "1gbit") as network, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(places))
        meeting = ["--master-addr", network.address(0), "--master-port", "29511"]
        nodes = ["--nnodes", "2", "--nproc-per-node", "1", *meeting]
        given = [str(tmp_path / "program.py"), str(tmp_path), more]
        begun = [
            network.start(
                node,
                ["unshare", "--uts", "sh", "-c", script, "sh", str(node)]
                + ["--node-rank", str(node), *nodes, *given],
            )
            for node in range(2)
        ]
        try:
            assert [one.wait(120) for one in begun] == [0, 0]
        finally:
            for one in begun:
                one.kill()
    said = [(tmp_path / f"said{rank}").read_text().split() for rank in range(2)]
    assert [one[:2] for one in said] == [["machine0", "4"], ["machine1", "4"]]
    assert said[0][2] == said[1][2]


def diloco(rank, world, port):
    space = names(rank, None)
    uri = f"tcp://127.0.0.1:{port}"
    space["links"] = [None, uri] if rank == 0 else [uri, None]
    space["data"] = space["data"][rank::world]
    before = [p.detach().clone() for p in space["model"].parameters()]
    exec(program("Few exchanges (DiLoCo)")[0], space)
    moved = [not torch.equal(a, p) for a, p in zip(before, space["model"].parameters())]
    return space["sent"], all(moved), ddp_ranks.bits_of(space["model"])


def test_the_program_of_the_page_with_few_exchanges_ends_with_the_same_bits_on_all_ranks(ranks):
    pytest.importorskip("transformers")
    (sent, moved, ours), (_, _, theirs) = ranks.run(2, diloco, free_port())
    assert moved and ours == theirs
    assert 4 < sent.raw_bytes / sent.encoded_bytes < 9 and sent.slots == sent.finished


def resumes(rank, world, port, folder):
    """Two epochs at once, and one after the other. Returns the weights after each way."""
    as_torchrun(rank, world, port)
    os.chdir(folder)
    found = []
    for epochs, begin in ((2, None), (1, None), (2, "first.ckpt")):
        space = names(rank, folder)
        lightning, module = lightning_names(space["model"]).values()
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(
            accelerator="cpu", devices=world, strategy="ddp", max_epochs=epochs,
            accumulate_grad_batches=2, **quiet
        )
        attached = deltawire.torch.attach(trainer, "direct:bits=2,feedback=ef")
        trainer.fit(module, space["DataLoader"](space["data"], batch_size=2), ckpt_path=begin)
        if epochs == 1:
            trainer.save_checkpoint("first.ckpt")
        found.append(sum(p.double().sum().item() for p in module.parameters()))
    return found[0], found[2], attached.state.stats()["new_buckets"]


def test_a_training_of_lightning_resumes_with_the_same_bits(ranks, tmp_path):
    pytest.importorskip("lightning")
    for whole, parts, new_buckets in ranks.run(2, resumes, free_port(), str(tmp_path)):
        assert whole == parts and new_buckets == 0


def resumes_elsewhere(rank, world, port, folder):
    """Four steps at once, and the last two in another folder. Returns the weights after each way,
    the number of buckets that began without state, and what is said where one trainer resumes."""
    from transformers import Trainer, TrainingArguments

    as_torchrun(rank, world, port)
    found = []
    for name, begin in (("one", None), ("two", f"{folder}/one/checkpoint-2")):
        space = names(rank, folder)
        quiet = {"report_to": [], "disable_tqdm": True, "per_device_train_batch_size": 2}
        arguments = TrainingArguments(
            f"{folder}/{name}", max_steps=4, save_steps=2, ddp_backend="gloo", use_cpu=True, **quiet
        )
        trainer = Trainer(space["model"], arguments, train_dataset=space["data"])
        attached = deltawire.torch.attach(trainer, "direct:bits=2,feedback=ef")
        trainer.train(resume_from_checkpoint=begin)
        found.append(sum(p.double().sum().item() for p in space["model"].parameters()))
    found.append(attached.stats()["new_buckets"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.train(resume_from_checkpoint=begin)
    return (*found, [str(one.message) for one in said])


def test_a_training_of_transformers_resumes_elsewhere_with_the_same_bits(ranks, tmp_path):
    pytest.importorskip("transformers")
    for whole, parts, new_buckets, said in ranks.run(
        2, resumes_elsewhere, free_port(), str(tmp_path)
    ):
        assert whole == parts and new_buckets == 0
        assert any("trained before" in one for one in said)


def resumes_from_a_cut_file(rank, world, port, folder):
    """The file of rank 1 is cut. Returns what is said."""
    from transformers import Trainer, TrainingArguments

    as_torchrun(rank, world, port)
    for steps in (1, 2):
        space = names(rank, folder)
        quiet = {"report_to": [], "disable_tqdm": True, "per_device_train_batch_size": 2}
        arguments = TrainingArguments(
            folder, max_steps=steps, save_steps=1, ddp_backend="gloo", use_cpu=True, **quiet
        )
        trainer = Trainer(space["model"], arguments, train_dataset=space["data"])
        deltawire.torch.attach(trainer, "direct:bits=2,feedback=ef")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-1" if steps > 1 else None)
        file = pathlib.Path(folder, "checkpoint-1", f"deltawire_{rank}.pt")
        assert file.stat().st_size and not list(file.parent.glob(f"{file.name}?*"))
        if rank == 1:
            file.write_bytes(file.read_bytes()[:1000])
    return [str(one.message) for one in said]


def test_a_training_of_transformers_goes_on_without_a_state_that_cannot_be_read(ranks, tmp_path):
    pytest.importorskip("transformers")
    first, second = ranks.run(2, resumes_from_a_cut_file, free_port(), str(tmp_path))
    assert any("deltawire_1.pt cannot be read" in one for one in second)
    assert all(any("do not belong together" in one for one in said) for said in (first, second))


def of_another_codec(rank, world):
    """A hook whose checkpoint was saved with another codec begins without it."""
    said = []
    for codec in ("direct:bits=2,feedback=ef", "direct:bits=4"):
        attached = deltawire.torch.Attached(codec, {})
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            attached.begin(model, saved if said else None)
            model(torch.ones(1, 64)).sum().backward()
        saved = attached.state.compression_state_dict()
        said.append([str(one.message) for one in caught])
    return said


def test_a_state_of_another_codec_is_left_out_with_a_warning(ranks):
    for first, second in ranks.run(2, of_another_codec):
        assert not first and any("without the state of the checkpoint" in one for one in second)


def lora(rank, world, which):
    from peft import LoraConfig, get_peft_model

    space = names(rank, None)
    space.update(LoraConfig=LoraConfig, get_peft_model=get_peft_model)
    exec(program("LoRA")[which], space)
    learns = [p for p in space["model"].parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(learns, 0.1)
    for batch in (space["data"][rank], space["data"][rank]):
        space["model"](**{name: row[None] for name, row in batch.items()}).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return space["state"].stats()["raw_bytes"]


@pytest.mark.parametrize("which", [0, 1])
def test_of_a_model_with_lora_only_gradients_of_adapters_are_sent(ranks, which):
    pytest.importorskip("peft")
    if which and not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        pytest.skip("compress_fsdp needs a later torch")
    adapters = 2 * 4 * (32 + 96)  # values of two layers
    assert ranks.run(2, lora, which)[0] <= 2 * 4 * adapters + 4096


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **size, **heads))


def pipe(rank, world, cut):
    torch.manual_seed(7)
    space = names(rank, None)
    if cut != CUTS[0]:
        space["model"] = llama()
    exec(program("Pipelines")[0].replace(CUTS[0], cut), space)
    return space["sent"]


CUTS = ["transformer.h.1", "model.layers.1"]  # of GPT-2 and Llama


@pytest.mark.skipif(not pipelines.HAS_EVAL, reason="torch 2.6 traces no model of transformers 5")
@pytest.mark.parametrize("cut", CUTS)
def test_the_pipeline_of_the_page_compresses_its_activations(ranks, cut):
    pytest.importorskip("transformers")
    sent = ranks.run(2, pipe, cut)[0]["forward_sent"]
    assert sent["messages"] == 8 and sent["frame_bytes"] > 0


def test_with_ids_numbers_items_of_every_kind():
    for items, expected in (
        ([{"x": 5}, {"x": 6, "sample_ids": 9}], {"sample_ids": 1, "x": 6}),
        ([(5, 6), (7, 8)], (1, 7, 8)),
        ([5, 6], (1, 6)),
    ):
        data = deltawire.torch.with_ids(items)
        assert len(data) == 2 and data[1] == expected and data.__getitems__([0, 1])[1] == expected

    class AtOnce(list):
        def __getitems__(self, indices):
            return [self[i] + 100 for i in indices]

    loader = torch.utils.data.DataLoader(deltawire.torch.with_ids(AtOnce([5, 6])), batch_size=2)
    assert [[part.tolist() for part in batch] for batch in loader] == [[[0, 1], [105, 106]]]
    with pytest.raises(DeltawireError, match="has no slices"):
        data[0:2]

    class Endless(torch.utils.data.IterableDataset):
        __len__ = __iter__ = lambda self: 2

    for items in (iter([1]), Endless()):
        with pytest.raises(DeltawireError, match="number its samples yourself"):
            deltawire.torch.with_ids(items)


@pytest.mark.parametrize("items", [list(range(5)), [{"x": i} for i in range(5)]])
def test_prefetching_announces_each_batch_before_the_step_of_the_one_before(items):
    events = []
    stage = types.SimpleNamespace(prefetch=lambda ids: events.append(f"read {ids}"))
    data = deltawire.torch.with_ids(items)
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    batches = deltawire.torch.prefetching(loader, stage)
    for at, _ in enumerate(batches):
        events.append(f"step {at}")
    assert len(batches) == 3 and batches.sampler is loader.sampler
    assert events == [
        *("read [0, 1]", "read [2, 3]", "step 0"),
        *("read [4]", "step 1", "step 2"),
    ]


def test_prefetching_takes_ids_from_where_it_is_told():
    events = []
    stage = types.SimpleNamespace(prefetch=events.append)
    batches = [torch.ones(2), torch.ones(3)]
    assert list(deltawire.torch.prefetching(batches, stage, stage, ids=len)) == batches
    assert events == [2, 2, 3, 3]
    for wrong, ids, says in (
        ([torch.ones(2)], None, "give its data set to with_ids"),
        ([(torch.ones(2), 5)], None, "give an int64 tensor"),
        ([], "sample_ids", "must be a function"),
    ):
        with pytest.raises(DeltawireError, match=says):
            list(deltawire.torch.prefetching(wrong, stage, ids=ids))
    with pytest.raises(DeltawireError, match="needs stages"):
        deltawire.torch.prefetching(batches)


def test_prefetching_gives_the_batch_before_an_error():
    def broken():
        yield [1]
        raise OSError("the disk is gone")

    taken, stage = [], types.SimpleNamespace(prefetch=list)
    with pytest.raises(OSError, match="the disk is gone"):
        for batch in deltawire.torch.prefetching(broken(), stage, ids=list):
            taken.append(batch)
    assert taken == [[1]]


def test_a_trainer_that_does_not_call_the_hook_is_told_after_its_first_step():
    class State:
        steps = 0

        def stats(self):
            return {"steps": self.steps}

    attached = deltawire.torch.Attached("direct", {})
    attached.step_ended()  # there is one process
    attached.state = State()
    with pytest.raises(DeltawireError, match="without the hook"):
        attached.step_ended()
    attached.state.steps = 1
    attached.step_ended()


def test_attach_takes_nothing_but_a_trainer():
    with pytest.raises(DeltawireError, match="register_comm_hook"):
        deltawire.torch.attach(torch.nn.Linear(1, 1))
