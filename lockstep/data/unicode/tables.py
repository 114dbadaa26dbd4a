#!/usr/bin/env python3
"""Writes unicode_classes.cpp, unicode_lower_case.cpp and unicode_decompositions.cpp: what tokenizers
ask about characters.

    python3 tables.py FOLDER

The oracle is Hugging Face's `tokenizers` itself, asked about every code point: its parts are built
on several libraries with several versions of Unicode, and ids are to be the same as its ids.
"""

import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

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


def main():
    clean = changed(bert(clean_text=True))
    punctuation = {point for point in POINTS
                   if len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{chr(point)}a")) == 3}
    decomposed = {point: text for point, text in changed(normalizers.NFD().normalize_str).items()
                  if point not in HANGUL}
    marks = {point for point, text in changed(bert(strip_accents=True)).items() if text == ""}
    order = []
    for number in sorted({unicodedata.combining(chr(point)) for point in POINTS} - {0}):
        runs = ranges(point for point in POINTS if unicodedata.combining(chr(point)) == number)
        order += [number, len(runs) // 2, *runs]
    classes = [
        array("letter_ranges", ranges(matching(r"\p{L}+"))),
        array("number_ranges", ranges(matching(r"\p{N}+"))),
        array("space_ranges", ranges(matching(r"\s+"))),
        array("control_ranges", ranges(point for point, text in clean.items() if text == "")),
        array("punctuation_ranges", ranges(punctuation)),
        array("nonspacing_mark_ranges", ranges(marks)),
        array("combining_classes", order),
    ]
    lower_case = [
        mappings("lower_case_mappings", changed(normalizers.Lowercase().normalize_str))]
    files = {"unicode_classes.cpp": classes, "unicode_lower_case.cpp": lower_case,
             "unicode_decompositions.cpp": [mappings("decompositions", decomposed)]}
    for name, tables in files.items():
        with open(f"{sys.argv[1]}/{name}", "w", encoding="ascii") as file:
            file.write("// Written by tables.py; not to be changed by hand.\n"
                       '#include "lockstep/data/unicode/tables.h"\n\n'
                       "namespace lockstep::data {\n\n// clang-format off\n"
                       + "\n".join(tables)
                       + "// clang-format on\n\n}  // namespace lockstep::data\n")


if __name__ == "__main__":
    main()
