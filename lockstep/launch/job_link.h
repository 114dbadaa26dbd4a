// The connection of a launcher to all launchers of its job, itself included: all of them receive
// the same texts in the same order. With one node it talks to itself alone.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/rendezvous/node_link.h"

namespace lockstep {

class JobLink {
 public:
  // nullptr: there is one node.
  explicit JobLink(std::unique_ptr<NodeLink> link) : link_(std::move(link)) {}

  bool has_one_node() const { return link_ == nullptr; }
  // To be polled for POLLIN; -1 where there is none. / Whether there is something to take()
  // already.
  int fd() const { return link_ != nullptr && link_->is_open() ? link_->fd() : -1; }
  bool has_news() const { return !own_.empty(); }

  // A text that cannot be sent is dropped: the server has gone, and the news says so.
  void tell(std::string_view text);
  std::vector<NodeLink::News> take();

  // Whether the server was lost. / Connected again.
  bool is_cut_off() const { return link_ != nullptr && !link_->is_open(); }
  void replace(std::unique_ptr<NodeLink> link) { link_ = std::move(link); }
  // Leaves the others without a word.
  void leave() {
    if (link_ != nullptr) link_->close();
  }

 private:
  std::unique_ptr<NodeLink> link_;
  std::vector<NodeLink::News> own_;  // with one node
};

}  // namespace lockstep
