#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/data/text/pairs.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/nn/hugging_face/config.h"
#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/replaceable_folder.h"
#include "lockstep/train/checkpoint/state_tensors.h"
#include "lockstep/train/dataset/tokenizer_files.h"
#include "lockstep/train/model_io/interchange.h"
#include "lockstep/train/model_io/stored_model.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// Whether a folder's config.json is one that an export wrote.
bool is_export(const fs::path& folder) {
  try {
    const auto json = nlohmann::json::parse(read_file(folder / "config.json"), nullptr, false);
    return json.is_object() && json.value("made_by", nlohmann::json()) == nn::kMadeBy;
  } catch (const Error&) {
    return false;
  }
}

void check_export_replaceable(const fs::path& folder) {
  const bool ours = is_export(folder);
  check_replaceable(folder, [&](std::string_view name) {
    const bool known = name == "config.json" || name == "generation_config.json" ||
                       name == "tokenizer.json" || name == "tokenizer_config.json" ||
                       name == "lockstep_tokenizer.json" ||
                       name == "model.safetensors.index.json" ||
                       (name.starts_with("model") && name.ends_with(".safetensors"));
    return ours && known;
  });
}

nn::SpecialTokens write_tokenizer(const fs::path& folder, const Checkpoint& checkpoint,
                                  Interchanged& result) {
  const std::string& text = checkpoint.tokenizer;
  const std::string source = (checkpoint.folder / kTokenizerFile).string();
  if (text.empty()) {
    result.notices.emplace_back("the run has no tokenizer, so the folder is written without one");
    return {};
  }
  result.tokenizer = true;
  const std::string theirs = is_hugging_face_tokenizer(text, source)
                                 ? text
                                 : data::parse_tokenizer(text, source)->hugging_face_json();
  // A byte or character tokenizer comes back exactly from our own file; `lockstep import` reads
  // that.
  if (theirs != text) io::write_synced(folder / "lockstep_tokenizer.json", text);
  io::write_synced(folder / "tokenizer.json", theirs);
  io::write_synced(folder / "tokenizer_config.json",
                   tokenizer_config(theirs, source, result.shape.positions));
  return special_tokens(theirs, source);
}

// What a translation begins with, and what ends it, are those of the run's data. Without a
// tokenizer they are T5's.
nn::SpecialTokens with_decoder_start(nn::SpecialTokens tokens, const Checkpoint& checkpoint) {
  constexpr std::int64_t kPadding = 0, kEnd = 1;
  if (checkpoint.tokenizer.empty()) {
    return {.begin = {}, .end = kEnd, .padding = kPadding, .decoder_start = kPadding};
  }
  const auto tokenizer =
      data::parse_tokenizer(checkpoint.tokenizer, (checkpoint.folder / kTokenizerFile).string());
  const data::TranslationTokens ends = data::translation_tokens(*tokenizer);
  tokens.decoder_start = ends.begin;
  tokens.end = ends.end;
  if (!tokens.padding) tokens.padding = ends.end;
  return tokens;
}

}  // namespace

Interchanged export_hugging_face(const fs::path& run_or_checkpoint, const fs::path& to,
                                 const ExportOptions& options, const Warn& warn) {
  check_export_replaceable(to);
  const Checkpoint checkpoint = open_checkpoint(run_or_checkpoint, warn);
  const TrainOptions run = stored_options(checkpoint);
  if (!has_shape(run)) {
    fail(ErrorCode::kUnsupported,
         "{} is a model of family {}, for which Hugging Face transformers has no class, so that it "
         "cannot be exported",
         run_or_checkpoint.string(), name(family_of(run)));
  }
  const plan::ModelShape shape = shape_of(run);
  if (shape.kv_heads != shape.heads && !shape.parts().rms_norm) {
    fail(ErrorCode::kUnsupported,
         "the classes of Hugging Face transformers for family {} have a key/value head for every "
         "head, and {} has {} for {}, so that it cannot be exported",
         plan::name(shape.family), run_or_checkpoint.string(), shape.kv_heads, shape.heads);
  }
  const nn::FlatParameters flat = flat_of(whole_model_of(run));
  const auto states = open_states(checkpoint);
  Interchanged result{.shape = shape, .parameters = flat.count()};
  check_same_parameters(*states, flat);

  io::remove_stale(fs::absolute(to).lexically_normal().parent_path());
  io::StagedFolder staged(to);
  nn::write_hugging_face(staged.path(), result.shape, flat, *states,
                         {.dtype = options.dtype, .shard_bytes = options.shard_bytes});
  nn::SpecialTokens tokens = write_tokenizer(staged.path(), checkpoint, result);
  if (translates(run)) tokens = with_decoder_start(tokens, checkpoint);
  io::write_synced(
      staged.path() / "config.json",
      nn::format_hugging_face_config(result.shape, model_options_of(run), options.dtype, tokens));
  if (result.shape.family != plan::Family::kBert) {
    io::write_synced(staged.path() / "generation_config.json",
                     nn::format_generation_config(tokens));
  }
  staged.commit();
  return result;
}

}  // namespace lockstep::train
