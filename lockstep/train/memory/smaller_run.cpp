#include "lockstep/train/memory/smaller_run.h"

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/memory/recompute_footprint.h"
#include "lockstep/parallel/gradients/tree_sum.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train {
namespace {

struct TakenBytes {
  std::size_t all = 0;
  std::size_t device = 0;
};

// Of two, the lesser is nearer to fitting.
struct Excess {
  std::size_t over = 0;  // bytes, of both limits together
  std::size_t all = 0;
  auto operator<=>(const Excess&) const = default;
};

std::size_t above(std::size_t bytes, std::size_t limit) {
  return limit == 0 || bytes <= limit ? 0 : bytes - limit;
}

std::size_t parts_changed(const nn::Tiers& present, const nn::Tiers& tiers) {
  return static_cast<std::size_t>(std::ranges::count_if(
      kTierParts, [&](Tier nn::Tiers::*part) { return present.*part != tiers.*part; }));
}

bool has_more_in(Tier tier, const nn::Tiers& present, const nn::Tiers& tiers) {
  return std::ranges::any_of(kTierParts, [&](Tier nn::Tiers::*part) {
    return tiers.*part == tier && present.*part != tier;
  });
}

bool is_allowed(const TakenBytes& bytes, std::size_t limit, std::size_t device_limit) {
  return above(bytes.all, limit) == 0 && above(bytes.device, device_limit) == 0;
}

// A lower bound of the bytes of such a run.
TakenBytes bound_of(TrainOptions options, const Ops& ops, int worker) {
  const auto plan = [&] { return plan_run(options, ops, worker, nn::Places::kNone); };
  if (options.recompute != RecomputeChoice::kAuto || !options.recompute_of_blocks.empty()) {
    const nn::MemoryPlan only = plan();
    return {only.bytes(), only.bytes(Tier::kDevice)};
  }
  nn::PerMode<nn::MemoryPlan> plans;
  for (const plan::Recompute mode : plan::kAllRecompute) {
    options.recompute = static_cast<RecomputeChoice>(mode);
    plans[nn::index_of(mode)] = plan();
  }
  const nn::Footprints footprints(plans);
  return {footprints.least_alive() + footprints.elsewhere(), footprints.least_alive()};
}

class SmallerRunSearch {
 public:
  SmallerRunSearch(const TrainOptions& options, const Ops& ops, std::size_t limit, int worker,
                   const OpenSettings& open)
      : options_(options), ops_(ops), limit_(limit), worker_(worker) {
    const std::vector<BatchChoice> batches =
        open.micro_batch ? micro_batches(options.batch) : std::vector{solved(options.batch)};
    const std::vector<SmallerRun> ways = ways_of(open);
    for (const bool files : {false, true}) {
      for (const GradientChoice gradients : gradient_choices(open)) {
        for (Group& group : ranges_of(batches, gradients)) {
          for (SmallerRun way : ways) {
            if (has_more_files(options.offload.tiers, way.tiers) != files) continue;
            way.gradient_dtype = gradients;
            way.batch = group.batches.back();
            if (goes_together(with(options, way))) group.ways.push_back(std::move(way));
          }
          groups_.push_back(std::move(group));
        }
      }
    }
  }

  // The first that fits, or of none that does what comes closest.
  SmallerRun find() {
    for (const Group& group : groups_) {
      if (auto fit = nearest_in(group)) return *fit;
    }
    return closest();
  }

 private:
  // Micro-batches, the largest first, that differ in nothing but their size, and ways to train with
  // each of them.
  struct Group {
    std::vector<BatchChoice> batches;
    std::vector<SmallerRun> ways;
  };

  // With the smallest micro-batch of its group.
  struct TooLarge {
    Excess lowest;
    bool is_of_buffers = false;  // only its flat buffers were counted
    SmallerRun run;
  };
  // Elements of a worker's flat buffers at a stage of ZeRO, of the optimizer's together.
  struct StageRows {
    std::size_t parameters = 0;
    std::size_t gradients = 0;
    std::size_t optimizer = 0;
  };

  std::vector<GradientChoice> gradient_choices(const OpenSettings& open) const {
    std::vector<GradientChoice> choices{options_.gradient_dtype};
    if (open.gradients && options_.gradient_dtype != GradientChoice::kCompute &&
        options_.precision != plan::Precision::kF32) {
      choices.push_back(GradientChoice::kCompute);
    }
    return choices;
  }

  // The number of micro-batches decides which gradients are accumulated, and where.
  std::vector<Group> ranges_of(const std::vector<BatchChoice>& batches,
                               GradientChoice gradients) const {
    const auto kind = [&](const BatchChoice& batch) {
      TrainOptions tried = options_;
      tried.batch = batch;
      tried.gradient_dtype = gradients;
      const bool tree = options_.parallel.reduction == parallel::Reduction::kTree;
      return std::tuple(setup_of(tried).gradient, batch.accumulation > 1,
                        tree ? parallel::TreeSum::bytes(1, batch.accumulation) : 0);
    };
    std::vector<Group> ranges;
    for (const BatchChoice& batch : batches) {
      if (ranges.empty() || kind(ranges.back().batches.front()) != kind(batch)) {
        ranges.emplace_back();
      }
      ranges.back().batches.push_back(batch);
    }
    return ranges;
  }

