#include "lockstep/train/dataset/text_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

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

// What the files of training and validation are called.
constexpr std::string_view kTraining = "training";
constexpr std::string_view kValidation = "validation";

// What a cached token file was made of.
struct Origin {
  std::string texts;      // text_files_hash(), and the field
  std::string choice;     // the tokenizer that was asked for, with what it was learned from
  std::string tokenizer;  // hash of the one that was used
  std::string path =
      {};  // of the texts, as configured: how they are found again once they are gone

  bool same_tokens(const Origin& other) const {
    return texts == other.texts && choice == other.choice && tokenizer == other.tokenizer;
  }
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
  return {.texts = field("texts"),
          .choice = field("choice"),
          .tokenizer = field("tokenizer"),
          .path = field("path")};
}

void write_origin(const fs::path& path, const Origin& origin) {
  const nlohmann::ordered_json json{{"texts", origin.texts},
                                    {"choice", origin.choice},
                                    {"tokenizer", origin.tokenizer},
                                    {"path", origin.path}};
  write_file(path, json.dump(2) + '\n');
}

// Of tokens that were made of the text at that path; nothing where no folder has any.
std::optional<Origin> origin_of_path(std::string_view name, const CacheFolders& folders,
                                     const std::string& path) {
  for (const fs::path& folder : folders.found_in) {
    Origin origin = read_origin(folder / fmt::format("{}.json", name));
    if (origin.path == path && !path.empty()) return origin;
  }
  return std::nullopt;
}

[[noreturn]] void fail_gone(const std::string& path) {
  fail(ErrorCode::kInvalidArgument,
       "there is no text at {}, and the tokens that the run made of it cannot be used: they are "
       "damaged, or were made with another tokenizer. Give data.text=PATH",
       path);
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
  for (const TextSource* source : {&cache.training, &cache.validation}) {
    const bool gone = source->files.empty() && !source->path.empty();
    if (gone && data::is_learned(cache.tokenizer)) fail_gone(source->path);
  }
  if (data::is_learned(cache.tokenizer)) texts.add(cache.training.files, cache.field);
  // A character that only validation has would have no id.
  if (cache.tokenizer == "character") texts.add(cache.validation.files, cache.field);
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
                          const TextSource& source, const Origin& wanted,
                          const data::Tokenizer& tokenizer, const std::string& field,
                          const TellProgress& tell) {
  for (const fs::path& folder : folders.found_in) {
    if (!read_origin(with_ending(folder / name, ".json")).same_tokens(wanted)) continue;
    try {
      data::TokenFile file(with_ending(folder / name, ".tokens"));
      if (file.tokenizer_hash() != wanted.tokenizer) continue;
      if (source.files.empty() && tell) {
        tell(fmt::format("warning: there is no text at {}; its tokens in {} are used", wanted.path,
                         folder.string()));
      }
      return file;
    } catch (const Error&) {  // gone or damaged
    }
  }
  if (source.files.empty()) fail_gone(source.path);
  make_folder(folders.made_in);
  const fs::path tokens = with_ending(folders.made_in / name, ".tokens");
  tokenize_into(tokens, source.files, tokenizer, wanted.tokenizer, field, tell);
  write_origin(with_ending(folders.made_in / name, ".json"), wanted);
  return data::TokenFile(tokens);
}

// The tokenizer that was learned from the same texts before; nullptr: none.
std::shared_ptr<const data::Tokenizer> learned_before(const CacheFolders& folders,
                                                      const std::string& choice) {
  for (const fs::path& folder : folders.found_in) {
    const Origin before = read_origin(folder / fmt::format("{}.json", kTraining));
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

bool has_tokens_of(const CacheFolders& folders, const std::string& path) {
  return origin_of_path(kTraining, folders, path) || origin_of_path(kValidation, folders, path);
}

CachedTokens cached_tokens(const TextCache& cache, const TellProgress& progress) {
  const auto hash_of = [&](std::string_view name, const TextSource& source) -> std::string {
    if (source.path.empty()) return "";
    if (source.files.empty()) {
      const auto origin = origin_of_path(name, cache.folders, source.path);
      return origin ? origin->texts : "";
    }
    return data::text_files_hash(source.files) +
           (cache.field.empty() ? "" : " field " + cache.field);
  };
  const std::string training = hash_of(kTraining, cache.training);
  const std::string validation = hash_of(kValidation, cache.validation);
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

  CachedTokens tokens{.tokenizer = tokenizer,
                      .training = tokens_of(kTraining, cache.folders, cache.training,
                                            {training, choice, hash, cache.training.path},
                                            *tokenizer, cache.field, progress),
                      .validation = nullptr};
  if (!cache.validation.path.empty()) {
    tokens.validation = std::make_unique<data::TokenFile>(tokens_of(
        kValidation, cache.folders, cache.validation,
        {validation, choice, hash, cache.validation.path}, *tokenizer, cache.field, progress));
  }
  return tokens;
}

}  // namespace lockstep::train
