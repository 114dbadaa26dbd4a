#include "lockstep/train/dataset/token_stream.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::train {

TokenStreams token_streams(const Dataset& dataset, std::uint64_t least) {
  if (!dataset.training) {
    fail(ErrorCode::kInvalidArgument, "the model trains on tokens; give data.text or data.tokens");
  }
  const data::TokenFile& file = *dataset.training;
  TokenStreams streams;
  streams.training = {.file = &file, .first = 0, .tokens = file.size()};
  if (dataset.validates_all) {
    streams.validation = streams.training;
    streams.training.tokens = std::max(streams.training.tokens, least);  // nobody reads it
    return streams;
  }
  std::uint64_t held_back = 0;
  if (dataset.validation) {
    streams.validation = {
        .file = &*dataset.validation, .first = 0, .tokens = dataset.validation->size()};
  } else {
    held_back =
        static_cast<std::uint64_t>(static_cast<double>(file.size()) * dataset.validation_fraction);
    streams.training.tokens -= held_back;
    streams.validation = {.file = &file, .first = streams.training.tokens, .tokens = held_back};
  }
  if (streams.training.tokens < least) {
    fail(ErrorCode::kInvalidArgument,
         "{} has {}{}, but a sequence needs {}; give more data or a smaller train.seq_len",
         dataset.text.empty() ? file.path().string() : dataset.text, counted(file.size(), "token"),
         held_back > 0 ? fmt::format(", {} of them held back for validation", held_back) : "",
         least);
  }
  return streams;
}

}  // namespace lockstep::train
