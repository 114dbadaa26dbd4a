#include "lockstep/train/run/kept_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/nn/memory/memory_plan.h"
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
  double numbering = -1;  // of the next three
  double workers = 0;
  double worker = -1;
  double ward = -1;
  std::array<ReportedVersion, kMostVersions> own;
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
  report.numbering = mine->numbering;
  report.workers = static_cast<double>(mine->parts.size());
  report.worker = mine->worker;
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

// Who has the shard of a former worker after that step.
struct Holder {
  int rank = -1;  // none
  bool mirrors = false;
};
Holder holder_of(const std::vector<ShardReport>& reports, double numbering, double worker,
                 double steps) {
  Holder holder;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const ShardReport& report = reports[i];
    if (report.numbering != numbering) continue;
    if (report.worker == worker && has_own(report, steps)) return {static_cast<int>(i), false};
    if (report.ward == worker &&
        std::ranges::find(report.mirrored, steps) != report.mirrored.end()) {
      holder = {static_cast<int>(i), true};
    }
  }
  return holder;
}

// The first former worker whose shard is nowhere.
std::string lost_shard(const std::vector<ShardReport>& reports, double numbering) {
  const auto some = std::ranges::find(reports, numbering, &ShardReport::numbering);
  for (double worker = 0; worker < some->workers; ++worker) {
    const bool is_left = std::ranges::any_of(reports, [&](const ShardReport& report) {
      return report.numbering == numbering &&
             ((report.worker == worker && report.own[0].steps > 0) ||
              (report.ward == worker && report.mirrored[0] > 0));
    });
    if (!is_left) return fmt::format("the shard of rank {} and its mirror are lost", worker);
  }
  return "the shards that are left are of different steps";
}

// As a text, to be gathered.
std::string text_of(const ShardParts& parts) {
  std::string text;
  for (const std::vector<ShardPart>& of_worker : parts) {
    text.append(reinterpret_cast<const char*>(of_worker.data()),
                of_worker.size() * sizeof(ShardPart));
  }
  return text;
}

ShardParts parts_in(const std::string& text, std::size_t workers) {
  static_assert(std::is_trivially_copyable_v<ShardPart>);
  const std::size_t blocks = text.size() / sizeof(ShardPart) / workers;
  ShardParts parts(workers, std::vector<ShardPart>(blocks));
  for (std::size_t worker = 0; worker < workers; ++worker) {
    const std::size_t bytes = blocks * sizeof(ShardPart);
    std::memcpy(parts[worker].data(), text.data() + worker * bytes, bytes);
  }
  return parts;
}