  std::vector<int> stages(const OpenSettings& open) const {
    const int present = options_.parallel.zero;
    std::vector<int> stages{present};
    const bool may_share = open.zero && options_.batch.workers > 1 &&
                           options_.parallel.strategy == parallel::StrategyKind::kDdp;
    if (!may_share) return stages;
    for (int zero = present + 1; zero < plan::kZeroStages; ++zero) stages.push_back(zero);
    for (int zero = present - 1; zero >= 0; --zero) stages.push_back(zero);
    return stages;
  }

  std::vector<RecomputeChoice> recompute_choices(const OpenSettings& open) const {
    using enum RecomputeChoice;
    const RecomputeChoice present = options_.recompute;
    std::vector<RecomputeChoice> choices{present};
    if (!open.recompute) return choices;
    for (const RecomputeChoice choice : {kSelective, kFull}) {
      if (choice > present) choices.push_back(choice);
    }
    for (const RecomputeChoice choice : {kFull, kSelective, kNone}) {
      if (choice < present) choices.push_back(choice);
    }
    return choices;
  }

  std::vector<nn::Tiers> tier_choices(const OpenSettings& open) const {
    const nn::Tiers& present = options_.offload.tiers;
    std::vector<nn::Tiers> choices{present};
    if (!open.tiers || options_.parallel.strategy != parallel::StrategyKind::kDdp) return choices;
    // So that of those with as many parts elsewhere the first parts come first.
    for (std::size_t part = kTierParts.size(); part-- > 0;) {
      Tier nn::Tiers::*const each = kTierParts[part];
      std::vector<nn::Tiers> moved;
      const auto move_to = [&](Tier tier) {
        for (nn::Tiers tiers : choices) {
          tiers.*each = tier;
          moved.push_back(tiers);
        }
      };
      for (const Tier tier : {Tier::kHost, Tier::kDevice, Tier::kFile}) {
        const bool from_device = present.*each == Tier::kDevice && tier == Tier::kHost;
        if (tier != present.*each && (limit_ > 0 || from_device)) move_to(tier);
      }
      choices.insert(choices.begin(), moved.begin(), moved.end());
    }
    // The host tier never takes less memory in all than the device, except beside files, where
    // updated states need not be copied.
    std::erase_if(choices, [&](const nn::Tiers& tiers) {
      return options_.device_limit == 0 && has_more_in(Tier::kHost, present, tiers) &&
             !tiers.has_files();
    });
    std::ranges::stable_sort(choices, {},
                             [&](const nn::Tiers& tiers) { return parts_changed(present, tiers); });
    return choices;
  }

  // All but the micro-batch and the type of gradients.
  std::vector<SmallerRun> ways_of(const OpenSettings& open) const {
    std::vector<SmallerRun> ways;
    const std::vector<nn::Tiers> tiers = tier_choices(open);
    for (const RecomputeChoice recompute : recompute_choices(open)) {
      for (const int zero : stages(open)) {
        for (const nn::Tiers& each : tiers) {
          SmallerRun way;
          way.zero = zero;
          way.recompute = recompute;
          way.tiers = each;
          ways.push_back(way);
        }
      }
    }
    return ways;
  }

  bool is_within(const TakenBytes& bytes) const {
    return is_allowed(bytes, limit_, options_.device_limit);
  }
  Excess excess(const TakenBytes& bytes) const {
    return {above(bytes.all, limit_) + above(bytes.device, options_.device_limit), bytes.all};
  }
  static TakenBytes taken(const SmallerRun& run) { return {run.bytes, run.device_bytes}; }

  void plan_into(SmallerRun& run) const {
    TrainOptions changed = with(options_, run);
    settle_recompute(changed, ops_, limit_);
    const nn::MemoryPlan plan = plan_run(changed, ops_, worker_);
    run.bytes = plan.bytes();
    run.device_bytes = plan.bytes(Tier::kDevice);
    run.fits = is_within(taken(run));
  }

  TakenBytes bound(const SmallerRun& run) const {
    return bound_of(with(options_, run), ops_, worker_);
  }

