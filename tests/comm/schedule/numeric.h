// Runs a schedule on floats, as an executor would: the oracle for what only numbers can show.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "lockstep/comm/schedule/symbolic.h"

namespace lockstep::schedule {

using Values = std::vector<float>;  // of one chunk

// Every rank's memory by chunk; in place, output is used for what both spaces have.
class NumericRun {
 public:
  // `sizes` has the elements of every chunk.
  NumericRun(const Schedule& schedule, Placement placement, std::vector<int> sizes, unsigned seed)
      : schedule_(schedule), in_place_(placement == Placement::kInPlace), sizes_(std::move(sizes)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
      memory_.emplace_back();
      for (int c = 0; c < chunk_numbers(schedule); ++c) {
        if (!in_input(schedule, rank, c)) continue;
        Values values(static_cast<std::size_t>(sizes_[static_cast<std::size_t>(c)]));
        for (float& value : values) value = uniform(random) * 1000;
        given_[{rank, c}] = values;
        at(rank, Space::kInput, c) = values;
      }
    }
  }

  void run() {
    for (std::size_t round = 0; round < schedule_.programs[0].rounds.size(); ++round) {
      std::map<std::pair<int, int>, std::vector<Values>> messages;
      for (int rank = 0; rank < schedule_.shape.ranks; ++rank) {
        for (const Step& step : steps(rank, round)) {
          if (step.kind == StepKind::kSend) messages[{rank, step.peer}] = read(rank, step.source);
        }
      }
      for (int rank = 0; rank < schedule_.shape.ranks; ++rank) {
        for (const Step& step : steps(rank, round)) apply(rank, step, messages);
      }
    }
  }

  const Values& result(int rank, int chunk) { return at(rank, Space::kOutput, chunk); }
  const Values& given(int rank, int chunk) const { return given_.at({rank, chunk}); }

 private:
  using Messages = std::map<std::pair<int, int>, std::vector<Values>>;

  const Round& steps(int rank, std::size_t round) const {
    return schedule_.programs[static_cast<std::size_t>(rank)].rounds[round];
  }

  Values& at(int rank, Space space, int index) {
    if (in_place_ && space == Space::kInput && in_output(schedule_, rank, index)) {
      space = Space::kOutput;
    }
    return memory_[static_cast<std::size_t>(rank)][{space, index}];
  }

  std::vector<Values> read(int rank, const Region& region) {
    std::vector<Values> values;
    for (int i = 0; i < region.count; ++i) {
      values.push_back(at(rank, region.space, region.first + i));
    }
    return values;
  }

  void write(int rank, const Region& region, const std::vector<Values>& values) {
    for (int i = 0; i < region.count; ++i) {
      at(rank, region.space, region.first + i) = values[static_cast<std::size_t>(i)];
    }
  }

  static std::vector<Values> add(std::vector<Values> left, const std::vector<Values>& right) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      std::transform(left[i].begin(), left[i].end(), right[i].begin(), left[i].begin(),
                     [](float a, float b) { return a + b; });
    }
    return left;
  }

  void apply(int rank, const Step& step, const Messages& messages) {
    switch (step.kind) {
      case StepKind::kSend:
        return;
      case StepKind::kReceive:
        return write(rank, step.target, messages.at({step.peer, rank}));
      case StepKind::kReceiveReduce:
        return write(rank, step.target,
                     add(read(rank, step.source), messages.at({step.peer, rank})));
      case StepKind::kCopy:
        return write(rank, step.target, read(rank, step.source));
      case StepKind::kReduce:
        return write(rank, step.target, add(read(rank, step.target), read(rank, step.source)));
    }
  }

  const Schedule& schedule_;
  bool in_place_;
  std::vector<int> sizes_;
  std::vector<std::map<std::pair<Space, int>, Values>> memory_;
  std::map<std::pair<int, int>, Values> given_;
};

}  // namespace lockstep::schedule