// Calls f for every piece that two packed shards of `states` flat buffers share: where it is in
// each, and its bytes.
template <class F>
void for_shared_pieces(const std::vector<ShardPart>& from, const std::vector<ShardPart>& to,
                       std::size_t states, const F& f) {
  std::size_t from_at = 0;
  std::size_t to_at = 0;
  for (std::size_t block = 0; block < from.size(); ++block) {
    const std::uint64_t first = std::max(from[block].first, to[block].first);
    const std::uint64_t end = std::min(from[block].end(), to[block].end());
    for (std::size_t state = 0; state < states; ++state) {
      if (first < end) {
        f(from_at + (first - from[block].first) * sizeof(float),
          to_at + (first - to[block].first) * sizeof(float), (end - first) * sizeof(float));
      }
      from_at += from[block].elements * sizeof(float);
      to_at += to[block].elements * sizeof(float);
    }
  }
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

ShardParts parts_of(const nn::MemoryPlan& plan) {
  const bool is_sharded = plan.sharding.any();
  ShardParts parts(is_sharded ? static_cast<std::size_t>(plan.sharding.workers) : 1);
  for (std::size_t worker = 0; worker < parts.size(); ++worker) {
    for (std::size_t block = 0; block < plan.flat.blocks(); ++block) {
      const nn::FlatRange whole = plan.flat.range(block);
      const nn::FlatRange part =
          is_sharded ? plan.shards.of(block, static_cast<int>(worker)) : whole;
      parts[worker].push_back({part.first - whole.first, part.elements});
    }
  }
  return parts;
}

ShardParts parts_of(std::span<const parallel::ServedSlice> slices) {
  ShardParts parts(static_cast<std::size_t>(server_count(slices)),
                   std::vector<ShardPart>(slices.size()));
  for (std::size_t i = 0; i < slices.size(); ++i) {
    parts[static_cast<std::size_t>(slices[i].server)][i] = {0, slices[i].range.elements};
  }
  return parts;
}

KeptShards keep_whole_shard(nn::Replica& replica, const std::optional<Trainer::Settled>& settled) {
  KeptShards kept;
  kept.ward = -1;
  kept.parts = parts_of(replica.plan());
  if (!settled || settled->state.steps == 0) return kept;
  Buffer bytes(packed_bytes(replica));
  pack_states(replica, {bytes.data(), bytes.bytes()});
  kept.own.push_back({settled->state, settled->metrics, std::move(bytes)});
  return kept;
}

void align_steps(std::optional<KeptShards>& mine, RunGroup group) {
  double last = 0;
  if (mine) {
    for (const ShardVersion& version : mine->own) {
      last = std::max(last, static_cast<double>(version.state.steps));
    }
  }
  const std::vector<double> all = group.numbers(std::span(&last, 1));
  const auto steps = static_cast<std::int64_t>(*std::ranges::max_element(all));
  if (!mine) return;
  for (auto* versions : {&mine->own, &mine->mirrored}) {
    for (ShardVersion& version : *versions) version.state.steps = version.state.updates = steps;
  }
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

  struct Candidate {
    double steps = 0;
    double numbering = 0;
    auto operator<=>(const Candidate&) const = default;
  };
  std::set<Candidate> candidates;  // a worker has its own shard
  for (const ShardReport& one : reports) {
    for (const ReportedVersion& version : one.own) {
      if (version.steps > 0) candidates.insert({version.steps, one.numbering});
    }
  }
  CommonStepSearch search;
  if (candidates.empty()) return search;
  for (auto at = candidates.rbegin(); at != candidates.rend() && !search.found; ++at) {
    CommonStep common{.numbering = static_cast<int>(at->numbering), .workers = group.size()};
    const auto some = std::ranges::find(reports, at->numbering, &ShardReport::numbering);
    for (double worker = 0; worker < some->workers; ++worker) {
      const Holder holder = holder_of(reports, at->numbering, worker, at->steps);
      common.holders.push_back(holder.rank);
      common.mirrored.push_back(holder.mirrors);
    }
    if (std::ranges::find(common.holders, -1) != common.holders.end()) continue;
    for (const ShardReport& one : reports) {
      for (const ReportedVersion& version : one.own) {
        if (version.steps == at->steps && one.numbering == at->numbering) {
          common.state = state_of(version);
        }
      }
    }
    common.record = record_of(common.state.steps, lines);
    search.found = std::move(common);
  }
  if (!search.found) {
    search.lost = lost_shard(reports, candidates.rbegin()->numbering);
    return search;
  }
  CommonStep& found = *search.found;
  const auto teller = static_cast<std::size_t>(found.holders.front());
  const bool tells = group.rank() == found.holders.front();
  found.parts =
      parts_in(group.texts(tells ? text_of(mine->parts) : "")[teller], found.holders.size());
  return search;
}

namespace {

// Into whole flat buffers, from a packed shard of all slices.
void put_slices(std::span<const std::byte> bytes, std::span<const parallel::ServedSlice> slices,
                nn::Replica& replica) {
  nn::StateStream stream(replica, nn::StateAccess::kUpdate);
  while (stream.next()) {
    const nn::FlatRange block = stream.range();
    const nn::States whole = stream.states();
    std::size_t at = 0;
    for (const parallel::ServedSlice& slice : slices) {
      const nn::FlatRange range = slice.range;
      const bool is_here = range.first >= block.first && range.end() <= block.end();
      for (const Tensor& state :
           {whole.master, whole.first_moment, whole.second_moment, whole.velocity}) {
        if (!ops::is_given(state)) continue;
        const std::size_t count = range.elements * sizeof(float);
        if (is_here) {
          std::memcpy(state.data() + (range.first - block.first) * sizeof(float), bytes.data() + at,
                      count);
        }
        at += count;
      }
    }
  }
}

// The pieces of this worker's shard in `parts`, which are those of all workers now, packed as
// `states` flat buffers.
Buffer gather_shard(const CommonStep& step, const std::optional<KeptShards>& mine, RunGroup group,
                    const ShardParts& parts, std::size_t states, std::size_t bytes_of_shard) {
  const int me = group.rank();
  Buffer shard(bytes_of_shard);
  if (shard.bytes() > 0) std::memset(shard.data(), 0, shard.bytes());  // the padding
  for (std::size_t former = 0; former < step.holders.size(); ++former) {
    const int holder = step.holders[former];
    std::span<const std::byte> source;
    if (me == holder) {
      source = bytes_of(step.mirrored[former] ? mine->mirrored : mine->own, step.state.steps);
    }
    for (int worker = 0; worker < group.size(); ++worker) {
      if (me != holder && me != worker) continue;
      const auto& from = step.parts[former];
      const auto& to = parts[static_cast<std::size_t>(worker)];
      if (holder == worker) {
        for_shared_pieces(from, to, states, [&](std::size_t a, std::size_t b, std::size_t bytes) {
          std::memcpy(shard.data() + b, source.data() + a, bytes);
        });
        continue;
      }
      std::size_t all = 0;
      for_shared_pieces(from, to, states,
                        [&](std::size_t, std::size_t, std::size_t bytes) { all += bytes; });
      if (all == 0) continue;
      Buffer pieces(all);
      std::size_t at = 0;
      if (me == holder) {
        for_shared_pieces(from, to, states, [&](std::size_t a, std::size_t, std::size_t bytes) {
          std::memcpy(pieces.data() + at, source.data() + a, bytes);
          at += bytes;
        });
        group.world()->send(ConstData(pieces.data(), all, DType::kU8), worker);
      } else {
        group.world()->receive(Data(pieces.data(), all, DType::kU8), holder);
        for_shared_pieces(from, to, states, [&](std::size_t, std::size_t b, std::size_t bytes) {
          std::memcpy(shard.data() + b, pieces.data() + at, bytes);
          at += bytes;
        });
      }
    }
  }
  return shard;
}

}  // namespace

void restore_shards(const CommonStep& step, const std::optional<KeptShards>& mine, RunGroup group,
                    nn::Replica& replica) {
  const Buffer shard = gather_shard(step, mine, group, parts_of(replica.plan()),
                                    state_count(replica.plan().optimizer), packed_bytes(replica));
  group.together([&] { put_states({shard.data(), shard.bytes()}, replica); });
}

void restore_slices(const CommonStep& step, const std::optional<KeptShards>& mine, RunGroup group,
                    std::span<const parallel::ServedSlice> slices, nn::Replica& replica) {
  const std::size_t states = state_count(replica.plan().optimizer);
  ShardParts parts(static_cast<std::size_t>(group.size()), std::vector<ShardPart>(slices.size()));
  std::size_t elements = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    parts[0][i] = {0, slices[i].range.elements};
    elements += slices[i].range.elements;
  }
  const std::size_t bytes = group.leads() ? elements * states * sizeof(float) : 0;
  const Buffer shard = gather_shard(step, mine, group, parts, states, bytes);
  group.together([&] {
    if (group.leads()) put_slices({shard.data(), shard.bytes()}, slices, replica);
  });
}

std::string describe(const CommonStep& step) {
  std::string text = "the shards in memory";
  if (step.holders.size() != static_cast<std::size_t>(step.workers)) {
    text += fmt::format(" resharded among {} rank{}", step.workers, step.workers == 1 ? "" : "s");
  }
  for (std::size_t worker = 0; worker < step.holders.size(); ++worker) {
    if (!step.mirrored[worker]) continue;
    text +=
        fmt::format(", that of rank {} from its mirror on rank {}", worker, step.holders[worker]);
  }
  return text;
}

std::string describe_slices(const CommonStep& step) {
  std::string text = "the slices in memory";
  for (std::size_t server = 0; server < step.holders.size(); ++server) {
    if (!step.mirrored[server]) continue;
    text += fmt::format(", those of server {} from their mirror on rank {}", server,
                        step.holders[server]);
  }
  return text;
}

}  // namespace lockstep::train
