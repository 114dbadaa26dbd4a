// What a run needs before its first step, besides its trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

Objective objective_of(const TrainOptions& options);
// Of the model; 0 where it has none.
std::int64_t vocabulary_of(const TrainOptions& options);

// With model.vocabulary and model.features from the data where they are open.
TrainOptions with_data(TrainOptions options, const Dataset& dataset);
// The same for a run that is planned and not begun: reads the data where it is given and knows what
// is open, and keeps nothing of it.
TrainOptions with_data(TrainOptions options, const data::DataOptions& data);

// The batches of a run, of that shape.
std::unique_ptr<BatchSource> make_source(const TrainOptions& options, const Dataset& dataset,
                                         const nn::BatchShape& shape);

// "text.txt: 1,003,854 tokens of 65 kinds, 15,685 sequences an epoch"
std::string describe(const data::DataOptions& options, const Dataset& dataset,
                     const BatchSource& source);

// What of the data and of the settings will not be used, for people: pairs that are too long, ids
// of the model that no token has, a learning rate that is not reached, a tree of gradients that
// other numbers of workers do not have, samples that cannot be.
std::vector<std::string> unused(const RunOptions& options, const Dataset& dataset,
                                const BatchSource& source);

// That the batch is this large for this many workers only, where nobody set it; empty: it is not.
std::string batch_of_ranks(const TrainOptions& options, const Config& config);

// What a person should know where the data of a checkpoint was another than that of now, by their
// fingerprints (train/dataset/fingerprint.h). Empty where it was the same, or is not known.
std::string changed_data(const std::string& was, const std::string& is);

// The parameters of a run's folder, a checkpoint, or a folder of Hugging Face transformers: what
// the replica holds of them. Workers that shard their states all call it as a `group`, and all
// throw where one of them does.
void load_parameters(const TrainOptions& options, const std::filesystem::path& from,
                     nn::Replica& replica, const Warn& warn, RunGroup group = RunGroup(nullptr));

}  // namespace lockstep::train
