#include "lockstep/train/dataset/text_cache.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/units.h"
#include "lockstep/data/token_file/tokenize.h"
#include "lockstep/data/tokenizers/choice.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsBetweenNews = 1;

// What a cached token file was made of.
struct Origin {
  std::string texts;      // text_files_hash()
  std::string choice;     // the tokenizer that was asked for, with what it was learned from
  std::string tokenizer;  // hash of the one that was used

  bool operator==(const Origin&) const = default;
};

// Nothing where it is missing, or not ours.
Origin read_origin(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto field = [&](const char* key) {
    const bool found = json.is_object() && json.contains(key) && json[key].is_string();
    return found ? json[key].get<std::string>() : std::string();
  };
  return {.texts = field("texts"), .choice = field("choice"), .tokenizer = field("tokenizer")};
}

void write_origin(const fs::path& path, const Origin& origin) {
  const nlohmann::ordered_json json{
      {"texts", origin.texts}, {"choice", origin.choice}, {"tokenizer", origin.tokenizer}};
  write_file(path, json.dump(2) + '\n');
}

// Where a tokenizer is kept.
fs::path path_of_tokenizer(const fs::path& folder) { return folder / "tokenizer.json"; }

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_errno(fmt::format("cannot make the folder {}", folder.string()), error.value());
  check_can_write(path_of_tokenizer(folder));
}

std::shared_ptr<const data::Tokenizer> learn(const TextCache& cache) {
  if (cache.given) return cache.given;
  std::vector<std::shared_ptr<const data::Text>> kept;
  std::vector<std::string_view> views;
  const auto add = [&](const std::vector<data::TextFile>& files) {
    for (const data::TextFile& file : files) {
      kept.push_back(data::open_text(file));
      views.push_back(kept.back()->view());
    }
  };
  if (data::is_learned(cache.tokenizer)) add(cache.training);
  // A character that only validation has would have no id.
  if (cache.tokenizer == "character") add(cache.validation);
  return data::choose_tokenizer(cache.tokenizer, cache.bpe_vocabulary, views);
}

void tokenize_into(const fs::path& path, const std::vector<data::TextFile>& files,
                   const data::Tokenizer& tokenizer, const std::string& tokenizer_hash,
                   const TellProgress& tell) {
  data::TokenWriter writer(
      path, {.vocabulary = tokenizer.vocabulary(), .tokenizer_hash = tokenizer_hash});
  double told = 0;
  data::TokenizeOptions options;
  options.threads = CpuSet::of_this_thread().count();
  options.progress = [&](const data::TokenizeProgress& progress) {
    if (!tell || progress.seconds < told + kSecondsBetweenNews) return;
    told = progress.seconds;
    const auto done = static_cast<double>(progress.bytes_done);
    tell(fmt::format("tokenising: {} of {}, {}", format_bytes(done),
                     format_bytes(static_cast<double>(progress.bytes)),
                     format_bytes_per_second(done / progress.seconds)));
  };
  data::tokenize(files, tokenizer, options, writer);
  if (tell) tell(fmt::format("tokenized: {} tokens in {}", writer.tokens(), path.string()));
  writer.finish();
}

// The file of these tokens, made again where `found` is not `wanted` or it cannot be read.
data::TokenFile tokens_of(const fs::path& stem, const std::vector<data::TextFile>& files,
                          const Origin& wanted, const data::Tokenizer& tokenizer,
                          const TellProgress& tell) {
  fs::path tokens = stem;
  tokens += ".tokens";
  fs::path origin = stem;
  origin += ".json";
  if (read_origin(origin) == wanted) {
    try {
      data::TokenFile file(tokens);
      if (file.tokenizer_hash() == wanted.tokenizer) return file;
    } catch (const Error&) {  // gone or damaged
    }
  }
  tokenize_into(tokens, files, tokenizer, wanted.tokenizer, tell);
  write_origin(origin, wanted);
  return data::TokenFile(tokens);
}

}  // namespace

void keep_tokenizer(const data::Tokenizer& tokenizer, const fs::path& folder) {
  const fs::path path = path_of_tokenizer(folder);
  const std::string json = tokenizer.json();
  std::error_code none;
  // Another worker of the run may be reading it.
  if (fs::is_regular_file(path, none) && read_file(path) == json) return;
  make_folder(folder);
  write_file(path, json);
}

CachedTokens cached_tokens(const TextCache& cache, const TellProgress& progress) {
  make_folder(cache.folder);
  const std::string training = data::text_files_hash(cache.training);
  const std::string validation =
      cache.validation.empty() ? "" : data::text_files_hash(cache.validation);
  const bool learned = !cache.given && data::is_learned(cache.tokenizer);
  // Of one that is not learned the hash says enough, wherever it lies.
  std::string choice = learned ? cache.tokenizer : "";
  if (choice == "bpe") choice += fmt::format(" {} {}", cache.bpe_vocabulary, training);
  if (choice == "character") choice += fmt::format(" {} {}", training, validation);

  const Origin before = read_origin(cache.folder / "training.json");
  std::shared_ptr<const data::Tokenizer> tokenizer;
  if (learned && before.choice == choice) {
    try {
      tokenizer = data::load_tokenizer(path_of_tokenizer(cache.folder));
    } catch (const Error&) {  // gone or damaged
    }
    if (tokenizer && content_hash(tokenizer->json()) != before.tokenizer) tokenizer = nullptr;
  }
  if (!tokenizer) {
    if (progress && learned) {
      progress(fmt::format("learning a {} tokenizer", cache.tokenizer));
    }
    tokenizer = learn(cache);
    keep_tokenizer(*tokenizer, cache.folder);
  }
  const std::string hash = content_hash(tokenizer->json());

  CachedTokens tokens{.tokenizer = tokenizer,
                      .training = tokens_of(cache.folder / "training", cache.training,
                                            {training, choice, hash}, *tokenizer, progress),
                      .validation = nullptr};
  if (!cache.validation.empty()) {
    tokens.validation = std::make_unique<data::TokenFile>(
        tokens_of(cache.folder / "validation", cache.validation, {validation, choice, hash},
                  *tokenizer, progress));
  }
  return tokens;
}

}  // namespace lockstep::train
