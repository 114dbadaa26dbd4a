#include "lockstep/train/run/kept_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/tensor/host_view.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/observe/metrics_line.h"

namespace lockstep::train {
namespace {

constexpr std::size_t kMostVersions = 2;

// What a worker reports of its versions.
struct ReportedVersion {
  double steps = 0;  // 0: there is none
  double updates = 0;
  double scale = 0;
  double good_steps = 0;
};
struct ShardReport {
  std::array<ReportedVersion, kMostVersions> own;
  double ward = -1;
  std::array<double, kMostVersions> mirrored{};  // steps
};
constexpr std::size_t kReportNumbers = sizeof(ShardReport) / sizeof(double);

ShardReport report_of(const std::optional<KeptShards>& mine) {
  ShardReport report;
  if (!mine) return report;
  for (std::size_t i = 0; i < std::min(mine->own.size(), kMostVersions); ++i) {
    const TrainState& state = mine->own[i].state;
    const optim::LossScale scale = state.loss_scale.value_or(optim::LossScale{.scale = 0});
    report.own[i] = {static_cast<double>(state.steps), static_cast<double>(state.updates),
                     scale.scale, static_cast<double>(scale.good_steps)};
  }
  report.ward = mine->ward;
  for (std::size_t i = 0; i < std::min(mine->mirrored.size(), kMostVersions); ++i) {
    report.mirrored[i] = static_cast<double>(mine->mirrored[i].state.steps);
  }
  return report;
}

std::string lines_of(const std::optional<KeptShards>& mine) {
  std::string lines;
  if (!mine) return lines;
  for (const ShardVersion& version : mine->own) {
    if (!version.metrics) continue;
    StepRecord record;
    record.metrics = *version.metrics;
    lines += metrics_line(record, version.state.loss_scale.has_value());
  }
  return lines;
}

TrainState state_of(const ReportedVersion& version) {
  TrainState state{.steps = static_cast<std::int64_t>(version.steps),
                   .updates = static_cast<std::int64_t>(version.updates),
                   .loss_scale = {}};
  if (version.scale > 0) {
    state.loss_scale = {.scale = version.scale,
                        .good_steps = static_cast<std::int64_t>(version.good_steps)};
  }
  return state;
}

std::optional<StepRecord> record_of(std::int64_t step, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      auto record = parse_metrics_line(std::string_view(text).substr(at, end - at));
      if (record && record->metrics.step == step) return record;
      if (end == std::string::npos) break;
      at = end + 1;
    }
  }
  return std::nullopt;
}

bool has_own(const ShardReport& report, double steps) {
  return std::ranges::any_of(report.own, [&](const auto& one) { return one.steps == steps; });
}

