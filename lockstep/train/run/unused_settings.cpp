#include "lockstep/train/run/unused_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lockstep/train/run/setting_rules.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::train {

std::span<const SettingRule> setting_rules() {
  static const std::vector<SettingRule> all = [] {
    std::vector<SettingRule> both;
    std::ranges::copy(rules::of_learning(), std::back_inserter(both));
    std::ranges::copy(rules::of_workers(), std::back_inserter(both));
    return both;
  }();
  return all;
}

std::vector<std::string> unused_settings(const RunOptions& options, const Config& config,
                                         const Ops& ops) {
  const SettingFacts facts{.options = options, .config = config, .ops = ops};
  const std::string of_run = RunFolder::config_of(options.dir).string() + ':';
  std::vector<std::string> texts;
  for (const SettingRule& rule : setting_rules()) {
    const auto given = config.given(rule.key);
    if (!given || given->origin.starts_with(of_run)) continue;
    const std::string why = rule.why_unused(facts);
    if (why.empty()) continue;
    texts.push_back(fmt::format("{} = {} has no effect: {}", rule.key, given->value, why));
  }
  if (const auto& names = config.ignored(); !names.empty()) {
    texts.push_back(fmt::format("{} of other trainers {} no effect here", fmt::join(names, ", "),
                                names.size() == 1 ? "has" : "have"));
  }
  return texts;
}

}  // namespace lockstep::train
