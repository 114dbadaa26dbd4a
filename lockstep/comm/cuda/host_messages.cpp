#include "lockstep/comm/cuda/host_messages.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda/moved_blocks.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep::cuda {

HostMessages::HostMessages(Communicator& host, Device device)
    : host_(host),
      device_(device),
      nodes_(host.machines()),
      sends_(static_cast<std::size_t>(host.size())),
      receives_(static_cast<std::size_t>(host.size())) {}

TaskQueue& HostMessages::queue_of(const Call& call) {
  return (call.kind == Collective::kSend ? sends_ : receives_)[static_cast<std::size_t>(call.peer)];
}

void HostMessages::run(const Call& call) {
  if (CurrentStream::get() != nullptr) {
    fail(ErrorCode::kUnsupported, "{} in the order of a stream is not supported", name(call.kind));
  }
  queue_of(call).run([&] { transfer(call); });
}

Work HostMessages::start(const Call& call) {
  return queue_of(call).submit([this, call] { transfer(call); });
}

void HostMessages::transfer(const Call& call) {
  const bool sends = call.kind == Collective::kSend;
  const std::size_t bytes = sends ? bytes_of(call.in) : bytes_of(call.out);
  DeviceMemory& memory = memory_of(device_);
  std::vector<std::byte> here(bytes);
  if (sends) {
    memory.copy(here.data(), call.in.bytes, bytes);
    host_.send(ConstData(here.data(), call.in.count, call.in.dtype), call.peer);
    bytes_sent_ += bytes;
    const auto node_of = [&](int rank) { return nodes_[static_cast<std::size_t>(rank)]; };
    if (node_of(call.peer) != node_of(host_.rank())) bytes_across_ += bytes;
  } else {
    host_.receive(Data(here.data(), call.out.count, call.out.dtype), call.peer);
    memory.copy(call.out.bytes, here.data(), bytes);
  }
}

}  // namespace lockstep::cuda
