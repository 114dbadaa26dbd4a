#include "lockstep/base/error.h"
#include "lockstep/bench/communicator_subject.h"

namespace lockstep::bench {

std::unique_ptr<Communicator> connect_bench_world(std::string_view transport) {
  fail(ErrorCode::kUnsupported, "this build has no communicator over {}", transport);
}

}  // namespace lockstep::bench
