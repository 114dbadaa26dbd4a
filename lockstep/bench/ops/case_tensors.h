// The tensors of a case on the device of an Ops, filled.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/bench/ops/description.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::bench {

class CaseTensors {
 public:
  CaseTensors(const OpCase& one, Ops& ops);
  const Tensors& tensors() const { return tensors_; }

 private:
  std::vector<Buffer> buffers_;
  Tensors tensors_;
};

// As many sets of tensors as together have more bytes than caches hold; 16 at most.
std::size_t count_of_sets(const OpCase& one, std::size_t more_than_caches);
std::vector<CaseTensors> make_sets(const OpCase& one, Ops& ops, std::size_t more_than_caches);

// The scratch memory of a case, which `ops` uses while this lives.
class CaseScratch {
 public:
  CaseScratch(const OpCase& one, Ops& ops);
  ~CaseScratch();
  CaseScratch(const CaseScratch&) = delete;
  CaseScratch& operator=(const CaseScratch&) = delete;

 private:
  Ops& ops_;
  Buffer memory_;
};

}  // namespace lockstep::bench
