// Payloads of messages about steps. Decoding throws Error(kProtocol) for invalid bytes.
#pragma once

#include <span>
#include <string>

#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

std::string encode(const StepStart& start);
std::string encode(const StepEnd& end);
std::string encode(const StepSummary& summary);
std::string encode(const StepCost& cost);
StepStart decode_start(std::span<const std::byte> bytes);
StepEnd decode_end(std::span<const std::byte> bytes);
StepSummary decode_summary(std::span<const std::byte> bytes);
StepCost decode_cost(std::span<const std::byte> bytes);

std::string encode(const RankTrace& trace);
RankTrace decode_trace(std::span<const std::byte> bytes);

}  // namespace lockstep::parallel
