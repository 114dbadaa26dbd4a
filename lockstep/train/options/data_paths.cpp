#include "lockstep/train/options/data_paths.h"

#include <string>
#include <system_error>

#include "lockstep/data/token_file/formats.h"
#include "lockstep/data/tokenizers/choice.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStandardInput = "-";

void find_path(std::string& path, const fs::path& beside) {
  if (path.empty() || path == kStandardInput || fs::path(path).is_absolute()) return;
  for (const fs::path& folder : {beside, fs::current_path()}) {
    if (folder.empty() || !is_data_there((folder / path).string())) continue;
    fs::path found = fs::absolute(folder / path).lexically_normal();
    if (!found.has_filename()) found = found.parent_path();  // of "." and "folder/"
    path = found.string();
    return;
  }
}

}  // namespace

bool is_data_there(const std::string& path) {
  std::error_code none;
  return path == kStandardInput || fs::exists(path, none) ||
         fs::exists(data::megatron_paths(path).idx, none);
}

void find_data(RunOptions& options, const fs::path& beside) {
  data::DataOptions& data = options.data;
  for (std::string* path : {&data.text, &data.tokens, &data.pairs, &data.table,
                            &data.validation_text, &data.validation_tokens, &options.init_from}) {
    find_path(*path, beside);
  }
  for (std::string& text : data.mixture) {
    data::MixtureEntry entry = data::parse_mixture_entry(text);
    find_path(entry.path, beside);
    text = data::format_mixture_entry(entry);
  }
  if (!data::is_tokenizer_name(data.tokenizer)) find_path(data.tokenizer, beside);
}

}  // namespace lockstep::train
