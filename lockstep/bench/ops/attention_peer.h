// cuDNN's attention through PyTorch, in a process of its own (peers/ops_pytorch.py).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/bench/interrupt.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/ops/arguments.h"

namespace lockstep::bench {

// Seconds of a call, or why there are none.
struct PeerTime {
  double seconds = 0;
  std::string note;  // what it did differently from us; empty: nothing
  std::string problem;
};

class AttentionPeer {
 public:
  // Starts the script and waits for it. Throws only when interrupted.
  AttentionPeer(const std::string& python, const std::filesystem::path& script,
                const Interrupt& interrupt);

  const std::string& version() const { return version_; }  // "cuDNN 9.1, PyTorch 2.9"
  const std::string& failure() const { return helper_.failure(); }

  // A batch of `calls` calls. The first of a shape makes its tensors and warms up.
  PeerTime time(const ops::AttentionShape& shape, bool backward, std::size_t calls);

  // The line that it is asked by.
  static std::string request(const ops::AttentionShape& shape, bool backward, std::size_t calls);

 private:
  Helper helper_;
  std::string version_;
};

}  // namespace lockstep::bench
