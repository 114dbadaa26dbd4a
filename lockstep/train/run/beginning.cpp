#include "lockstep/train/run/beginning.h"

#include <fmt/format.h>

#include "lockstep/train/run/start.h"
#include "lockstep/train/run/unused_settings.h"

namespace lockstep::train {
namespace {

void tell_where(const Beginning& run) {
  const Audience& audience = run.audience;
  if (!run.states_of.empty()) {
    audience.notice(fmt::format("continues after step {}, with {}", run.done, run.states_of));
  } else if (run.owed.validation || run.owed.sample) {
    audience.notice(fmt::format("continues after step {}, whose {} is still missing", run.done,
                                run.owed.validation ? "validation" : "sample"));
  } else if (run.resumed) {
    audience.notice(fmt::format("continues after step {}", run.done));
  }
}

}  // namespace

void tell_beginning(const Beginning& run) {
  const RunOptions& options = run.resolved.options();
  const Config& config = run.resolved.config();
  const Audience& audience = run.audience;
  for (const std::string& text : unused(options, run.dataset, run.source)) audience.warning(text);
  for (const std::string& text : unused_settings(options, config, run.ops)) audience.warning(text);
  if (run.mirrors_in_vain) {
    audience.warning(
        "survive.mirror = true only costs memory here: nothing starts the ranks of this run again "
        "(lockstep train --ranks does, unless --max-restarts is 0)");
  }
  if (const std::string text = batch_of_ranks(options.train, config); !text.empty()) {
    audience.notice(text);
  }
  if (!run.changed_data.empty()) audience.warning(run.changed_data);
  if (const std::string why = unused_gpu(options.train); !why.empty()) audience.notice(why);
  if (parallel::keeps_two_versions(options.train.parallel)) {
    audience.notice(
        "every stage keeps two versions of its parameters, and each step's gradients are those of "
        "parameters one update old (staleness 1, on all stages)");
  }
  if (!run.resolved.memory_choice().empty()) audience.notice(run.resolved.memory_choice());
  if (!run.changed_settings.empty()) {
    audience.notice("settings that changed since the checkpoint: " + run.changed_settings);
  }
  tell_where(run);
}

std::string nothing_to_do(const RunOptions& options, std::int64_t done) {
  return fmt::format(
      "train.steps = {} are done, so there is nothing to do. With more train.steps it continues "
      "after step {}",
      options.steps, done);
}

std::string stopped_early(std::int64_t done, const std::string& why) {
  return fmt::format(
      "stopped early after step {}: {}. With a larger train.early_stopping, or 0, it continues",
      done, why);
}

}  // namespace lockstep::train
