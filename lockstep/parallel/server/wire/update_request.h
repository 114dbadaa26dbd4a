// The settings of a round's update, as sent by a worker to servers.
#pragma once

#include <cmath>
#include <cstdint>

#include "lockstep/parallel/server/slices/message.h"

namespace lockstep::parallel {

struct RoundRequest {
  std::int64_t updates = 0;  // updates made before it
  double rate = 0;
  double loss_scale = 1;
  double gradient_scale = 1;  // asp and ssp: includes clipping, which each worker does itself

  friend bool operator==(const RoundRequest&, const RoundRequest&) = default;

  std::string encode() const {
    return Packer().add(updates).add(rate).add(loss_scale).add(gradient_scale).take();
  }
  static RoundRequest decode(std::span<const std::byte> bytes) {
    Unpacker unpacker(bytes);
    RoundRequest request;
    request.updates = unpacker.take<std::int64_t>();
    request.rate = unpacker.take<double>();
    request.loss_scale = unpacker.take<double>();
    request.gradient_scale = unpacker.take<double>();
    unpacker.finish();
    if (request.updates < 0 || !std::isfinite(request.rate) || !(request.loss_scale > 0)) {
      fail(ErrorCode::kProtocol,
           "an update was asked for after {} others, with learning rate {} and loss scale {}",
           request.updates, request.rate, request.loss_scale);
    }
    return request;
  }
};

}  // namespace lockstep::parallel
