#!/usr/bin/env python3
"""Makes tests/fuzz/corpus: small files, some good, most of them lying about what they hold."""
import base64
import json
import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
HUGE = 2**64 - 1


def put(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def tokens(ids=(1, 2, 3, 4), ends=(3, 4), width=2, vocabulary=10, version=1, count=None, documents=None):
    head = b"LOCKTOKS" + struct.pack("<IIQQQ", version, width, vocabulary,
                                     len(ids) if count is None else count,
                                     len(ends) if documents is None else documents)
    body = head + bytes(16) + bytes(8) + b"".join(i.to_bytes(width or 2, "little") for i in ids)
    body += bytes(-len(body) % 8)
    return body + b"".join(struct.pack("<Q", end) for end in ends)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def checked_tokens(wrong_block=0, wrong_header=0):
    body = tokens(version=2)
    block = struct.pack("<I", crc32c(body[64:]) ^ wrong_block)
    return body + block + struct.pack("<I", crc32c(body[:64] + block) ^ wrong_header)


def llm_c(ids=(5, 6, 7), magic=20240520, version=1, count=None, kind="H"):
    header = struct.pack("<iii", magic, version, len(ids) if count is None else count)
    return header + bytes(1024 - 12) + b"".join(struct.pack("<" + kind, i) for i in ids)


def megatron(sizes=(2, 3), pointers=(0, 4), documents=(0, 1, 2), kind=8, sequences=None, indices=None,
             version=1, ids=(1, 2, 3, 4, 5)):
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, kind,
                                         len(sizes) if sequences is None else sequences,
                                         len(documents) if indices is None else indices)
    index += b"".join(struct.pack("<i", s) for s in sizes) + b"".join(struct.pack("<q", p) for p in pointers)
    index += b"".join(struct.pack("<q", d) for d in documents)
    return b"PAIR" + struct.pack("<H", len(index)) + index + b"".join(struct.pack("<H", i) for i in ids)


def token_files():
    put("token_file", "tokens", tokens())
    put("token_file", "tokens_wide", tokens(width=4, vocabulary=100000))
    put("token_file", "tokens_empty", tokens((), ()))
    put("token_file", "tokens_huge_count", tokens(count=HUGE))
    put("token_file", "tokens_count_wraps", tokens(count=2**63))
    put("token_file", "tokens_huge_documents", tokens(documents=2**61))
    put("token_file", "tokens_ends_fall", tokens(ends=(7, 4)))
    put("token_file", "tokens_ends_huge", tokens(ends=(HUGE, 4)))
    put("token_file", "tokens_out_of_vocabulary", tokens(ids=(1, 2, 3, 60000)))
    put("token_file", "tokens_width_0", tokens(width=0))
    put("token_file", "tokens_cut", tokens()[:70])
    put("token_file", "tokens_checked", checked_tokens())
    put("token_file", "tokens_wrong_block", checked_tokens(wrong_block=1))
    put("token_file", "tokens_wrong_header", checked_tokens(wrong_header=1))
    put("token_file", "tokens_without_checksums", tokens(version=2))
    put("token_file", "nanogpt", struct.pack("<5H", 1, 2, 3, 4, 50256))
    put("token_file", "nanogpt_odd", b"abc")
    put("token_file", "llm_c", llm_c())
    put("token_file", "llm_c_wide", llm_c(magic=20240801, version=7, kind="I"))
    put("token_file", "llm_c_negative", llm_c(count=-1))
    put("token_file", "llm_c_evaluation", llm_c(magic=20240522))
    put("token_file", "megatron", megatron())
    put("token_file", "megatron_huge", megatron(sequences=HUGE, indices=HUGE))
    put("token_file", "megatron_wraps", megatron(sequences=HUGE // 12 + 2))
    put("token_file", "megatron_pointer", megatron(pointers=(0, -4)))
    put("token_file", "megatron_overlap", megatron(sizes=(5, 3), pointers=(0, 4)))
    put("token_file", "megatron_documents", megatron(documents=(0, 9, -1)))
    put("token_file", "megatron_type", megatron(kind=6))


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text) if length is None else length) + text.encode() + data


