#include "lockstep/train/dataset/text_cache.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/data/token_file/json_lines.h"
#include "lockstep/data/token_file/tokenize.h"
#include "lockstep/data/tokenizers/choice.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsBetweenNews = 1;

// What a cached token file was made of.
struct Origin {
  std::string texts;      // text_files_hash(), and the field
  std::string choice;     // the tokenizer that was asked for, with what it was learned from
  std::string tokenizer;  // hash of the one that was used

  bool operator==(const Origin&) const = default;
};

// Nothing where it is missing, or not ours.
Origin read_origin(const fs::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const Error&) {
  }
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
  data::LearningTexts texts;
  if (data::is_learned(cache.tokenizer)) texts.add(cache.training, cache.field);
  // A character that only validation has would have no id.
  if (cache.tokenizer == "character") texts.add(cache.validation, cache.field);
  auto tokenizer = data::choose_tokenizer(cache.tokenizer, cache.bpe_vocabulary, texts.views());
  texts.check_whole();
  return tokenizer;
}

void tokenize_into(const fs::path& path, const std::vector<data::TextFile>& files,
                   const data::Tokenizer& tokenizer, const std::string& tokenizer_hash,
                   const std::string& field, const TellProgress& tell) {
  data::TokenWriter writer(
      path, {.vocabulary = tokenizer.vocabulary(), .tokenizer_hash = tokenizer_hash});
  double told = 0;
  data::TokenizeOptions options;
  if (!field.empty()) options.documents = data::DocumentKind::kJsonLines;
  options.field = field;
  options.threads = CpuSet::of_this_thread().count();
  options.progress = [&](const data::TokenizeProgress& progress) {
    if (!tell || progress.seconds < told + kSecondsBetweenNews) return;
    told = progress.seconds;
    const auto done = static_cast<double>(progress.bytes_done);
    tell(fmt::format("tokenising: {} of {}, {}", format_bytes(done),
                     format_bytes(static_cast<double>(progress.bytes)),
                     format_bytes_per_second(done / progress.seconds)));
  };
  const data::TokenizeSummary summary = data::tokenize(files, tokenizer, options, writer);
  if (tell && summary.findings.any()) {
    tell(fmt::format("warning: {}", describe(summary.findings)));
  }
  if (tell) tell(fmt::format("tokenised: {} tokens", format_count(writer.tokens())));
  writer.finish();
}

fs::path with_ending(fs::path stem, std::string_view ending) { return stem += ending; }

// The file of these tokens, made again where no folder has one that was made of `wanted` and can be
// read.
data::TokenFile tokens_of(std::string_view name, const CacheFolders& folders,
                          const std::vector<data::TextFile>& files, const Origin& wanted,
                          const data::Tokenizer& tokenizer, const std::string& field,
                          const TellProgress& tell) {
  for (const fs::path& folder : folders.found_in) {
    if (read_origin(with_ending(folder / name, ".json")) != wanted) continue;
    try {
      data::TokenFile file(with_ending(folder / name, ".tokens"));
      if (file.tokenizer_hash() == wanted.tokenizer) return file;
    } catch (const Error&) {  // gone or damaged
    }
  }
  make_folder(folders.made_in);
  const fs::path tokens = with_ending(folders.made_in / name, ".tokens");
  tokenize_into(tokens, files, tokenizer, wanted.tokenizer, field, tell);
  write_origin(with_ending(folders.made_in / name, ".json"), wanted);
  return data::TokenFile(tokens);
}

// The tokenizer that was learned from the same texts before; nullptr: none.
std::shared_ptr<const data::Tokenizer> learned_before(const CacheFolders& folders,
                                                      const std::string& choice) {
  for (const fs::path& folder : folders.found_in) {
    const Origin before = read_origin(folder / "training.json");
    if (before.choice != choice) continue;
    try {
      auto tokenizer = data::load_tokenizer(path_of_tokenizer(folder));
      if (content_hash(tokenizer->json()) == before.tokenizer) return tokenizer;
    } catch (const Error&) {  // gone or damaged
    }
  }
  return nullptr;
}

}  // namespace

void keep_tokenizer(const data::Tokenizer& tokenizer, const CacheFolders& folders) {
  const std::string json = tokenizer.json();
  for (const fs::path& folder : folders.found_in) {
    const fs::path path = path_of_tokenizer(folder);
    std::error_code none;
    // Another worker of the run may be reading it.
    if (fs::is_regular_file(path, none) && read_file(path) == json) return;
  }
  make_folder(folders.made_in);
  write_file(path_of_tokenizer(folders.made_in), json);
}

CachedTokens cached_tokens(const TextCache& cache, const TellProgress& progress) {
  const auto hash_of = [&](const std::vector<data::TextFile>& files) {
    return data::text_files_hash(files) + (cache.field.empty() ? "" : " field " + cache.field);
  };
  const std::string training = hash_of(cache.training);
  const std::string validation = cache.validation.empty() ? "" : hash_of(cache.validation);
  const bool learned = !cache.given && data::is_learned(cache.tokenizer);
  // For a tokenizer that is not learned the hash is enough, wherever its file is.
  std::string choice = learned ? cache.tokenizer : "";
  if (choice == "bpe") choice += fmt::format(" {} {}", cache.bpe_vocabulary, training);
  if (choice == "character") choice += fmt::format(" {} {}", training, validation);

  std::shared_ptr<const data::Tokenizer> tokenizer;
  if (learned) tokenizer = learned_before(cache.folders, choice);
  if (!tokenizer) {
    if (learned) make_folder(cache.folders.made_in);
    if (progress && learned) {
      progress(fmt::format("learning a {} tokenizer", cache.tokenizer));
    }
    tokenizer = learn(cache);
    keep_tokenizer(*tokenizer, cache.folders);
  }
  const std::string hash = content_hash(tokenizer->json());

  CachedTokens tokens{
      .tokenizer = tokenizer,
      .training = tokens_of("training", cache.folders, cache.training, {training, choice, hash},
                            *tokenizer, cache.field, progress),
      .validation = nullptr};
  if (!cache.validation.empty()) {
    tokens.validation = std::make_unique<data::TokenFile>(
        tokens_of("validation", cache.folders, cache.validation, {validation, choice, hash},
                  *tokenizer, cache.field, progress));
  }
  return tokens;
}

}  // namespace lockstep::train
