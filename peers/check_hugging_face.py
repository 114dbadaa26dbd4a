"""Whether models go to lockstep and back, judged by Hugging Face transformers itself.

    pip install torch transformers tokenizers safetensors
    python3 check_hugging_face.py path/to/lockstep

Makes small models of every family with random parameters, saves them as transformers does, imports
them into lockstep and exports them again, in one file and in several, in f32, bf16 and f16. The
exported folder must load with no parameter missing or left over, and its logits must be those of
the model that was saved (of the rounded model, in 16 bits). So must the tokenizer. What lockstep
itself computes with an imported model is judged too: its validation loss must be that of
transformers, and the text that it takes to be the likeliest the same, token by token. Prints a line
for each, and exits with 1 where one failed.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel
from transformers import Gemma2Config, Gemma2ForCausalLM
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
from transformers import MistralConfig, MistralForCausalLM, Phi3Config, Phi3ForCausalLM
from transformers import PreTrainedTokenizerFast
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers import T5Config, T5ForConditionalGeneration
from transformers.utils import logging

TOLERANCE = 1e-4
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TEXT = "Of all that is written I love only what a man has written with his blood. " * 20


def make_models():
    gpt2 = dict(vocab_size=307, n_positions=32, n_embd=48, n_layer=3, n_head=3,
                bos_token_id=0, eos_token_id=0)
    llama = dict(vocab_size=307, max_position_embeddings=32, hidden_size=48, num_hidden_layers=2,
                 num_attention_heads=6, num_key_value_heads=2, intermediate_size=80,
                 rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0)
    bert = dict(vocab_size=307, max_position_embeddings=32, hidden_size=40, num_hidden_layers=2,
                num_attention_heads=5, intermediate_size=96)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(**gpt2))
    yield "gpt2, wide", GPT2LMHeadModel(GPT2Config(**gpt2, n_inner=100, layer_norm_epsilon=1e-3))
    yield "llama", LlamaForCausalLM(LlamaConfig(**llama, tie_word_embeddings=False))
    yield "llama, tied", LlamaForCausalLM(LlamaConfig(
        **llama, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0}))
    yield "mixtral", MixtralForCausalLM(MixtralConfig(
        **llama, num_local_experts=6, num_experts_per_tok=3, tie_word_embeddings=False))
    yield "bert", BertForMaskedLM(BertConfig(**bert))
    yield "gpt2, relu, own logits", GPT2LMHeadModel(GPT2Config(
        **gpt2, activation_function="relu", tie_word_embeddings=False))
    yield "gpt2, exact gelu", GPT2LMHeadModel(GPT2Config(**gpt2, activation_function="gelu"))
    yield "mistral, window", MistralForCausalLM(MistralConfig(**llama, sliding_window=6))
    yield "mixtral, window", MixtralForCausalLM(MixtralConfig(
        **llama, num_local_experts=6, num_experts_per_tok=3, sliding_window=9))
    yield "qwen2, window", Qwen2ForCausalLM(Qwen2Config(
        **llama, use_sliding_window=True, sliding_window=5, max_window_layers=1))
    yield "qwen3", Qwen3ForCausalLM(Qwen3Config(**llama, head_dim=10))
    yield "qwen3, window", Qwen3ForCausalLM(Qwen3Config(
        **llama, head_dim=8, use_sliding_window=True, sliding_window=7, max_window_layers=0))
    yield "phi3", Phi3ForCausalLM(Phi3Config(
        **llama, pad_token_id=None, original_max_position_embeddings=32))
    yield "phi3, window", Phi3ForCausalLM(Phi3Config(
        **llama, pad_token_id=None, original_max_position_embeddings=32, sliding_window=8,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}))
    for name, original in (("longrope", 4), ("longrope, short", 32)):
        yield "phi3, " + name, Phi3ForCausalLM(Phi3Config(
            **{**llama, "max_position_embeddings": 64}, pad_token_id=None,
            original_max_position_embeddings=original,
            rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0,
                             "short_factor": [1 + 0.1 * i for i in range(4)],
                             "long_factor": [2 + i * i for i in range(4)]}))
    gemma2 = {**llama, "head_dim": 12, "num_hidden_layers": 3, "query_pre_attn_scalar": 20}
    yield "gemma2", Gemma2ForCausalLM(Gemma2Config(
        **gemma2, sliding_window=6, attn_logit_softcapping=2.0, final_logit_softcapping=5.0))
    yield "gemma2, without caps", Gemma2ForCausalLM(Gemma2Config(
        **gemma2, sliding_window=7, attn_logit_softcapping=None, final_logit_softcapping=None))
    neox = dict(vocab_size=307, max_position_embeddings=32, hidden_size=48, num_hidden_layers=2,
                num_attention_heads=3, intermediate_size=80, bos_token_id=0, eos_token_id=0)
    yield "gpt-neox", GPTNeoXForCausalLM(GPTNeoXConfig(**neox))
    yield "gpt-neox, one after the other", GPTNeoXForCausalLM(GPTNeoXConfig(
        **neox, use_parallel_residual=False, tie_word_embeddings=True, hidden_act="relu"))
    t5 = dict(vocab_size=307, d_model=40, d_kv=12, d_ff=72, num_layers=2, num_heads=4,
              dropout_rate=0, decoder_start_token_id=0)
    yield "t5", T5ForConditionalGeneration(T5Config(
        **t5, relative_attention_num_buckets=12, relative_attention_max_distance=20))
    gated = T5ForConditionalGeneration(T5Config(
        **t5, num_decoder_layers=3, feed_forward_proj="gated-gelu", tie_word_embeddings=False))
    gated.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn(307, 40))  # it was tied
    yield "t5, version 1.1", gated


def shake(model):
    """Biases and gains that matter, and logits that differ."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3).add_(0.05 * torch.randn_like(parameter))


