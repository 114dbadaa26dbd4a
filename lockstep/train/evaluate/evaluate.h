// Evaluates a saved model on data: the mean loss, and what follows from it.
//
//   Evaluation made = evaluate({.model = "run", .settings = {"data.text=book.txt"}}, group, stop,
//                              listener);
//
// Losses are computed and summed as a validation of a run does it (train/run/validation.h): the
// held-back part of a run's own data gives, to the bit, the validation loss that the run reported
// for those parameters, with any number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/train/evaluate/settings.h"
#include "lockstep/train/run/validation.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct Evaluation {
  std::string origin;                // the folder of the parameters
  std::optional<std::int64_t> step;  // of its run
  std::string model;                 // "gpt2 of 4 x 128"
  std::uint64_t parameters = 0;
  std::string precision;
  std::string hardware;
  std::string data;  // the file or folder
  int ranks = 1;

  double loss = 0;                      // the mean over targets, in nats
  std::optional<double> perplexity;     // e to the loss, where targets are tokens
  std::optional<double> bits_per_byte;  // of the text that targets stand for, where every one of
                                        // its bytes is in a token: a next-token model with a byte,
                                        // character or bpe tokenizer
  std::optional<double> accuracy;       // the share of masked tokens that is the likeliest; of
                                        // equally likely ones the first counts
  std::uint64_t sequences = 0;
  std::uint64_t sequence_length = 0;
  std::uint64_t available = 0;  // sequences of the part of the data that was evaluated
  std::uint64_t targets = 0;
  std::uint64_t bytes = 0;  // that targets stand for; 0: not known
  double seconds = 0;       // of computing all of them
  double tokens_per_second = 0;
};

// What an evaluation reports meanwhile, on the leader.
struct EvaluationListener {
  std::function<void(const std::string&)> notice;
  std::function<void(const std::string&)> warning;
  TellValidation progress;
};

// All ranks of `group` call it, with the same request; each needs the model and the data. Nothing
// where a stop signal came. Throws what evaluation_settings() does, Error(kInvalidArgument) for
// data without a target and for data of another tokenizer than the model's, and Error for what
// cannot be read.
std::optional<Evaluation> evaluate(const EvaluationRequest& request, RunGroup group,
                                   const StopSignal& stop, const EvaluationListener& listener);

}  // namespace lockstep::train
