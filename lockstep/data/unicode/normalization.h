// Unicode's normal forms (UAX #15), as Hugging Face's tokenizers have them (tables.py says which
// version).
//
// D takes characters apart ("é" becomes "e" and an accent) and puts accents in their order; C does
// that and joins what has a character of its own; the K of NFKC and NFKD also replaces characters
// that only look different ("ﬁ" becomes "fi").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/data/unicode/unicode.h"

namespace lockstep::data {

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

CodePoints to_normal_form(const CodePoints& text, NormalForm form);
// `text` is UTF-8. ASCII, and runs of other characters that are in this form, are only copied.
void append_normal_form(std::string_view text, NormalForm form, std::string& result);

}  // namespace lockstep::data
