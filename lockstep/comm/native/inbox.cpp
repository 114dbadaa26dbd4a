#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep {

int Inbox::member_of(int world_rank) const {
  const auto found = std::find(members.begin(), members.end(), world_rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

void Inbox::add_signal(int world_rank) {
  {
    const std::lock_guard lock(mutex_);
    ++signals_[member_of(world_rank)];
  }
  changed_.notify_all();
}

void Inbox::put_status(int world_rank, Status status) {
  const std::lock_guard lock(mutex_);
  statuses_[member_of(world_rank)] = std::move(status);
}

void Inbox::put_behind(int world_rank) {
  const std::lock_guard lock(mutex_);
  behind_.push_back(member_of(world_rank));
}

std::vector<int> Inbox::take_behind() {
  const std::lock_guard lock(mutex_);
  return std::exchange(behind_, {});
}

std::map<int, Status> Inbox::statuses() const {
  const std::lock_guard lock(mutex_);
  return statuses_;
}

void Inbox::part(int world_rank, const Fingerprint& last) {
  const int member = member_of(world_rank);
  const std::lock_guard lock(mutex_);
  parted_.insert(member);
  statuses_[member] = {last, {}};
  if (closed_) compare_last(member, last);
}

void Inbox::close(int rank, std::span<const int> far, const History& operations) {
  auto closed = std::make_unique<Closed>(Closed{rank, {}, operations});
  for (int world_rank : far) closed->far.push_back(member_of(world_rank));
  const std::lock_guard lock(mutex_);
  closed_ = std::move(closed);
  for (const auto& [member, status] : statuses_) compare_last(member, status.operation);
}

bool Inbox::settled() const {
  const std::lock_guard lock(mutex_);
  return closed_ && std::all_of(closed_->far.begin(), closed_->far.end(),
                                [&](int member) { return parted_.contains(member); });
}

void Inbox::compare_last(int member, const Fingerprint& last) {
  if (closed_->told || fault.present()) return;
  try {
    closed_->operations.compare(closed_->rank, member, last);
  } catch (const Error& error) {
    closed_->told = true;
    log_error("{}", error.what());
  }
}

void Inbox::wait_signal(int member, std::uint64_t count, std::chrono::nanoseconds timeout) {
  constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks at the fault
  const auto start = SteadyClock::now();
  std::unique_lock lock(mutex_);
  while (signals_[member] < count) {
    fault.throw_if_present();
    const auto waited = SteadyClock::now() - start;
    if (waited >= timeout) {
      throw overdue("wait_signal", waited, {member});
    }
    changed_.wait_for(lock, kLook);
  }
}

}  // namespace lockstep
