"""PyTorch as a peer of `lockstep bench recipe`: nanoGPT's letters of Shakespeare on a CPU.

The same model, data, steps and validation as lockstep's side, from the text file to the last loss.
Writes {"validation_loss": ..., "seconds_in_steps": ...} to --json.
"""

import argparse
import json
import math
import sys
import time

import torch
from torch import nn

from train_pytorch import Gpt2


def batch_at(data, starts, length):
    tokens = torch.stack([data[i:i + length] for i in starts])
    targets = torch.stack([data[i + 1:i + 1 + length] for i in starts])
    return tokens, targets


def rate_at(step, sizes):
    if step < sizes.warmup:
        return sizes.rate * step / sizes.warmup
    way = (step - sizes.warmup) / (sizes.steps - sizes.warmup)
    return sizes.rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * way)))


@torch.no_grad()
def validate(model, data, sizes, batches):
    windows = (len(data) - 1) // sizes.sequence
    count = windows // sizes.batch if batches == 0 else min(batches, windows // sizes.batch)
    losses = 0.0
    for b in range(count):
        first = b * sizes.batch * sizes.sequence
        starts = [first + i * sizes.sequence for i in range(sizes.batch)]
        losses += model(*batch_at(data, starts, sizes.sequence)).item()
    return losses / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--rate", type=float, default=1e-3)
    for flag, default in {"steps": 2000, "threads": 1, "layers": 4, "heads": 4, "hidden": 128,
                          "sequence": 64, "batch": 12, "warmup": 100, "validate-every": 250,
                          "validate-batches": 20}.items():
        parser.add_argument(f"--{flag}", type=int, default=default)
    sizes = parser.parse_args()
    torch.set_num_threads(sizes.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)

    with open(sizes.text, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    letters = sorted(set(text))
    ids = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([ids[letter] for letter in text], dtype=torch.long)
    training, validation = data[:int(0.9 * len(data))], data[int(0.9 * len(data)):]

    sizes.vocabulary, sizes.positions = len(letters), sizes.sequence
    sizes.feed_forward = 4 * sizes.hidden
    model = Gpt2(sizes)
    pulled = [p for p in model.parameters() if p.dim() >= 2]
    left_alone = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": pulled, "weight_decay": 0.1}, {"params": left_alone, "weight_decay": 0.0}],
        lr=sizes.rate, betas=(0.9, 0.99), fused=True)
    loss_of = torch.compile(model) if sizes.mode == "compile" else model

    begin = time.perf_counter()
    for step in range(1, sizes.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, sizes)
        starts = torch.randint(len(training) - sizes.sequence, (sizes.batch,)).tolist()
        loss = loss_of(*batch_at(training, starts, sizes.sequence))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % sizes.validate_every == 0 and step < sizes.steps:
            validate(model, validation, sizes, sizes.validate_batches)
    seconds = time.perf_counter() - begin
    result = {"validation_loss": validate(model, validation, sizes, sizes.validate_batches),
              "seconds_in_steps": seconds}
    with open(sizes.json, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    sys.exit(main())
