#include "lockstep/comm/mpi/backend/transfer.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/mpi/backend/environment.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep::mpi {
namespace {

// MPI looks at pointers even where it moves nothing.
std::byte nothing;

// A validated call overlaps only where it is in place.
bool overlaps(const Call& call) {
  const std::byte* in_end = call.in.bytes + call.in.count * size_of(call.in.dtype);
  const std::byte* out_end = call.out.bytes + call.out.count * size_of(call.out.dtype);
  return call.in.count > 0 && call.out.count > 0 && call.in.bytes < out_end &&
         call.out.bytes < in_end;
}

void lay_out(const std::vector<std::size_t>& counts, std::vector<int>& sizes,
             std::vector<int>& offsets) {
  int offset = 0;
  for (std::size_t count : counts) {
    sizes.push_back(static_cast<int>(count));
    offsets.push_back(offset);
    offset += sizes.back();
  }
}

}  // namespace

void expect_countable(const Call& call, int ranks) {
  std::size_t most = 0;
  switch (call.kind) {
    case Collective::kGather:
    case Collective::kAllGather:
      most = call.varying ? call.out.count : call.in.count;
      break;
    case Collective::kScatter:
    case Collective::kReduceScatter:
      most = call.varying ? call.in.count : call.out.count;
      break;
    case Collective::kAllToAll:
      most = call.varying ? std::max(call.in.count, call.out.count)
                          : call.in.count / static_cast<std::size_t>(ranks);
      break;
    default:
      return;  // cut into pieces
  }
  if (most > INT_MAX) {
    fail(ErrorCode::kUnsupported,
         "{}: {} elements in one block, or in all blocks of unequal size, are more than MPI "
         "counts; fewer than 2^31 work, and so does the native communicator",
         name(call.kind), most);
  }
}

Transfer::Transfer(const Call& call, const Group& group)
    : call_(call),
      group_(group),
      in_(call.in.bytes != nullptr ? static_cast<const void*>(call.in.bytes) : &nothing),
      out_(call.out.bytes != nullptr ? static_cast<void*>(call.out.bytes) : &nothing),
      in_place_(overlaps(call)) {
  start();
}

MPI_Request* Transfer::next_request() {
  requests_.push_back(MPI_REQUEST_NULL);
  return &requests_.back();
}

template <class F>
void Transfer::in_pieces(std::size_t count, F&& f) {
  const auto most = static_cast<std::size_t>(group_.largest_piece);
  for (std::size_t done = 0; done < count; done += most) {
    f(done, static_cast<int>(std::min(most, count - done)));
  }
}

void Transfer::start() {
  const MPI_Datatype type = datatype(call_.in.bytes != nullptr ? call_.in.dtype : call_.out.dtype);
  const std::size_t size = size_of(call_.in.bytes != nullptr ? call_.in.dtype : call_.out.dtype);
  switch (call_.kind) {
    case Collective::kBarrier:
      return expect(MPI_Ibarrier(group_.comm, next_request()), "MPI_Ibarrier");
    case Collective::kBroadcast:
      return in_pieces(call_.out.count, [&](std::size_t offset, int count) {
        expect(MPI_Ibcast(call_.out.bytes + offset * size, count, type, call_.root, group_.comm,
                          next_request()),
               "MPI_Ibcast");
      });
    case Collective::kSend:
      return in_pieces(call_.in.count, [&](std::size_t offset, int count) {
        expect(MPI_Isend(call_.in.bytes + offset * size, count, type, call_.peer, kPayloadTag,
                         group_.comm, next_request()),
               "MPI_Isend");
      });
    case Collective::kReceive:
      return in_pieces(call_.out.count, [&](std::size_t offset, int count) {
        expect(MPI_Irecv(call_.out.bytes + offset * size, count, type, call_.peer, kPayloadTag,
                         group_.comm, next_request()),
               "MPI_Irecv");
      });
    case Collective::kReduce:
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return start_reduction();
    default:
      return call_.varying ? start_varying() : start_blocks();
  }
}

void Transfer::start_reduction() {
  reduction_ = std::make_unique<Reduction>(call_.op, call_.in.dtype);
  const std::size_t size = size_of(call_.in.dtype);
  if (call_.kind == Collective::kReduceScatter) {
    // MPI's own in-place would leave the result in front, not in this rank's block.
    if (in_place_) {
      scratch_.resize(call_.out.count * size);
      out_ = scratch_.data();
    }
    if (call_.out.count == 0) return;
    expect(
        MPI_Ireduce_scatter_block(in_, out_, static_cast<int>(call_.out.count), reduction_->type(),
                                  reduction_->op(), group_.comm, next_request()),
        "MPI_Ireduce_scatter_block");
    return;
  }
  const bool is_root = call_.kind == Collective::kAllReduce || group_.rank == call_.root;
  in_pieces(call_.in.count, [&](std::size_t offset, int count) {
    const void* in = in_place_ && is_root ? MPI_IN_PLACE : call_.in.bytes + offset * size;
    void* out = is_root ? call_.out.bytes + offset * size : nullptr;
    if (call_.kind == Collective::kAllReduce) {
      expect(MPI_Iallreduce(in, out, count, reduction_->type(), reduction_->op(), group_.comm,
                            next_request()),
             "MPI_Iallreduce");
    } else {
      expect(MPI_Ireduce(in, out, count, reduction_->type(), reduction_->op(), call_.root,
                         group_.comm, next_request()),
             "MPI_Ireduce");
    }
  });
}

