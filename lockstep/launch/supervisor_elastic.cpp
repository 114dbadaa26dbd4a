// How a supervisor changes the number of ranks, and keeps spares: see Supervisor, Coordinator and
// launch/launcher.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/system/cpu_set.h"
#include "lockstep/launch/resize_request.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep {
std::vector<RankProcess*> Supervisor::processes() const {
  std::vector<RankProcess*> all;
  for (const auto& rank : ranks_) all.push_back(rank.get());
  for (const auto& spare : spares_) all.push_back(spare.get());
  return all;
}

// The first that no rank has.
int Supervisor::free_cpu_share() const {
  for (int share = 0;; ++share) {
    const bool is_taken = std::ranges::any_of(ranks_, [&](const auto& rank) {
      return rank != nullptr && !rank->has_ended() && rank->cpu_share() == share;
    });
    if (!is_taken) return share;
  }
}

void Supervisor::start_spares(const JobMessage& message) {
  const int count = message.counts[static_cast<std::size_t>(options_.node_rank)];
  if (count == 0) return;
  say(fmt::format("starting {} to {}",
                  count == 1 ? "a process" : fmt::format("{} processes", count), message.text));
  for (int i = 0; i < count; ++i) {
    SpawnRequest request;
    request.environment = spare_environment(options_, setup_);
    spares_.push_back(start_process(std::move(request), RankProcess::kSpare));
  }
  report_pool();
}

void Supervisor::report_pool() {
  if (!options_.is_elastic()) return;
  JobMessage message{.kind = JobMessage::Kind::kPool, .generation = setup_.generation};
  for (const auto& spare : spares_) {
    if (spare->is_released() || spare->has_ended()) continue;
    ++(spare->lost() ? message.warm : message.starting);
  }
  job_link_.tell(encode(message));
}

void Supervisor::handle_end_of_spare(RankProcess& spare) {
  if (!spare.is_released() && !verdict_.is_failure()) report_end(spare);
  spare.finish_lines();
  std::erase_if(spares_, [&](const auto& one) { return one.get() == &spare; });
  report_pool();
}

std::unique_ptr<RankProcess> Supervisor::take_spare(int rank) {
  const auto warm = std::ranges::find_if(spares_, [](const auto& spare) {
    return spare->lost() && !spare->is_released() && !spare->has_ended();
  });
  if (warm == spares_.end()) return nullptr;
  std::unique_ptr<RankProcess> process = std::move(*warm);
  spares_.erase(warm);
  say(fmt::format("{} takes part as rank {}", process->name(), rank));
  const int share = free_cpu_share();
  process->set_cpu_share(share);
  const auto cpus = CpuSet::of_this_thread().share(share, options_.ranks_per_node);
  if (options_.bind && cpus) bind_process(process->pid(), *cpus);
  return process;
}

// Those that live keep their order. Where it is fewer, those that have ended leave first, then the
// last ones.
void Supervisor::fit_ranks() {
  const auto count = static_cast<std::size_t>(setup_.ranks);
  std::vector<std::string> changed;
  while (ranks_.size() > count) {
    const auto ended =
        std::ranges::find_if(ranks_, [](const auto& rank) { return rank->has_ended(); });
    const auto leaving = ended != ranks_.end() ? ended : std::prev(ranks_.end());
    std::unique_ptr<RankProcess> process = std::move(*leaving);
    ranks_.erase(leaving);
    process->drain();
    process->finish_lines();
    process->tell_error();
    if (process->has_ended()) continue;
    say(fmt::format("{} is not needed any more and ends", process->name()));
    process->set_rank(RankProcess::kSpare, false);
    process->release();
    spares_.push_back(std::move(process));
  }
  ranks_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int rank = setup_.first_rank + static_cast<int>(i);
    std::unique_ptr<RankProcess>& process = ranks_[i];
    if (process == nullptr || process->has_ended()) {
      std::unique_ptr<RankProcess> spare = take_spare(rank);
      if (spare == nullptr) continue;
      if (process != nullptr) {
        process->drain();
        process->finish_lines();
        process->tell_error();
      }
      process = std::move(spare);
    } else if (process->rank() != rank) {
      changed.push_back(fmt::format("rank {} is rank {}", process->rank(), rank));
    }
    process->set_rank(rank, options_.live_output && rank == 0);
  }
  if (!changed.empty()) say(fmt::format("{} now", fmt::join(changed, ", ")));
}

void Supervisor::hear_resize_request() {
  constexpr std::chrono::milliseconds kBetweenLooks{250};
  if (!has_passed(resize_due_)) return;
  const bool is_first = resize_due_ == Deadline::min();
  resize_due_ = deadline_in(kBetweenLooks);
  const std::filesystem::path& file = options_.elastic.resize_file;
  const auto ranks = take_resize_request(file);
  if (!ranks || is_first || verdict_.is_failure()) return;  // one from before this job
  const std::string refusal = coordinator_->refusal_of(*ranks);
  answer_resize_request(file, refusal.empty(),
                        refusal.empty() ? fmt::format("the job continues with {} rank{}", *ranks,
                                                      *ranks == 1 ? "" : "s")
                                        : refusal);
  if (!refusal.empty()) return;
  say(fmt::format("asked for {} rank{}", *ranks, *ranks == 1 ? "" : "s"));
  job_link_.tell(encode(JobMessage{.kind = JobMessage::Kind::kResize, .count = *ranks}));
}

}  // namespace lockstep
