#include "lockstep/parallel/server/slices/message.h"

namespace lockstep::parallel {
namespace {

constexpr std::string_view kKindNames[] = {
    "unknown", "layout", "state",   "ready",   "request",    "push",    "owe",
    "rows",    "zeros",  "pull",    "collect", "parameters", "early",   "kept",
    "taken",   "check",  "checked", "begin",   "totals",     "end",     "summary",
    "ticket",  "share",  "done",    "stop",    "alive",      "clock",   "time",
    "trace",   "traced", "norm",    "sums",    "verdict",    "goodbye", "failed"};
constexpr auto kNoFault = static_cast<std::uint32_t>(-1);

}  // namespace

std::string_view name(Kind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return kKindNames[index < std::size(kKindNames) ? index : 0];
}

OutMessage small_message(Header header, std::string payload) {
  const auto owner = std::make_shared<const std::string>(std::move(payload));
  header.bytes = owner->size();
  return {header, std::as_bytes(std::span(*owner)), owner, kUrgent};
}

std::string_view Unpacker::cut(std::uint64_t count) {
  if (count > rest_.size()) fail_short();
  const std::string_view part = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return part;
}

void Unpacker::fail_short() {
  fail(ErrorCode::kProtocol,
       "a message between workers and parameter servers has not the length of its contents; do all "
       "ranks run the same version?");
}

std::string encode_fault(const Error* error) {
  Packer packer;
  if (error == nullptr) return packer.add(kNoFault).take();
  return packer.add(static_cast<std::uint32_t>(error->code()))
      .list(std::span<const int>(error->ranks()))
      .text(error->what())
      .take();
}

std::unique_ptr<Error> decode_fault(std::span<const std::byte> payload) {
  Unpacker unpacker(payload);
  const auto code = unpacker.take<std::uint32_t>();
  if (code == kNoFault) return nullptr;
  if (code > static_cast<std::uint32_t>(kLastErrorCode)) {
    fail(ErrorCode::kProtocol, "a peer reported an error of unknown kind {}", code);
  }
  std::vector<int> ranks = unpacker.list<int>();
  std::string text(unpacker.text());
  unpacker.finish();
  return std::make_unique<Error>(static_cast<ErrorCode>(code), text, std::move(ranks));
}

}  // namespace lockstep::parallel
