#include "lockstep/cli/usage_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/text/text.h"

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

std::string suggest(std::string_view typed, const std::vector<std::string>& names) {
  return did_you_mean(typed, std::vector<std::string_view>(names.begin(), names.end()));
}

// About a word that `app`, "bench " or "" for the command as a whole, could not place.
std::string describe_stray(const CLI::App& app, const std::string& path, const std::string& word) {
  if (word.starts_with('-')) {
    const std::string flag = word.substr(0, word.find('='));
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
  // A word that nobody could place is the likelier slip than what is missing because of it.
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
