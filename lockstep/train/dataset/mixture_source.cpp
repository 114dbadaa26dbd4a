// Sequences of several token files, in the order of train/dataset/mixture_order.h. Each file has
// the source that it would have alone.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/nn/parameters/seed.h"
#include "lockstep/train/dataset/mixture_order.h"
#include "lockstep/train/dataset/sequence_source.h"

namespace lockstep::train {
namespace {

std::vector<double> weights_of(const Dataset& dataset) {
  std::vector<double> weights;
  for (const Dataset& part : dataset.mixture) weights.push_back(part.weight);
  return weights;
}

using PartSources = std::vector<std::unique_ptr<SequenceSource>>;

class MixtureSource final : public SequenceSource {
 public:
  MixtureSource(const Dataset& dataset, const SourceSetup& setup, PartSources parts)
      : SequenceSource(setup.shape, parts.front()->widths()),
        parts_(std::move(parts)),
        order_(mixture_quotas(weights_of(dataset)), nn::seed_for(setup.seed, "mixture")) {
    std::vector<std::uint64_t> counts;
    for (const auto& part : parts_) counts.push_back(part->held_back());
    validation_ = validation_mixture(weights_of(dataset), counts);
  }

  std::uint64_t sequences() const override {
    std::uint64_t all = 0;
    for (const auto& part : parts_) all += part->sequences();
    return all;
  }

 protected:
  std::uint64_t validation_sequences() const override { return validation_.size(); }
  void fill_training(const SequenceFields& fields, std::uint64_t sequence) override {
    const MixtureOrder::Place place = order_.place(sequence);
    parts_[place.file]->fill_one(fields, place.number, true);
  }
  void fill_validation(const SequenceFields& fields, std::uint64_t sequence) override {
    const MixtureOrder::Place place = validation_[sequence];
    parts_[place.file]->fill_one(fields, place.number, false);
  }

 private:
  PartSources parts_;
  MixtureOrder order_;
  std::vector<MixtureOrder::Place> validation_;
};

}  // namespace

std::unique_ptr<BatchSource> make_mixture_source(const Dataset& dataset, const SourceSetup& setup,
                                                 const MakeSequenceSource& make) {
  PartSources parts;
  for (std::size_t i = 0; i < dataset.mixture.size(); ++i) {
    SourceSetup of_part = setup;
    // The first as alone; others hide other tokens, and have other orders.
    if (i > 0) of_part.seed = nn::seed_for(setup.seed, fmt::format("mixture file {}", i));
    parts.push_back(make(dataset.mixture[i], of_part));
  }
  return std::make_unique<MixtureSource>(dataset, setup, std::move(parts));
}

}  // namespace lockstep::train
