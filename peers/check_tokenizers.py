"""Whether lockstep's token ids are those of Hugging Face's tokenizers on a large text of many scripts.

    pip install tokenizers sentencepiece protobuf
    python3 check_tokenizers.py path/to/lockstep [megabytes]

Makes a text (10 MB) of words of a dozen scripts, accents, compatibility characters, emoji, spaces and
controls of all kinds, code, and runs of one character; trains small tokenizers on a part of it: T5's
and XLM-R's Unigram with SentencePiece's own nmt_nfkc, Unigram with bytes, Gemma's and Llama 2's BPE
with a fallback to bytes, Qwen 2's byte-level BPE, BERT's WordPiece. Each encodes the text as one
document and as a document for each line, with `lockstep tokenize` and with the library. Prints a line
for each, and exits with 1 where ids differ.
"""

import base64
import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def letters(*ranges):
    return [chr(point) for first, last in ranges for point in range(first, last + 1)]


SCRIPTS = [
    letters((0x61, 0x7A)) * 8 + letters((0xDF, 0xF6), (0xF8, 0x17F)),       # Latin
    letters((0x41, 0x5A), (0xC0, 0xD6)),
    letters((0x430, 0x45F)), letters((0x3B1, 0x3C9), (0x1F00, 0x1F15)),      # Cyrillic, Greek
    letters((0x5D0, 0x5EA), (0x5B0, 0x5BC)), letters((0x620, 0x655)),        # Hebrew, Arabic
    letters((0x905, 0x939), (0x93C, 0x94D)), letters((0x985, 0x9B9), (0x9BC, 0x9CD)),  # Indic
    letters((0xE01, 0xE3A), (0xE40, 0xE4E)), letters((0x1000, 0x103E)),      # Thai, Burmese
    letters((0x3041, 0x309A)), letters((0x30A1, 0x30FE), (0xFF66, 0xFF9F)),  # kana
    letters((0x4E00, 0x4FFF), (0xF900, 0xF9FF)), letters((0xAC00, 0xACFF)),  # Han, Hangul
    letters((0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)),
    letters((0x10D0, 0x10F0), (0x531, 0x556)), letters((0x1D400, 0x1D4FF)),
]
SIGNS = list(".,;:!?'\"()[]{}<>-+*/=#%&@|~^`_$") + list("«»„“”…—–¿¡、。「」·•§¶€£¥©®™°±×÷½¼²³№")
ODD = (letters((0x300, 0x345), (0x2000, 0x200F), (0x2028, 0x202F), (0xFF01, 0xFF5E), (0xFB00, 0xFB06),
               (0x2460, 0x2473), (0x3300, 0x33FF), (0x1, 0x1F), (0x7F, 0xA0), (0x600, 0x605))
       + ["\u3000", "\ufeff", "\ufffd", "\u2581", "\u200d", "e\u0301\u0323", "か\u3099", "\u0600a"])
