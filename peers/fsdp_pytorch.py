"""PyTorch's FSDP2 (fully_shard) as a peer of `lockstep bench zero`.

One rank; the bench starts all of them with the variables that torchrun sets. Every layer is sharded
by itself and the tables with the rest, parameters are gathered for forward and again for backward,
and computed with in --precision; the optimizer's states are f32.

By hand, for a look:
    torchrun --nproc-per-node 2 fsdp_pytorch.py --steps 3 --layers 2 --hidden 128 --heads 2
"""

import time

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import ranks_pytorch
from train_pytorch import TYPES, Gpt2, made_up_batch, optimizer_of


class Subject:
    def __init__(self, sizes, rank, ranks):
        mesh = init_device_mesh("cpu", (ranks,))
        policy = MixedPrecisionPolicy(param_dtype=TYPES[sizes.precision],
                                      reduce_dtype=TYPES[sizes.reduce])
        self.model = Gpt2(sizes)
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)
        if sizes.mode == "compile":
            for layer in self.model.layers:
                layer.compile()
        self.optimizer = optimizer_of(self.model)
        self.tokens, self.targets = made_up_batch(sizes, sizes.batch // ranks, 1 + rank)

    def step(self):
        begin = time.perf_counter()
        loss = self.model(self.tokens, self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        return time.perf_counter() - begin, value


if __name__ == "__main__":
    ranks_pytorch.run(Subject, __doc__.splitlines()[0])
