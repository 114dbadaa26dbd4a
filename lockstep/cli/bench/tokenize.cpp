// lockstep bench tokenize: how fast text becomes ids, beside Hugging Face's tokenizers.
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/base/text/units.h"
#include "lockstep/bench/tokenize/bench_tokenize.h"
#include "lockstep/cli/bench/bench.h"
#include "lockstep/cli/bench/peers.h"

namespace lockstep::cli {
namespace {

constexpr const char* kBenchTokenizeExamples =
    R"(Encodes a text on one thread, in documents of some KiB, several times over. With --peers also
Hugging Face's tokenizers on one thread, by turns in one run; ids have to be the same.

Examples:
  lockstep bench tokenize --peers
  lockstep bench tokenize --tokenizer gpt2/tokenizer.json --text book.txt --peers --json out.json

Without --text a text of many languages, code and white space is made up; without --tokenizer a BPE
is learned from the text. The library is looked for in --python, LOCKSTEP_PYTHON, build/peers
(./dev peers) and python3.)";

struct BenchTokenizeFlags {
  std::string tokenizer;
  std::string text;
  std::string size = "10MB";
  int rounds = 5;
  PeerFlags peers;
};

bench::TokenizeBench make_tokenize_bench(const BenchTokenizeFlags& flags) {
  bench::TokenizeBench bench{.tokenizer = flags.tokenizer,
                             .text = flags.text,
                             .bytes = parse_bytes(flags.size),
                             .rounds = flags.rounds};
  set_peers(flags.peers, bench);
  return bench;
}

}  // namespace

void add_bench_tokenize(CLI::App& bench, int& exit_code) {
  const auto flags = std::make_shared<BenchTokenizeFlags>();
  CLI::App* command =
      bench.add_subcommand("tokenize", "Time tokenizers, beside Hugging Face's library");
  command->footer(kBenchTokenizeExamples);
  command->add_option("--tokenizer", flags->tokenizer, "a tokenizer.json, or a folder with one")
      ->type_name("PATH");
  command->add_option("--text", flags->text, "what is encoded")->type_name("FILE");
  command->add_option("--size", flags->size, "of the text that is made up")
      ->type_name("BYTES")
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, "how often each encodes all of it")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add_peer_options(*command, flags->peers, "Hugging Face's tokenizers", "the library");
  command->callback([flags, &exit_code] {
    exit_code = run_bench([&] { return bench::run_tokenize(make_tokenize_bench(*flags)); });
  });
}

}  // namespace lockstep::cli