// The worker that has the shard of `worker` after that step; -1: none.
int holder_of(const std::vector<ShardReport>& reports, std::size_t worker, double steps) {
  if (has_own(reports[worker], steps)) return static_cast<int>(worker);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (reports[i].ward == static_cast<double>(worker) &&
        std::ranges::find(reports[i].mirrored, steps) != reports[i].mirrored.end()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// The first worker whose shard is nowhere.
std::string lost_shard(const std::vector<ShardReport>& reports) {
  for (std::size_t worker = 0; worker < reports.size(); ++worker) {
    const bool is_mirrored = std::ranges::any_of(reports, [&](const ShardReport& report) {
      return report.ward == static_cast<double>(worker) && report.mirrored[0] > 0;
    });
    if (reports[worker].own[0].steps > 0 || is_mirrored) continue;
    return fmt::format("the shard of rank {} and its mirror are lost", worker);
  }
  return "the shards that are left are of different steps";
}

std::span<const std::byte> bytes_of(const std::vector<ShardVersion>& versions, std::int64_t steps) {
  for (const ShardVersion& version : versions) {
    if (version.state.steps == steps) return {version.bytes.data(), version.bytes.bytes()};
  }
  fail(ErrorCode::kMismatch, "this rank has not kept the shard of step {} that it reported", steps);
}

template <class F>
void for_packed_states(nn::Replica& replica, nn::StateAccess access, std::size_t bytes,
                       const F& f) {
  std::size_t at = 0;
  nn::StateStream stream(replica, access);
  while (stream.next()) {
    const nn::States states = stream.states();
    for (const Tensor& state :
         {states.master, states.first_moment, states.second_moment, states.velocity}) {
      if (!ops::is_given(state)) continue;
      if (at + state.bytes() > bytes) {
        fail(ErrorCode::kMismatch,
             "the states that this rank has kept end at byte {}, but its model has more: its "
             "settings have changed between two generations of the job",
             bytes);
      }
      f(state, at);
      at += state.bytes();
    }
  }
}

}  // namespace

std::size_t packed_bytes(nn::Replica& replica) {
  std::size_t end = 0;
  for_packed_states(replica, nn::StateAccess::kRead, SIZE_MAX,
                    [&](const Tensor& state, std::size_t at) { end = at + state.bytes(); });
  return end;
}

void pack_states(nn::Replica& replica, std::span<std::byte> bytes) {
  for_packed_states(replica, nn::StateAccess::kRead, bytes.size(),
                    [&](const Tensor& state, std::size_t at) {
                      const HostView view(state);
                      std::memcpy(bytes.data() + at, view.tensor().data(), state.bytes());
                    });
}

void put_states(std::span<const std::byte> bytes, nn::Replica& replica) {
  for_packed_states(replica, nn::StateAccess::kUpdate, bytes.size(),
                    [&](const Tensor& state, std::size_t at) {
                      std::memcpy(state.data(), bytes.data() + at, state.bytes());
                    });
}

CommonStepSearch find_common_step(const std::optional<KeptShards>& mine, RunGroup group) {
  const ShardReport report = report_of(mine);
  std::array<double, kReportNumbers> numbers;
  std::memcpy(numbers.data(), &report, sizeof(report));
  const std::vector<double> all = group.numbers(numbers);
  const std::vector<std::string> lines = group.texts(lines_of(mine));
  std::vector<ShardReport> reports(lines.size());
  static_assert(std::is_trivially_copyable_v<ShardReport>);
  std::memcpy(static_cast<void*>(reports.data()), all.data(), all.size() * sizeof(double));

  std::set<double> steps;  // after which a worker has its own shard
  for (const ShardReport& one : reports) {
    for (const ReportedVersion& version : one.own) {
      if (version.steps > 0) steps.insert(version.steps);
    }
  }
  CommonStepSearch search;
  if (steps.empty()) return search;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    CommonStep common;
    for (std::size_t worker = 0; worker < reports.size(); ++worker) {
      common.holders.push_back(holder_of(reports, worker, *step));
      for (const ReportedVersion& version : reports[worker].own) {
        if (version.steps == *step) common.state = state_of(version);
      }
    }
    if (std::ranges::find(common.holders, -1) != common.holders.end()) continue;
    common.record = record_of(common.state.steps, lines);
    search.found = std::move(common);
    return search;
  }
  search.lost = lost_shard(reports);
  return search;
}

void restore_shards(const CommonStep& step, const std::optional<KeptShards>& mine, RunGroup group,
                    nn::Replica& replica) {
  const int worker = group.rank();
  Buffer received;
  for (int other = 0; other < group.size(); ++other) {
    const int holder = step.holders[static_cast<std::size_t>(other)];
    if (holder == other) continue;
    if (worker == holder) {
      const auto bytes = bytes_of(mine->mirrored, step.state.steps);
      group.world()->send(ConstData(bytes.data(), bytes.size(), DType::kU8), other);
    } else if (worker == other) {
      received = Buffer(shard_bytes(replica.plan()));
      group.world()->receive(Data(received.data(), received.bytes(), DType::kU8), holder);
    }
  }
  group.together([&] {
    put_states(received.bytes() > 0 ? std::span<const std::byte>(received.data(), received.bytes())
                                    : bytes_of(mine->own, step.state.steps),
               replica);
  });
}

std::string describe(const CommonStep& step) {
  std::string text = "the shards in memory";
  for (std::size_t worker = 0; worker < step.holders.size(); ++worker) {
    if (step.holders[worker] == static_cast<int>(worker)) continue;
    text +=
        fmt::format(", that of rank {} from its mirror on rank {}", worker, step.holders[worker]);
  }
  return text;
}

}  // namespace lockstep::train