void Transfer::start_blocks() {
  const void* in = in_place_ ? MPI_IN_PLACE : in_;
  const auto ranks = static_cast<std::size_t>(group_.size);
  const bool is_root = group_.rank == call_.root;
  switch (call_.kind) {
    case Collective::kAllGather: {
      const int count = static_cast<int>(call_.in.count);
      const MPI_Datatype type = datatype(call_.in.dtype);
      if (count == 0) return;
      return expect(MPI_Iallgather(in, count, type, out_, count, type, group_.comm, next_request()),
                    "MPI_Iallgather");
    }
    case Collective::kAllToAll: {
      const int count = static_cast<int>(call_.in.count / ranks);
      const MPI_Datatype type = datatype(call_.in.dtype);
      if (count == 0) return;
      return expect(MPI_Ialltoall(in, count, type, out_, count, type, group_.comm, next_request()),
                    "MPI_Ialltoall");
    }
    case Collective::kGather: {
      const int count = static_cast<int>(call_.in.count);
      const MPI_Datatype type = datatype(call_.in.dtype);
      if (count == 0) return;
      return expect(MPI_Igather(is_root ? in : in_, count, type, out_, count, type, call_.root,
                                group_.comm, next_request()),
                    "MPI_Igather");
    }
    default: {  // scatter
      const int count = static_cast<int>(call_.out.count);
      const MPI_Datatype type = datatype(call_.out.dtype);
      if (count == 0) return;
      return expect(MPI_Iscatter(in_, count, type, is_root && in_place_ ? MPI_IN_PLACE : out_,
                                 count, type, call_.root, group_.comm, next_request()),
                    "MPI_Iscatter");
    }
  }
}

void Transfer::start_varying() {
  lay_out(call_.counts, sizes_, offsets_);
  const bool is_root = group_.rank == call_.root;
  const int own = sizes_[static_cast<std::size_t>(group_.rank)];
  const void* in = in_place_ ? MPI_IN_PLACE : in_;
  switch (call_.kind) {
    case Collective::kAllGather: {
      const MPI_Datatype type = datatype(call_.in.dtype);
      return expect(MPI_Iallgatherv(in, own, type, out_, sizes_.data(), offsets_.data(), type,
                                    group_.comm, next_request()),
                    "MPI_Iallgatherv");
    }
    case Collective::kAllToAll:
      return exchange_blocks();
    case Collective::kGather: {
      const MPI_Datatype type = datatype(call_.in.dtype);
      return expect(MPI_Igatherv(is_root ? in : in_, own, type, out_, sizes_.data(),
                                 offsets_.data(), type, call_.root, group_.comm, next_request()),
                    "MPI_Igatherv");
    }
    default: {  // scatter
      const MPI_Datatype type = datatype(call_.out.dtype);
      return expect(MPI_Iscatterv(in_, sizes_.data(), offsets_.data(), type,
                                  is_root && in_place_ ? MPI_IN_PLACE : out_, own, type, call_.root,
                                  group_.comm, next_request()),
                    "MPI_Iscatterv");
    }
  }
}

// By messages, for Open MPI's MPI_Ialltoallv counts its calls only where it moves something: after
// one in which a rank neither gives nor gets anything, that rank's next collective is taken for
// another.
void Transfer::exchange_blocks() {
  // Blocks may lie elsewhere in `out` than in `in`.
  if (in_place_) {
    scratch_.assign(call_.in.bytes, call_.in.bytes + call_.in.count * size_of(call_.in.dtype));
    in_ = scratch_.data();
  }
  const MPI_Datatype type = datatype(call_.in.dtype);
  const std::size_t size = size_of(call_.in.dtype);
  const auto* in = static_cast<const std::byte*>(in_);
  auto* out = static_cast<std::byte*>(out_);
  for (int peer = 0; peer < group_.size; ++peer) {
    const std::size_t given = call_.counts[static_cast<std::size_t>(peer)];
    const std::size_t got = call_.out_counts[static_cast<std::size_t>(peer)];
    if (peer == group_.rank) {
      if (given > 0) std::memcpy(out, in, given * size);
    } else {
      if (got > 0) {
        expect(MPI_Irecv(out, static_cast<int>(got), type, peer, kPayloadTag, group_.comm,
                         next_request()),
               "MPI_Irecv");
      }
      if (given > 0) {
        expect(MPI_Isend(in, static_cast<int>(given), type, peer, kPayloadTag, group_.comm,
                         next_request()),
               "MPI_Isend");
      }
    }
    in += given * size;
    out += got * size;
  }
}

bool Transfer::done() {
  int all = 0;
  expect(
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE),
      name(call_.kind));
  if (all != 0) requests_.clear();
  return all != 0;
}

void Transfer::finish() {
  if (!reduces(call_.kind) || call_.out.count == 0) return;
  if (call_.kind == Collective::kReduce && group_.rank != call_.root) return;
  if (!scratch_.empty()) std::memcpy(call_.out.bytes, scratch_.data(), scratch_.size());
  if (call_.op.kind == ReduceOp::kMean) {
    divide(call_.out.bytes, call_.out.count, call_.out.dtype, group_.size);
  }
}

void Transfer::cancel() {
  if (call_.kind != Collective::kReceive) return;
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
  requests_.clear();
}

}  // namespace lockstep::mpi
