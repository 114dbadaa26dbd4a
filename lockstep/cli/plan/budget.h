// A budget in the unit of the tables beside it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"

namespace lockstep::cli {

// "2.1 GB (2,147,483,648 bytes)" of 2 GiB.
inline std::string budget_text(std::uint64_t bytes) {
  return fmt::format("{} ({} bytes)", format_si(static_cast<double>(bytes), "B"),
                     format_count(bytes));
}

}  // namespace lockstep::cli
