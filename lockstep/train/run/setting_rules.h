// What the rules of settings share (train/run/unused_settings.h), and their two parts.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "lockstep/train/run/unused_settings.h"

namespace lockstep::train::rules {

using Facts = SettingFacts;

inline const parallel::ParallelOptions& parallel_of(const Facts& facts) {
  return facts.options.train.parallel;
}

inline bool uses_servers(const Facts& facts) {
  return parallel_of(facts).strategy == parallel::StrategyKind::kParameterServer;
}

inline bool has_several_workers(const Facts& facts) {
  return facts.options.train.batch.workers > 1;
}

// Whether memory.auto is free to choose the ZeRO stage.
inline bool stage_is_chosen(const Facts& facts) {
  return facts.options.train.memory_auto && !facts.config.is_set("parallel.zero");
}

inline std::string when(bool unused, std::string why) { return unused ? std::move(why) : ""; }

// data.*, model.*, train.*, sample.*, live.*, debug.*, optimizer.*, schedule.*, loss_scale.*
std::span<const SettingRule> of_learning();
// parallel.*, survive.*, offload.*, comm.*, device.*
std::span<const SettingRule> of_workers();

}  // namespace lockstep::train::rules
