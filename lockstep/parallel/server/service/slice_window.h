// Shows the states of a server's slices to other threads of its process.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/parallel/server/slices/slice_store.h"
#include "lockstep/parallel/strategy/served_states.h"

namespace lockstep::parallel {

class SliceWindow final : public ServedStates {
 public:
  // has_server: whether the process has one.
  explicit SliceWindow(bool has_server) : has_server_(has_server) {}

  // Called by the server. It has these slices.
  void open(std::shared_ptr<const SliceStore> store);
  // It has done that many rounds; 0: it has all states.
  void finish(std::uint64_t rounds);
  // Between two updates: does what copy() waits for, where that many rounds were asked for.
  void serve(std::uint64_t rounds);
  // `wake` makes it call serve(); empty: it does no more.
  void set_wake(std::function<void()> wake);
  // It has ended, and changes nothing any more.
  void close(const Error& why);

  // Called by the worker.
  void ask(std::uint64_t rounds) { asked_ = rounds; }

  std::uint64_t asked() const override { return asked_; }
  bool has_done(std::uint64_t rounds) override;
  void await(std::uint64_t rounds) override;
  void copy(std::uint64_t rounds, std::span<std::byte> into) override;
  bool copy_now(std::span<std::byte> into) override;
  void stop_waiting() override;
  const std::vector<Tensor>& states() const override { return states_; }

 private:
  struct Wanted {
    std::uint64_t rounds = 0;
    std::span<std::byte> into;
  };
  [[noreturn]] void fail_wait() const;
  void pack(std::span<std::byte> into) const;
  void want(const Wanted& wanted);

  const bool has_server_;
  std::uint64_t asked_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  // With the mutex:
  std::shared_ptr<const SliceStore> store_;
  std::vector<Tensor> states_;
  std::optional<std::uint64_t> done_;
  std::optional<Wanted> wanted_;
  std::function<void()> wake_;
  std::optional<Error> end_;
  bool stopped_ = false;
};

}  // namespace lockstep::parallel