def special_tokens(name):
    """All, and the one that ends texts."""
    return (["<pad>", "</s>"], "</s>") if name.startswith("t5") else (["<|endoftext|>"], "<|endoftext|>")


def save_tokenizer(name, folder):
    special, end = special_tokens(name)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=307, special_tokens=special,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    begin = {"pad_token": "<pad>"} if name.startswith("t5") else {"bos_token": end}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, **begin).save_pretrained(folder)


def lockstep(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"lockstep {' '.join(map(str, arguments))}: {done.stderr}")


def logits_of(model, tokens):
    model.eval()
    decoder = {"decoder_input_ids": tokens.flip(1)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=tokens, **decoder).logits


def check_translating(program, name, model, folder):
    """The same of a model that translates, after a text and a tab what stands behind it."""
    model.eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "saved")
    start, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    words = TEXT.split()
    pairs = [(" ".join(words[i:i + 3 + i % 5]), " ".join(words[i + 4:i + 6 + i % 3])) for i in range(20)]
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    lockstep(program, "train", f"run.init_from={folder / 'run'}", f"run.dir={folder / 'judged'}",
             f"data.pairs={data}", "data.validation_fraction=0.5", "train.steps=1", "train.global_batch_size=2",
             "optimizer.learning_rate=0", "train.seq_len=48", "train.precision=f32", "train.validate_batches=0")
    line = (folder / "judged" / "metrics.jsonl").read_text().splitlines()[-1]
    ours = json.loads(line)["val_loss"]
    total, count = 0.0, 0
    with torch.no_grad():
        for source, target in pairs[10:]:
            targets = torch.tensor(tokenizer(target).input_ids + [end])
            shifted = torch.cat([torch.tensor([start]), targets[:-1]])
            text = torch.tensor([tokenizer(source).input_ids + [end]])
            logits = model(input_ids=text, decoder_input_ids=shifted[None]).logits[0]
            total += torch.nn.functional.cross_entropy(logits.double(), targets, reduction="sum").item()
            count += len(targets)
    if not math.isclose(ours, total / count, abs_tol=TOLERANCE):
        raise RuntimeError(f"{name}: a validation loss of {ours}, transformers has {total / count}")

    prompt, new = "Of all that", 20
    text = torch.tensor([tokenizer(prompt).input_ids + [end]])
    made = torch.tensor([[start]])
    with torch.no_grad():
        for _ in range(new):
            known = model(input_ids=text, decoder_input_ids=made).logits[:, -1, :len(tokenizer)]
            known[:, start] = -math.inf
            made = torch.cat([made, known.argmax(-1, keepdim=True)], 1)
            if made[0, -1] == end:
                break
    tokens = tokenizer.convert_ids_to_tokens(made[0, 1:])
    want = b"".join(bytes_of(token) for token in tokens if token != tokenizer.eos_token)
    done = subprocess.run([program, "generate", folder / "run", prompt, "--precision", "f32", "--tokens", str(new)],
                          capture_output=True, check=True)
    if done.stdout != want + b"\n":
        raise RuntimeError(f"{name}: translates to {done.stdout}, transformers to {want}")
    return abs(ours - total / count)


