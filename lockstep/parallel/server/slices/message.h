// The messages between workers and parameter servers, after both have proved the job's token.
//
// A message is a header of 32 bytes and a payload. Every worker has a *data* connection to each
// server and a *control* connection to server 0, so that small messages do not wait behind large
// ones; every other server has a connection to server 0.
//
//   worker -> server, data                          server -> worker, data
//     kLayout      slices, types, optimizer           kParameters  a slice, updated
//     kState       a slice of a state (worker 0)      kKept        the round changed nothing
//     kReady       what I hold fits this layout       kTaken       a push has come whole
//     kRequest     how the round's update is made     kState       a slice of a state
//     kPush        a slice of my gradients            kEarly       a slice, but for rows to come
//     kOwe         runs of it that will come again    kRows        these, updated
//     kRows        these
//     kZeros       all of my gradients are zero
//     kPull        send what is new from here on
//     kCollect     send the states of a slice
//   worker -> server 0, control                     server 0 -> worker, control
//     kCheck       the hash of my parameters          kChecked     all have the same
//     kBegin       what I bring to the step           kTotals      what all bring
//     kEnd         how my share went                  kSummary     how all went
//     kTicket      I have nothing to do               kShare       do that one; all workers' costs
//     kDone        my share is done, at this cost
//     kStop        I do no more, nor what I have
//     kAlive       this process runs, whatever it does
//     kClock       what time is it                    kTime        that, by this clock
//     kTrace       what I did when; I have ended      kTraced      it has come; to worker 0 when
//                                                                  all others' have
//                                                     kTrace       of another worker, to worker 0
//                                                     kNorm        of the round's gradients
//   server -> server 0                              server 0 -> server
//     kSums        of squares of chunks               kVerdict     the norm that follows
//   any -> any
//     kGoodbye     I leave, because of that fault or of none
//     kFailed      the run is over because of that fault
//
// A *round* counts what a worker has pushed: every round it pushes every slice once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

enum class Kind : std::uint32_t {
  kLayout = 1,
  kState,
  kReady,
  kRequest,
  kPush,
  kOwe,
  kRows,
  kZeros,
  kPull,
  kCollect,
  kParameters,
  kEarly,
  kKept,
  kTaken,
  kCheck,
  kChecked,
  kBegin,
  kTotals,
  kEnd,
  kSummary,
  kTicket,
  kShare,
  kDone,
  kStop,
  kAlive,
  kClock,
  kTime,
  kTrace,
  kTraced,
  kNorm,
  kSums,
  kVerdict,
  kGoodbye,
  kFailed,
};
std::string_view name(Kind kind);  // "push"; "unknown" for an invalid kind

struct Header {
  Kind kind = Kind::kGoodbye;
  std::uint32_t slice = 0;  // of kState, kPush, kOwe, kRows, kCollect, kParameters, kEarly, kTaken
  std::uint64_t round = 0;
  double number = 0;        // kState: which; kPush: the step; kParameters: staleness; kNorm,
                            // kVerdict: the norm
  std::uint64_t bytes = 0;  // of the payload
};
static_assert(sizeof(Header) == 32 && std::is_trivially_copyable_v<Header>);

// The states that an optimizer keeps of a slice.
enum class StateKind : std::uint8_t { kMaster, kFirstMoment, kSecondMoment, kVelocity };
inline constexpr std::size_t kStateKinds = 4;
// The kind with the number in a header; kStateKinds if it is invalid.
inline std::size_t state_kind(double number) {
  return number >= 0 && number < kStateKinds ? static_cast<std::size_t>(number) : kStateKinds;
}

// The largest payload besides slices, in bytes: a trace, with a limited number of spans
// (parallel/trace/trace.h) of about a hundred bytes.
inline constexpr std::size_t kMostSmall = std::size_t{64} << 20;

// Messages of a lower number overtake those of a higher one; equals keep their order.
using Priority = std::uint32_t;
inline constexpr Priority kUrgent = 0;

struct OutMessage {
  Header header;
  std::span<const std::byte> payload;  // stays in place until it is sent
  std::shared_ptr<const void> owner;   // keeps the payload alive, if needed
  Priority priority = kUrgent;
};

// A message that owns its small payload.
OutMessage small_message(Header header, std::string payload = {});

// Small payloads: plain values one after the other.
class Packer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> Packer& add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packer& text(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  template <class T>
  Packer& list(std::span<const T> values) {
    return text({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws Error(kProtocol) if the payload is too short or too long.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes)
      : rest_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value;
    std::memcpy(&value, cut(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return cut(take<std::uint64_t>()); }
  template <class T>
  std::vector<T> list() {
    const std::string_view bytes = text();
    if (bytes.size() % sizeof(T) != 0) fail_short();
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  void finish() const {
    if (!rest_.empty()) fail_short();
  }

 private:
  std::string_view cut(std::uint64_t count);
  [[noreturn]] static void fail_short();

  std::string_view rest_;
};

// An error as a payload; nullptr: no error.
std::string encode_fault(const Error* error);
std::unique_ptr<Error> decode_fault(std::span<const std::byte> payload);

}  // namespace lockstep::parallel
