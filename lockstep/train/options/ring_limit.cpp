#include "lockstep/train/options/ring_limit.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::train {

std::string ring_limit(const TrainOptions& options) {
  if (parts_of(options) == nullptr) return "";
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

}  // namespace lockstep::train