EMOJI = ["😀", "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "🇩🇪", "👍🏽", "❤️", "🤷🏾\u200d♀️", "1️⃣"]


def make_text(size):
    rng = random.Random(11)
    words = [["".join(rng.choice(script) for _ in range(rng.randint(1, 9)))
              for _ in range(700)] for script in SCRIPTS]
    parts, bytes_made = [], 0
    while bytes_made < size:
        script = words[min(int(rng.expovariate(0.2)), len(words) - 1)]
        line = []
        for _ in range(rng.randint(1, 30)):
            kind = rng.random()
            if kind < 0.80:
                line.append(script[min(int(rng.expovariate(0.01)), len(script) - 1)])
            elif kind < 0.86:
                line.append(str(rng.randint(0, 10 ** rng.randint(1, 12))))
            elif kind < 0.90:
                line.append(rng.choice(SIGNS + ["-", "=", "a", ".", " ", "ab", "0"])
                            * rng.randint(2, 60))
            elif kind < 0.93:
                line.append("".join(rng.choice(ODD) for _ in range(rng.randint(1, 4))))
            elif kind < 0.95:
                line.append(rng.choice(EMOJI))
            else:
                line.append("f(x[i], y) -> {return x+1;}")
            if rng.random() < 0.3:
                line[-1] += rng.choice(SIGNS)
        text = rng.choice([" ", " ", " ", " ", "  ", "\u00a0", "\t"]).join(line)
        parts.append(text + rng.choice(["\n", "\n", "\n", "\n\n", "\r\n", " \n"]))
        bytes_made += len(parts[-1].encode())
    return "".join(parts).replace("\x00", "")


def trained_spm(lines, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2,
        max_sentence_length=100_000, **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto


def unigram(lines, **options):
    """As transformers converts it: the normalizer of T5, ALBERT and XLM-R."""
    proto = trained_spm(lines, model_type="unigram", normalization_rule_name="nmt_nfkc", **options)
    charsmap = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0", "added_tokens": [], "post_processor": None, "decoder": metaspace,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]},
        "pre_tokenizer": metaspace,
        "model": {"type": "Unigram", "unk_id": proto.trainer_spec.unk_id,
                  "byte_fallback": proto.trainer_spec.byte_fallback,
                  "vocab": [[piece.piece, piece.score] for piece in proto.pieces]}}


def converted_bpe(lines):
    """As transformers converts Llama 2."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme="never")
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=6000, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, limit_alphabet=1500,
        show_progress=False))
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    file["pre_tokenizer"] = None
    return file


def byte_level(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=6000, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False))
    file = json.loads(tokenizer.to_str())
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    return file


def bert(lines):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre.BertPreTokenizer()
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=6000, special_tokens=["[PAD]", "[UNK]"], show_progress=False))
    return json.loads(tokenizer.to_str())


def tokenizers_of(text):
    lines = text[:1_000_000].split("\n")
    t5 = unigram(lines, vocab_size=8000, character_coverage=0.995, pad_id=0, eos_id=1, unk_id=2,
                 bos_id=-1)
    llama = converted_bpe(lines)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}

    def metaspace(scheme, split):
        return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}

    yield "t5", t5
    yield "unigram with bytes", unigram(lines, vocab_size=6000, byte_fallback=True)
    yield "first", {**t5, "pre_tokenizer": metaspace("first", True)}
    yield "in one piece", {**t5, "pre_tokenizer": metaspace("never", False)}
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        yield form, {**t5, "normalizer": {"type": form}}
    yield "no accents", {**t5, "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]}}
    yield "words", {**t5, "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, metaspace("always", True)]}}
    yield "llama2", {**llama, "normalizer": {"type": "Sequence", "normalizers": [prepend, replace]}}
    yield "gemma", {**llama, "pre_tokenizer": {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
        "invert": False}}
    yield "mistral", {**llama, "normalizer": None, "pre_tokenizer": metaspace("first", False)}
    yield "ignores merges", {**llama, "model": {**llama["model"], "ignore_merges": True},
                             "pre_tokenizer": metaspace("always", True)}
    yield "qwen2", byte_level(lines)
    yield "bert", bert(lines)


def token_file(path):
    """Ids and where documents end, of a .tokens file."""
    content = path.read_bytes()
    width, = struct.unpack_from("<I", content, 12)
    tokens, documents = struct.unpack_from("<QQ", content, 24)
    kind = "H" if width == 2 else "I"
    ids = struct.unpack_from(f"<{tokens}{kind}", content, 64)
    begin = (64 + tokens * width + 7) // 8 * 8
    return list(ids), list(struct.unpack_from(f"<{documents}Q", content, begin))


def compare(name, got, ends, library, texts):
    """The first difference, in words; None where there is none. An id for the end of a text follows
    each, where the tokenizer has one."""
    begin = 0
    for number, (text, end) in enumerate(zip(texts, ends)):
        theirs = library.encode(text, add_special_tokens=False).ids
        ours = got[begin:end]
        if len(ours) == len(theirs) + 1:
            ours = ours[:-1]
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b),
                      min(len(ours), len(theirs)))
            near = [library.id_to_token(i) for i in theirs[max(0, at - 3):at + 5]]
            mine = [library.id_to_token(i) for i in ours[max(0, at - 3):at + 5]]
            return f"{name}: text {number} differs at id {at}: {mine} instead of {near}"
        begin = end
    return None if len(ends) == len(texts) else f"{name}: {len(ends)} of {len(texts)} texts"


def main():
    lockstep = sys.argv[1]
    size = int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 10_000_000
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = make_text(size)
        (folder / "text.txt").write_bytes(text.encode())
        lines = text[:size // 20].split("\n")
        with open(folder / "lines.jsonl", "w", encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps({"text": line}) + "\n")
        for name, content in tokenizers_of(text):
            path = folder / "tokenizer.json"
            path.write_text(json.dumps(content))
            library = Tokenizer.from_str(path.read_text())
            for kind, flags, texts in (("text.txt", [], [text]),
                                       ("lines.jsonl", ["--jsonl", "text"], lines)):
                out = folder / "out" / "ids.tokens"
                subprocess.run([lockstep, "tokenize", folder / kind, *flags, "-o", out, "--tokenizer",
                                path], check=True, capture_output=True)
                ids, ends = token_file(out)
                wrong = compare(f"{name}, {kind}", ids, ends, library, texts)
                failed += wrong is not None
                print(wrong or f"{name}, {kind}: {len(ids):,} ids are the library's", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
