#include <algorithm>
#include <utility>

#include "lockstep/base/log.h"
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

void Inbox::part(int world_rank, const Fingerprint& last) {
  const int member = member_of(world_rank);
  {
    const std::lock_guard lock(mutex_);
    parted_.insert(member);
    statuses_[member] = {last, {}};
    if (closed_) compare_last(member, last);
  }
  changed_.notify_all();
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
