#include "lockstep/cli/usage_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/text/text.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(fmt::format("--{}", name));
  }
  return names;
}

// What a flag of other programs is called here, by what it means.
struct Meaning {
  std::string_view command;  // "generate "
  std::string_view flag;
  std::string_view here;
};
constexpr Meaning kMeanings[] = {
    {"generate ", "--prompt", "--prompt-file FILE, or write the text behind the folder"},
    {"generate ", "--start", "--prompt-file FILE, or write the text behind the folder"},
    {"generate ", "--text", "--prompt-file FILE, or write the text behind the folder"},
    {"generate ", "--model", "the folder itself, as the first word"},
    {"generate ", "--out-dir", "the folder itself, as the first word"},
    {"generate ", "--max-tokens", "--tokens"},
    {"generate ", "--max-new-tokens", "--tokens"},
    {"generate ", "--max-length", "--tokens"},
    {"generate ", "--length", "--tokens"},
    {"generate ", "--num-samples", "--count"},
    {"generate ", "--num-return-sequences", "--count"},
    {"generate ", "--batch-size", "--batch"},
    {"generate ", "--dtype", "--precision"},
    {"train ", "--config", "the file itself, as the first word"},
    {"train ", "--resume", "the run's folder, as the first word"},
    {"train ", "--gpus", "--ranks"},
    {"train ", "--workers", "--ranks"},
    {"train ", "--world-size", "--ranks"},
    {"tokenize ", "--input", "the files themselves, as words"},
    {"tokenize ", "--vocab-size", "--vocabulary"},
    {"plan ", "--batch-size", "--batch"},
    {"plan ", "--seq-len", "--seq"},
    {"plan ", "--gpu-memory", "--memory"},
    {"bench train ", "--batch-size", "--batch"},
    {"bench train ", "--seq-len", "--seq"},
    {"bench train ", "--dtype", "--precision"},
    {"launch ", "--np", "--ranks"},
};

// --batch_size and --batch-size are one.
std::string dashed(std::string_view flag) {
  std::string text(flag);
  std::ranges::replace(text, '_', '-');
  return text;
}

// The setting that a flag stands for where settings are words; empty: none.
std::string as_setting(std::string_view path, std::string_view flag) {
  if (path != "train " && path != "plan ") return "";
  const auto begin = flag.find_first_not_of('-');
  if (begin == std::string_view::npos) return "";
  std::string key(flag.substr(begin));
  const train::RunSettings settings;
  if (!settings.config.knows(key)) std::ranges::replace(key, '-', '_');
  return settings.config.knows(key) ? key : "";
}

std::string suggest(std::string_view typed, const std::vector<std::string>& names) {
  return did_you_mean(typed, std::vector<std::string_view>(names.begin(), names.end()));
}

// About a word that `app`, "bench " or "" for the command as a whole, could not place.
std::string describe_stray(const CLI::App& app, const std::string& path, const std::string& word) {
  if (word.starts_with('-')) {
    const std::string flag = word.substr(0, word.find('='));
    for (const Meaning& meaning : kMeanings) {
      if (meaning.command != path || meaning.flag != dashed(flag)) continue;
      return fmt::format("unknown flag '{}{}'; use {}", path, flag, meaning.here);
    }
    if (const std::string key = as_setting(path, flag); !key.empty()) {
      return fmt::format("unknown flag '{}{}'; it is a setting, written without dashes: {}=...",
                         path, flag, key);
    }
    return fmt::format("unknown flag '{}{}'{}", path, flag, suggest(flag, flags_of(app)));
  }
  const std::vector<std::string> commands = commands_of(app);
  // Where words are taken besides commands, there is one too many.
  const auto options = app.get_options();
  const bool takes_words = std::ranges::any_of(options, &CLI::Option::get_positional);
  if (commands.empty() || takes_words)
    return fmt::format("{}takes no more arguments, but got '{}'", path, word);
  return fmt::format("unknown command '{}{}'{}; expected {}{}", path, word, suggest(word, commands),
                     commands.size() == 1 ? "" : "one of ", fmt::join(commands, ", "));
}

}  // namespace

std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error) {
  // An unexpected word is a likelier mistake than the missing argument that it causes.
  const bool may_be_stray = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                            dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const CLI::App* at = &app;
  std::string path;  // "bench collectives "
  std::string stray;
  while (true) {
    const std::vector<std::string> words = at->remaining();
    const auto word = std::find_if(words.begin(), words.end(),
                                   [](const std::string& one) { return one != "--"; });
    if (may_be_stray && word != words.end()) {
      stray = describe_stray(*at, path, *word);
      break;
    }
    if (at->get_subcommands().empty()) break;
    at = at->get_subcommands().front();
    path += at->get_name() + " ";
  }
  std::string what = path.empty() ? error.what() : fmt::format("{}: {}", trim(path), error.what());
  if (!stray.empty()) {
    what = stray;
  } else if (may_be_stray && at->get_require_subcommand_min() > 0) {
    what = fmt::format("a {}command is missing; expected one of {}", path,
                       fmt::join(commands_of(*at), ", "));
  }
  return fmt::format("{}\nSee lockstep {}--help", what, path);
}

}  // namespace lockstep::cli
