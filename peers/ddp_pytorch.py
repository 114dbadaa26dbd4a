"""PyTorch's DistributedDataParallel as a peer of `lockstep bench data-parallel`.

One rank; the bench starts all of them with the variables that torchrun sets.

By hand, for a look:
    torchrun --nproc-per-node 2 ddp_pytorch.py --steps 3 --layers 2 --hidden 128 --heads 2
"""

import time

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import ranks_pytorch
from train_pytorch import TYPES, Gpt2, autocast_to, made_up_batch, optimizer_of


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


if __name__ == "__main__":
    ranks_pytorch.run(Subject, __doc__.splitlines()[0])
