// lockstep inspect of a token file.
#pragma once

#include <filesystem>

namespace lockstep::cli {

// Prints format, counts, vocabulary and the longest document, and how the file begins: as ids, and
// as text where a tokenizer.json that may be the file's own lies beside it. Throws what TokenFile
// does for what is none.
void inspect_token_file(const std::filesystem::path& path);

}  // namespace lockstep::cli
