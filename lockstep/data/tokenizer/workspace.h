// Working memory that the threads which use one tokenizer lend each other.
//
// A call takes a room, alone, and gives it back; there are never more than calls at one time.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::data {

template <class Room>
class Rooms {
 public:
  class Lease {
   public:
    explicit Lease(Rooms& rooms) : rooms_(rooms), room_(rooms.take()) {}
    ~Lease() { rooms_.give_back(std::move(room_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    Room& operator*() const { return *room_; }
    Room* operator->() const { return room_.get(); }

   private:
    Rooms& rooms_;
    std::unique_ptr<Room> room_;
  };

 private:
  std::unique_ptr<Room> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Room> room = std::move(free_.back());
        free_.pop_back();
        return room;
      }
      free_.reserve(++made_);  // giving back must not fail
    }
    return std::make_unique<Room>();
  }
  void give_back(std::unique_ptr<Room> room) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(room));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Room>> free_;
  std::size_t made_ = 0;
};

}  // namespace lockstep::data
