#include "lockstep/parallel/server/worker/worker_link.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

constexpr double kBytesPerMegabyte = 1 << 20;
// Servers notice first who is late, and can say it; this is for servers that are late themselves.
constexpr auto kServersNoticeFirst = std::chrono::seconds(1);
// But where a late server keeps a worker from what others wait for, the worker has to.
constexpr double kBeforeServers = 0.9;  // of their timeout

}  // namespace

WorkerLink::WorkerLink(const ServerOptions& options, const JobMap& map, WorkerConnections sockets,
                       std::chrono::nanoseconds timeout, const std::optional<LinkEmulation>& link)
    : options_(options),
      map_(map),
      timeout_(timeout),
      loop_(*this, link),
      queue_(map.servers, static_cast<std::size_t>(options.credit_mb * kBytesPerMegabyte)) {
  for (SlicePipe& pipe : sockets.data) loop_.add(std::move(pipe));
  control_ = loop_.add(std::move(*sockets.control));
  small_.resize(static_cast<std::size_t>(control_) + 1);
  to_collect_.resize(static_cast<std::size_t>(map.servers));
  thread_ = std::thread([this] { run(); });
}

WorkerLink::~WorkerLink() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  loop_.wake();
  thread_.join();
}

void WorkerLink::attach(const ServedLayout& layout, const nn::States& states, std::size_t blocks,
                        Trace& trace) {
  const Lock lock(mutex_);
  layout_ = layout;
  states_ = states;
  out_ = SlicesOut(layout_.slices, blocks);
  on_way_.assign(layout_.slices.size(), false);
  early_.assign(layout_.slices.size(), false);
  trace_ = &trace;
  codec_ = std::make_unique<SliceCodec>(layout_);
}

// With the mutex, as the next.
void WorkerLink::leaves(std::size_t slice) {
  if (out_.count(std::nullopt) == 0 && trace_->on()) traced_ = trace_now();
  out_.leaves(slice);
}

void WorkerLink::is_back(std::size_t slice) {
  out_.is_back(slice);
  if (!trace_->on() || trace_->step() == 0) return;
  const std::size_t elements = layout_.slices[slice].range.elements;
  const std::int64_t now = trace_now();
  trace_->add({.lane = TraceLane::kCommunication,
               .kind = "exchange",
               .of = fmt::format("slice {}", slice),
               .begin = traced_,
               .end = now,
               .step = trace_->step(),
               .bytes = pushed_bytes(slice),
               .elements = elements});
  traced_ = now;
}

std::size_t WorkerLink::pushed_bytes(std::size_t slice) const {
  return codec_->format().pushed_bytes(layout_.slices[slice].range.elements);
}

Tensor WorkerLink::part(const Tensor& buffer, const Slice& slice) {
  return buffer.slice(static_cast<std::int64_t>(slice.range.first),
                      static_cast<std::int64_t>(slice.range.elements));
}

Tensor WorkerLink::parameters(std::size_t slice) const {
  return part(states_.parameters, layout_.slices[slice]);
}

void WorkerLink::post(int server, OutMessage message) {
  {
    const Lock lock(mutex_);
    if (fault_) throw *fault_;
    posted_.emplace_back(server, std::move(message));
  }
  loop_.wake();
}

void WorkerLink::ask(OutMessage question) { post(control_, std::move(question)); }

template <class Condition>
void WorkerLink::wait(Lock& lock, std::string_view for_what, Condition condition) {
  const auto ended = [&] { return condition() || fault_.has_value(); };
  const bool in_time =
      changed_.wait_until(lock, deadline_in(timeout_ + kServersNoticeFirst), ended);
  if (fault_) throw *fault_;
  if (in_time) return;
  std::vector<bool> late;
  for (std::size_t slice = 0; slice < out_.slices(); ++slice) late.push_back(out_.is_out(slice));
  fail_late(for_what, late);
}

// Called with the mutex held. `late`: by slice, whether its server is late. The other ranks learn
// of it from this worker's goodbye.
void WorkerLink::fail_late(std::string_view for_what, const std::vector<bool>& late) {
  std::vector<int> ranks;
  for (std::size_t slice = 0; slice < late.size(); ++slice) {
    const int rank = map_.rank_of_server(layout_.slices[slice].server);
    if (late[slice] && std::ranges::count(ranks, rank) == 0) ranks.push_back(rank);
  }
  if (ranks.empty()) ranks.push_back(map_.rank_of_server(0));
  std::string named;
  for (const int rank : ranks) named += fmt::format(" {}", rank);
  fault_ = Error(
      ErrorCode::kTimeout,
      fmt::format(
          "received no {} from the parameter server(s) at rank{} within {:g} s (comm.timeout)",
          for_what, named, std::chrono::duration<double>(timeout_).count()),
      ranks);
  loop_.wake();
  throw *fault_;
}

