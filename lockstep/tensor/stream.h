// Work in order on a device, beside the thread that asks for it, so that overlap is written once
// for every device.
//
//   stream.run([=] { ... });             a task, begun after those before it have ended
//   Event gathered = stream.record();    everything queued so far
//   other.wait(gathered);                later tasks of `other` begin after that
//   stream.synchronize();                the caller waits for everything queued so far
//
// On the CPU a stream has a thread of its own that calls the tasks. A device that queues work by
// itself calls a task at once, and the task queues its work there; so a task reads and writes only
// what streams order, and does not wait for a stream.
//
// An Event stands for what was queued before it, so streams that wait for each other's events
// cannot lock each other up.
//
// When a task throws, those behind it in the stream are skipped, as they would work on what it left
// unfinished; so are those of a stream that waits for an event behind it. synchronize() rethrows
// the error, after which the stream takes new work. An error that nobody asks for is dropped with
// its stream.
//
// A Stream may be used by any thread; tasks queued by one thread keep their order.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/tensor/device.h"

namespace lockstep {

class Event {
 public:
  // How a device knows that an event has come.
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    // Waits; then the error of the work that the event stands for, or null.
    virtual std::exception_ptr await() const = 0;
  };

  Event() = default;  // stands for nothing, which is done
  explicit Event(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  bool done() const { return state_ == nullptr || state_->done(); }
  std::exception_ptr await() const { return state_ == nullptr ? nullptr : state_->await(); }
  // The calling thread waits; rethrows the error of the work.
  void wait() const;

  // For the device whose event it is; nullptr where it stands for nothing.
  const State* state() const { return state_.get(); }

 private:
  std::shared_ptr<const State> state_;
};

class Stream {
 public:
  // What a device does for a stream; the functions of Stream say what they mean.
  class Queue {
   public:
    virtual ~Queue() = default;
    virtual void run(std::function<void()> task) = 0;
    virtual Event record() = 0;
    virtual void wait(const Event& event) = 0;
    virtual void synchronize() = 0;
  };

  // Throws Error(kUnsupported) where there is no such device.
  explicit Stream(Device device = {});
  // Finishes what is queued.
  ~Stream() = default;
  Stream(Stream&&) = default;
  Stream& operator=(Stream&&) = default;

  Device device() const { return device_; }

  void run(std::function<void()> task) { queue_->run(std::move(task)); }
  Event record() { return queue_->record(); }
  void wait(const Event& event) { queue_->wait(event); }
  // Throws Error(kInvalidArgument) when called by a task of this stream.
  void synchronize() { queue_->synchronize(); }

 private:
  Device device_;
  std::unique_ptr<Queue> queue_;
};

}  // namespace lockstep
