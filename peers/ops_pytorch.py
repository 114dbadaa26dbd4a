"""PyTorch as a peer of `lockstep bench ops --device cuda`: cuDNN's attention on a GPU.

scaled_dot_product_attention is held to cuDNN, so a shape that cuDNN does not take is a problem and
not another kernel's time. Queries, keys and values are columns of one tensor, as a model's linear
layer leaves them. Calls go round between tensors that caches cannot hold, are captured as a CUDA
graph where that works, and are timed by CUDA events. Forward keeps what backward needs.

Driven by lines over a local socket as train_pytorch.py is, with answers as lines of JSON:

    forward BATCH QUERIES KEYS HEADS KV_HEADS HEAD_SIZE CAUSAL TYPE CALLS    {"seconds": ...}
    backward (the same)                                                     {"seconds": ...}

The seconds are those of one call. {"problem": ...} says why there are none, and "note" beside them
what was done in another way than ours.

By hand, for a look: python3 ops_pytorch.py forward 64 1024 1024 12 12 64 1 bf16 20
"""

import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from train_pytorch import TYPES, serve

MORE_THAN_CACHES = 256 << 20
WARM_UPS = 3


class Set:
    """The tensors of one call."""

    def __init__(self, shape, dtype, repeats_heads):
        batch, queries, keys, heads, kv_heads, head_size = shape
        if queries == keys:
            columns = torch.randn(batch, queries, heads + 2 * kv_heads, head_size,
                                  device="cuda", dtype=dtype)
            q, k, v = columns.split([heads, kv_heads, kv_heads], dim=2)
        else:
            q, k, v = (torch.randn(batch, rows, count, head_size, device="cuda", dtype=dtype)
                       for rows, count in ((queries, heads), (keys, kv_heads), (keys, kv_heads)))
        if repeats_heads:
            k, v = (part.repeat_interleave(heads // kv_heads, dim=2) for part in (k, v))
        self.inputs = tuple(part.transpose(1, 2).detach().requires_grad_() for part in (q, k, v))
        self.out = None
        self.gradient = None


class Batch:
    """A number of calls of one pass over one shape, captured where possible."""

    def __init__(self, backward, shape, causal, dtype, calls, stream):
        self.backward, self.causal, self.calls, self.stream = backward, causal, calls, stream
        self.grouped = shape[3] != shape[4]
        self.sets = self.make_sets(shape, dtype)
        for _ in range(WARM_UPS):
            self.run(len(self.sets))
        stream.synchronize()
        self.graph = self.capture()
        self.seconds()

    def make_sets(self, shape, dtype):
        batch, queries, keys, heads, kv_heads, head_size = shape
        size = 2 * batch * head_size * (2 * queries * heads + 2 * keys * kv_heads)
        count = max(1, min(16, -(-MORE_THAN_CACHES // size)))
        for repeats_heads in (False, True) if self.grouped else (False,):
            try:
                sets = [Set(shape, dtype, repeats_heads) for _ in range(count)]
                for one in sets:
                    one.out = self.attend(one, self.grouped and not repeats_heads)
                    one.gradient = torch.randn_like(one.out)
                self.grouped = self.grouped and not repeats_heads
                return sets
            except RuntimeError:
                if repeats_heads or not self.grouped:
                    raise

    def attend(self, one, grouped):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            more = {"enable_gqa": True} if grouped else {}
            return F.scaled_dot_product_attention(*one.inputs, is_causal=self.causal, **more)

    def run(self, calls):
        for i in range(calls):
            one = self.sets[i % len(self.sets)]
            if self.backward:
                torch.autograd.grad(one.out, one.inputs, one.gradient, retain_graph=True)
            else:
                self.attend(one, self.grouped)

    def capture(self):
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                self.run(self.calls)
            return graph
        except RuntimeError:
            torch.cuda.synchronize()
            return None

    def seconds(self):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(self.stream)
        self.graph.replay() if self.graph else self.run(self.calls)
        end.record(self.stream)
        end.synchronize()
        return begin.elapsed_time(end) / 1000 / self.calls


class Subject:
    def __init__(self):
        torch.cuda.init()
        self.stream = torch.cuda.Stream()
        self.asked = None
        self.batch = None

    def time(self, backward, *words):
        if self.asked != (backward, words):
            self.asked = self.batch = None
            torch.cuda.empty_cache()
            *shape, causal, dtype, calls = words
            try:
                with torch.cuda.stream(self.stream):
                    self.batch = Batch(backward, tuple(map(int, shape)), causal == "1",
                                       TYPES[dtype], int(calls), self.stream)
            except RuntimeError as error:
                return {"problem": str(error).strip().splitlines()[0]}
            self.asked = (backward, words)
        with torch.cuda.stream(self.stream):
            return {"seconds": self.batch.seconds(), "note": self.note(words)}

    def note(self, words):
        notes = []
        if self.batch.graph is None:
            notes.append("queues calls one by one, because they could not be captured")
        if words[3] != words[4] and not self.batch.grouped:
            notes.append("repeats keys and values, because cuDNN takes no grouped heads here")
        return "; ".join(notes)

    def forward(self, *words):
        return self.time(False, *words)

    def backward(self, *words):
        return self.time(True, *words)


def main():
    torch.manual_seed(1)
    subject = Subject()
    if len(sys.argv) == 1:
        serve(subject, f"cuDNN {torch.backends.cudnn.version()}")
        return
    for _ in range(5):
        print(getattr(subject, sys.argv[1])(*sys.argv[2:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
