#include "lockstep/nn/parameters/flat_file.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"

namespace lockstep::nn {
namespace {

std::size_t padded_bytes(DType dtype, std::size_t elements) {
  return io::TierFile::padded_bytes(elements * size_of(dtype));
}

std::size_t slot_bytes(const FlatFile::Layout& layout) {
  std::size_t bytes = 0;
  for (const DType dtype : layout.buffers) bytes += padded_bytes(dtype, layout.chunk_elements);
  return bytes;
}

}  // namespace

std::size_t FlatFile::Layout::staging_bytes() const { return slots() * slot_bytes(*this); }

std::size_t FlatFile::Layout::file_bytes() const {
  std::size_t bytes = 0;
  for (const std::size_t each : block_bytes()) bytes += io::TierFile::padded_bytes(each);
  return bytes;
}

std::vector<FlatChunk> FlatFile::Layout::chunks() const {
  std::vector<FlatChunk> chunks;
  for (std::size_t block = 0; block < parts.size(); ++block) {
    const FlatRange part = parts[block];
    for (std::size_t done = 0; done < part.elements; done += chunk_elements) {
      chunks.push_back(
          {.block = block,
           .range = {part.first + done, std::min(chunk_elements, part.elements - done)}});
    }
  }
  return chunks;
}

std::vector<std::size_t> FlatFile::Layout::block_bytes() const {
  std::vector<std::size_t> bytes;
  for (const FlatChunk& chunk : chunks()) {
    for (const DType dtype : buffers) bytes.push_back(chunk.range.elements * size_of(dtype));
  }
  return bytes;
}

FlatFile::FlatFile(const io::TierFileOptions& options, Layout layout)
    : layout_(std::move(layout)),
      chunks_(layout_.chunks()),
      staging_(layout_.staging_bytes()),
      file_(options, layout_.block_bytes()) {}

std::size_t FlatFile::buffer_bytes(std::size_t buffer) const {
  return padded_bytes(layout_.buffers[buffer], layout_.chunk_elements);
}

std::size_t FlatFile::block_of(std::size_t chunk, std::size_t buffer) const {
  return chunk * layout_.buffers.size() + buffer;
}

std::span<std::byte> FlatFile::memory(std::size_t slot, std::size_t buffer) const {
  std::size_t offset = slot * slot_bytes(layout_);
  for (std::size_t i = 0; i < buffer; ++i) offset += buffer_bytes(i);
  return {staging_.data() + offset, buffer_bytes(buffer)};
}

Tensor FlatFile::tensor(std::span<std::byte> memory, DType dtype, std::size_t elements) {
  return {memory.data(), dtype, {static_cast<std::int64_t>(elements)}};
}

FlatFileStream::FlatFileStream(FlatFile& file, std::vector<BufferAccess> access)
    : file_(file),
      access_(std::move(access)),
      end_(file.chunks_.size()),
      under_way_(file.layout_.slots()) {
  if (access_.size() != file.layout_.buffers.size()) {
    fail(ErrorCode::kInvalidArgument, "the file has {} buffers, but access was given for {}",
         file.layout_.buffers.size(), access_.size());
  }
}

FlatFileStream::FlatFileStream(FlatFile& file, std::vector<BufferAccess> access, std::size_t block)
    : FlatFileStream(file, std::move(access)) {
  const auto of_block = std::ranges::equal_range(file.chunks_, block, {}, &FlatChunk::block);
  first_ = at_ = reading_ = static_cast<std::size_t>(of_block.begin() - file.chunks_.begin());
  end_ = first_ + of_block.size();
}

FlatFileStream::~FlatFileStream() {
  for (std::size_t slot = 0; slot < under_way_.size(); ++slot) {
    try {
      settle(slot);
    } catch (const Error&) {
      // The first error is already propagating.
    }
  }
}

std::size_t FlatFileStream::slot_of(std::size_t chunk) const {
  return (chunk - first_) % under_way_.size();
}

// Each is let go of before it is waited for, so that all are even where some fail.
void FlatFileStream::settle(std::size_t slot) {
  std::vector<io::TierFile::Ticket>& tickets = under_way_[slot];
  std::exception_ptr failure;
  while (!tickets.empty()) {
    const io::TierFile::Ticket ticket = tickets.front();
    tickets.erase(tickets.begin());
    try {
      file_.file_.wait(ticket);
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void FlatFileStream::begin_reading(std::size_t chunk) {
  const std::size_t slot = slot_of(chunk);
  settle(slot);
  for (std::size_t buffer = 0; buffer < access_.size(); ++buffer) {
    if (!access_[buffer].reads) continue;
    under_way_[slot].push_back(
        file_.file_.read(file_.block_of(chunk, buffer), file_.memory(slot, buffer)));
  }
}

void FlatFileStream::begin_writing(std::size_t chunk) {
  const std::size_t slot = slot_of(chunk);
  for (std::size_t buffer = 0; buffer < access_.size(); ++buffer) {
    if (!access_[buffer].writes) continue;
    under_way_[slot].push_back(
        file_.file_.write(file_.block_of(chunk, buffer), file_.memory(slot, buffer)));
  }
}

const FlatChunk* FlatFileStream::next() {
  if (at_ > first_) begin_writing(at_ - 1);
  if (at_ == end_) {
    for (std::size_t slot = 0; slot < under_way_.size(); ++slot) settle(slot);
    first_ = end_;  // nothing is written twice
    return nullptr;
  }
  const std::size_t ahead = file_.layout_.overlaps ? 2 : 1;
  for (; reading_ < std::min(at_ + ahead, end_); ++reading_) begin_reading(reading_);
  settle(slot_of(at_));
  return &file_.chunks_[at_++];
}

Tensor FlatFileStream::buffer(std::size_t buffer) const {
  if (!access_.at(buffer).reads && !access_[buffer].writes) return {};
  const std::size_t chunk = at_ - 1;
  return FlatFile::tensor(file_.memory(slot_of(chunk), buffer), file_.layout_.buffers[buffer],
                          file_.chunks_[chunk].range.elements);
}

FlatFileReader::FlatFileReader(const FlatFile& file)
    : file_(file),
      memory_(file.layout_.buffers.size()),
      there_(file.layout_.buffers.size(), file.chunks_.size()) {}

void FlatFileReader::forget() { std::ranges::fill(there_, file_.chunks_.size()); }

std::size_t FlatFileReader::bytes(const FlatFile::Layout& layout, std::size_t buffer) {
  return padded_bytes(layout.buffers.at(buffer), layout.chunk_elements);
}

void FlatFileReader::read(std::size_t buffer, FlatRange range,
                          const std::function<void(const Tensor&)>& f) {
  while (range.elements > 0) {
    const auto chunk = std::ranges::find_if(file_.chunks_, [&](const FlatChunk& each) {
      return range.first >= each.range.first && range.first < each.range.end();
    });
    if (chunk == file_.chunks_.end()) {
      fail(ErrorCode::kInvalidArgument, "element {} lies in no chunk of the file", range.first);
    }
    const auto index = static_cast<std::size_t>(chunk - file_.chunks_.begin());
    if (memory_[buffer].bytes() == 0) memory_[buffer] = Buffer(bytes(file_.layout_, buffer));
    const std::span<std::byte> memory(memory_[buffer].data(), memory_[buffer].bytes());
    if (there_[buffer] != index) {
      there_[buffer] = file_.chunks_.size();
      const auto begin = SteadyClock::now();
      file_.file_.read_now(file_.block_of(index, buffer), memory);
      traffic_.read_bytes += chunk->range.elements * size_of(file_.layout_.buffers[buffer]);
      traffic_.waited_seconds += seconds_since(begin);
      there_[buffer] = index;
    }
    const std::size_t first = range.first - chunk->range.first;
    const std::size_t elements = std::min(range.elements, chunk->range.elements - first);
    f(FlatFile::tensor(memory, file_.layout_.buffers[buffer], chunk->range.elements)
          .slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(elements)));
    range = {range.first + elements, range.elements - elements};
  }
}

}  // namespace lockstep::nn
