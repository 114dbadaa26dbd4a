#include "lockstep/bench/collectives/communicator_subject.h"

#include "lockstep/base/error.h"
#include "lockstep/bench/collectives/implementation.h"

namespace lockstep::bench {
namespace {

Call make_call(const Task& task, const Buffers& buffers, const Extent& size) {
  const ConstData in(buffers.in, size.in, task.dtype);
  const Data out(buffers.out, size.out, task.dtype);
  switch (task.op) {
    case Collective::kAllReduce:
      return all_reduce(out);
    case Collective::kBroadcast:
      return broadcast(out, task.root);
    case Collective::kAllGather:
      return all_gather(in, out);
    case Collective::kReduceScatter:
      return reduce_scatter(in, out);
    case Collective::kAllToAll:
      return all_to_all(in, out);
    default:
      fail(ErrorCode::kUnsupported, "{} is not one of the benched collectives", name(task.op));
  }
}

}  // namespace

Buffers CommunicatorSubject::symmetric_buffers(const Task& task) {
  const Extent size = extent(task, world_.size());
  const auto reserve = [&](SymmetricBuffer& buffer, std::size_t bytes) {
    if (buffer.bytes() != bytes) {
      buffer = {};  // first, so that both need not fit at once
      buffer = world_.allocate(bytes);
    }
    return buffer.data();
  };
  std::byte* in = reserve(in_, size.in * size_of(task.dtype));
  return {in, in_place(task.op) ? in : reserve(out_, size.out * size_of(task.dtype))};
}

Buffers CommunicatorSubject::prepare(const Task& task) {
  const Buffers buffers =
      task.flavour == kSymmetric ? symmetric_buffers(task) : private_.prepare(task, world_.size());
  call_ = make_call(task, buffers, extent(task, world_.size())).with(task.algorithm);
  return buffers;
}

}  // namespace lockstep::bench
