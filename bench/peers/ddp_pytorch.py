"""PyTorch's DistributedDataParallel as a peer of `lockstep bench data-parallel`.

One rank; the bench starts all of them with the variables that torchrun sets. Rank 0 writes
{"seconds": [of each step], "tokens": of a step, all ranks together, "version": ...} to --json.

By hand, for a look:
    torchrun --nproc-per-node 2 ddp_pytorch.py --steps 3 --layers 2 --hidden 128 --heads 2
"""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from train_pytorch import TYPES, Gpt2, autocast_to, made_up_batch, optimizer_of


def keep_to_a_core(rank, ranks):
    """Every rank its own core, as our launcher does."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= ranks:
        share = len(cores) // ranks
        os.sched_setaffinity(0, cores[rank * share:(rank + 1) * share])


class Subject:
    def __init__(self, sizes, rank, ranks):
        self.type = TYPES[sizes.precision]
        self.model = Gpt2(sizes)
        self.parallel = DistributedDataParallel(
            self.model, gradient_as_bucket_view=True, static_graph=sizes.mode == "eager")
        if sizes.reduce == "bf16":
            self.parallel.register_comm_hook(None, default_hooks.bf16_compress_hook)
        self.loss = torch.compile(self.parallel) if sizes.mode == "compile" else self.parallel
        self.optimizer = optimizer_of(self.model)
        self.tokens, self.targets = made_up_batch(sizes, sizes.batch // ranks, 1 + rank)

    def step(self):
        begin = time.perf_counter()
        with autocast_to(self.type):
            loss = self.loss(self.tokens, self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        # Gradients are views into the buckets: zeroed in place, they stay so.
        self.optimizer.zero_grad(set_to_none=False)
        value = loss.item()
        return time.perf_counter() - begin, value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", default="/dev/stdout")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--reduce", choices=["f32", "bf16"], default="f32",
                        help="what gradients are reduced in")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="bf16")
    for flag, default in {"steps": 5, "batch": 8, "sequence": 512, "layers": 12, "hidden": 768,
                          "heads": 12, "feed-forward": 0, "vocabulary": 50257,
                          "positions": 1024}.items():
        parser.add_argument(f"--{flag}", type=int, default=default)
    sizes = parser.parse_args()
    sizes.feed_forward = sizes.feed_forward or 4 * sizes.hidden
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if sizes.batch % ranks != 0:
        sys.exit(f"{sizes.batch} sequences do not fall evenly onto {ranks} ranks")
    keep_to_a_core(int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    subject = Subject(sizes, rank, ranks)
    steps = [subject.step() for _ in range(sizes.steps)]
    if rank == 0:
        print(f"losses from {steps[0][1]:.4f} to {steps[-1][1]:.4f}", file=sys.stderr)
        with open(sizes.json, "w", encoding="utf-8") as file:
            json.dump({"seconds": [seconds for seconds, _ in steps],
                       "tokens": sizes.batch * sizes.sequence,
                       "version": torch.__version__}, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
