#include "lockstep/parallel/server/server_strategy.h"

#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/ddp/table_rows.h"

namespace lockstep::parallel {
namespace {

Error left_in_a_step(int worker) {
  return {ErrorCode::kPeerLost,
          fmt::format("worker {} (rank {}) left in the middle of a step", worker, worker),
          {worker}};
}

}  // namespace

ServedLayout layout_for(const ParameterServerJob& job, const nn::MemoryPlan& plan) {
  ServedLayout layout{.slices = {},
                      .parameter = plan.setup.dtype,
                      .gradient = plan.setup.gradient,
                      .compression = job.compression,
                      .optimizer = job.optimizer};
  const bool whole_chunks = layout.needs_norm() && job.options.consistency == Consistency::kBsp;
  layout.slices = cut_slices(plan.flat, job.options.slice_mb, whole_chunks, job.options.servers);
  return layout;
}

// Not on a GPU, whose link to the host is faster than to servers. Not with compression, whose
// residuals need exactly one push of each element, and not with the
// tree over several micro-batches, which is summed once.
std::optional<EarlyTable> early_table(const ParameterServerJob& job, const nn::MemoryPlan& plan,
                                      const ServedLayout& layout, int workers) {
  if (plan.device != Device{} || job.options.consistency != Consistency::kBsp ||
      job.options.schedule == SliceSchedule::kFifo ||
      job.compression.compression != Compression::kNone ||
      (job.reduction == Reduction::kTree && job.most_micro_batches > 1)) {
    return std::nullopt;
  }
  const auto rows = TableRows::find(plan, workers, true);
  if (!rows || rows->complete_after().value_or(0) == 0) return std::nullopt;
  const nn::FlatParameter& table = rows->table();
  const std::size_t end = table.offset + table.shape.elements();
  EarlyTable found{.first = 0,
                   .end = 0,
                   .after = *rows->complete_after(),
                   .offset = table.offset,
                   .width = static_cast<std::size_t>(table.shape[1])};
  while (found.first < layout.slices.size() &&
         layout.slices[found.first].range.first < table.offset) {
    ++found.first;
  }
  found.end = found.first;
  while (found.end < layout.slices.size() && layout.slices[found.end].range.end() <= end) {
    ++found.end;
  }
  if (found.first == found.end) return std::nullopt;
  return found;
}

ServerStrategy::ServerStrategy(const ParameterServerJob& job, std::unique_ptr<Meeting> meeting,
                               RunServer run_server)
    : job_(job), meeting_(std::move(meeting)), window_(meeting_->server().has_value()) {
  if (meeting_->server()) {
    server_ = std::thread([this, run_server] {
      try {
        run_server(job_, *meeting_, window_);
      } catch (const std::exception& error) {
        // The server itself sends the error to the workers, which end with it.
        log_info("parameter server {} ended: {}", *meeting_->server(), error.what());
      }
    });
  }
  try {
    link_ = std::make_unique<WorkerLink>(job_.options, meeting_->map(), meeting_->connect_worker(),
                                         job_.comm.timeout, job_.comm.emulated_link());
  } catch (...) {
    if (server_.joinable()) server_.join();
    throw;
  }
}

ServerStrategy::~ServerStrategy() {
  leave();
  if (server_.joinable()) server_.join();
}

void ServerStrategy::leave() noexcept {
  if (!link_) return;
  try {
    if (in_step_) {
      link_->blame(left_in_a_step(worker()));
    } else {
      link_->await_all();  // what was pushed counts
    }
  } catch (const std::exception& error) {
    log_info("worker {} leaves: {}", worker(), error.what());
  }
  link_.reset();
}

void ServerStrategy::start(nn::Replica& replica) {
  if (!is_bsp() && replica.setup().dtype == DType::kF16) {
    fail(ErrorCode::kUnsupported,
         "f16 adapts its loss scale to the overflows of all workers in a step, and "
         "parallel.consistency = \"{}\" has no common step; train in bf16 or f32, or set "
         "parallel.consistency = \"bsp\"",
         parallel::name(job_.options.consistency));
  }
  if (job_.reduction == Reduction::kTree) {
    tree_ = TreeSum(replica.ops(), replica.states().gradients.device(), replica.flat().elements(),
                    job_.most_micro_batches);
  }
  replica_ = &replica;
  layout_ = layout_for(job_, replica.plan());
  table_ = early_table(job_, replica.plan(), layout_, workers());
  if (HostMirror::serves(replica.plan())) mirror_.emplace(replica);
  link_->attach(layout_, served(), replica.flat().blocks(), trace());
  link_->expect_all();
  if (worker() == 0) send_states();
  for (int server = 0; server < job_.options.servers; ++server) {
    OutMessage ready =
        small_message({.kind = Kind::kReady}, Packer().text(hash_of(layout_)).take());
    ready.priority = 1;
    link_->post(server, std::move(ready));
  }
  link_->await_all();
  compare_hashes();
}

void ServerStrategy::send_states() {
  for (int server = 0; server < job_.options.servers; ++server) {
    link_->post(server, small_message({.kind = Kind::kLayout}, encode_layout(layout_)));
  }
  const nn::States& states = served();
  const Tensor states_by_kind[kStateKinds] = {states.master, states.first_moment,
                                              states.second_moment, states.velocity};
  for (std::size_t slice = 0; slice < layout_.slices.size(); ++slice) {
    const nn::FlatRange range = layout_.slices[slice].range;
    for (std::size_t kind = 0; kind < kStateKinds; ++kind) {
      if (!layout_.has(static_cast<StateKind>(kind))) continue;
      const Tensor part = states_by_kind[kind].slice(static_cast<std::int64_t>(range.first),
                                                     static_cast<std::int64_t>(range.elements));
      link_->post(layout_.slices[slice].server,
                  {.header = {.kind = Kind::kState,
                              .slice = static_cast<std::uint32_t>(slice),
                              .number = static_cast<double>(kind),
                              .bytes = part.bytes()},
                   .payload = {part.data(), part.bytes()},
                   .owner = nullptr,
                   .priority = 1});
    }
  }
}

// Server 0 compares the hashes.
std::string ServerStrategy::compare_workers(bool /*whole*/) {
  if (!is_bsp()) return "";
  link_->await_all();
  return compare_hashes();
}

std::string ServerStrategy::compare_hashes() {
  const Tensor& parameters = served().parameters;
  const std::string hash =
      content_hash({reinterpret_cast<const char*>(parameters.data()), parameters.bytes()});
  link_->ask(small_message({.kind = Kind::kCheck}, hash));
  link_->answer(Kind::kChecked);
  return hash;
}

}  // namespace lockstep::parallel
