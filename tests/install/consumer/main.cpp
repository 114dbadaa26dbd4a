#include "lockstep/base/log.h"
#include "lockstep/comm/options.h"

int main() {
  const lockstep::CommOptions options = lockstep::comm_options();
  lockstep::log_info("the backend is {}", lockstep::name(options.backend));
  fmt::print("timeout {} s\n",
             std::chrono::duration_cast<std::chrono::seconds>(options.timeout).count());
}
