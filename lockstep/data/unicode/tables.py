#!/usr/bin/env python3
"""Writes classes.cpp, lower_case.cpp, decompositions.cpp, compatibility.cpp, compositions.cpp and
grapheme_classes.cpp: what tokenizers ask about characters.

    python3 tables.py FOLDER

The oracle is Hugging Face's `tokenizers` itself, asked about every code point: its parts are built
on several libraries with several versions of Unicode, and ids are to be the same as its ids. Its
normal forms are those of a Unicode before 13.0, its grapheme clusters those of 17.0. Classes of
grapheme clusters come from the module `regex` (2025.11.3 has Unicode 17.0) and are compared with
the library's clusters.
"""

import base64
import json
import random
import struct
import sys
import unicodedata

import regex
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
WIDTH = 100
HANGUL = range(0xAC00, 0xD7A4)  # decompose by arithmetic


def matching(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for text, _ in split.pre_tokenize_str("".join(map(chr, POINTS))):
        found.update(map(ord, text))
    return found


def bert(**chosen):
    flags = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**flags, **chosen}).normalize_str


def changed(function):
    """What it makes of each character that it does not leave alone."""
    return {point: text for point in POINTS if (text := function(chr(point))) != chr(point)}


def ranges(points):
    """Alternating: how many are skipped, how many belong."""
    numbers, end = [], 0
    points = sorted(points)
    for index, point in enumerate(points):
        if index > 0 and point == points[index - 1] + 1:
            numbers[-1] += 1
        else:
            numbers += [point - end, 1]
        end = point + 1
    return numbers


def array(name, numbers):
    lines, line = [f"std::span<const std::uint32_t> {name}() {{",
                   "  static constexpr std::uint32_t kNumbers[] = {"], "     "
    for number in numbers:
        if len(line) + len(str(number)) + 2 > WIDTH:
            lines.append(line)
            line = "     "
        line += f" {number},"
    return "\n".join(lines + [line + "};", "  return kNumbers;", "}", ""])


def mappings(name, table):
    """Each: the step from the code point before, how many it becomes, and those."""
    numbers, last = [], 0
    for point, text in sorted(table.items()):
        numbers += [point - last, len(text), *map(ord, text)]
        last = point
    return array(name, numbers)


def combining_classes():
    """Python's class of each mark, where the library has the mark too. Classes never change, so the
    library's is the same or, for a mark that is too new for it, 0: then the mark is not reordered."""
    nfd = normalizers.NFD().normalize_str
    least, greatest = "\u0334", "\u0345"  # of the classes 1 and 240
    classes = {}
    for point in POINTS:
        number, text = unicodedata.combining(chr(point)), chr(point)
        if number == 0:
            continue
        pair = text + least if number > 1 else greatest + text
        if nfd(text) != text or nfd(pair) == pair[::-1]:
            classes[point] = number
    return classes


def compositions():
    """Pairs of characters that NFC joins; without Hangul syllables."""
    nfc = normalizers.NFC().normalize_str
    numbers = []
    for point in POINTS:
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (int(part, 16) for part in parts)
            if nfc(chr(first) + chr(second)) == chr(point):
                numbers.append((first, second, point))
    return [number for triple in sorted(numbers) for number in triple]


# As in graphemes.h.
GRAPHEME_CLASSES = [
    r"\p{GCB=CR}", r"\p{GCB=LF}", r"\p{GCB=Control}", r"\p{GCB=Extend}", r"\p{GCB=ZWJ}",
    r"\p{GCB=Regional_Indicator}", r"\p{GCB=Prepend}", r"\p{GCB=SpacingMark}", r"\p{GCB=L}",
    r"\p{GCB=V}", r"\p{GCB=T}", r"\p{GCB=LV}", r"\p{GCB=LVT}", r"\p{Extended_Pictographic}",
    r"\p{Indic_Conjunct_Break=Consonant}", r"\p{Indic_Conjunct_Break=Linker}",
    r"\p{Indic_Conjunct_Break=Extend}"]


def grapheme_classes():
    """Code points of each class; a later class takes its points from the earlier ones."""
    every = "".join(map(chr, POINTS))
    classes = {}
    for number, pattern in enumerate(GRAPHEME_CLASSES, 1):
        for text in regex.findall(pattern, every):
            if text != "\u200d":
                classes[ord(text)] = number
    classes[0x200D] = 5
    return classes


