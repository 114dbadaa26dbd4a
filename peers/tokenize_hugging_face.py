"""Hugging Face's tokenizers as a peer of `lockstep bench tokenize`: the same documents, one thread.

Started by the bench, which sets RAYON_NUM_THREADS=1 and TOKENIZERS_PARALLELISM=false. It is driven
by lines over a local socket and answers each with a line of JSON:

    encode   all documents once     {"seconds": ..., "tokens": ..., "digest": ...}

By hand, for a look: python3 tokenize_hugging_face.py --tokenizer tokenizer.json --text FILE --rounds 3
"""

import argparse
import array
import hmac
import json
import os
import socket
import sys
import time

import tokenizers

DOCUMENT_BYTES = 8192  # the bench has the same number
KEY = b"lockstep bench tokenize"


def documents_of(text):
    """Parts of the text, each ending at a line end."""
    documents, begin = [], 0
    while begin < len(text):
        line = text.find(b"\n", begin + DOCUMENT_BYTES)
        end = len(text) if line < 0 else line + 1
        documents.append(text[begin:end].decode("utf-8", "replace"))
        begin = end
    return documents


class Subject:
    def __init__(self, tokenizer, text):
        self.tokenizer = tokenizers.Tokenizer.from_file(tokenizer)
        with open(text, "rb") as file:
            self.documents = documents_of(file.read())

    def encode(self):
        begin = time.perf_counter()
        # The fastest way there is: without offsets into the text.
        encodings = self.tokenizer.encode_batch_fast(self.documents, add_special_tokens=False)
        seconds = time.perf_counter() - begin
        ids = array.array("i")
        for encoding in encodings:
            ids.extend(encoding.ids)
        digest = hmac.new(KEY, ids.tobytes(), "sha256").hexdigest()
        return {"seconds": seconds, "tokens": len(ids), "digest": digest}


def serve(subject):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect("\0" + os.environ["LOCKSTEP_BENCH_SOCKET"])
        with connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
            lines.write(json.dumps({"version": tokenizers.__version__}) + "\n")
            lines.flush()
            for line in lines:
                try:
                    answer = getattr(subject, line.strip())()
                except Exception as error:  # reported to the bench, which continues without us
                    answer = {"error": f"{type(error).__name__}: {error}"}
                lines.write(json.dumps(answer) + "\n")
                lines.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=0, help="without a bench: number of rounds")
    flags = parser.parse_args()
    subject = Subject(flags.tokenizer, flags.text)
    if flags.rounds == 0:
        serve(subject)
    for _ in range(flags.rounds):
        print(subject.encode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
