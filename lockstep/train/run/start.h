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

// Fills in open model.vocabulary and model.features from the data.
TrainOptions with_data(TrainOptions options, const Dataset& dataset);
// The same for a run that is only planned: reads the data if it is given and needed, and keeps
// nothing of it.
TrainOptions with_data(TrainOptions options, const data::DataOptions& data);

// The batches of a run, of that shape.
// In a context group: of this rank's tokens. `shape` is that of this rank.
std::unique_ptr<BatchSource> make_source(const TrainOptions& options, const Dataset& dataset,
                                         const nn::BatchShape& shape);

// "text.txt: 1,003,854 tokens of 65 kinds, 15,685 sequences an epoch"
std::string describe(const data::DataOptions& options, const Dataset& dataset,
                     const BatchSource& source);

// Warnings about unused data and settings: pairs that are too long, token ids that no token has, a
// learning rate that is not reached, a tree that is not reproducible on other numbers of workers,
// samples that are not possible.
std::vector<std::string> unused(const RunOptions& options, const Dataset& dataset,
                                const BatchSource& source);

// A message that the batch size follows from the number of workers, because it is not set; empty if
// it is set.
std::string batch_of_ranks(const TrainOptions& options, const Config& config);

// A warning if the data of a checkpoint differs from the current data, by their fingerprints
// (train/dataset/fingerprint.h). Empty if it is the same or unknown.
std::string changed_data(const std::string& was, const std::string& is);

// The parameters of a run's folder, a checkpoint, or a folder of Hugging Face transformers: what
// the replica holds of them. Workers that shard their states all call it as a `group`, and all
// throw where one of them does.
void load_parameters(const TrainOptions& options, const std::filesystem::path& from,
                     nn::Replica& replica, const Warn& warn, RunGroup group = RunGroup(nullptr));

}  // namespace lockstep::train
