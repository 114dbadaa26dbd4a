// `lockstep bench tokenize`: bytes of text per second, ours and Hugging Face's by turns.
//
// Both encode the same documents on one thread, whole text after whole text; the peer sleeps
// between its turns. Ids are compared.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

struct TokenizeBench {
  std::filesystem::path tokenizer;  // a tokenizer.json; empty: a BPE is learned from the text
  std::filesystem::path text;       // empty: mixed_text()
  std::size_t bytes = 10'000'000;   // of the generated text
  int rounds = 5;
  bool peers = false;
  std::string python;
  std::filesystem::path json;  // empty: none
  std::filesystem::path command;
  std::filesystem::path peers_folder;
};

// One implementation's result.
struct TokenizeResult {
  std::string implementation;  // "lockstep", "hugging-face"
  std::string version;
  std::vector<double> seconds;  // of each round, sorted
  std::size_t tokens = 0;
  std::string digest;  // of all ids
  std::string problem;
};

// The text in pieces of some KiB that end with a line, as documents are.
std::vector<std::string_view> documents_of(std::string_view text);

// Runs, prints, writes the JSON. False where ids differ. Throws Error(kAborted) when interrupted.
bool run_tokenize(const TokenizeBench& bench);

}  // namespace lockstep::bench