std::string WorkerLink::answer(Kind kind) {
  Lock lock(mutex_);
  wait(lock, name(kind), [&] { return answers_.contains(kind); });
  const auto found = answers_.find(kind);
  std::string payload = std::move(found->second);
  answers_.erase(found);
  return payload;
}

void WorkerLink::expect_all() {
  const Lock lock(mutex_);
  for (std::size_t slice = 0; slice < out_.slices(); ++slice) leaves(slice);
}

void WorkerLink::push(std::size_t first, std::size_t end, std::uint64_t round, std::int64_t step) {
  {
    const Lock lock(mutex_);
    if (fault_) throw *fault_;
    if (round_ != round) untaken_ = out_.slices();
    round_ = round;
    step_ = step;
    for (std::size_t slice = first; slice < end; ++slice) {
      leaves(slice);
      on_way_[slice] = true;
      const Slice& each = layout_.slices[slice];
      const bool by_block = options_.schedule == SliceSchedule::kPriority;
      queue_.add(slice, by_block ? each.block : pushed_, each.server, pushed_bytes(slice));
      ++pushed_;
    }
  }
  loop_.wake();
}

void WorkerLink::owe(std::size_t slice, const Runs& runs, std::uint64_t round) {
  const std::vector<std::uint64_t> numbers = encode_runs(runs);
  post(layout_.slices[slice].server,
       small_message(
           {.kind = Kind::kOwe, .slice = static_cast<std::uint32_t>(slice), .round = round},
           Packer().list(std::span<const std::uint64_t>(numbers)).take()));
}

void WorkerLink::push_rows(std::size_t slice, const Runs& runs, std::uint64_t round) {
  const Tensor gradients = part(states_.gradients, layout_.slices[slice]);
  const std::size_t element = size_of(gradients.dtype());
  std::string values(elements_of(runs) * element, '\0');
  take_runs(runs, element, {gradients.data(), gradients.bytes()},
            std::as_writable_bytes(std::span(values)));
  OutMessage rows = small_message(
      {.kind = Kind::kRows, .slice = static_cast<std::uint32_t>(slice), .round = round},
      std::move(values));
  rows.priority = priority_of(slice);
  post(layout_.slices[slice].server, std::move(rows));
}

Priority WorkerLink::priority_of(std::size_t slice) const {
  return parallel::priority_of(layout_.slices[slice], options_.schedule);
}

bool WorkerLink::none_on_way(std::size_t first, std::size_t end) const {
  return std::none_of(on_way_.begin() + static_cast<std::ptrdiff_t>(first),
                      on_way_.begin() + static_cast<std::ptrdiff_t>(end), std::identity());
}

bool WorkerLink::are_taken(std::size_t first, std::size_t end) {
  const Lock lock(mutex_);
  if (fault_) throw *fault_;
  return none_on_way(first, end);
}

void WorkerLink::await_taken(std::size_t first, std::size_t end, Deadline pushed) {
  const auto timeout = std::chrono::duration_cast<Deadline::duration>(kBeforeServers * timeout_);
  Lock lock(mutex_);
  const auto ended = [&] { return none_on_way(first, end) || fault_.has_value(); };
  const bool in_time = changed_.wait_until(lock, pushed + timeout, ended);
  if (fault_) throw *fault_;
  if (!in_time) fail_late("receipt of gradients", on_way_);
}

void WorkerLink::push_zeros(std::uint64_t round) {
  {
    const Lock lock(mutex_);
    if (fault_) throw *fault_;
    round_ = round;
    untaken_ = 0;
    for (std::size_t slice = 0; slice < out_.slices(); ++slice) leaves(slice);
    for (int server = 0; server < map_.servers; ++server) {
      posted_.emplace_back(server, small_message({.kind = Kind::kZeros, .round = round}));
      posted_.emplace_back(server, small_message({.kind = Kind::kPull, .round = round}));
    }
  }
  loop_.wake();
}

bool WorkerLink::is_back(std::optional<std::size_t> block) {
  const Lock lock(mutex_);
  if (fault_) throw *fault_;
  return out_.count(block) == 0;
}

void WorkerLink::await(std::optional<std::size_t> block) {
  Lock lock(mutex_);
  wait(lock, "parameters", [&] { return out_.count(block) == 0; });
}

void WorkerLink::await_states(Lock& lock, std::size_t before) {
  wait(lock, "optimizer states", [&] { return states_to_come_ < before; });
}

void WorkerLink::blame(const Error& error) {
  {
    const Lock lock(mutex_);
    if (!fault_) fault_ = error;
  }
  loop_.wake();
}

WorkerLink::Cost WorkerLink::take_cost() {
  const Lock lock(mutex_);
  const std::uint64_t bytes = bytes_sent_ + bytes_received_;
  const Cost cost{.seconds = out_.take_seconds(),
                  .bytes = bytes - std::exchange(bytes_told_, bytes),
                  .staleness = came_back_ > 0 ? staleness_ / static_cast<double>(came_back_) : 0};
  staleness_ = 0;
  came_back_ = 0;
  return cost;
}

}  // namespace lockstep::parallel
