#include "lockstep/train/trainer/run_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/parallel/communication/gathered.h"

namespace lockstep::train {
namespace {

// What may differ from node to node.
constexpr std::string_view kLocal[] = {"run.dir",        "run.init_from",     "data.",
                                       "comm.interface", "comm.recorder_dir", "comm.cache_dir",
                                       "train.threads",  "offload.folder"};

std::string shared_settings(const Config& config) {
  std::string text;
  for (const std::string& line : config.values()) {
    const bool local =
        std::ranges::any_of(kLocal, [&](std::string_view key) { return line.starts_with(key); });
    if (!local) text += line + '\n';
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// The lines of two texts that differ, as far as both have them.
std::string difference(const std::string& here, const std::string& there, std::size_t rank) {
  constexpr std::size_t kMost = 5;
  const std::vector<std::string> mine = lines_of(here);
  const std::vector<std::string> theirs = lines_of(there);
  std::vector<std::string> found;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    if (mine[i] == theirs[i]) continue;
    const std::size_t value = theirs[i].find(" = ");
    found.push_back(fmt::format("{} at rank 0, but {} at rank {}", mine[i],
                                theirs[i].substr(value == std::string::npos ? 0 : value + 3),
                                rank));
  }
  if (found.empty()) return fmt::format("rank {} has other keys than rank 0", rank);
  if (found.size() > kMost) {
    const std::size_t more = found.size() - kMost;
    found.resize(kMost);
    found.push_back(fmt::format("{} more", more));
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

std::optional<Error> outcome_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kSystem, error.what());
  }
  return std::nullopt;
}

// Its code as one character, then what it says; empty: it went well.
std::string packed(const std::optional<Error>& outcome) {
  if (!outcome) return "";
  return static_cast<char>('a' + static_cast<int>(outcome->code())) + std::string(outcome->what());
}

std::optional<Error> unpacked(const std::string& text, int rank) {
  if (text.empty()) return std::nullopt;
  return Error(static_cast<ErrorCode>(text.front() - 'a'), text.substr(1), {rank});
}

}  // namespace

void RunGroup::barrier() {
  if (world_ != nullptr) world_->barrier();
}

std::vector<std::string> RunGroup::texts(const std::string& mine) {
  if (world_ == nullptr) return {mine};
  return parallel::gathered_texts(*world_, mine);
}

std::vector<double> RunGroup::numbers(std::span<const double> mine) {
  if (world_ == nullptr) return {mine.begin(), mine.end()};
  return parallel::gathered<double>(*world_, mine);
}

bool RunGroup::any(bool mine) {
  const double number = mine ? 1 : 0;
  return std::ranges::any_of(numbers(std::span(&number, 1)), [](double x) { return x > 0; });
}

std::vector<std::optional<Error>> RunGroup::outcomes(const std::function<void()>& work) {
  std::vector<std::optional<Error>> all;
  for (const std::string& text : texts(packed(outcome_of(work)))) {
    all.push_back(unpacked(text, static_cast<int>(all.size())));
  }
  return all;
}

void RunGroup::together(const std::function<void()>& work) {
  if (world_ == nullptr) return work();
  const std::vector<std::optional<Error>> all = outcomes(work);
  for (const std::optional<Error>& one : all) {
    if (!one) continue;
    const bool everybody = std::ranges::all_of(all, [&](const std::optional<Error>& other) {
      return other && std::string_view(other->what()) == one->what();
    });
    if (everybody) throw *one;
    throw Error(one->code(), fmt::format("rank {}: {}", one->ranks().front(), one->what()),
                one->ranks());
  }
}

void RunGroup::check_settings(const Config& config) {
  const std::vector<std::string> all = texts(shared_settings(config));
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    fail(ErrorCode::kMismatch,
         "the ranks of this run have different settings: {}. Start all of them with the same "
         "configuration",
         difference(all[0], all[i], i));
  }
}

void RunGroup::check_data(std::string_view fingerprint) {
  const std::vector<std::string> all = texts(std::string(fingerprint));
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    fail(ErrorCode::kMismatch,
         "the ranks of this run have different data: rank 0 has {}, rank {} has {}. Give all of "
         "them the same files",
         all[0], i, all[i]);
  }
}

std::optional<TrainState> RunGroup::from_leader(const std::optional<TrainState>& state) {
  if (world_ == nullptr) return state;
  std::array<double, 5> numbers{};
  if (state) {
    const optim::LossScale scale = state->loss_scale.value_or(optim::LossScale{.scale = 0});
    numbers = {1, static_cast<double>(state->steps), static_cast<double>(state->updates),
               scale.scale, static_cast<double>(scale.good_steps)};
  }
  world_->broadcast(numbers, 0);
  if (numbers[0] == 0) return std::nullopt;
  TrainState shared{.steps = static_cast<std::int64_t>(numbers[1]),
                    .updates = static_cast<std::int64_t>(numbers[2]),
                    .loss_scale = {}};
  if (numbers[3] > 0) {
    shared.loss_scale = {.scale = numbers[3], .good_steps = static_cast<std::int64_t>(numbers[4])};
  }
  return shared;
}

}  // namespace lockstep::train
