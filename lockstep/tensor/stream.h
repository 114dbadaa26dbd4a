// An ordered queue of work on a device, asynchronous to the calling thread. It makes overlap
// independent of the device.
//
//   stream.run([=] { ... });             a task, begun after those before it have ended
//   Event gathered = stream.record();    everything queued so far
//   other.wait(gathered);                later tasks of `other` begin after that
//   stream.synchronize();                the caller waits for everything queued so far
//
// On the CPU a stream has its own thread, which calls the tasks. On a device with queues a task is
// called at once and queues its work there. So a task may access only memory that streams order,
// and must not wait for a stream.
//
// An Event stands for what was queued before it, so streams that wait for each other's events
// cannot deadlock.
//
// When a task throws, later tasks of the stream are skipped, and so are tasks of streams that wait
// for a later event. synchronize() rethrows the error; after that the stream accepts new work.
// Without synchronize() the error is dropped with the stream.
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
  // The device's part of an event.
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    // Waits, and returns the error of the event's work, or null.
    virtual std::exception_ptr await() const = 0;
  };

  Event() = default;  // an event of no work, which has happened
  explicit Event(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  bool done() const { return state_ == nullptr || state_->done(); }
  std::exception_ptr await() const { return state_ == nullptr ? nullptr : state_->await(); }
  // The calling thread waits; rethrows the error of the work.
  void wait() const;

  // For the device that made the event; nullptr for an event of no work.
  const State* state() const { return state_.get(); }

 private:
  std::shared_ptr<const State> state_;
};

class Stream {
 public:
  // The device's part of a stream; see the functions of Stream.
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
