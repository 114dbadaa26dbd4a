#include "lockstep/train/run/changed_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/options/data_paths.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::train {
namespace {

struct ChangedSetting {
  std::string key;
  std::string is;
  std::string was;
};

// Those whose "key = value" begins with one of `starts`. `read` fills in the earlier settings.
std::vector<ChangedSetting> changes(const std::function<void(Config&)>& read, const Config& now,
                                    std::span<const std::string_view> starts) {
  RunSettings before;
  try {
    read(before.config);
  } catch (const Error&) {
    return {};
  }
  find_data(before.options);  // as the present ones have been found
  const std::vector<std::string> was = before.config.values();
  const std::vector<std::string> is = now.values();
  std::vector<ChangedSetting> changed;
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto counts = [&](std::string_view start) { return is[i].starts_with(start); };
    if (was[i] == is[i] || std::ranges::none_of(starts, counts)) continue;
    constexpr std::string_view kEquals = " = ";
    const std::size_t end = is[i].find(kEquals);
    changed.push_back({.key = is[i].substr(0, end),
                       .is = is[i].substr(end + kEquals.size()),
                       .was = was[i].substr(end + kEquals.size())});
  }
  return changed;
}

}  // namespace

std::string changed_settings(const std::filesystem::path& file, const Config& now) {
  constexpr std::string_view kDecide[] = {"data.",
                                          "model.",
                                          "optimizer.",
                                          "schedule.",
                                          "loss_scale.",
                                          "train.seq_len ",
                                          "train.global_batch_size ",
                                          "train.precision ",
                                          "train.seed "};
  std::vector<std::string> texts;
  for (const auto& [key, is, was] :
       changes([&](Config& config) { config.read_file(file.string()); }, now, kDecide)) {
    texts.push_back(fmt::format("{} = {} (was {})", key, is, was));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string changed_model(std::string_view before, const Config& now) {
  constexpr std::string_view kOfModel[] = {"model.", "train.seq_len "};
  std::vector<std::string> texts;
  for (const auto& [key, is, was] : changes(
           [&](Config& config) { config.read_toml(before, "the checkpoint"); }, now, kOfModel)) {
    texts.push_back(fmt::format("{} is {}, was {}", key, is, was));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace lockstep::train
