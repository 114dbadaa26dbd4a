"""PyTorch as a peer of `lockstep bench train`: the same model, trained step by step on a CPU or a GPU.

A GPT-2 is written out below; a Llama is the one of Hugging Face's transformers.

Started by the bench, which sets the variables that PyTorch's CPU tuning guide asks for. It is driven
by lines over a local socket and answers each with a line of JSON:

    step    one step of training        {"seconds": ..., "loss": ...}
    reset   forget the peak so far      {}
    gemm    the model's own products    {"flops_per_second": ...}
    usage   what it took                {"peak_bytes": ...}

By hand, for a look: python3 train_pytorch.py --steps 3 --layers 2 --hidden 128 --heads 2
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Layer(nn.Module):
    def __init__(self, hidden, heads, feed_forward):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, feed_forward)
        self.down = nn.Linear(feed_forward, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        q, k, v = (
            part.view(batch, sequence, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(hidden, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.positions = nn.Embedding(sizes.positions, sizes.hidden)
        self.layers = nn.ModuleList(
            Layer(sizes.hidden, sizes.heads, sizes.feed_forward) for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.hidden)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)  # tied
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Llama(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=sizes.vocabulary, hidden_size=sizes.hidden, num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads, num_key_value_heads=sizes.kv_heads,
            intermediate_size=sizes.feed_forward, max_position_embeddings=sizes.positions,
            tie_word_embeddings=bool(sizes.tied), use_cache=False, attn_implementation="sdpa"))

    def forward(self, tokens, targets):
        logits = self.model(input_ids=tokens).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


MODELS = {"gpt2": Gpt2, "llama": Llama}


def optimizer_of(model):
    pulled = [p for p in model.parameters() if p.dim() >= 2]
    left_alone = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [{"params": pulled, "weight_decay": 0.1}, {"params": left_alone, "weight_decay": 0.0}],
        lr=6e-4, betas=(0.9, 0.95), fused=True,
    )


def made_up_batch(sizes, batch, seed):
    shape = (batch, sizes.sequence + 1)
    text = torch.randint(sizes.vocabulary, shape, generator=torch.Generator().manual_seed(seed))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def autocast_to(dtype, device):
    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=dtype)


def compiled(model, mode):
    if mode == "eager":
        return model
    return torch.compile(model, mode=None if mode == "compile" else mode)


class Subject:
    def __init__(self, sizes):
        self.sizes = sizes
        self.type = TYPES[sizes.precision]
        self.device = sizes.device
        self.model = MODELS[sizes.family](sizes).to(self.device)
        self.optimizer = optimizer_of(self.model)
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.type == torch.float16)
        self.batch = made_up_batch(sizes, sizes.batch, 1)
        if self.device == "cuda":
            self.batch = tuple(part.pin_memory() for part in self.batch)
        self.loss = compiled(self.model, sizes.mode)

    def step(self):
        begin = time.perf_counter()
        tokens, targets = (part.to(self.device, non_blocking=True) for part in self.batch)
        with autocast_to(self.type, self.device):
            loss = self.loss(tokens, targets)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        return {"seconds": time.perf_counter() - begin, "loss": value}

    def reset(self):
        # The largest resident size counts from here on; where the kernel has no such file, it
        # counts from the start.
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            return {}
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return {}

    @torch.no_grad()
    def gemm(self):
        """FLOPs per second of the products of all linear layers, each as often as in a step."""
        sizes = self.sizes
        rows = sizes.batch * sizes.sequence
        hidden, wide = sizes.hidden, sizes.feed_forward
        qkv = hidden + 2 * hidden // sizes.heads * sizes.kv_heads
        up = 2 * wide if sizes.family == "llama" else wide
        shapes = [(rows, hidden, qkv, sizes.layers), (rows, hidden, hidden, sizes.layers),
                  (rows, hidden, up, sizes.layers), (rows, wide, hidden, sizes.layers),
                  (min(rows, 1024), hidden, sizes.vocabulary, rows / min(rows, 1024))]
        seconds = flops = 0.0
        for rows, inner, outer, count in shapes:
            x = torch.randn(rows, inner, device=self.device).to(self.type)
            weight = torch.randn(outer, inner, device=self.device).to(self.type)
            dy = torch.randn(rows, outer, device=self.device).to(self.type)
            for product in (lambda: x @ weight.t(), lambda: dy @ weight, lambda: dy.t() @ x):
                product()
                self.wait()
                begin = time.perf_counter()
                product()
                self.wait()
                seconds += count * (time.perf_counter() - begin)
                flops += count * 2.0 * rows * inner * outer
        return {"flops_per_second": flops / seconds}

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def usage(self):
        if self.device == "cuda":
            return {"peak_bytes": torch.cuda.max_memory_allocated()}
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return {"peak_bytes": int(line.split()[1]) * 1024}
        return {"peak_bytes": 0}


def serve(subject, name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect("\0" + os.environ["LOCKSTEP_BENCH_SOCKET"])
        with connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
            lines.write(json.dumps({"name": name, "version": torch.__version__}) + "\n")
            lines.flush()
            for line in lines:
                try:
                    request, *arguments = line.split()
                    answer = getattr(subject, request)(*arguments)
                except Exception as error:  # reported to the bench, which continues without us
                    answer = {"error": f"{type(error).__name__}: {error}"}
                lines.write(json.dumps(answer) + "\n")
                lines.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["eager", "compile", "reduce-overhead"],
                        default="eager")
    parser.add_argument("--family", choices=list(MODELS), default="gpt2")
    parser.add_argument("--tied", type=int, choices=[0, 1], default=1,
                        help="whether the head is the token table; GPT-2's always is")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=list(TYPES), default="f32")
    parser.add_argument("--steps", type=int, default=0, help="without a bench: number of steps")
    for flag, default in {"batch": 4, "sequence": 1024, "threads": 1, "layers": 12, "hidden": 768,
                          "heads": 12, "kv-heads": 0, "feed-forward": 0, "vocabulary": 50257,
                          "positions": 1024}.items():
        parser.add_argument(f"--{flag}", type=int, default=default)
    sizes = parser.parse_args()
    sizes.feed_forward = sizes.feed_forward or 4 * sizes.hidden
    sizes.kv_heads = sizes.kv_heads or sizes.heads
    torch.set_num_threads(sizes.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    subject = Subject(sizes)
    if sizes.steps == 0:
        serve(subject, f"pytorch-{sizes.mode}")
        return
    for _ in range(sizes.steps):
        print(subject.step(), flush=True)
    print(subject.gemm(), subject.usage())


if __name__ == "__main__":
    sys.exit(main())