  const StageRows& rows_of_stage(const SmallerRun& run) {
    const auto [at, is_new] = rows_of_stage_.try_emplace({run.zero, run.batch.accumulation > 1});
    if (!is_new) return at->second;
    TrainOptions changed = with(options_, run);
    changed.recompute = RecomputeChoice::kNone;
    changed.offload.tiers = {};
    const nn::MemoryPlan plan = plan_run(changed, ops_, worker_, nn::Places::kNone);
    const auto elements = [&](bool is_sharded) {
      return is_sharded ? plan.shards.elements() : plan.flat.elements();
    };
    std::size_t states = 0;
    for (const nn::BufferPlace* buffer :
         {&plan.master, &plan.first_moment, &plan.second_moment, &plan.velocity}) {
      if (buffer->request != nn::BlockRequests::kAbsent) ++states;
    }
    at->second = {elements(plan.sharding.parameters), elements(plan.sharding.gradients),
                  elements(plan.sharding.optimizer) * states};
    return at->second;
  }

  // The bytes of its flat buffers: a lower bound that needs no plan.
  TakenBytes buffers(const SmallerRun& run) {
    const StageRows& elements = rows_of_stage(run);
    const nn::Setup setup = setup_of(with(options_, run));
    TakenBytes bytes;
    const auto add = [&](Tier tier, std::size_t buffer) {
      if (tier != Tier::kFile) bytes.all += buffer;
      if (tier == Tier::kDevice) bytes.device += buffer;
    };
    add(run.tiers.parameters, elements.parameters * size_of(setup.dtype));
    add(run.tiers.gradients, elements.gradients * size_of(setup.gradient));
    add(run.tiers.optimizer, elements.optimizer * size_of(DType::kF32));
    return bytes;
  }

  std::optional<SmallerRun> nearest_in(const Group& group) {
    std::optional<SmallerRun> best;
    // Only those with larger micro-batches than the best are nearer.
    std::span<const BatchChoice> nearer(group.batches);
    for (SmallerRun run : group.ways) {
      if (nearer.empty()) break;
      run.batch = nearer.back();
      if (const TakenBytes lowest = buffers(run); !is_within(lowest)) {
        too_large_.push_back({excess(lowest), true, run});
        continue;
      }
      const TakenBytes lowest = bound(run);
      if (!is_within(lowest)) {
        too_large_.push_back({excess(lowest), false, run});
        continue;
      }
      auto at = std::ranges::partition_point(nearer, [&](const BatchChoice& batch) {
        run.batch = batch;
        return !is_within(bound(run));
      });
      for (; at != nearer.end(); ++at) {
        run.batch = *at;
        plan_into(run);
        if (run.fits) break;
      }
      if (run.fits) {
        best = run;
        nearer = std::span(nearer.begin(), at);
      } else {
        too_large_.push_back({excess(lowest), false, run});
      }
    }
    return best;
  }

  // The nearest one of those that are too large.
  SmallerRun closest() {
    std::set<std::pair<Excess, std::size_t>> queue;
    for (std::size_t i = 0; i < too_large_.size(); ++i) queue.emplace(too_large_[i].lowest, i);
    std::optional<SmallerRun> best;
    while (!queue.empty()) {
      const auto [lowest, index] = queue.extract(queue.begin()).value();
      if (best && !(lowest < excess(taken(*best)))) break;
      SmallerRun& run = too_large_[index].run;
      if (std::exchange(too_large_[index].is_of_buffers, false)) {
        queue.emplace(excess(bound(run)), index);
        continue;
      }
      plan_into(run);
      if (!best || excess(taken(run)) < excess(taken(*best))) best = run;
    }
    if (!best) check(options_);  // the present setting is one of them, or it says why not
    return best.value();
  }

  const TrainOptions& options_;
  const Ops& ops_;
  std::size_t limit_;
  int worker_;
  std::vector<Group> groups_;
  std::vector<TooLarge> too_large_;
  std::map<std::pair<int, bool>, StageRows> rows_of_stage_;
};

}  // namespace

TrainOptions with(TrainOptions options, const SmallerRun& change) {
  options.offload.tiers = change.tiers;
  options.parallel.zero = change.zero;
  options.recompute = change.recompute;
  options.recompute_of_blocks.clear();
  options.batch = change.batch;
  options.gradient_dtype = change.gradient_dtype;
  return options;
}

bool has_more_files(const nn::Tiers& present, const nn::Tiers& tiers) {
  return has_more_in(Tier::kFile, present, tiers);
}

bool may_fit(const TrainOptions& options, const Ops& ops, std::size_t limit, int worker) {
  return is_allowed(bound_of(options, ops, worker), limit, options.device_limit);
}

bool goes_together(const TrainOptions& options) {
  try {
    check(options);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::vector<BatchChoice> micro_batches(const BatchChoice& batch) {
  const BatchChoice present = solved(batch);
  std::vector<BatchChoice> choices;
  for (const int micro : divisors_of(present.sequences)) {
    if (micro > present.micro) continue;
    BatchChoice choice = present;
    choice.micro = micro;
    choice.accumulation = 0;
    choices.push_back(solved(choice));
  }
  return choices;
}

SmallerRun nearest_run(const TrainOptions& options, const Ops& ops, std::size_t limit, int worker,
                       const OpenSettings& open) {
  return SmallerRunSearch(options, ops, limit, worker, open).find();
}

}  // namespace lockstep::train
