"""PyTorch as a peer of `lockstep bench generate`: the same model continues texts.

It keeps keys and values of the text so far in a cache, without gradients, and always takes the
likeliest token. Four ways:

    lean                   GPT-2 in plain PyTorch on a CPU, one text: a cache of fixed size, no more
                           Python than it takes
    compile                the same, the step of one token by torch.compile
    transformers           GPT2LMHeadModel or LlamaForCausalLM with generate(use_cache=True)
    transformers-compile   the same with cache_implementation="static" and the step by
                           torch.compile(mode="reduce-overhead"), which launches CUDA graphs

Driven by lines over a local socket as train_pytorch.py is, with answers as lines of JSON:

    generate    one text                {"prompt_seconds": ..., "seconds": ..., "last_token": ...}
    reset       forget the peak so far  {}
    usage       what it took            {"peak_bytes": ...}

By hand, for a look: python3 generate_pytorch.py --mode lean --texts 3 --precision bf16
"""

import argparse
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from train_pytorch import TYPES, Subject as TrainingSubject, serve


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        hidden = sizes.hidden
        self.heads = sizes.heads
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, sizes.feed_forward)
        self.down = nn.Linear(sizes.feed_forward, hidden)

    def forward(self, x, cache, position, seen, mask):
        rows, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, 3, self.heads, -1).permute(1, 2, 0, 3)
        cache[0].index_copy_(1, position, k)
        cache[1].index_copy_(1, position, v)
        k, v = cache[0][:, :seen], cache[1][:, :seen]
        attended = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0]
        x = x + self.projection(attended.transpose(0, 1).reshape(rows, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.positions = nn.Embedding(sizes.positions, sizes.hidden)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.hidden)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, caches, position, seen, mask):
        x = self.tokens(tokens) + self.positions(position)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, position, seen, mask)
        return F.linear(self.norm(x[-1:]), self.tokens.weight)[0].argmax()


class Lean:
    """Eager steps see the keys there are; compiled ones, whose shapes must not change, see the whole
    cache and a mask."""

    def __init__(self, sizes, prompt):
        self.prompt, self.count, self.compiled = prompt, sizes.tokens, sizes.mode == "compile"
        self.model = Gpt2(sizes).to(TYPES[sizes.precision]).eval()
        self.length = len(prompt) + sizes.tokens
        shape = (2, sizes.heads, self.length, sizes.hidden // sizes.heads)
        self.caches = [torch.zeros(shape, dtype=TYPES[sizes.precision]) for _ in range(sizes.layers)]
        self.step = torch.compile(self.model) if self.compiled else self.model
        self.places = torch.arange(self.length)
        self.one = [self.places[i:i + 1] for i in range(self.length)]
        self.masks = [(self.places <= i)[None] for i in range(self.length)]

    def generate(self):
        begin = time.perf_counter()
        rows = len(self.prompt)
        causal = torch.ones(rows, rows, dtype=torch.bool).tril()
        token = self.model(self.prompt, self.caches, self.places[:rows], rows, causal)
        prompt_end = time.perf_counter()
        for place in range(rows, self.length - 1):
            if self.compiled:
                token = self.step(token.view(1), self.caches, self.one[place], self.length,
                                  self.masks[place])
            else:
                token = self.step(token.view(1), self.caches, self.one[place], place + 1, None)
        return prompt_end - begin, time.perf_counter() - prompt_end, token.item()


class Transformers:
    def __init__(self, sizes, prompt):
        import transformers

        transformers.logging.set_verbosity_error()
        common = {"vocab_size": sizes.vocabulary, "bos_token_id": None, "eos_token_id": None}
        if sizes.family == "gpt2":
            config = transformers.GPT2Config(
                n_layer=sizes.layers, n_embd=sizes.hidden, n_head=sizes.heads,
                n_inner=sizes.feed_forward, n_positions=sizes.positions, **common)
            model = transformers.GPT2LMHeadModel(config)
        else:
            config = transformers.LlamaConfig(
                num_hidden_layers=sizes.layers, hidden_size=sizes.hidden,
                num_attention_heads=sizes.heads, num_key_value_heads=sizes.kv_heads,
                intermediate_size=sizes.feed_forward, max_position_embeddings=sizes.positions,
                **common)
            model = transformers.LlamaForCausalLM(config)
        self.model = model.to(sizes.device, TYPES[sizes.precision]).eval()
        self.prompt = prompt[None].repeat(sizes.batch, 1).to(sizes.device)
        self.count, self.device = sizes.tokens, sizes.device
        self.criteria = transformers.StoppingCriteriaList
        self.options = {"use_cache": True}
        if sizes.mode == "transformers-compile":
            # generate() compiles the step by itself where the cache is static.
            from transformers.generation import CompileConfig

            self.options = {"cache_implementation": "static",
                            "compile_config": CompileConfig(mode="reduce-overhead")}

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def generate(self):
        # The prompt by itself would be another text with another cache, and compiled for that. So
        # the clock is read when the first token is there.
        go_on = torch.zeros(len(self.prompt), dtype=torch.bool, device=self.device)
        first = []

        def at_token(ids, scores, **unused):
            if not first:
                self.wait()
                first.append(time.perf_counter())
            return go_on

        begin = time.perf_counter()
        text = self.model.generate(
            self.prompt, attention_mask=torch.ones_like(self.prompt), do_sample=False,
            max_new_tokens=self.count, min_new_tokens=self.count, pad_token_id=0,
            stopping_criteria=self.criteria([at_token]), **self.options)
        token = text[0, -1].item()  # waits for a GPU
        end = time.perf_counter()
        return first[0] - begin, end - first[0], token


class Subject:
    def __init__(self, sizes):
        self.device = sizes.device
        generator = torch.Generator().manual_seed(1)
        prompt = torch.randint(sizes.vocabulary, (sizes.prompt,), generator=generator)
        is_lean = sizes.mode in ("lean", "compile")
        self.writer = (Lean if is_lean else Transformers)(sizes, prompt)

    def generate(self):
        # A static cache outlives the text, and tensors of inference mode may not.
        with torch.no_grad() if self.device == "cuda" else torch.inference_mode():
            prompt_seconds, seconds, token = self.writer.generate()
        return {"prompt_seconds": prompt_seconds, "seconds": seconds, "last_token": token}

    reset = TrainingSubject.reset
    usage = TrainingSubject.usage


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="lean",
                        choices=["lean", "compile", "transformers", "transformers-compile"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--family", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--precision", choices=list(TYPES), default="f32")
    parser.add_argument("--texts", type=int, default=0, help="without a bench: number of texts")
    for flag, default in {"batch": 1, "prompt": 16, "tokens": 128, "threads": 1, "layers": 12, "hidden": 768,
                          "heads": 12, "kv-heads": 12, "feed-forward": 3072, "vocabulary": 50257,
                          "positions": 1024}.items():
        parser.add_argument(f"--{flag}", type=int, default=default)
    sizes = parser.parse_args()
    torch.set_num_threads(sizes.threads)
    torch.manual_seed(1)
    subject = Subject(sizes)
    if sizes.texts == 0:
        is_lean = sizes.mode in ("lean", "compile")
        name = f"pytorch-{sizes.mode}" if is_lean else "transformers"
        serve(subject, name)
        return
    for _ in range(sizes.texts):
        print(subject.generate(), flush=True)
    print(subject.usage())


if __name__ == "__main__":
    sys.exit(main())
