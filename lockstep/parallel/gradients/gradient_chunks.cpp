#include "lockstep/parallel/gradients/gradient_chunks.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

namespace {

void check_workspace(std::span<const nn::FlatRange> chunks, const Tensor& workspace) {
  if (chunks.empty() || (workspace.dtype() == DType::kF64 && workspace.elements() > 0)) return;
  fail(ErrorCode::kInvalidArgument, "sums of squares need a workspace of f64; got {} of {}",
       workspace.elements(), name(workspace.dtype()));
}

// The number of chunks, from the first on, that one operation can sum: each but the last is whole
// and followed by the next.
std::size_t whole_chunks(std::span<const nn::FlatRange> chunks) {
  std::size_t count = 1;
  while (count < chunks.size() && chunks[count - 1].elements == kChunkElements &&
         chunks[count - 1].end() == chunks[count].first) {
    ++count;
  }
  return count;
}

}  // namespace

std::vector<nn::FlatRange> chunks_of(nn::FlatRange range) {
  std::vector<nn::FlatRange> chunks;
  for (std::size_t done = 0; done < range.elements; done += kChunkElements) {
    chunks.push_back({range.first + done, std::min(kChunkElements, range.elements - done)});
  }
  return chunks;
}

std::vector<nn::FlatRange> gradient_chunks(const nn::FlatParameters& flat) {
  std::vector<nn::FlatRange> chunks;
  for (std::size_t block = flat.blocks();
       block-- > 0;) {  // as their ranges stand in the flat buffer
    std::ranges::copy(chunks_of(flat.range(block)), std::back_inserter(chunks));
  }
  return chunks;
}

std::vector<double> sums_of_chunks(Ops& ops, const Tensor& buffer,
                                   std::span<const nn::FlatRange> chunks, const Tensor& workspace) {
  check_workspace(chunks, workspace);
  std::vector<double> sums(chunks.size());
  for (std::size_t done = 0; done < chunks.size();) {
    const std::size_t count = std::min(workspace.elements(), chunks.size() - done);
    for (std::size_t i = 0; i < count;) {
      const std::size_t together = whole_chunks(chunks.subspan(done + i, count - i));
      const nn::FlatRange first = chunks[done + i];
      const nn::FlatRange last = chunks[done + i + together - 1];
      ops.run(ops::ChunkedSumOfSquares{
          .x = buffer.slice(static_cast<std::int64_t>(first.first),
                            static_cast<std::int64_t>(last.end() - first.first)),
          .chunk_elements = static_cast<std::int64_t>(kChunkElements),
          .results =
              workspace.slice(static_cast<std::int64_t>(i), static_cast<std::int64_t>(together))});
      i += together;
    }
    ops.synchronize();
    copy(tensor_of(std::span(sums).subspan(done, count)),
         workspace.slice(0, static_cast<std::int64_t>(count)));
    done += count;
  }
  return sums;
}

std::vector<double> sums_of_chunks(Ops& ops, const std::function<Tensor(nn::FlatRange)>& read,
                                   std::span<const nn::FlatRange> chunks, const Tensor& workspace) {
  check_workspace(chunks, workspace);
  std::vector<double> sums(chunks.size());
  for (std::size_t done = 0; done < chunks.size();) {
    const std::size_t count = std::min(workspace.elements(), chunks.size() - done);
    for (std::size_t i = 0; i < count; ++i) {
      ops.run(ops::SumOfSquares{.x = read(chunks[done + i]),
                                .result = workspace.slice(static_cast<std::int64_t>(i), 1)});
    }
    ops.synchronize();
    copy(tensor_of(std::span(sums).subspan(done, count)),
         workspace.slice(0, static_cast<std::int64_t>(count)));
    done += count;
  }
  return sums;
}

double norm_of_chunks(std::span<const double> sums) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

double chunked_gradient_norm(Ops& ops, const nn::FlatParameters& flat, const Tensor& gradients,
                             const Tensor& workspace) {
  return norm_of_chunks(sums_of_chunks(ops, gradients, gradient_chunks(flat), workspace));
}

}  // namespace lockstep::parallel
