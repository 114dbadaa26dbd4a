// A file of a tokenizer and, behind the first NUL, a text: whatever they are, an Error at worst.
//
// What is accepted has to keep its promises: ids in range, ids that can be decoded, and the same
// ids from the tokenizer that its json() makes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace {

using lockstep::data::TokenId;
using lockstep::data::Tokenizer;

constexpr std::size_t kLongestText = 300;  // a pattern may take long at each of its characters

void require(bool holds) {
  if (!holds) std::abort();
}

std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  for (const TokenId id : ids) require(id >= 0 && id < tokenizer.vocabulary());
  return ids;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = input.find('\0');
  const std::string_view json = input.substr(0, nul);
  std::string_view text = nul == std::string_view::npos ? input : input.substr(nul + 1);
  text = text.substr(0, kLongestText);
  try {
    const auto tokenizer = lockstep::data::parse_tokenizer(json, "input");
    const std::vector<TokenId> ids = encoded(*tokenizer, text);
    std::string decoded;
    tokenizer->decode(ids, decoded);
    if (tokenizer->kind() == "byte" || tokenizer->kind() == "character") require(decoded == text);
    const auto again = lockstep::data::parse_tokenizer(tokenizer->json(), "again");
    require(encoded(*again, text) == ids);
  } catch (const lockstep::Error&) {
    return 0;
  }
  return 0;
}
