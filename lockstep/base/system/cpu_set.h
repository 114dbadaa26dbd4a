// A set of CPUs.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

class CpuSet {
 public:
  CpuSet() { CPU_ZERO(&set_); }
  // The CPUs that the calling thread may use.
  static CpuSet of_this_thread();

  int count() const { return CPU_COUNT(&set_); }
  void add(int cpu) { CPU_SET(cpu, &set_); }
  void add(const CpuSet& other) { CPU_OR(&set_, &set_, &other.set_); }
  bool meets(const CpuSet& other) const {
    cpu_set_t both;
    CPU_AND(&both, &set_, &other.set_);
    return CPU_COUNT(&both) != 0;
  }
  CpuSet common(const CpuSet& other) const {
    CpuSet both;
    CPU_AND(&both.set_, &set_, &other.set_);
    return both;
  }
  friend bool operator==(const CpuSet& a, const CpuSet& b) { return CPU_EQUAL(&a.set_, &b.set_); }

  // Part `index` of `parts` disjoint ranges of these CPUs of almost equal size. With fewer CPUs
  // than parts, one CPU, shared evenly between parts. Nothing if there is only one part.
  std::optional<CpuSet> share(int index, int parts) const;

  // "0,2,3"; parsing knows "0-3,8" too, and ignores anything that is not the number of a CPU.
  std::string text() const;
  static CpuSet parse(std::string_view text);

  const cpu_set_t& native() const { return set_; }

 private:
  cpu_set_t set_;
};

// Lets a process run on these CPUs alone: all its threads; one that ends meanwhile needs nothing.
void bind_process(pid_t pid, const CpuSet& cpus);

}  // namespace lockstep