def check_computing(program, name, model, folder):
    """What lockstep computes with the model that it has imported into folder / "run"."""
    sequence, vocabulary = 32, model.config.vocab_size
    tokens = torch.randint(vocabulary, (sequence * 20 + 1,))
    (folder / "tokens.bin").write_bytes(tokens.numpy().astype("uint16").tobytes())
    data = folder / "tokens.bin"
    lockstep(program, "train", f"run.init_from={folder / 'run'}", f"run.dir={folder / 'judged'}",
             f"data.tokens={data}", f"data.validation_tokens={data}", "train.steps=1",
             "optimizer.learning_rate=0", "train.global_batch_size=4", f"train.seq_len={sequence}", "train.precision=f32",
             "train.validate_batches=0")
    line = (folder / "judged" / "metrics.jsonl").read_text().splitlines()[-1]
    ours = json.loads(line)["val_loss"]
    logits = logits_of(model, tokens[:-1].reshape(-1, sequence)).reshape(-1, vocabulary)
    theirs = torch.nn.functional.cross_entropy(logits.double(), tokens[1:]).item()
    if not math.isclose(ours, theirs, abs_tol=TOLERANCE):
        raise RuntimeError(f"{name}: a validation loss of {ours}, transformers has {theirs}")

    tokenizer = AutoTokenizer.from_pretrained(folder / "saved")
    prompt = "Of all that"
    text = torch.tensor([tokenizer(prompt).input_ids])
    new = 20
    for _ in range(new):
        known = logits_of(model, text)[:, -1, :len(tokenizer)]  # others have no text
        text = torch.cat([text, known.argmax(-1, keepdim=True)], 1)
    want = b"".join(bytes_of(token) for token in tokenizer.convert_ids_to_tokens(text[0]))
    done = subprocess.run([program, "generate", folder / "run", prompt, "--temperature", "0",
                           "--precision", "f32", "--past-end", "--tokens", str(new)],
                          capture_output=True, check=True)
    if done.stdout != want + b"\n":
        raise RuntimeError(f"{name}: goes on with {done.stdout}, transformers with {want}")
    return abs(ours - theirs)


def bytes_of(token):
    """Of a byte-level token: each of its characters stands for a byte."""
    if token == "<|endoftext|>":
        return token.encode()
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printing]
    byte_of = {chr(byte): byte for byte in printing}
    byte_of |= {chr(256 + i): byte for i, byte in enumerate(others)}
    return bytes(byte_of[character] for character in token)


def check(program, name, model, folder):
    shake(model)
    saved, run = folder / "saved", folder / "run"
    model.save_pretrained(saved)
    save_tokenizer(name, saved)
    lockstep(program, "import", saved, run)
    lockstep(program, "inspect", run)
    tokens = torch.randint(307, (3, 17))
    load = (AutoModelForMaskedLM if name.startswith("bert") else
            AutoModelForSeq2SeqLM if name.startswith("t5") else AutoModelForCausalLM)
    worst = 0.0
    for dtype, torch_type in TYPES.items():
        for size in ("5GB", "20KB"):
            exported = folder / f"exported-{dtype}-{size}"
            lockstep(program, "export", run, exported, "--dtype", dtype, "--shard-size", size)
            if (exported / "model.safetensors.index.json").exists() != (size == "20KB"):
                raise RuntimeError(f"{name}: shards of {size} are not as asked for")
            loaded, info = load.from_pretrained(exported, output_loading_info=True, dtype="auto")
            for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
                if info[kind]:
                    raise RuntimeError(f"{name}: {kind}: {info[kind]}")
            if loaded.dtype != torch_type:
                raise RuntimeError(f"{name}: loaded as {loaded.dtype} instead of {torch_type}")
            rounded = load.from_pretrained(saved, dtype=torch_type)
            if name.startswith("t5"):  # of which transformers leaves some matrices in f32
                rounded = load.from_pretrained(saved).to(torch_type)
            rounded = rounded.float()
            difference = (logits_of(loaded.float(), tokens) - logits_of(rounded, tokens)).abs().max()
            worst = max(worst, difference.item())
            ours, theirs = (AutoTokenizer.from_pretrained(f) for f in (exported, saved))
            if ours(TEXT).input_ids != theirs(TEXT).input_ids or ours.eos_token != special_tokens(name)[1]:
                raise RuntimeError(f"{name}: the exported tokenizer is another")
    if not worst <= TOLERANCE:
        raise RuntimeError(f"{name}: logits differ by {worst:.3g}")
    spread = logits_of(model, tokens).std().item()
    told = f"{name}: logits of deviation {spread:.3g} differ by {worst:.3g} at most"
    if not name.startswith("bert"):
        compute = check_translating if name.startswith("t5") else check_computing
        told += f", losses by {compute(program, name, model, folder):.3g}"
    print(told)


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    failures = 0
    for name, model in make_models():
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(sys.argv[1], name, model, pathlib.Path(folder))
            except RuntimeError as error:
                print(error)
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
