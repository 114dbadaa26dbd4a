#include "lockstep/train/run/opened_data.h"

#include <string>
#include <string_view>

#include "lockstep/launch/exit_status.h"
#include "lockstep/train/dataset/shared_data.h"
#include "lockstep/train/model_io/model_of_start.h"

namespace lockstep::train {

OpenedData::OpenedData(const RunOptions& options, RunGroup everybody, bool leads,
                       const StopSignal& stop, const Audience& audience)
    : dataset(open_shared_dataset(
          everybody, stop, [&](std::string_view text) { audience.notice(std::string(text)); },
          [&](const Tell& tell) {
            if (leads) folder.emplace(options.dir);
            // A single document can take minutes to tokenise, and longer to learn from.
            const StopDeadline deadline(stop, kToBeContinued, [this] {
              if (folder) folder->leave();
            });
            model_tokenizer = tokenizer_of_start(options);
            return open_dataset(options.data, RunFolder::data_of(options.dir), tell,
                                model_tokenizer);
          })) {}

}  // namespace lockstep::train
