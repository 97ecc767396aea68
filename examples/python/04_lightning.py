# SPDX-License-Identifier: Apache-2.0
# 04_lightning.py - compresses the gradients of a Trainer of Lightning.
"""Lightning starts the second process, which runs this file again. It prints the loss:

step 100: 3.3120
step 200: 2.6158
step 300: 2.4151
bytes of gradients for each byte sent: 7.4
"""

import lightning
import torch
from torch import nn

import deltawire.torch

CONTEXT, STEPS, TEXT = 8, 300, "/usr/share/common-licenses/GPL-3"


class Bytes(torch.utils.data.Dataset):
    """Pairs of CONTEXT bytes and the byte that follows them."""

    def __init__(self):
        with open(TEXT, "rb") as file:
            self.text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()

    def __len__(self):
        return len(self.text) - CONTEXT

    def __getitem__(self, i):
        return self.text[i : i + CONTEXT], self.text[i + CONTEXT]


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        inner = [nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 128), nn.GELU()]
        self.inner, self.sum = nn.Sequential(*inner, nn.Linear(128, 256)), 0.0

    def training_step(self, batch, i):
        loss = nn.functional.cross_entropy(self.inner(batch[0]), batch[1])
        self.sum += loss.item()
        if i % 100 == 99:
            self.print(f"step {i + 1}: {self.sum / 100:.4f}")
            self.sum = 0.0
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 3e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    lightning.seed_everything(1)
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar")}
    options = {"max_steps": STEPS, "enable_model_summary": False, **quiet}
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", **options)
    compression = deltawire.torch.attach(trainer, "delta:bits=4")
    trainer.fit(Model(), torch.utils.data.DataLoader(Bytes(), batch_size=16, shuffle=True))
    sent = compression.stats()
    if trainer.is_global_zero:
        ratio = sent["raw_bytes"] / sent["sent_bytes"]
        print(f"bytes of gradients for each byte sent: {ratio:.1f}")
    assert sent["steps"] == STEPS
