#include "lockstep/bench/tokenize/bench_tokenize.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/net/hmac.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/bench/tokenize/mixed_text.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/bench/train/python.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using data::TokenId;
using data::Tokenizer;
using TokenizeClock = std::chrono::steady_clock;

// The script of the peer has the same number.
constexpr std::size_t kDocumentBytes = 8192;
constexpr std::int64_t kLearnedVocabulary = 32768;
constexpr std::chrono::minutes kPeerTimeout{30};

std::string digest_of(std::span<const TokenId> ids) {
  constexpr std::string_view kKey = "lockstep bench tokenize";
  return to_hex(hmac_sha256(std::as_bytes(std::span(kKey)), std::as_bytes(ids)));
}

void round_of_ours(const Tokenizer& tokenizer, std::span<const std::string_view> documents,
                   TokenizeResult& result) {
  std::vector<TokenId> ids;
  const auto begin = TokenizeClock::now();
  for (const std::string_view document : documents) tokenizer.encode(document, ids);
  result.seconds.push_back(seconds_since(begin));
  result.tokens = ids.size();
  if (result.digest.empty()) result.digest = digest_of(ids);
}

void round_of_peer(Helper& peer, TokenizeResult& result) {
  const auto line = peer.ask("encode", deadline_in(kPeerTimeout));
  if (!line) return;
  const auto answer = nlohmann::json::parse(*line, nullptr, false);
  result.seconds.push_back(answer.value("seconds", 0.0));
  result.tokens = answer.value("tokens", std::size_t{0});
  result.digest = answer.value("digest", "");
}

std::unique_ptr<Helper> start_peer(const TokenizeBench& bench, const fs::path& tokenizer,
                                   const fs::path& text, const Interrupt& interrupt) {
  const Python python = find_python(bench.python, bench.command, "tokenizers");
  if (!python.problem.empty()) {
    fmt::print("left out: Hugging Face's tokenizers: {}\n", python.problem);
    return nullptr;
  }
  const Program program{
      {python.program, (bench.peers_folder / "tokenize_hugging_face.py").string(), "--tokenizer",
       fs::absolute(tokenizer).string(), "--text", fs::absolute(text).string()},
      {{"RAYON_NUM_THREADS", "1"}, {"TOKENIZERS_PARALLELISM", "false"}}};
  return std::make_unique<Helper>("hugging-face", program, interrupt, deadline_in(kPeerTimeout));
}

double rate(const TokenizeResult& result, std::size_t bytes) {
  return static_cast<double>(bytes) / quantile(result.seconds, 0.5);
}

std::string table(const std::vector<TokenizeResult>& results, std::size_t bytes) {
  std::string text = fmt::format("{:<14} {:>12} {:>14} {:>10} {:>10} {:>10}\n", "", "text",
                                 "tokens", "median", "p10", "p90");
  for (const TokenizeResult& one : results) {
    if (one.seconds.empty()) {
      text += fmt::format("{:<14} {}\n", one.implementation, one.problem);
      continue;
    }
    text += fmt::format("{:<14} {:>12} {:>14} {:>10} {:>10} {:>10}\n", one.implementation,
                        format_bytes_per_second(rate(one, bytes)), format_count(one.tokens),
                        format_seconds(quantile(one.seconds, 0.5)),
                        format_seconds(quantile(one.seconds, 0.1)),
                        format_seconds(quantile(one.seconds, 0.9)));
  }
  if (results.size() == 2 && !results[1].seconds.empty()) {
    text += fmt::format("\nagainst {}: {:.1f} x its speed, {}\n", results[1].implementation,
                        rate(results[0], bytes) / rate(results[1], bytes),
                        results[0].digest == results[1].digest ? "the same ids" : "OTHER IDS");
  }
  return text;
}

std::string tokenize_json(const std::vector<TokenizeResult>& results, std::size_t bytes,
                          const std::string& tokenizer, std::int64_t vocabulary) {
  auto list = nlohmann::ordered_json::array();
  for (const TokenizeResult& one : results) {
    nlohmann::ordered_json object{{"implementation", one.implementation},
                                  {"version", one.version},
                                  {"tokenizer", tokenizer},
                                  {"vocabulary", vocabulary},
                                  {"bytes", bytes},
                                  {"tokens", one.tokens},
                                  {"digest", one.digest},
                                  {"samples", one.seconds},
                                  {"bytes_per_s", nullptr},
                                  {"problem", one.problem}};
    if (!one.seconds.empty()) object["bytes_per_s"] = rate(one, bytes);
    list.push_back(std::move(object));
  }
  return list.dump(2) + "\n";
}

}  // namespace

std::vector<std::string_view> documents_of(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const std::size_t line = text.find('\n', std::min(text.size(), kDocumentBytes));
    const std::size_t size = line == std::string_view::npos ? text.size() : line + 1;
    documents.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return documents;
}

bool run_tokenize(const TokenizeBench& bench) {
  if (!bench.json.empty()) check_can_write(bench.json);
  const Interrupt interrupt;
  const ScratchFolder folder;
  const std::string text = bench.text.empty() ? mixed_text(bench.bytes) : read_file(bench.text);
  if (text.empty()) fail(ErrorCode::kInvalidArgument, "{} is empty", bench.text.string());
  const std::vector<std::string_view> documents = documents_of(text);
  auto begin = TokenizeClock::now();
  const std::unique_ptr<Tokenizer> tokenizer =
      bench.tokenizer.empty()
          ? data::train_bpe_tokenizer(documents, {.vocabulary = kLearnedVocabulary})
          : data::load_tokenizer(bench.tokenizer);
  const std::string name =
      bench.tokenizer.empty() ? "a BPE learned from it" : bench.tokenizer.string();
  fmt::print("{} of {}, {} ({} of {} tokens, {} in {})\n\n", format_bytes(text.size()),
             bench.text.empty() ? "mixed text" : bench.text.string(), name, tokenizer->kind(),
             format_count(static_cast<std::uint64_t>(tokenizer->vocabulary())),
             bench.tokenizer.empty() ? "learned" : "read", format_seconds(seconds_since(begin)));
  std::fflush(stdout);

  std::vector<TokenizeResult> results{{.implementation = "lockstep"}};
  std::unique_ptr<Helper> peer;
  if (bench.peers) {
    const fs::path json = folder.path() / "tokenizer.json";
    write_file(json, tokenizer->json());
    fs::path file = bench.text;
    if (file.empty()) write_file(file = folder.path() / "text", text);
    peer = start_peer(bench, json, file, interrupt);
    if (peer) {
      results.push_back({.implementation = peer->name()});
      const auto greeting = nlohmann::json::parse(peer->greeting(), nullptr, false);
      if (greeting.is_object()) results[1].version = greeting.value("version", "");
    }
  }
  for (int round = 0; round < bench.rounds; ++round) {
    interrupt.check();
    round_of_ours(*tokenizer, documents, results[0]);
    if (peer) round_of_peer(*peer, results[1]);
  }
  if (peer && !peer->failure().empty()) {
    results[1].problem = peer->failure();
    results[1].seconds.clear();
  }
  for (TokenizeResult& one : results) std::sort(one.seconds.begin(), one.seconds.end());
  fmt::print("{}", table(results, text.size()));
  if (!bench.json.empty()) {
    write_file(bench.json, tokenize_json(results, text.size(), name, tokenizer->vocabulary()));
    fmt::print("wrote {} results to {}\n", results.size(), bench.json.string());
  }
  return results.size() < 2 || results[1].seconds.empty() || results[0].digest == results[1].digest;
}

}  // namespace lockstep::bench
