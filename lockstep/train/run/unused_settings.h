// Settings that were given and have no effect.
//
// A table (setting_rules_*.cpp) knows of every key whether a run reads it: always, or unless some
// other setting says otherwise. A key is in exactly one of the two lists; a test goes through all
// that are declared.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {

// What a rule looks at. `config` is bound to the options that were given; `options` are settled.
struct SettingFacts {
  const RunOptions& options;
  const Config& config;
  const Ops& ops;
};

// Why a run does not read a key, as the end of a sentence; empty: it does.
struct SettingRule {
  std::string_view key;
  std::string (*why_unused)(const SettingFacts& facts);
};

// The keys that some runs do not read, and those that every run reads.
std::span<const SettingRule> setting_rules();
std::span<const std::string_view> always_read_settings();

// A sentence for each key that was given another value than its default and is not read, and one
// for all names of other trainers that have no effect here. Nothing of what depends on a ZeRO stage
// that memory.auto chose. With one worker parallel.* and comm.* count as read wherever they would
// be with several: one configuration may be run with any number. What a run's own config.toml says
// was reported when the run began.
std::vector<std::string> unused_settings(const RunOptions& options, const Config& config,
                                         const Ops& ops);

}  // namespace lockstep::train
