#include "lockstep/train/options/part_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::train {
namespace {

std::string family_text(const TrainOptions& options) {
  return fmt::format("model.family = \"{}\"", name(family_of(options)));
}

// What the model has of each part; empty: nothing.
std::string experts_in(const TrainOptions& options, const plan::FamilyParts& parts) {
  return parts.experts ? family_text(options) : "";
}

std::string query_key_norms_in(const TrainOptions& options, const plan::FamilyParts& parts) {
  return parts.qk_norm ? family_text(options) + ", whose queries and keys have norms" : "";
}

std::string partly_rotary_in(const TrainOptions& options, const plan::FamilyParts& parts) {
  if (!parts.partly_rotary) return "";
  const double given = options.model.rotary_share;
  const double share = given > 0 ? given : parts.rotary_share;
  return share == 1 ? "" : fmt::format("model.rotary_share = {:g}", share);
}

// Where sequences are longer than it.
std::string window_in(const TrainOptions& options, const plan::FamilyParts&) {
  const ModelChoice& choice = options.model;
  const bool named = !choice.name.empty();
  const auto count = [](int size) { return static_cast<plan::Count>(std::max(size, 0)); };
  const plan::Count window = named ? plan::find_model(choice.name).window : count(choice.window);
  const plan::Family family = plan::family_from_name(name(family_of(options)));
  const plan::Count usual =
      choice.positions > 0 ? count(choice.positions) : plan::usual_shape(family).positions;
  const plan::Count positions = named ? plan::find_model(choice.name).positions : usual;
  const plan::Count sequence =
      options.batch.sequence > 0 ? count(options.batch.sequence) : positions;
  if (window == 0 || (sequence > 0 && sequence <= window)) return "";
  return fmt::format("model.window = {}", window);
}

struct LimitRow {
  std::string (*part)(const TrainOptions&, const plan::FamilyParts&);
  const char* advice;
  bool on_gpus;
  bool in_rings;
  bool supported(PartPlace place) const { return place == PartPlace::kGpu ? on_gpus : in_rings; }
};

constexpr LimitRow kLimitRows[] = {
    {experts_in, "take another family", false, true},
    {query_key_norms_in, "take another family", false, true},
    {partly_rotary_in, "take 1", false, true},
    {window_in, "take sequences no longer than that", false, false},
};

}  // namespace

PartLimit part_limit(const TrainOptions& options, PartPlace place) {
  const plan::FamilyParts* parts = parts_of(options);
  if (parts == nullptr) return {};
  for (const LimitRow& row : kLimitRows) {
    if (row.supported(place)) continue;
    if (std::string part = row.part(options, *parts); !part.empty()) return {part, row.advice};
  }
  return {};
}

}  // namespace lockstep::train
