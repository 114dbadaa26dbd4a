// The thread team of one rank's kernels, of fixed size.
//
// run(f) calls f(0), f(1), ... f(size() - 1), one on each thread (0 on the caller's), and returns
// when all have returned; what they wrote is then visible to the caller. The work of a thread
// follows from its number alone, or the bits do not depend on the thread (supply.h), so results
// never depend on timing. Threads spin for a short time before they sleep. An exception of any f is
// rethrown, that of the lowest thread first.
//
// Used by one thread at a time; run() does not nest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::cpu {

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);  // 1 or more
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  template <class F>
  void run(const F& f) {
    call([](const void* body, int thread) { (*static_cast<const F*>(body))(thread); }, &f);
  }

 private:
  struct State;
  using Body = void (*)(const void* body, int thread);
  void call(Body body, const void* argument);

  int size_;
  std::unique_ptr<State> state_;
};

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// Part `index` of `parts` almost equal ones of `count`, each but the last a multiple of `grain`.
inline Range share(std::size_t count, int parts, int index, std::size_t grain = 1) {
  const std::size_t grains = (count + grain - 1) / grain;
  const auto n = static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  const auto at = [&](std::size_t k) { return std::min(count, grains * k / n * grain); };
  return {at(i), at(i + 1)};
}

}  // namespace lockstep::cpu