def check_graphemes(classes):
    """Compares regex's clusters with the library's, as far as ids depend on them: its Precompiled
    looks up clusters of less than 6 bytes as a whole, and the characters of others one by one."""
    units = [0] * 768  # a double array that turns whatever begins with any byte into "b"
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 + byte] = byte | 1 << 8 | ((256 + byte) ^ 512) << 10
    units += [0] * 256
    trie = struct.pack(f"<{len(units)}I", *units)
    charsmap = base64.b64encode(struct.pack("<I", len(trie)) + trie + b"b\0").decode()
    library = Tokenizer.from_str(json.dumps({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": None, "post_processor": None,
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}, "decoder": None,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]}})).normalizer

    def check(text):
        ours = sum(1 if len(cluster.encode()) < 6 else len(cluster)
                   for cluster in regex.findall(r"\X", text))
        assert len(library.normalize_str(text)) == ours, ascii(text)

    for point in POINTS[1:]:
        for text in ("a{}a", "{}a", "©\u200d{}\u0301", "{}\u0301", "\u0600{}"):
            check(text.format(chr(point)))
    members = {number: [] for number in range(len(GRAPHEME_CLASSES) + 1)}
    for point in POINTS[1:]:
        members[classes.get(point, 0)].append(chr(point))
    pools = list(filter(None, members.values())) + [list("ab1"), list("éß\u0301\u0302"), list("©®")]
    rng = random.Random(1)
    for _ in range(200_000):
        check("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(2, 8))))


def classed(classes):
    """For each class: its number, how many runs it has, and those."""
    numbers = []
    for number in sorted(set(classes.values())):
        runs = ranges(point for point, one in classes.items() if one == number)
        numbers += [number, len(runs) // 2, *runs]
    return numbers


def main():
    clean = changed(bert(clean_text=True))
    punctuation = {point for point in POINTS
                   if len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{chr(point)}a")) == 3}
    decomposed = {point: text for point, text in changed(normalizers.NFD().normalize_str).items()
                  if point not in HANGUL}
    marks = {point for point, text in changed(bert(strip_accents=True)).items() if text == ""}
    compatibility = {point: text for point, text in changed(normalizers.NFKD().normalize_str).items()
                     if point not in HANGUL and text != decomposed.get(point)}
    combining = {point for point, text in changed(normalizers.StripAccents().normalize_str).items()
                 if text == ""}
    spaces = matching(r"\s+")
    assert spaces == {point for point, text in changed(normalizers.Strip().normalize_str).items()}
    graphemes = grapheme_classes()
    check_graphemes(graphemes)
    classes = [
        array("letter_ranges", ranges(matching(r"\p{L}+"))),
        array("number_ranges", ranges(matching(r"\p{N}+"))),
        array("space_ranges", ranges(spaces)),
        array("control_ranges", ranges(point for point, text in clean.items() if text == "")),
        array("punctuation_ranges", ranges(punctuation)),
        array("nonspacing_mark_ranges", ranges(marks)),
        array("combining_mark_ranges", ranges(combining)),
        array("combining_classes", classed(combining_classes())),
    ]
    lower_case = [
        mappings("lower_case_mappings", changed(normalizers.Lowercase().normalize_str))]
    files = {"classes.cpp": classes, "lower_case.cpp": lower_case,
             "decompositions.cpp": [mappings("decompositions", decomposed)],
             "compatibility.cpp": [mappings("compatibility_decompositions", compatibility)],
             "compositions.cpp": [array("compositions", compositions())],
             "grapheme_classes.cpp": [array("grapheme_classes", classed(graphemes))]}
    for name, tables in files.items():
        with open(f"{sys.argv[1]}/{name}", "w", encoding="ascii") as file:
            file.write("// Written by tables.py; not to be changed by hand.\n"
                       '#include "lockstep/data/unicode/tables.h"\n\n'
                       "namespace lockstep::data {\n\n// clang-format off\n"
                       + "\n".join(tables)
                       + "// clang-format on\n\n}  // namespace lockstep::data\n")


if __name__ == "__main__":
    main()
