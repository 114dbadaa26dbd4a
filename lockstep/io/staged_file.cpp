#include "lockstep/io/staged_file.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tensor/copy_on.h"

namespace lockstep::io {
namespace {

// Long enough for a disk to be at its fastest.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

std::size_t pieces_of(std::size_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

Tensor slice_of(const Tensor& bytes, std::size_t first, std::size_t count) {
  return bytes.slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
}

Tensor as_bytes(const Tensor& tensor) {
  return {tensor.data(), DType::kU8, {static_cast<std::int64_t>(tensor.bytes())}, tensor.device()};
}

}  // namespace

std::size_t StagedFile::Layout::piece_bytes() const {
  const auto longest = std::ranges::max_element(items);
  return longest == items.end() ? 0 : TierFile::padded_bytes(std::min(*longest, kPieceBytes));
}

std::size_t StagedFile::Layout::file_bytes() const {
  std::size_t bytes = 0;
  for (const std::size_t item : items) {
    bytes += item / kPieceBytes * TierFile::padded_bytes(kPieceBytes) +
             TierFile::padded_bytes(item % kPieceBytes);
  }
  return bytes;
}

std::vector<std::size_t> StagedFile::Layout::block_bytes() const {
  std::vector<std::size_t> blocks;
  for (const std::size_t item : items) {
    for (std::size_t done = 0; done < item; done += kPieceBytes) {
      blocks.push_back(std::min(kPieceBytes, item - done));
    }
  }
  return blocks;
}

StagedFile::StagedFile(const TierFileOptions& options, Layout layout, Device device)
    : layout_(std::move(layout)),
      slots_(layout_.slots(), {.block = kNone}),
      staging_(layout_.staging_bytes()),
      file_(options, layout_.block_bytes()) {
  std::size_t next = 0;
  for (const std::size_t item : layout_.items) {
    first_blocks_.push_back(next);
    next += pieces_of(item);
  }
  if (device == Device{}) return;
  stream_.emplace(device);
  if (staging_.bytes() > 0) pinned_ = PinnedRange(staging_.data(), staging_.bytes());
}

std::span<std::byte> StagedFile::memory(const Slot& slot) const {
  const auto index = static_cast<std::size_t>(&slot - slots_.data());
  return {staging_.data() + index * layout_.piece_bytes(), layout_.piece_bytes()};
}

Tensor StagedFile::staged(const Slot& slot, std::size_t first, std::size_t bytes) const {
  return {memory(slot).data() + first, DType::kU8, {static_cast<std::int64_t>(bytes)}};
}

void StagedFile::check(std::size_t item, std::size_t first, const Tensor& bytes) const {
  const std::size_t there = layout_.items.at(item);
  if (first <= there && bytes.bytes() <= there - first) return;
  fail(ErrorCode::kInvalidArgument, "item {} of a file has {} bytes, not the {} from {} on", item,
       there, bytes.bytes(), first);
}

// If that fails the slot is free afterwards, whatever it held.
void StagedFile::settle(Slot& slot) {
  const std::size_t block = std::exchange(slot.block, kNone);
  file_.wait(std::exchange(slot.ticket, 0));
  slot.block = block;
}

StagedFile::Slot* StagedFile::find(std::size_t block) {
  const auto found = std::ranges::find(slots_, block, &Slot::block);
  return found == slots_.end() ? nullptr : &*found;
}

StagedFile::Slot& StagedFile::take_oldest() {
  Slot& slot = *std::ranges::min_element(slots_, {}, &Slot::used);
  settle(slot);
  slot.block = kNone;
  slot.used = ++uses_;
  return slot;
}

void StagedFile::copy_now(const Tensor& to, const Tensor& from) { copy_on(stream_, to, from); }

void StagedFile::store(std::size_t item, const Tensor& from) {
  check(item, 0, from);
  if (from.bytes() != layout_.items[item]) {
    fail(ErrorCode::kInvalidArgument, "item {} of a file has {} bytes, but got {}", item,
         layout_.items[item], from.bytes());
  }
  std::vector<Run> runs;
  add_runs({.item = item, .first = 0, .to = from}, runs);
  for (const Run& run : runs) {
    if (Slot* const stale = find(run.block)) {
      settle(*stale);
      stale->block = kNone;
    }
    Slot& slot = take_oldest();
    copy_now(staged(slot, 0, run.bytes.bytes()), run.bytes);
    slot.ticket = file_.write(run.block, memory(slot));
    if (!layout_.overlaps) settle(slot);
  }
}

void StagedFile::add_runs(const Part& part, std::vector<Run>& runs) const {
  const Tensor bytes = as_bytes(part.to);
  for (std::size_t done = 0; done < bytes.bytes();) {
    const std::size_t at = part.first + done;
    const std::size_t count = std::min(bytes.bytes() - done, kPieceBytes - at % kPieceBytes);
    runs.push_back({.block = first_blocks_[part.item] + at / kPieceBytes,
                    .first = at % kPieceBytes,
                    .bytes = slice_of(bytes, done, count)});
    done += count;
  }
}

void StagedFile::bring(std::size_t block) {
  if (Slot* const there = find(block)) {
    there->used = ++uses_;
    return;
  }
  Slot& slot = take_oldest();
  slot.ticket = file_.read(block, memory(slot));
  slot.block = block;
}

// Those that are wanted next were used last, so none of them goes while there are as many slots.
void StagedFile::fetch(std::span<const Part> parts) {
  std::vector<Run> runs;
  for (const Part& part : parts) {
    check(part.item, part.first, part.to);
    add_runs(part, runs);
  }
  std::size_t ahead = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (; ahead < std::min(i + slots_.size(), runs.size()); ++ahead) bring(runs[ahead].block);
    Slot& slot = *find(runs[i].block);
    settle(slot);
    copy_now(runs[i].bytes, staged(slot, runs[i].first, runs[i].bytes.bytes()));
  }
}

void StagedFile::fetch(std::size_t item, std::size_t first, const Tensor& to) {
  const Part part{.item = item, .first = first, .to = to};
  fetch(std::span(&part, 1));
}

}  // namespace lockstep::io
