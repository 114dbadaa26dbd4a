#include <algorithm>
#include <utility>

#include "lockstep/base/system/clock.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep {
namespace {
constexpr auto kFaultLook = std::chrono::milliseconds(20);  // between two looks at the fault
}  // namespace

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

std::uint64_t Inbox::ask() {
  const std::lock_guard lock(mutex_);
  answers_.clear();
  return ++question_;
}

void Inbox::put_answer(int world_rank, std::uint64_t question, std::uint64_t operation) {
  {
    const std::lock_guard lock(mutex_);
    if (question == question_) answers_[member_of(world_rank)] = operation;
  }
  changed_.notify_all();
}

std::map<int, std::uint64_t> Inbox::await_answers(std::chrono::nanoseconds timeout) {
  const Deadline deadline = deadline_in(timeout);
  std::unique_lock lock(mutex_);
  const auto complete = [&] {
    const auto parted = std::count_if(parted_.begin(), parted_.end(),
                                      [&](int member) { return !answers_.contains(member); });
    return answers_.size() + static_cast<std::size_t>(parted) + 1 >= members.size();
  };
  while (!complete() && !fault.present() && !has_passed(deadline)) {
    changed_.wait_until(lock, std::min(deadline, deadline_in(kFaultLook)));
  }
  return answers_;
}

std::map<int, Status> Inbox::statuses() const {
  const std::lock_guard lock(mutex_);
  return statuses_;
}

std::optional<Error> Inbox::part(int world_rank, const Fingerprint& last) {
  const int member = member_of(world_rank);
  std::optional<Error> differs;
  {
    const std::lock_guard lock(mutex_);
    parted_.insert(member);
    statuses_[member] = {last, {}};
    if (closed_) differs = compare_last(member, last);
  }
  changed_.notify_all();
  return differs;
}

std::optional<Error> Inbox::close(int rank, std::span<const int> far, const History& operations) {
  auto closed = std::make_unique<Closed>(Closed{rank, {}, operations});
  for (int world_rank : far) closed->far.push_back(member_of(world_rank));
  const std::lock_guard lock(mutex_);
  closed_ = std::move(closed);
  for (const auto& [member, status] : statuses_) {
    if (auto differs = compare_last(member, status.operation)) return differs;
  }
  return std::nullopt;
}

bool Inbox::settled() const {
  const std::lock_guard lock(mutex_);
  return closed_ && std::all_of(closed_->far.begin(), closed_->far.end(),
                                [&](int member) { return parted_.contains(member); });
}

std::optional<Error> Inbox::compare_last(int member, const Fingerprint& last) {
  if (closed_->told || fault.present()) return std::nullopt;
  try {
    closed_->operations.compare(closed_->rank, member, last);
    return std::nullopt;
  } catch (const Error& error) {
    closed_->told = true;
    return error;
  }
}

void Inbox::wait_signal(int member, std::uint64_t count, std::chrono::nanoseconds timeout) {
  const auto start = SteadyClock::now();
  std::unique_lock lock(mutex_);
  while (signals_[member] < count) {
    fault.throw_if_present();
    const auto waited = SteadyClock::now() - start;
    if (waited >= timeout) {
      throw overdue("wait_signal", waited, {member});
    }
    changed_.wait_for(lock, kFaultLook);
  }
}

}  // namespace lockstep