def entry(begin, end, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def safetensors_files():
    two = {"a": entry(0, 8), "b": entry(8, 12, (1,)), "__metadata__": {"format": "pt"}}
    put("safetensors", "two", safetensors(two, bytes(12)))
    put("safetensors", "none", safetensors({}))
    put("safetensors", "overlap", safetensors({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)))
    put("safetensors", "hole", safetensors({"a": entry(0, 8), "b": entry(12, 20)}, bytes(20)))
    put("safetensors", "out_of_range", safetensors({"a": entry(0, 800, (200,))}, bytes(8)))
    put("safetensors", "backwards", safetensors({"a": entry(8, 0)}, bytes(8)))
    put("safetensors", "huge_offset", safetensors({"a": entry(2**64 - 8, 2**64)}, bytes(8)))
    put("safetensors", "huge_shape", safetensors({"a": entry(0, 8, (2**32, 2**32, 2))}, bytes(8)))
    put("safetensors", "negative_shape", safetensors({"a": entry(0, 8, (-2,))}, bytes(8)))
    put("safetensors", "many_dimensions", safetensors({"a": entry(0, 4, (1,) * 40)}, bytes(4)))
    put("safetensors", "unknown_type", safetensors({"a": entry(0, 8, dtype="Q7")}, bytes(8)))
    put("safetensors", "duplicate", safetensors(
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        '"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)))
    put("safetensors", "deep", safetensors("[" * 5000))
    put("safetensors", "length_huge", safetensors({}, length=HUGE))
    put("safetensors", "length_too_long", safetensors({}, length=3))
    put("safetensors", "short", b"\x08\0\0")
    put("safetensors", "no_json", safetensors("nonsense"))
    shape = {"__metadata__": {"a": "2,2"}}
    put("safetensors", "parts", safetensors(
        shape | {"a[0:2]": entry(0, 8), "a[2:4]": entry(8, 16)}, bytes(16)))
    put("safetensors", "parts_gap", safetensors(
        shape | {"a[0:2]": entry(0, 8), "a[3:4]": entry(8, 12, (1,))}, bytes(12)))
    put("safetensors", "parts_twice", safetensors(
        shape | {"a[0:2]": entry(0, 8), "a[1:4]": entry(8, 20, (3,))}, bytes(20)))
    put("safetensors", "parts_huge", safetensors(
        {"__metadata__": {"a": "4294967296,4294967296"}, "a[0:2]": entry(0, 8)}, bytes(8)))
    put("safetensors", "parts_without_shape", safetensors({"a[0:2]": entry(0, 8)}, bytes(8)))
    put("safetensors", "metadata_number", safetensors({"__metadata__": {"a": 1}}))


def configs():
    put("config", "model", '[model]\nname = "gpt2-124m"\n[data]\ntext = "a.txt"\n')
    put("config", "own", 'precision = "f32"\nseed = 7\n[model]\nlayers = 2\nhidden = 64\nheads = 4\n'
        '[memory]\nlimit = "8GiB"\n')
    put("config", "unknown_key", "[modle]\nlayers = 2\n")
    put("config", "wrong_type", '[model]\nlayers = "two"\n')
    put("config", "out_of_range", "[model]\nlayers = 99999999999999999999\ndropout = 5\n")
    put("config", "twice", "seed = 1\nseed = 2\n")
    put("config", "not_a_table", "model = 3\n")
    put("config", "array", "[[model]]\nlayers = 1\n")
    put("config", "quotes", '[data]\ntext = "\\u0000\\t\\"#\\\\"\n')
    put("config", "unfinished", '[model\nname = "')
    put("config", "special_numbers", "[model]\ndropout = nan\ntheta = inf\n")
    put("config", "date", "seed = 1979-05-27\n")
    put("config", "no_utf8", b"seed = \"\xff\xfe\"\n")
    put("config", "deep", "seed = " + "[" * 2000 + "]" * 2000 + "\n")
    put("config", "hugging_face", '{"learning_rate": 3e-4, "num_train_epochs": 3.0, "max_steps": -1, '
        '"warmup_ratio": 0.1, "lr_scheduler_type": "cosine", "eval_strategy": "no", "fp16": true, '
        '"validation_split_percentage": 5, "per_device_train_batch_size": 4, "report_to": "none"}')
    put("config", "deepspeed", '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": '
        '{"lr": "auto", "betas": [0.9, 0.95]}}, "fp16": {"enabled": true, "initial_scale_power": 16, '
        '"loss_scale": 0}, "zero_optimization": {"stage": 0}, "scheduler": {"type": "WarmupDecayLR"}}')
    put("config", "betas", '{"optimizer": {"params": {"betas": [0.9]}}}')
    put("config", "overflow_json", '{"learning_rate": 1e999}')
    put("config", "argument", " train.epochs=1e9")
    put("config", "argument_alone", " =")
    put("config", "deep_json", "{\"a\":" * 500 + "1" + "}" * 500)


def tokenizers():
    any_byte = [0] * 768 + [0] * 256
    any_byte[0] = 256 << 10
    for byte in range(1, 256):
        any_byte[256 + byte] = byte | 1 << 8 | ((256 + byte) ^ 512) << 10

    def charsmap(units, replacements=b"b\0"):
        trie = struct.pack(f"<{len(units)}I", *units)
        return base64.b64encode(struct.pack("<I", len(trie)) + trie + replacements).decode()

    def file(text, normalizers=(), vocab=(), fallback=False):
        pieces = [["<unk>", 0.0], ["▁", -2.5], ["a", -1.25], ["▁a", -3.0], ["aa", -2.5], *vocab]
        return json.dumps({
            "added_tokens": [{"id": 0, "content": "<unk>", "special": True}],
            "normalizer": {"type": "Sequence", "normalizers": list(normalizers)},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}]},
            "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
            "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces,
                      "byte_fallback": fallback}}) + "\0" + text

    def precompiled(units, **options):
        return {"type": "Precompiled", "precompiled_charsmap": charsmap(units, **options)}

    strange = "a e\u0301\u0323 \u1100\u1161 ﬁ 👩\u200d👩 \r\n <unk>a é"
    put("tokenizer", "unigram", file("aaaaa a b <unk>"))
    put("tokenizer", "unigram_bytes", file(
        "é b", vocab=[[f"<0x{byte:02X}>", -9.0] for byte in range(256)], fallback=True))
    put("tokenizer", "unigram_scores", file("aaaaaa", vocab=[["aaa", 1e308], ["aaaa", -5e-324]]))
    put("tokenizer", "normal_forms", file(strange, [
        {"type": "NFD"}, {"type": "NFKC"}, {"type": "StripAccents"},
        {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFC"}]))
    put("tokenizer", "charsmap", file(strange, [precompiled(any_byte)]))
    put("tokenizer", "charsmap_far", file(strange, [precompiled([0xFFFFFC00])]))
    put("tokenizer", "charsmap_value", file(strange, [precompiled(
        any_byte[:512] + [0x7FFFFFFF] + any_byte[513:])]))
    put("tokenizer", "charsmap_cut", file(strange, [precompiled(
        any_byte[:512] + [1] + any_byte[513:], replacements="é".encode())]))


token_files()
safetensors_files()
configs()
tokenizers()
