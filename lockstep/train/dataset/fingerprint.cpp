#include "lockstep/train/dataset/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/text/number.h"

namespace lockstep::train {
namespace {

constexpr std::uint64_t kPageTokens = 1 << 14;
constexpr std::uint64_t kMostPages = 64;

std::string fingerprint_of(const data::TokenFile& file) {
  const std::uint64_t pages = (file.size() + kPageTokens - 1) / kPageTokens;
  const std::uint64_t looked_at = std::min(pages, kMostPages);
  std::vector<data::TokenId> page;
  ContentHash hash;
  for (std::uint64_t i = 0; i < looked_at; ++i) {
    const std::uint64_t first =
        looked_at == 1 ? 0 : i * (pages - 1) / (looked_at - 1) * kPageTokens;
    page.resize(std::min(kPageTokens, file.size() - first));
    // An id that is out of the vocabulary is found where it is learned from.
    file.read(first, page, std::numeric_limits<std::int64_t>::max());
    hash.add(std::as_bytes(std::span(page)));
  }
  return fmt::format("{} tokens with hash {}", format_count(file.size()), hash.hex());
}

// Sizes go in, too: where one side of a pair ends is part of what it is.
std::string fingerprint_of(const std::vector<Dataset::Pair>& pairs) {
  ContentHash hash;
  for (const Dataset::Pair& pair : pairs) {
    for (const std::vector<data::TokenId>* side : {&pair.source, &pair.target}) {
      const std::uint64_t size = side->size();
      hash.add(std::as_bytes(std::span(&size, 1)));
      hash.add(std::as_bytes(std::span(*side)));
    }
  }
  return fmt::format("{} pairs with hash {}", format_count(pairs.size()), hash.hex());
}

}  // namespace

std::string data_fingerprint(const Dataset& dataset) {
  if (!dataset.pairs.empty()) return fingerprint_of(dataset.pairs);
  if (!dataset.mixture.empty()) {
    std::string all;
    for (const Dataset& part : dataset.mixture) {
      all += fmt::format("{}{} of {}", all.empty() ? "" : ", ", part.weight,
                         fingerprint_of(*part.training));
    }
    return all;
  }
  if (!dataset.training) {
    ContentHash hash;
    hash.add(std::as_bytes(std::span(dataset.table)));
    return fmt::format("{} numbers with hash {}", format_count(dataset.table.size()), hash.hex());
  }
  std::string text = fingerprint_of(*dataset.training);
  if (dataset.validation) text += ", for validation " + fingerprint_of(*dataset.validation);
  return text;
}

}  // namespace lockstep::train
