#!/usr/bin/env python3
"""Makes the data of the examples: numbers.tsv (English <tab> German), house-prices.csv, and
demo.txt, the prose of docs/ as it is now."""
import pathlib
import random
import re

ENGLISH_ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen "
                "fourteen fifteen sixteen seventeen eighteen nineteen").split()
ENGLISH_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN_ONES = ("null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn "
               "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn").split()
GERMAN_TENS = "_ _ zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def english(n):
    if n < 20:
        return ENGLISH_ONES[n]
    if n < 100:
        rest = n % 10
        return ENGLISH_TENS[n // 10] + ("-" + ENGLISH_ONES[rest] if rest else "")
    rest = n % 100
    return ENGLISH_ONES[n // 100] + " hundred" + (" and " + english(rest) if rest else "")


def german(n, inside=False):
    if n < 20:
        return "ein" if n == 1 and inside else GERMAN_ONES[n]
    if n < 100:
        rest = n % 10
        return (german(rest, True) + "und" if rest else "") + GERMAN_TENS[n // 10]
    rest = n % 100
    return german(n // 100, True) + "hundert" + (german(rest) if rest else "")


def prose(page):
    """A page without its code, tables, pictures and links."""
    text = re.sub(r"```.*?```\n?", "", page, flags=re.DOTALL)
    text = "\n".join(line for line in text.split("\n") if not line.startswith(("|", "<", "    ", "![")))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def main():
    folder = pathlib.Path(__file__).parent
    random.seed(1)
    numbers = list(range(1000))
    random.shuffle(numbers)
    lines = [f"{english(n)}\t{german(n)}\n" for n in numbers]
    (folder / "numbers.tsv").write_text("".join(lines), encoding="utf-8")

    rows = ["square_metres,rooms,age_years,price\n"]
    for _ in range(200):
        size = random.randint(30, 220)
        rooms = max(1, round(size / 28 + random.gauss(0, 0.7)))
        age = random.randint(0, 80)
        price = 40000 + 2600 * size + 9000 * rooms - 900 * age + random.gauss(0, 12000)
        rows.append(f"{size},{rooms},{age},{round(price)}\n")
    (folder / "house-prices.csv").write_text("".join(rows), encoding="utf-8")

    pages = sorted((folder.parent / "docs").glob("*.md"))
    text = "\n".join(prose(page.read_text(encoding="utf-8")) for page in pages)
    (folder / "demo.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
