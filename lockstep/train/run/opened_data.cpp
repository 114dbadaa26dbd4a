#include "lockstep/train/run/opened_data.h"

#include <string>
#include <string_view>

#include "lockstep/launch/exit_status.h"
#include "lockstep/train/dataset/shared_data.h"
#include "lockstep/train/model_io/model_of_start.h"

namespace lockstep::train {

namespace {

// The leader's data is staged until the run begins. The others find it there; one that does not see
// the leader's folder makes its own.
CacheFolders cache_of(const std::filesystem::path& run, bool leads) {
  const std::filesystem::path staged = RunFolder::staged_data_of(run);
  const std::filesystem::path data = RunFolder::data_of(run);
  return {{staged, data}, leads ? staged : data};
}

}  // namespace

OpenedData::OpenedData(const RunOptions& options, RunGroup everybody, bool leads,
                       const StopSignal* stop, const Audience& audience)
    : dataset(open_shared_dataset(
          everybody, stop, [&](std::string_view text) { audience.notice(std::string(text)); },
          [&](const Tell& tell) {
            if (leads) folder.emplace(options.dir);
            // A single document can take minutes to tokenise, and longer to learn from.
            std::optional<StopDeadline> deadline;
            if (stop != nullptr) {
              deadline.emplace(*stop, kToBeContinued, [this] {
                if (folder) folder->leave();
              });
            }
            model_tokenizer = tokenizer_of_start(options);
            return open_dataset(options.data, cache_of(options.dir, leads), tell, model_tokenizer);
          })) {}

}  // namespace lockstep::train
